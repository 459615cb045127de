package streamtest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/streamtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func same[T comparable](t *testing.T, what string, got []T, want ...T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// counting emits for each word how often it came, and at the end of a minute without it that it is gone.
func counting(in stream.Stream[string]) stream.Stream[count] {
	return in.KeyBy(func(s *string) string { return *s }).
		Process("count", func(s *operator.States[string]) operator.Handler[string, string, count] {
			n := s.Value[int64]("n")
			return operator.Handler[string, string, count]{
				Record: func(c *operator.KeyedContext[string, count], _ *string) {
					*n.Ref()++
					c.SetTimer(c.Time() + 60_000)
					c.Emit(count{c.Key(), *n.Ref()})
				},
				Timer: func(c *operator.KeyedContext[string, count]) { c.Emit(count{c.Key(), 0}) },
			}
		})
}

type count struct {
	Word string
	N    int64
}

func TestOperator(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, h *streamtest.Harness) {
		in, out := h.Operator(counting)
		in.PushAt(1000, "a", "b", "a")
		same(t, "counts", out.Rows(), count{"a", 1}, count{"b", 1}, count{"a", 2})
		in.Watermark(60_999)
		same(t, "before the timers", out.Rows()[3:])
		in.Watermark(61_000)
		rest := out.Events()[3:]
		if len(rest) != 2 || rest[0].Row.N != 0 || rest[0].Time != 61_000 {
			t.Errorf("timers: %v", rest)
		}
	})
}

// A restored job goes on from its checkpoint, with any parallelism and as often as one likes; what
// was pushed and written behind the checkpoint comes again.
func TestRestore(t *testing.T) {
	for _, backend := range []string{"fs", "memory"} {
		t.Run(backend, func(t *testing.T) {
			streamtest.Run(t, func(t *testing.T, h *streamtest.Harness) {
				h.Set("state.backend", backend)
				in, out := h.Operator(counting)
				in.PushAt(1000, "a", "b")
				first := h.Snapshot()
				in.PushAt(2000, "a")
				same(t, "counts", out.Rows(), count{"a", 1}, count{"b", 1}, count{"a", 2})
				for _, parallelism := range []int{1, 3, 0} {
					h.Restore(first, parallelism)
					same(t, "after a restore", out.Rows(), count{"a", 1}, count{"b", 1}, count{"a", 2})
				}
				in.PushAt(2000, "b")
				second := h.Snapshot()
				in.PushAt(3000, "c")
				h.Restore(second, 2)
				same(t, "after another", out.Rows()[2:], count{"a", 2}, count{"b", 2}, count{"c", 1})
				h.Restore(nil, 1)
				same(t, "from the beginning", out.Rows(), count{"a", 1}, count{"b", 1}, count{"a", 2}, count{"b", 2}, count{"c", 1})
				h.EndOfData()
				if n := len(out.Rows()); n != 10 { // A timer each, for "a" and "b" at two times.
					t.Errorf("%d rows at the end", n)
				}
			})
		})
	}
}

// A later version of a program finds the state of the earlier one by its name.
func TestUpgrade(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, h *streamtest.Harness) {
		in, out := h.Input[string](), h.Output[count]()
		version := func(word string) func(*stream.Job) {
			return func(j *stream.Job) {
				counting(j.Source("words", in)).
					Filter("", func(c *count) bool { return c.Word != word }).
					Sink("out", out)
			}
		}
		h.Start(version("a"))
		in.PushAt(1000, "a", "b")
		same(t, "without a", out.Rows(), count{"b", 1})
		h.Upgrade(h.Snapshot(), version("b"))
		in.PushAt(2000, "a", "b")
		same(t, "then without b", out.Rows(), count{"b", 1}, count{"a", 2})
	})
}

// A job with several inputs, side outputs, a window and an exactly-once sink runs as it is.
func TestGraph(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, h *streamtest.Harness) {
		h.Arg("least", "2")
		h.Set("parallelism", "2")
		left, right := h.PartedInput[string](2), h.Input[string]()
		out, sink := h.Output[count](), collect.New[count]()
		h.Start(func(j *stream.Job) {
			least := int64(len(j.Arg("least"))) + 1
			counts := j.Source("left", left).Union("", j.Source("right", right)).
				KeyBy(func(s *string) string { return *s }).
				Window("minutes", window.Tumbling(time.Minute)).
				Aggregate(window.Functions[string, string, int64, count]{
					AddTo:    func(n *int64, _ *string) { *n++ },
					ResultOf: func(p window.Pane[string], n *int64) count { return count{p.Key, *n} },
				}).
				Filter("", func(c *count) bool { return c.N >= least })
			counts.Sink("out", out)
			counts.Sink("committed", sink)
		})
		left.Part(0).PushAt(1000, "a")
		left.Part(1).PushAt(2000, "b")
		right.PushAt(3000, "a", "c")
		left.Part(0).Watermark(100_000)
		right.Watermark(100_000)
		same(t, "while a part lags behind", out.Rows())
		left.Part(1).Watermark(100_000)
		same(t, "the window", out.Rows(), count{"a", 2})
		same(t, "committed", sink.Rows())
		h.Snapshot()
		same(t, "committed with a checkpoint", sink.Rows(), count{"a", 2})
		right.PushAt(120_000, "d", "d")
		h.EndOfData()
		same(t, "at the end", sink.Rows(), count{"a", 2}, count{"d", 2})
	})
}

// The clock is the test's: calls take as long as it says.
func TestAdvance(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, h *streamtest.Harness) {
		in, out := h.Operator(func(s stream.Stream[string]) stream.Stream[string] {
			return s.Async("slow", operator.AsyncOptions{Ordered: true, Timeout: time.Hour}, func(ctx context.Context, v string) (string, error) {
				select {
				case <-time.After(time.Duration(len(v)) * time.Minute):
					return v + "!", nil
				case <-ctx.Done():
					return "", ctx.Err()
				}
			})
		})
		in.PushAt(0, "xxx", "x", "xx")
		in.Watermark(10)
		h.Advance(2 * time.Minute)
		same(t, "answers behind a slow one", out.Rows())
		s := h.Snapshot()
		h.Advance(time.Minute)
		same(t, "answers", out.Rows(), "xxx!", "x!", "xx!")
		h.Restore(s, 1)
		same(t, "after a restore the calls are made again", out.Rows())
		h.Advance(3 * time.Minute)
		same(t, "answers", out.Rows(), "xxx!", "x!", "xx!")
		start := time.Now()
		in.Push("xxxxx")
		h.EndOfData()
		if d := time.Since(start); d < 5*time.Minute || d > 6*time.Minute {
			t.Errorf("the end took %v", d)
		}
	})
}

// A failure is the test's to look at, and the job can go on from a checkpoint.
func TestFailure(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, h *streamtest.Harness) {
		broken := true
		in, out := h.Operator(func(s stream.Stream[string]) stream.Stream[string] {
			return s.Async("call", operator.AsyncOptions{Retries: 2}, func(_ context.Context, v string) (string, error) {
				if v == "bad" && broken {
					return "", errors.New("gone")
				}
				return v, nil
			})
		})
		in.Push("good")
		s := h.Snapshot()
		if f := h.Failure(); f != nil {
			t.Errorf("failed: %v", f)
		}
		in.Push("bad")
		h.Advance(100 * time.Millisecond)
		if f := h.Failure(); f != nil {
			t.Errorf("failed before its last try: %v", f)
		}
		time.Sleep(time.Second)
		f := h.Failure()
		if f == nil || f.Class != job.ClassExternal || f.Message != `operator "call": call failed after 3 attempts: gone` {
			t.Fatalf("failure: %v", f)
		}
		broken = false
		h.Restore(s, 0)
		same(t, "after the repair", out.Rows(), "good", "bad")
	})
}
