package task_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/watermark"
)

// waiting makes backends whose Merge waits for another goroutine, and says so at once.
type waiting struct{ merges *atomic.Int64 }

type waitingBackend struct {
	statebackend.Backend
	merges *atomic.Int64
}

func (f waiting) New(ctx context.Context, p statebackend.Params) (statebackend.Backend, error) {
	b, err := fs.Factory{}.New(ctx, p)
	return waitingBackend{b, f.merges}, err
}

func (b waitingBackend) Merge(budget time.Duration) bool {
	b.merges.Add(1)
	b.Backend.Merge(budget)
	return true
}

// An idle task does not spin while what it would merge is still being written.
func TestIdleTaskWaitsForMerge(t *testing.T) {
	var merges atomic.Int64
	src := newTap(1)
	c := newCluster(t, 1, stream.Program{Name: "idle", Build: func(j *stream.Job) {
		j.Source("src", src).
			Timestamps(atOf, watermark.Monotonous()).
			KeyBy(func(e *event) string { return e.Key }).
			Process("count", func(s *operator.States[string]) operator.Handler[string, event, event] {
				n := s.Value[int64]("n")
				return operator.Handler[string, event, event]{Record: func(c *operator.KeyedContext[string, event], e *event) { *n.Ref()++ }}
			}).
			Sink("out", &collect.Discard[event]{})
	}}, settings(job.ExactlyOnce, "fs"))
	c.factory = func(string) statebackend.Factory { return waiting{&merges} }
	c.deploy(1)
	c.until("a merge", func() bool { return merges.Load() > 0 })
	begun, before := time.Now(), merges.Load()
	c.pass("idleness", func() bool { return time.Since(begun) > 300*time.Millisecond })
	if n := merges.Load() - before; n < 2 || n > 600 {
		t.Errorf("%d merges in 0.3 s of idleness", n)
	}
	c.crash()
}
