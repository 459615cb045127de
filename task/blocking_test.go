package task_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/watermark"
)

// faucet is a source that gives records as fast as they are taken until it is turned off.
type faucet struct {
	off   atomic.Bool
	given atomic.Int64
}

func (f *faucet) Splits(context.Context, operator.SourceContext) ([]operator.Split, error) {
	return []operator.Split{{ID: "a"}, {ID: "b"}}, nil
}

func (f *faucet) Open(context.Context, operator.SourceContext, operator.Split) (operator.SplitReader[event], error) {
	return &stream1{f: f}, nil
}
func (f *faucet) Bounded() bool   { return true }
func (f *faucet) Validate() error { return nil }

// stream1 is what flows from one split of a faucet.
type stream1 struct {
	f *faucet
	n int64
}

func (r *stream1) Read(b *record.Batch[event], limit int) (operator.ReadStatus, error) {
	if r.f.off.Load() {
		return operator.ReadEnd, nil
	}
	for range limit {
		b.Rows = append(b.Rows, event{Key: fmt.Sprint(r.n % 10), Value: 1, At: r.n})
		r.n++
	}
	r.f.given.Add(int64(limit))
	return operator.ReadMore, nil
}

func (r *stream1) Position() operator.Split {
	return operator.Split{ID: "s", Body: binary.AppendVarint(nil, r.n)}
}
func (r *stream1) Close() error { return nil }

// valve slows down what goes through it.
type valve struct{ slow atomic.Bool }

// pass lets one record through, with a millisecond for every 200 of them while it is slow.
func (v *valve) pass(n *int64) {
	if *n++; *n%200 == 0 && v.slow.Load() {
		time.Sleep(time.Millisecond)
	}
}

func through(s stream.Stream[event], name string, v *valve) stream.Stream[event] {
	return s.Rebalance().FlatMap(name, func(e *event, c *operator.Collector[event]) {
		n := e.At
		v.pass(&n)
		c.Emit(*e)
	})
}

// total per key at the end of the data.
func countAll(s stream.Stream[event], name string) stream.Stream[int64] {
	return s.KeyBy(func(e *event) string { return e.Key }).
		Process(name, func(s *operator.States[string]) operator.Handler[string, event, int64] {
			n := s.Value[int64]("n")
			return operator.Handler[string, event, int64]{
				Record: func(c *operator.KeyedContext[string, int64], e *event) {
					*n.Ref() += e.Value
					c.SetTimer(1 << 60)
				},
				Timer: func(c *operator.KeyedContext[string, int64]) {
					v, _ := n.Get()
					c.Emit(v)
				},
			}
		})
}

// Two inputs of one operator, each slow in turn while the other is as fast as it can be, then both,
// then what is behind them: channels are full all the time, checkpoints complete, nothing is lost.
func TestBlockedInputs(t *testing.T) {
	for _, mode := range []job.Mode{job.ExactlyOnce, job.AtLeastOnce} {
		for _, workers := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/workers=%d", mode, workers), func(t *testing.T) {
				var a, b faucet
				var left, right, behind valve
				out := collect.New[int64]()
				c := newCluster(t, workers, stream.Program{Name: "two", Build: func(j *stream.Job) {
					l := through(j.Source[event]("a", &a), "left", &left)
					r := through(j.Source[event]("b", &b), "right", &right)
					countAll(through(l.Union("both", r), "behind", &behind), "count").Sink("out", out)
				}}, settings(mode, "fs"))
				c.deploy(2)
				for _, slow := range [][3]bool{{true, false, false}, {false, true, false}, {true, true, false}, {false, false, true}, {}} {
					left.slow.Store(slow[0])
					right.slow.Store(slow[1])
					behind.slow.Store(slow[2])
					for range 2 {
						c.checkpoint(true)
					}
				}
				a.off.Store(true)
				b.off.Store(true)
				c.finish()
				sum := int64(0)
				for _, v := range out.Rows() {
					sum += v
				}
				if want := a.given.Load() + b.given.Load(); sum != want {
					t.Errorf("counted %d records of %d", sum, want)
				}
			})
		}
	}
}

// A consumer that takes nothing stops what feeds it, and nobody else: not another job's part that
// shares its worker and its connections.
func TestSlowConsumer(t *testing.T) {
	for _, workers := range []int{1, 2} {
		t.Run(fmt.Sprintf("workers=%d", workers), func(t *testing.T) {
			const n = 50_000
			gate := make(chan struct{})
			slow, fast := &collect.Discard[event]{}, &collect.Discard[event]{}
			source := datagen.Source[event]{Count: n, NumSplits: 4, Make: makeEvent}
			c := newCluster(t, workers, stream.Program{Name: "beside", Build: func(j *stream.Job) {
				j.Source("stuck", source).Rebalance().Map("gate", func(e *event) event { <-gate; return *e }).Sink("slow", slow)
				j.Source("free", source).Rebalance().Map("open", func(e *event) event { return *e }).Sink("fast", fast)
			}}, settings(job.ExactlyOnce, "fs"))
			opened := false
			defer func() {
				if !opened {
					close(gate)
				}
			}()
			c.deploy(3)
			c.until("the end of the free part", func() bool {
				for task, s := range c.states {
					if task.Vertex == "open" && s != job.TaskEndOfData {
						return false
					}
				}
				return true
			})
			if fast.Count() != n || slow.Count() != 0 {
				t.Errorf("%d records beside the stuck consumer, %d through it", fast.Count(), slow.Count())
			}
			opened = true
			close(gate)
			c.finish()
			if slow.Count() != n {
				t.Errorf("%d records through the gate", slow.Count())
			}
		})
	}
}

// A function that takes long for each record, behind an exchange: what is on its way there is so little that a barrier
// comes through in a second or so. Full batches would hold it up for minutes. When the function is fast again batches are
// full again.
func TestSlowFunction(t *testing.T) {
	for _, workers := range []int{1, 2} {
		t.Run(fmt.Sprintf("workers=%d", workers), func(t *testing.T) { slowFunction(t, workers) })
	}
}

func slowFunction(t *testing.T, workers int) {
	var in faucet
	var slow atomic.Bool
	slow.Store(true)
	out := &collect.Discard[event]{}
	c := newCluster(t, workers, stream.Program{Name: "slow", Build: func(j *stream.Job) {
		j.Source[event]("in", &in).KeyBy(func(e *event) string { return e.Key }).
			Process("slow", func(*operator.States[string]) operator.Handler[string, event, event] {
				return operator.Handler[string, event, event]{Record: func(c *operator.KeyedContext[string, event], e *event) {
					if slow.Load() {
						time.Sleep(20 * time.Millisecond) // What the function takes.
					}
					c.Emit(*e)
				}}
			}).Sink("out", out)
	}}, settings(job.ExactlyOnce, "fs"))
	c.deploy(2)
	for range 3 {
		begun := time.Now()
		c.checkpoint(true)
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("a checkpoint took %v", took)
		}
	}
	if n := in.given.Load() - out.Count(); n > 500 {
		t.Errorf("%d records are on their way to a function that handles 100 a second", n)
	}
	slow.Store(false)
	before := out.Count()
	c.until("100,000 records", func() bool { return out.Count() > before+100_000 })
	in.off.Store(true)
	c.finish()
	if out.Count() != in.given.Load() {
		t.Errorf("%d records of %d", out.Count(), in.given.Load())
	}
}

// In at-least-once mode nothing is missing after crashes; what was between the barriers may be
// there twice.
func TestAtLeastOnce(t *testing.T) {
	const n = 20000
	want, _ := naive(n)
	type pane struct {
		key   string
		start int64
	}
	for seed := range 3 {
		out, cnt := collect.New[total](), collect.New[string]()
		c := newCluster(t, 2, windowed(n, 60000, out, cnt), settings(job.AtLeastOnce, "fs"))
		c.deploy(2 + seed)
		for i := range 4 {
			c.checkpoint(i%2 == 0)
			time.Sleep(10 * time.Millisecond) // Let some records flow.
			c.crash()
			c.deploy(1 + (seed+i)%4)
		}
		c.finish()
		largest := map[pane]int64{}
		for _, r := range out.Rows() {
			p := pane{r.Key, r.Start}
			largest[p] = max(largest[p], r.Count)
		}
		for r := range want {
			if got := largest[pane{r.Key, r.Start}]; got < r.Count {
				t.Errorf("%s at %d: %d records of %d", r.Key, r.Start, got, r.Count)
			}
		}
		c.close()
	}
}

// A job without checkpoints commits at its end.
func TestWithoutCheckpoints(t *testing.T) {
	const n = 20000
	totals, counts := naive(n)
	out, cnt := collect.New[total](), collect.New[string]()
	c := newCluster(t, 2, windowed(n, 0, out, cnt), settings(job.Off, "fs"))
	c.deploy(3)
	all := len(c.plan.Tasks())
	c.until("end of data", func() bool { return c.count(job.TaskEndOfData) == all })
	if out.Len()+cnt.Len() > 0 {
		t.Error("something is committed before the end")
	}
	c.all(job.Finish{Run: c.run()})
	c.until("finished", func() bool { return c.count(job.TaskFinished) == all })
	checkBag(t, "totals", out.Rows(), totals)
	checkBag(t, "counts", cnt.Rows(), counts)
}

// Checkpoints go on when a part of the job has finished, and what is restored from them, at whatever
// parallelism, gives the same output.
func TestPartlyFinished(t *testing.T) {
	const short, long = 3000, 30000
	want := map[total]int{}
	sumsOf := map[total]*acc{}
	for _, n := range []int64{short, long} {
		for i := range n {
			var e event
			makeEvent(i, &e)
			p := total{Key: e.Key, Start: e.At - ((e.At%60000)+60000)%60000}
			if sumsOf[p] == nil {
				sumsOf[p] = &acc{}
			}
			sumsOf[p].Sum += e.Value
			sumsOf[p].Count++
		}
	}
	for p, a := range sumsOf {
		want[total{p.Key, p.Start, a.Sum, a.Count}]++
	}
	for _, parallelism := range [][]int{{2, 2}, {2, 3}, {3, 1}, {1, 4}} {
		t.Run(fmt.Sprint(parallelism), func(t *testing.T) {
			out := collect.New[total]()
			c := newCluster(t, 2, stream.Program{Name: "both", Build: func(j *stream.Job) {
				timed := func(name string, n int64, rate float64) stream.Stream[event] {
					return j.Source(name, datagen.Source[event]{Count: n, NumSplits: 3, Rate: rate, Make: makeEvent}).
						Timestamps(func(e *event) time.Time { return time.UnixMilli(e.At) }, watermark.Bounded(10*time.Second))
				}
				timed("long", long, 20000).Union("both", timed("short", short, 0)).
					KeyBy(func(e *event) string { return e.Key }).
					Window("per-minute", window.Tumbling(time.Minute)).Aggregate(sums).
					Sink("totals", out)
			}}, settings(job.ExactlyOnce, "fs"))
			c.deploy(parallelism[0])
			in := func(states ...job.TaskState) func() bool {
				return func() bool {
					for task, s := range c.states {
						ok := !strings.HasPrefix(task.Vertex, "short")
						for _, want := range states {
							ok = ok || s == want
						}
						if !ok {
							return false
						}
					}
					return true
				}
			}
			c.until("the end of the short source", in(job.TaskEndOfData, job.TaskFinished))
			c.checkpoint(true)
			c.until("the short source to finish", in(job.TaskFinished))
			for range 2 {
				c.checkpoint(true)
			}
			if c.count(job.TaskFinished) == len(c.states) {
				t.Fatal("everything has finished already")
			}
			c.crash()
			c.deploy(parallelism[1])
			c.checkpoint(true)
			c.crash()
			c.deploy(parallelism[0])
			c.finish()
			checkBag(t, "totals", out.Rows(), want)
		})
	}
}
