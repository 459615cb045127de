package coordinator

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cairnstream/cairn/job"
)

// hotKeysShown is how many keys of an operator are told of.
const hotKeysShown = 10

// hotKeys puts together what the tasks have, by operator in the order of the graph.
func (v view) hotKeys() (out []job.HotKeys) {
	by := map[string][]job.HotKeys{}
	for _, task := range v.hot {
		for _, h := range task {
			by[h.Operator] = append(by[h.Operator], h)
		}
	}
	for _, op := range v.detail.Spec.Graph.Operators {
		if h := job.MergeHotKeys(op.Name, by[op.Name], hotKeysShown); len(h.Keys) > 0 {
			out = append(out, h)
		}
	}
	return out
}

var hotShare = prometheus.NewDesc("cairn_state_hot_key_share",
	"Part of an operator's records of late that its key of that rank has, from 0 to 1; job show tells which key it is.",
	[]string{"job", "operator", "rank"}, nil)

// hotKeys computes cairn_state_hot_key_share when it is asked for. Keys are no labels: there may be any number of them in
// time.
type hotKeys struct{ c *Coordinator }

func (hotKeys) Describe(ch chan<- *prometheus.Desc) { ch <- hotShare }

func (h hotKeys) Collect(ch chan<- prometheus.Metric) {
	h.c.mu.Lock()
	views := make([]view, 0, len(h.c.mu.jobs))
	for _, e := range h.c.mu.jobs {
		if v, _ := e.look(); v.detail.Job.State == JobRunning { // Of the jobs of one name at most one runs.
			views = append(views, v)
		}
	}
	h.c.mu.Unlock()
	for _, v := range views {
		for _, op := range v.hotKeys() {
			for i, k := range op.Keys {
				ch <- prometheus.MustNewConstMetric(hotShare, prometheus.GaugeValue, op.Share(k), v.detail.Job.Name, op.Operator, strconv.Itoa(i+1))
			}
		}
	}
}
