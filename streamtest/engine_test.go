package streamtest_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/join"
	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/streamtest"
)

var (
	runs = flag.Int("runs", 2, "runs of each operator of the engine")
	seed = flag.Uint64("seed", 0, "seed of the first of them")
)

// reading is what the operators of the engine are given.
type reading struct {
	Sensor string
	N      int64
	At     int64 // Milliseconds.
}

const sensors = 23

// readings are of a quarter of an hour, from before 1970 on, out of order and no two at one time.
func readings(n int64) (list []streamtest.Event[reading]) {
	for i := range n {
		at := (i*7919%n)*900_000/n - 60_000
		list = append(list, streamtest.Event[reading]{Row: reading{fmt.Sprintf("s%d", i*i%sensors), i, at}, Time: at})
	}
	return list
}

func sensor(r *reading) string { return r.Sensor }

var tally = window.Functions[string, reading, [2]int64, string]{
	AddTo:   func(a *[2]int64, r *reading) { a[0]++; a[1] += r.N },
	MergeOf: func(into, from *[2]int64) { into[0] += from[0]; into[1] += from[1] },
	ResultOf: func(p window.Pane[string], a *[2]int64) string {
		return fmt.Sprintf("%s %d-%d: %d, %d", p.Key, p.Start, p.End, a[0], a[1])
	},
}

func tumbling(s stream.Stream[reading]) stream.Stream[string] {
	return s.KeyBy(sensor).Window("windows", window.Tumbling(time.Minute)).Aggregate(tally)
}

func sliding(s stream.Stream[reading]) stream.Stream[string] {
	return s.KeyBy(sensor).SlidingWindow("windows", window.Sliding(2*time.Minute, 30*time.Second)).Aggregate(tally)
}

func sessions(s stream.Stream[reading]) stream.Stream[string] {
	return s.KeyBy(sensor).SessionWindow("windows", window.Session(5*time.Second)).Aggregate(tally)
}

// halves are the even and the odd readings, by sensor.
func halves(s stream.Stream[reading]) (even, odd stream.Keyed[string, reading]) {
	half := func(rest int64) stream.Keyed[string, reading] {
		return s.Filter("", func(r *reading) bool { return r.N%2 == rest }).KeyBy(sensor)
	}
	return half(0), half(1)
}

func text(r *reading) string { return fmt.Sprint(*r) }

func pair(a, b *reading) string {
	one := func(r *reading) string {
		if r == nil {
			return "nobody"
		}
		return text(r)
	}
	return one(a) + " with " + one(b)
}

func better(a, b *reading) bool { return a.N%100 > b.N%100 || a.N%100 == b.N%100 && a.N > b.N }

func ranked(rank int, r *reading) string { return fmt.Sprint(rank, *r) }

// slow is a service whose answers take their time.
func slow(o operator.AsyncOptions) func(stream.Stream[reading]) stream.Stream[string] {
	return func(s stream.Stream[reading]) stream.Stream[string] {
		return s.Async("slow", o, func(ctx context.Context, r reading) (reading, error) {
			if r.N%5 == 0 {
				select {
				case <-time.After(time.Duration(r.N%37) * time.Millisecond):
				case <-ctx.Done():
					return reading{}, ctx.Err()
				}
			}
			return r, nil
		}).KeyBy(sensor).Window("windows", window.Tumbling(time.Minute)).Aggregate(tally)
	}
}

// Every operator gives the same answer, however its input is cut and interleaved, and wherever the
// job is stopped and goes on.
func TestEngine(t *testing.T) {
	for _, x := range []struct {
		name    string
		program func(stream.Stream[reading]) stream.Stream[string]
		order   func(*reading) string // nil when the answer follows from event time alone.
		n       int64                 // Of readings, 0 for 5000, enough for batches of 4096.
	}{
		{name: "stateless", program: func(s stream.Stream[reading]) stream.Stream[string] {
			even := s.Filter("even", func(r *reading) bool { return r.N%2 == 0 })
			twice := s.Rebalance().FlatMap("twice", func(r *reading, out *operator.Collector[reading]) { out.Emit(*r); out.Emit(*r) })
			return even.Union("both", twice).Map("text", func(r *reading) string { return fmt.Sprint(*r) })
		}},
		{name: "tumbling", program: tumbling},
		{name: "sliding", program: sliding},
		{name: "session", program: sessions},
		{name: "reduce", program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.KeyBy(sensor).Window("windows", window.Tumbling(time.Minute)).
				Reduce(func(acc, in *reading) { acc.N += in.N; acc.At = max(acc.At, in.At) }).
				Map("", func(r *reading) string { return fmt.Sprint(*r) })
		}},
		{name: "apply", program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.KeyBy(sensor).Window("windows", window.Tumbling(time.Minute)).
				Apply(func(p window.Pane[string], list []reading, out *operator.Collector[string]) {
					var ns []int64
					for _, r := range list {
						ns = append(ns, r.N)
					}
					slices.Sort(ns)
					out.Emit(fmt.Sprint(p.Key, p.Start, ns))
				})
		}},
		{name: "process", order: sensor, program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.KeyBy(sensor).Process("running", func(s *operator.States[string]) operator.Handler[string, reading, string] {
				n := s.Value[int64]("n")
				return operator.Handler[string, reading, string]{Record: func(c *operator.KeyedContext[string, string], r *reading) {
					*n.Ref() += r.N
					c.Emit(fmt.Sprint(c.Key(), *n.Ref()))
				}}
			})
		}},
		{name: "timers", program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.KeyBy(sensor).Process("timers", func(s *operator.States[string]) operator.Handler[string, reading, string] {
				return operator.Handler[string, reading, string]{
					Record: func(c *operator.KeyedContext[string, string], r *reading) { c.SetTimer(r.At/7000*7000 + 30_000) },
					Timer:  func(c *operator.KeyedContext[string, string]) { c.Emit(fmt.Sprint(c.Key(), c.Time())) },
				}
			})
		}},
		{name: "side outputs", program: func(s stream.Stream[reading]) stream.Stream[string] {
			main := s.KeyBy(sensor).Process("split", func(s *operator.States[string]) operator.Handler[string, reading, string] {
				odd := s.Side[reading]("odd")
				return operator.Handler[string, reading, string]{Record: func(c *operator.KeyedContext[string, string], r *reading) {
					if r.N%2 == 1 {
						odd.Emit(*r)
						return
					}
					c.Emit(fmt.Sprint(*r))
				}}
			})
			return main.Union("both", main.Side[reading]("odd").KeyBy(sensor).Window("odds", window.Tumbling(time.Minute)).Aggregate(tally))
		}},
		{name: "two inputs", program: func(s stream.Stream[reading]) stream.Stream[string] {
			even, odd := halves(s)
			return even.Connect(odd).Process("balance", func(s *operator.States[string]) operator.CoHandler[string, reading, reading, string] {
				sum := s.Value[int64]("sum")
				add := func(c *operator.KeyedContext[string, string], n int64) {
					*sum.Ref() += n
					c.SetTimer(1 << 40) // At the end of the data.
				}
				return operator.CoHandler[string, reading, reading, string]{
					Left:  func(c *operator.KeyedContext[string, string], r *reading) { add(c, r.N) },
					Right: func(c *operator.KeyedContext[string, string], r *reading) { add(c, -r.N) },
					Timer: func(c *operator.KeyedContext[string, string]) { c.Emit(fmt.Sprint(c.Key(), *sum.Ref())) },
				}
			})
		}},
		{name: "window join", n: 1000, program: func(s stream.Stream[reading]) stream.Stream[string] {
			even, odd := halves(s)
			return even.Join(odd).Window(window.Tumbling(20*time.Second)).Kind(join.Outer).Apply("join", pair)
		}},
		{name: "interval join", n: 1000, program: func(s stream.Stream[reading]) stream.Stream[string] {
			even, odd := halves(s)
			return even.IntervalJoin(odd).Between(-5*time.Second, 30*time.Second).Apply("join", pair)
		}},
		{name: "temporal join", n: 700, program: func(s stream.Stream[reading]) stream.Stream[string] {
			even, odd := halves(s)
			return even.TemporalJoin(odd).Left().Apply("join", pair)
		}},
		{name: "unbounded join", n: 400, program: func(s stream.Stream[reading]) stream.Stream[string] {
			even, odd := halves(s)
			return even.Join(odd).Unbounded().Apply("join", pair)
		}},
		{name: "first of each", order: sensor, program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.KeyBy(sensor).Dedup("first", 0).Map("", text)
		}},
		{name: "updates of the last of each", order: sensor, program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.KeyBy(sensor).DedupLast("last", 0, func(a, b *reading) bool { return a.At > b.At }).Map("", text)
		}},
		{name: "updates of the best", order: sensor, program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.KeyBy(sensor).TopN("best", 3, better, ranked)
		}},
		{name: "best of each window", program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.KeyBy(sensor).TopNWindow("best", window.Tumbling(time.Minute), 3, better, ranked)
		}},
		{name: "async ordered", program: slow(operator.AsyncOptions{Ordered: true, Capacity: 20})},
		{name: "async unordered", program: slow(operator.AsyncOptions{Capacity: 20})},
	} {
		t.Run(x.name, func(t *testing.T) {
			e := streamtest.Equivalence[reading, string]{Program: x.program, Input: readings(cmp.Or(x.n, 5000)), Order: x.order, Runs: *runs, Seed: *seed}
			streamtest.Equivalent(t, e)
		})
	}
}

// An answer is compared row by row, and how often each comes.
func TestEquivalentWant(t *testing.T) {
	var want []string
	for _, e := range readings(300) {
		want = append(want, text(&e.Row), text(&e.Row))
	}
	streamtest.Equivalent(t, streamtest.Equivalence[reading, string]{
		Program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.FlatMap("", func(r *reading, out *operator.Collector[string]) { out.Emit(text(r)); out.Emit(text(r)) })
		},
		Input: readings(300), Want: want, Runs: 3, Seed: 100,
	})
}
