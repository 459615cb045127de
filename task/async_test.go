package task_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// enriched sums events behind a call for each, which takes a while.
func enriched(n int64, splits int, rate float64, o operator.AsyncOptions, call func(context.Context, event) (event, error), out *collect.Sink[total]) stream.Program {
	return stream.Program{Name: "enriched", Build: func(j *stream.Job) {
		j.Source("events", datagen.Source[event]{Count: n, NumSplits: splits, Rate: rate, Make: makeEvent}).
			Timestamps(func(e *event) time.Time { return time.UnixMilli(e.At) }, watermark.Bounded(10*time.Second)).
			Filter("odd", func(e *event) bool { return e.Value%3 != 0 }).
			Async("enrich", o, call).
			KeyBy(func(e *event) string { return e.Key }).
			Window("per-10-minutes", window.Tumbling(10*time.Minute)).Aggregate(sums).
			Sink("totals", out)
	}}
}

// Records with a call under way are neither lost nor doubled by crashes, and none is late for its
// window, whatever the order of answers.
func TestAsyncCrashes(t *testing.T) {
	const n = 6000
	totals, _ := naive(n)
	for seed := range uint64(4) {
		ordered := seed%2 == 0
		t.Run(fmt.Sprintf("seed=%d/ordered=%v", seed, ordered), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			out := collect.New[total]()
			call := func(ctx context.Context, e event) (event, error) {
				if e.Value%8 == 0 {
					select {
					case <-time.After(time.Duration(e.Value%5) * time.Millisecond):
					case <-ctx.Done():
						return event{}, ctx.Err()
					}
				}
				return e, nil
			}
			o := operator.AsyncOptions{Ordered: ordered, Capacity: 1 + rng.IntN(40)}
			c := newCluster(t, 1+int(seed%2), enriched(n, 5, 20000, o, call, out), settings(job.ExactlyOnce, "fs"))
			c.deploy(1 + rng.IntN(4))
			for range 5 {
				for range rng.IntN(3) {
					c.checkpoint(rng.IntN(3) > 0)
				}
				time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond) // Let some records flow.
				c.crash()
				c.deploy(1 + rng.IntN(4))
			}
			c.finish()
			checkBag(t, "totals", out.Rows(), totals)
		})
	}
}

// A checkpoint completes while every call hangs; after a restore other subtasks share what was under
// way.
func TestAsyncCheckpointDuringCalls(t *testing.T) {
	const n = 500
	totals, _ := naive(n)
	answer := make(chan struct{})
	out := collect.New[total]()
	call := func(ctx context.Context, e event) (event, error) {
		select {
		case <-answer:
			return e, nil
		case <-ctx.Done():
			return event{}, ctx.Err()
		}
	}
	c := newCluster(t, 1, enriched(n, 1, 500, operator.AsyncOptions{Capacity: n}, call, out), settings(job.ExactlyOnce, "fs"))
	c.deploy(1)
	for range 3 {
		c.checkpoint(true)
	}
	c.crash()
	c.deploy(3)
	c.checkpoint(true)
	close(answer)
	c.finish()
	checkBag(t, "totals", out.Rows(), totals)
}
