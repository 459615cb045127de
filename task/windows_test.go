package task_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/watermark"
)

// allWindows is a job with every way to make a result of a window.
func allWindows(n int64, rate float64, out *collect.Sink[string]) stream.Program {
	return stream.Program{Name: "windows", Build: func(j *stream.Job) {
		events := j.Source("events", datagen.Source[event]{Count: n, NumSplits: 3, Rate: rate, Make: makeEvent}).
			Timestamps(func(e *event) time.Time { return time.UnixMilli(e.At) }, watermark.Bounded(10*time.Second))
		keyed := events.KeyBy(func(e *event) string { return fmt.Sprint(e.Value % 7) })
		merging := sums
		merging.MergeOf = func(a, b *acc) { a.Sum += b.Sum; a.Count += b.Count }
		most := keyed.SessionWindow("reduce", window.Session(4*time.Second)).
			Reduce(func(a, b *event) {
				if b.Value > a.Value {
					*a = *b
				}
			}).
			Map("", func(e *event) string { return fmt.Sprintf("reduce %d", e.Value) })
		list := keyed.SlidingWindow("apply", window.Sliding(time.Minute, 25*time.Second)).
			Apply(func(p window.Pane[string], records []event, out *operator.Collector[string]) {
				var sum int64
				for i := range records {
					sum += records[i].Value
				}
				out.Emit(fmt.Sprintf("apply %s %d %d %d", p.Key, p.Start, len(records), sum))
			})
		then := keyed.Window("then", window.Tumbling(time.Minute)).
			AggregateThen(merging, func(p window.Pane[string], t *total, out *operator.Collector[string]) {
				out.Emit(fmt.Sprintf("then %s %d %d %v", p.Key, p.Start, t.Sum, p.Firing))
			})
		all := events.WindowAll("all", window.Tumbling(time.Minute)).
			Aggregate(window.Functions[window.All, event, int64, string]{
				AddTo:    func(n *int64, _ *event) { *n++ },
				ResultOf: func(p window.Pane[window.All], n *int64) string { return fmt.Sprintf("all %d %d", p.Start, *n) },
			})
		// By count alone: which records are in a firing depends on their order, how many does not.
		fives := keyed.GlobalWindow("fives", window.Global()).Trigger(window.EveryCount(5).Purging()).
			Apply(func(p window.Pane[string], records []event, out *operator.Collector[string]) {
				out.Emit(fmt.Sprintf("fives %s %d", p.Key, len(records)))
			})
		most.Union("", list, then, all, fives).Sink("out", out)
	}}
}

func naiveAllWindows(n int64) map[string]int {
	want := map[string]int{}
	keys := map[int64][]event{}
	type pane struct {
		key   string
		start int64
	}
	floor := func(t, step int64) int64 { return t - ((t%step)+step)%step }
	applied, then, all := map[pane][2]int64{}, map[pane]int64{}, map[int64]int{}
	for i := range n {
		var e event
		makeEvent(i, &e)
		key := fmt.Sprint(e.Value % 7)
		keys[e.Value%7] = append(keys[e.Value%7], e)
		for start := floor(e.At, 25000); start > e.At-60000; start -= 25000 {
			p := pane{key, start}
			applied[p] = [2]int64{applied[p][0] + 1, applied[p][1] + e.Value}
		}
		then[pane{key, floor(e.At, 60000)}] += e.Value
		all[floor(e.At, 60000)]++
	}
	for p, v := range applied {
		want[fmt.Sprintf("apply %s %d %d %d", p.key, p.start, v[0], v[1])]++
	}
	for p, sum := range then {
		want[fmt.Sprintf("then %s %d %d on time", p.key, p.start, sum)]++
	}
	for start, n := range all {
		want[fmt.Sprintf("all %d %d", start, n)]++
	}
	for key, list := range keys {
		for i := 0; i < len(list); i += 5 {
			want[fmt.Sprintf("fives %d %d", key, min(5, len(list)-i))]++
		}
		slices.SortFunc(list, func(a, b event) int { return int(a.At - b.At) })
		var most int64
		for i, e := range list {
			if i > 0 && e.At-list[i-1].At >= 4000 {
				want[fmt.Sprintf("reduce %d", most)]++
				most = 0
			}
			most = max(most, e.Value)
		}
		want[fmt.Sprintf("reduce %d", most)]++
	}
	return want
}

// Every way to make a result of a window gives the same straight and with crashes, restored with
// whatever parallelism.
func TestWindows(t *testing.T) {
	const n = 6000
	want := naiveAllWindows(n)
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			out := collect.New[string]()
			rate := 0.0
			if seed > 0 {
				rate = 20000
			}
			c := newCluster(t, 1+int(seed%2), allWindows(n, rate, out), settings(job.ExactlyOnce, []string{"fs", "memory"}[seed/2]))
			c.deploy(1 + rng.IntN(4))
			for range int(seed) * 2 {
				for range rng.IntN(3) {
					c.checkpoint(rng.IntN(3) > 0)
				}
				time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond) // Let some records flow.
				c.crash()
				c.deploy(1 + rng.IntN(4))
			}
			c.finish()
			checkBag(t, "windows", out.Rows(), want)
		})
	}
}

// Windows are emitted by processing time while nothing comes, and late records go to the side.
func TestWindowsByClock(t *testing.T) {
	out, late := collect.New[string](), collect.New[int64]()
	p := stream.Program{Name: "clock", Build: func(j *stream.Job) {
		counted := window.Functions[int64, event, int64, string]{
			AddTo:    func(n *int64, _ *event) { *n++ },
			ResultOf: func(p window.Pane[int64], n *int64) string { return fmt.Sprintf("%v %d", p.Firing, *n) },
		}
		// The last record is far behind all others, and there is a while before it.
		w := j.Source("events", datagen.Source[event]{Count: 101, NumSplits: 1, Rate: 200, Make: func(n int64, e *event) {
			*e = event{Value: n, At: 1000 + n}
			if n == 100 {
				e.At = -100_000
			}
		}}).
			Timestamps(func(e *event) time.Time { return time.UnixMilli(e.At) }, watermark.Bounded(0)).
			KeyBy(func(*event) int64 { return 1 }).
			Window("early", window.Tumbling(time.Minute)).
			Trigger(window.AtEnd().EarlyEvery(20 * time.Millisecond)).LateTo("late").
			Aggregate(counted)
		w.Sink("out", out)
		w.Side[event]("late").Map("", func(e *event) int64 { return e.Value }).Sink("late", late)
	}}
	c := newCluster(t, 1, p, settings(job.ExactlyOnce, "fs"))
	c.deploy(2)
	c.finish()
	rows := out.Rows()
	if n := len(rows); n < 3 || rows[n-1] != "on time 100" || rows[0][:5] != "early" {
		t.Errorf("%q", rows)
	}
	if got := late.Rows(); !slices.Equal(got, []int64{100}) {
		t.Errorf("late: %v", got)
	}
}
