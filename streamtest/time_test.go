package streamtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/streamtest"
)

// reminding emits a word when a minute of processing time has passed since it came last, with how often
// it had come. The word "stop" takes back what was set for all words that begin with s.
func reminding(in stream.Stream[string]) stream.Stream[count] {
	return in.KeyBy(func(s *string) byte { return (*s)[0] }).
		Process("remind", func(s *operator.States[byte]) operator.Handler[byte, string, count] {
			n, due := s.Value[int64]("n"), s.Value[int64]("due")
			return operator.Handler[byte, string, count]{
				Record: func(c *operator.KeyedContext[byte, count], v *string) {
					*n.Ref()++
					if at, ok := due.Get(); ok {
						c.DeleteClockTimer(time.UnixMilli(at))
					}
					if *v == "stop" {
						due.Clear()
						return
					}
					at := c.Now().Add(time.Minute)
					c.SetClockTimer(at)
					due.Set(at.UnixMilli())
				},
				Clock: func(c *operator.KeyedContext[byte, count]) {
					due.Clear()
					v, _ := n.Get()
					c.Emit(count{string(c.Key()), v})
				},
			}
		})
}

// Timers of processing time fire while nothing comes, with any parallelism behind a restore, at once
// where their time passed while the job was down, and at the end of the data.
func TestClockTimers(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, h *streamtest.Harness) {
		in, out := h.Operator(reminding)
		in.Push("a", "s", "a")
		h.Advance(30 * time.Second)
		in.Push("b")
		h.Advance(30*time.Second - 1)
		same(t, "before a minute has passed", out.Rows())
		in.Push("stop")
		h.Advance(1)
		same(t, "after a minute", out.Rows(), count{"a", 2})
		s := h.Snapshot()
		h.Restore(s, 3)
		h.Advance(30*time.Second - time.Millisecond)
		same(t, "restored, before it is due", out.Rows(), count{"a", 2})
		h.Advance(time.Millisecond)
		same(t, "restored and due", out.Rows(), count{"a", 2}, count{"b", 1})
		h.Restore(s, 2)
		same(t, "due while the job was down", out.Rows(), count{"a", 2}, count{"b", 1})
		in.Push("c")
		start := time.Now()
		h.EndOfData()
		same(t, "at the end", out.Rows(), count{"a", 2}, count{"b", 1}, count{"c", 1})
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("the end took %v", d)
		}
	})
}

// Timers of both kinds that set each other at the end of the data all fire, and many that are due at
// one moment let a checkpoint by between them.
func TestManyClockTimers(t *testing.T) {
	const n = 5000
	streamtest.Run(t, func(t *testing.T, h *streamtest.Harness) {
		in, out := h.Operator(func(in stream.Stream[int64]) stream.Stream[string] {
			return in.KeyBy(func(v *int64) int64 { return *v }).
				Process("timers", func(*operator.States[int64]) operator.Handler[int64, int64, string] {
					return operator.Handler[int64, int64, string]{
						Record: func(c *operator.KeyedContext[int64, string], _ *int64) { c.SetClockTimer(c.Now().Add(time.Hour)) },
						Clock: func(c *operator.KeyedContext[int64, string]) {
							c.Emit(fmt.Sprint("clock ", c.Key()))
							c.SetTimer(1 << 45)
						},
						Timer: func(c *operator.KeyedContext[int64, string]) { c.Emit(fmt.Sprint("event ", c.Key())) },
					}
				})
		})
		var keys []int64
		for i := range int64(n) {
			keys = append(keys, i)
		}
		in.PushAt(0, keys...)
		h.Restore(h.Snapshot(), 2)
		h.Advance(time.Hour)
		if got := len(out.Rows()); got != n {
			t.Errorf("%d of %d timers", got, n)
		}
		h.Restore(h.Snapshot(), 1)
		in.PushAt(0, n, n+1)
		h.EndOfData()
		seen := map[string]int{}
		for _, r := range out.Rows() {
			seen[r]++
		}
		if len(seen) != 2*(n+2) || len(out.Rows()) != 2*(n+2) {
			t.Errorf("%d different rows of %d, want %d", len(seen), len(out.Rows()), 2*(n+2))
		}
	})
}
