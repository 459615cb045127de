package task_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
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

type event struct {
	Key   string
	Value int64
	At    int64 // Milliseconds.
}

type total struct {
	Key   string
	Start int64
	Sum   int64
	Count int64
}

type acc struct{ Sum, Count int64 }

func makeEvent(n int64, e *event) {
	*e = event{Key: fmt.Sprintf("k%d", n*7919%1997), Value: n, At: n/3*1000 - n%5*400}
}

var sums = window.Functions[string, event, acc, total]{
	AddTo: func(a *acc, e *event) { a.Sum += e.Value; a.Count++ },
	ResultOf: func(p window.Pane[string], a *acc) total {
		return total{p.Key, p.Start, a.Sum, a.Count}
	},
}

// windowed is a job with a window, a process operator with state and timers, and two sinks.
func windowed(n int64, rate float64, out *collect.Sink[total], counts *collect.Sink[string]) stream.Program {
	return stream.Program{Name: "windowed", Build: func(j *stream.Job) {
		events := j.Source("events", datagen.Source[event]{Count: n, NumSplits: 5, Rate: rate, Make: makeEvent}).
			Timestamps(func(e *event) time.Time { return time.UnixMilli(e.At) }, watermark.Bounded(10*time.Second))
		kept := events.Filter("odd", func(e *event) bool { return e.Value%3 != 0 })
		kept.KeyBy(func(e *event) string { return e.Key }).
			Window("per-10-minutes", window.Tumbling(10*time.Minute)).Aggregate(sums).
			Sink("totals", out)
		kept.KeyBy(func(e *event) string { return e.Key }).
			Process("count", func(s *operator.States[string]) operator.Handler[string, event, string] {
				count := s.Value[int64]("count")
				return operator.Handler[string, event, string]{
					Record: func(c *operator.KeyedContext[string, string], e *event) {
						*count.Ref()++
						c.SetTimer(c.Time()/120000*120000 + 120000)
					},
					Timer: func(c *operator.KeyedContext[string, string]) {
						c.SetTimer(c.Time() + 1<<40) // Fires at the end of the data, once per key.
						if c.Watermark() > 1<<50 {
							n, _ := count.Get()
							c.DeleteTimer(c.Time() + 1<<40)
							if count.Clear() {
								c.Emit(fmt.Sprintf("%s=%d", c.Key(), n))
							}
						}
					},
				}
			}).
			Sink("counts", counts)
	}}
}

// naive computes what windowed should give.
func naive(n int64) (totals map[total]int, counts map[string]int) {
	type pane struct {
		key   string
		start int64
	}
	accs := map[pane]*acc{}
	per := map[string]int64{}
	for i := range n {
		var e event
		makeEvent(i, &e)
		if e.Value%3 == 0 {
			continue
		}
		start := e.At - ((e.At%600000)+600000)%600000
		p := pane{e.Key, start}
		if accs[p] == nil {
			accs[p] = &acc{}
		}
		accs[p].Sum += e.Value
		accs[p].Count++
		per[e.Key]++
	}
	totals, counts = map[total]int{}, map[string]int{}
	for p, a := range accs {
		totals[total{p.key, p.start, a.Sum, a.Count}]++
	}
	for k, c := range per {
		counts[fmt.Sprintf("%s=%d", k, c)]++
	}
	return totals, counts
}

func bag[T comparable](rows []T) map[T]int {
	m := map[T]int{}
	for _, r := range rows {
		m[r]++
	}
	return m
}

func checkBag[T comparable](t *testing.T, what string, got []T, want map[T]int) {
	t.Helper()
	have := bag(got)
	if maps.Equal(have, want) {
		return
	}
	var diff []string
	for r, n := range want {
		if have[r] != n {
			diff = append(diff, fmt.Sprintf("%v: %d instead of %d", r, have[r], n))
		}
	}
	for r, n := range have {
		if want[r] == 0 {
			diff = append(diff, fmt.Sprintf("%v: %d instead of 0", r, n))
		}
	}
	slices.Sort(diff)
	t.Fatalf("%s: %d rows differ, among them\n%s", what, len(diff), strings.Join(diff[:min(len(diff), 10)], "\n"))
}

func settings(mode job.Mode, backend string) job.Settings {
	s := job.DefaultSettings()
	s.CheckpointMode, s.StateBackend = mode, backend
	return s
}

func TestStraight(t *testing.T) {
	const n = 20000
	totals, counts := naive(n)
	for _, par := range []int{1, 2, 4} {
		for _, workers := range []int{1, 2} {
			t.Run(fmt.Sprintf("parallelism=%d/workers=%d", par, workers), func(t *testing.T) {
				out, cnt := collect.New[total](), collect.New[string]()
				c := newCluster(t, workers, windowed(n, 0, out, cnt), settings(job.ExactlyOnce, "fs"))
				c.deploy(par)
				c.finish()
				checkBag(t, "totals", out.Rows(), totals)
				checkBag(t, "counts", cnt.Rows(), counts)
			})
		}
	}
}

// The same job and input give the same output, however often it crashes, wherever it is restored,
// with whatever parallelism.
func TestCrashes(t *testing.T) {
	const n = 20000
	totals, counts := naive(n)
	for seed := range uint64(6) {
		for _, backend := range []string{"fs", "memory"} {
			t.Run(fmt.Sprintf("seed=%d/%s", seed, backend), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				out, cnt := collect.New[total](), collect.New[string]()
				c := newCluster(t, 1+int(seed%2), windowed(n, 40000, out, cnt), settings(job.ExactlyOnce, backend))
				c.deploy(1 + rng.IntN(4))
				for range 6 {
					for range rng.IntN(3) {
						c.checkpoint(rng.IntN(3) > 0)
					}
					time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond) // Let some records flow.
					c.crash()
					c.deploy(1 + rng.IntN(4))
				}
				c.finish()
				checkBag(t, "totals", out.Rows(), totals)
				checkBag(t, "counts", cnt.Rows(), counts)
			})
		}
	}
}

// Side outputs have watermarks of their own and cross edges like any stream.
func TestSideOutput(t *testing.T) {
	const n = 3000
	for _, par := range []int{1, 3} {
		even, odd := collect.New[int64](), collect.New[string]()
		p := stream.Program{Name: "sides", Build: func(j *stream.Job) {
			main := j.Source("events", datagen.Source[event]{Count: n, NumSplits: 3, Make: makeEvent}).
				Timestamps(func(e *event) time.Time { return time.UnixMilli(e.At) }, watermark.Bounded(10*time.Second)).
				KeyBy(func(e *event) string { return e.Key }).
				Process("split", func(s *operator.States[string]) operator.Handler[string, event, int64] {
					odd := s.Side[event]("odd")
					return operator.Handler[string, event, int64]{Record: func(c *operator.KeyedContext[string, int64], e *event) {
						if e.Value%2 == 0 {
							c.Emit(e.Value)
						} else {
							odd.Emit(*e)
						}
					}}
				})
			main.Sink("even", even)
			main.Side[event]("odd").
				KeyBy(func(e *event) string { return e.Key }).
				Window("windows", window.Tumbling(10*time.Minute)).Aggregate(sums).
				Map("", func(s *total) string { return fmt.Sprint(*s) }).
				Sink("odd", odd)
		}}
		c := newCluster(t, 1, p, settings(job.ExactlyOnce, "fs"))
		c.deploy(par)
		c.finish()
		wantEven, accs := map[int64]int{}, map[[2]string]*total{}
		for i := range int64(n) {
			var e event
			makeEvent(i, &e)
			if e.Value%2 == 0 {
				wantEven[e.Value]++
				continue
			}
			start := e.At - ((e.At%600000)+600000)%600000
			k := [2]string{e.Key, fmt.Sprint(start)}
			if accs[k] == nil {
				accs[k] = &total{Key: e.Key, Start: start}
			}
			accs[k].Sum += e.Value
			accs[k].Count++
		}
		wantOdd := map[string]int{}
		for _, a := range accs {
			wantOdd[fmt.Sprint(*a)]++
		}
		checkBag(t, "even", even.Rows(), wantEven)
		checkBag(t, "odd", odd.Rows(), wantOdd)
	}
}
