package streamtest_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
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

// sorted are the numbers of a window's readings.
func sorted(p window.Pane[string], list []reading, out *operator.Collector[string]) {
	var ns []int64
	for _, r := range list {
		ns = append(ns, r.N)
	}
	slices.Sort(ns)
	out.Emit(fmt.Sprint(p.Key, p.Start, p.End, ns))
}

func windowJoin(k join.Kind) func(stream.Stream[reading]) stream.Stream[string] {
	return func(s stream.Stream[reading]) stream.Stream[string] {
		even, odd := halves(s)
		return even.Join(odd).Window(window.Tumbling(20*time.Second)).Kind(k).Apply("join", pair)
	}
}

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

const flakyRetries = 3

// flaky is a service that fails as often as the reading decides: up to as many times as it is asked again, or, with one in
// seven, always, whose number the fallback then makes negative. With a timeout it does not answer, in place of failing.
func flaky(o operator.AsyncOptions) func(stream.Stream[reading]) stream.Stream[string] {
	o.Capacity, o.Retries, o.Backoff, o.MaxBackoff = 20, flakyRetries, 10*time.Millisecond, 15*time.Millisecond
	return func(s stream.Stream[reading]) stream.Stream[string] {
		var asked struct {
			sync.Mutex
			times map[int64]int64 // By number.
		}
		asked.times = map[int64]int64{}
		return s.AsyncWith("flaky", o, operator.AsyncCalls[reading, reading]{
			Call: func(ctx context.Context, r reading) ([]reading, error) {
				asked.Lock()
				asked.times[r.N]++
				times := asked.times[r.N]
				asked.Unlock()
				switch {
				case r.N%7 != 0 && times > r.N%(flakyRetries+1):
					return []reading{r}, nil
				case o.Timeout > 0:
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return nil, errors.New("busy")
			},
			Fallback: func(_ context.Context, r reading, err error) ([]reading, error) {
				if late := errors.Is(err, context.DeadlineExceeded); late != (o.Timeout > 0) || r.N%7 != 0 {
					return nil, fmt.Errorf("the fallback is asked for %v: %w", r, err)
				}
				r.N = -r.N
				return []reading{r}, nil
			},
		}).KeyBy(sensor).Window("windows", window.Tumbling(time.Minute)).Aggregate(tally)
	}
}

// tallied is the answer for readings that went through flaky.
func tallied(list []streamtest.Event[reading]) (rows []string) {
	type pane struct {
		sensor string
		start  int64
	}
	const minute = 60_000
	sums := map[pane][2]int64{}
	for _, e := range list {
		p := pane{e.Row.Sensor, (e.Time+minute)/minute*minute - minute} // None is more than a minute before 1970.
		n := e.Row.N
		if n%7 == 0 {
			n = -n
		}
		sums[p] = [2]int64{sums[p][0] + 1, sums[p][1] + n}
	}
	for p, s := range sums {
		rows = append(rows, fmt.Sprintf("%s %d-%d: %d, %d", p.sensor, p.start, p.start+minute, s[0], s[1]))
	}
	return rows
}

// Every operator gives the same answer, however its input is cut and interleaved, and wherever the
// job is stopped and goes on.
func TestEngine(t *testing.T) {
	for _, x := range []struct {
		name    string
		program func(stream.Stream[reading]) stream.Stream[string]
		order   func(*reading) string                      // nil when the answer follows from event time alone.
		n       int64                                      // Of readings, 0 for 1500; 6000 is enough for batches of 4096.
		want    func([]streamtest.Event[reading]) []string // nil for what a plain run gives.
	}{
		{name: "stateless", program: func(s stream.Stream[reading]) stream.Stream[string] {
			even := s.Filter("even", func(r *reading) bool { return r.N%2 == 0 })
			twice := s.Rebalance().FlatMap("twice", func(r *reading, out *operator.Collector[reading]) { out.Emit(*r); out.Emit(*r) })
			return even.Union("both", twice).Map("text", func(r *reading) string { return fmt.Sprint(*r) })
		}},
		{name: "tumbling", n: 6000, program: tumbling},
		{name: "sliding", n: 6000, program: sliding},
		{name: "session", n: 6000, program: sessions},
		{name: "reduce", program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.KeyBy(sensor).Window("windows", window.Tumbling(time.Minute)).
				Reduce(func(acc, in *reading) { acc.N += in.N; acc.At = max(acc.At, in.At) }).
				Map("", func(r *reading) string { return fmt.Sprint(*r) })
		}},
		{name: "apply", program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.KeyBy(sensor).Window("windows", window.Tumbling(time.Minute)).Apply(sorted)
		}},
		{name: "process", n: 6000, order: sensor, program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.KeyBy(sensor).Process("running", func(s *operator.States[string]) operator.Handler[string, reading, string] {
				n := s.Value[int64]("n")
				return operator.Handler[string, reading, string]{Record: func(c *operator.KeyedContext[string, string], r *reading) {
					*n.Ref() += r.N
					c.Emit(fmt.Sprint(c.Key(), *n.Ref()))
				}}
			})
		}},
		{name: "timers", n: 6000, program: func(s stream.Stream[reading]) stream.Stream[string] {
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
		{name: "state of every kind", order: sensor, program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.KeyBy(sensor).Process("states", func(s *operator.States[string]) operator.Handler[string, reading, string] {
				list, lists, m := s.List[string]("list"), s.Lists[int64]("lists"), s.Map[int64, int64]("map")
				most := s.Reducing[int64]("most", func(into, v *int64) { *into = max(*into, *v) })
				mean := s.Aggregating("mean", operator.Aggregation[int64, [2]int64, int64]{
					Zero:   func() [2]int64 { return [2]int64{} },
					Add:    func(a *[2]int64, v *int64) { a[0] += *v; a[1]++ },
					Result: func(a *[2]int64) int64 { return a[0] / a[1] },
				})
				return operator.Handler[string, reading, string]{
					Record: func(c *operator.KeyedContext[string, string], r *reading) {
						v := text(r)
						if list.Append(&v); list.Len() > 6 {
							list.RemoveFirst(5)
						}
						lists.Append(r.N%3, &r.N)
						sub, _ := m.Ref(r.N % 5)
						*sub += r.N
						most.Add(&r.N)
						mean.Add(&r.N)
						sum := int64(0)
						for _, v := range lists.All(r.N % 3) {
							sum += *v
						}
						for k, v := range m.All() {
							sum += k * *v
						}
						top, _ := most.Get()
						avg, _ := mean.Get()
						c.Emit(fmt.Sprint(c.Key(), *list.At(0), list.Len(), sum, top, avg))
					},
				}
			})
		}},
		{name: "timers by the clock", program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.KeyBy(sensor).Process("timers", func(s *operator.States[string]) operator.Handler[string, reading, string] {
				n := s.Value[int64]("n")
				return operator.Handler[string, reading, string]{
					Record: func(c *operator.KeyedContext[string, string], r *reading) {
						*n.Ref() += r.N
						c.SetClockTimer(streamtest.Begin.Add(time.Hour + time.Duration(r.N%5)*time.Minute)) // At the end of the data.
					},
					Clock: func(c *operator.KeyedContext[string, string]) { c.Emit(fmt.Sprint(c.Key(), c.Time(), *n.Ref())) },
				}
			})
		}},
		{name: "broadcast", program: func(s stream.Stream[reading]) stream.Stream[string] {
			even, odd := s.Filter("even", func(r *reading) bool { return r.N%2 == 0 }), s.Filter("odd", func(r *reading) bool { return r.N%50 == 1 })
			return even.KeyBy(sensor).ConnectBroadcast(odd).Process("rules", func(s *operator.States[string]) operator.BroadcastHandler[string, reading, reading, string] {
				rules, n := s.Broadcast[int64, int64]("rules"), s.Value[int64]("n")
				return operator.BroadcastHandler[string, reading, reading, string]{
					Record: func(c *operator.KeyedContext[string, string], _ *reading) {
						*n.Ref()++
						c.SetTimer(1 << 40) // At the end of the data, when all rules are there.
					},
					Broadcast: func(_ *operator.BroadcastContext[string], r *reading) { rules.Put(r.N, r.At) },
					Timer: func(c *operator.KeyedContext[string, string]) {
						sum := int64(0)
						for k, v := range rules.All() {
							sum += k * v
						}
						c.Emit(fmt.Sprint(c.Key(), *n.Ref(), rules.Len(), sum))
					},
				}
			})
		}},
		{name: "list of an operator", program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.Rebalance().Process("hold", func(s *operator.OperatorStates) operator.PlainHandler[reading, string] {
				held := s.List[string]("held")
				return operator.PlainHandler[reading, string]{
					Record: func(_ *operator.PlainContext[string], r *reading) { held.Append(text(r)) },
					End: func(c *operator.PlainContext[string]) {
						for _, v := range held.Values() {
							c.Emit(v)
						}
					},
				}
			})
		}},
		{name: "all keys in one window", program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.WindowAll("all", window.Tumbling(time.Minute)).Aggregate(window.Functions[window.All, reading, int64, string]{
				AddTo:    func(a *int64, r *reading) { *a += r.N },
				ResultOf: func(p window.Pane[window.All], a *int64) string { return fmt.Sprint(p.Start, *a) },
			})
		}},
		{name: "apply to sliding windows", program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.KeyBy(sensor).SlidingWindow("windows", window.Sliding(2*time.Minute, 50*time.Second)).Apply(sorted)
		}},
		{name: "apply to sessions", program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.KeyBy(sensor).SessionWindow("windows", window.Session(5*time.Second)).Apply(sorted)
		}},
		{name: "global windows by count", order: sensor, program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.KeyBy(sensor).GlobalWindow("windows", window.Global()).Trigger(window.EveryCount(7).Purging()).Aggregate(tally)
		}},
		{name: "early by count", order: sensor, program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.KeyBy(sensor).Window("windows", window.Tumbling(time.Minute)).Trigger(window.AtEnd().EarlyCount(3)).Aggregate(tally)
		}},
		{name: "sliding, early by count, purging", order: sensor, program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.KeyBy(sensor).SlidingWindow("windows", window.Sliding(time.Minute, 25*time.Second)).
				Trigger(window.AtEnd().EarlyCount(4).Purging()).Aggregate(tally)
		}},
		{name: "inner window join", n: 1000, program: windowJoin(join.Inner)},
		{name: "left window join", n: 1000, program: windowJoin(join.Left)},
		{name: "right window join", n: 1000, program: windowJoin(join.Right)},
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
		{name: "outer window join", n: 1000, program: windowJoin(join.Outer)},
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
		{name: "best of each window", n: 6000, program: func(s stream.Stream[reading]) stream.Stream[string] {
			return s.KeyBy(sensor).TopNWindow("best", window.Tumbling(time.Minute), 3, better, ranked)
		}},
		{name: "async ordered", program: slow(operator.AsyncOptions{Ordered: true, Capacity: 20})},
		{name: "async unordered", n: 6000, program: slow(operator.AsyncOptions{Capacity: 20})},
		{name: "async ordered with retries", n: 6000, program: flaky(operator.AsyncOptions{Ordered: true}), want: tallied},
		{name: "async unordered with retries", n: 6000, program: flaky(operator.AsyncOptions{}), want: tallied},
		{name: "async ordered with timeouts", n: 6000, program: flaky(operator.AsyncOptions{Ordered: true, Timeout: 30 * time.Millisecond}), want: tallied},
		{name: "async unordered with timeouts", n: 6000, program: flaky(operator.AsyncOptions{Timeout: 30 * time.Millisecond}), want: tallied},
	} {
		t.Run(x.name, func(t *testing.T) {
			e := streamtest.Equivalence[reading, string]{Program: x.program, Input: readings(cmp.Or(x.n, 1500)), Order: x.order, Runs: *runs, Seed: *seed}
			if x.want != nil {
				e.Want = x.want(e.Input)
			}
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
