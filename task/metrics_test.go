package task

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cairnstream/cairn/operator"
)

// lateOnly is the lateness of one operator as a scrape sees it.
type lateOnly struct {
	*collector
	counters *operator.Counters
}

func (l lateOnly) Collect(ch chan<- prometheus.Metric) { l.lateness(ch, l.counters, "job", "op", "0") }

// How late records were is told by operator, once there is one.
func TestLatenessMetrics(t *testing.T) {
	k := &operator.Counters{}
	reg := prometheus.NewRegistry()
	reg.MustRegister(lateOnly{(&Manager{}).Collector().(*collector), k})
	if list, err := reg.Gather(); err != nil || len(list) > 0 {
		t.Fatalf("%v, %v without a late record", list, err)
	}
	k.LateBy[0].Add(2)
	k.LateBy[2].Add(1)
	k.LateBy[len(operator.LateBounds)].Add(1)
	k.LateSum.Store(100_030_500)
	k.LateMost.Store(100_000_000)
	list, err := reg.Gather()
	if err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	most, h := list[0].GetMetric()[0].GetGauge().GetValue(), list[1].GetMetric()[0].GetHistogram()
	if most != 100_000 || h.GetSampleCount() != 4 || h.GetSampleSum() != 100_030.5 {
		t.Errorf("most %v, %v", most, h)
	}
	for i, want := range []uint64{2, 2, 3, 3, 3, 3} {
		if b := h.GetBucket()[i]; b.GetCumulativeCount() != want || b.GetUpperBound() != operator.LateBounds[i].Seconds() {
			t.Errorf("bucket %d: %v, want %d", i, b, want)
		}
	}
}
