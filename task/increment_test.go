package task_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/watermark"
)

// counted counts many keys, of which a few are hot; each seventh record of a hot key forgets it.
func counted(n int64, rate float64, keys int64, out *collect.Sink[string]) stream.Program {
	return stream.Program{Name: "counted", Build: func(j *stream.Job) {
		j.Source("events", datagen.Source[event]{Count: n, NumSplits: 3, Rate: rate, Make: countedEvent(n, keys)}).
			Timestamps(func(e *event) time.Time { return time.UnixMilli(e.At) }, watermark.Bounded(0)).
			KeyBy(func(e *event) string { return e.Key }).
			Process("count", func(s *operator.States[string]) operator.Handler[string, event, string] {
				count, seen := s.Value[int64]("count"), s.Value[int64]("seen")
				return operator.Handler[string, event, string]{
					Record: func(c *operator.KeyedContext[string, string], e *event) {
						if _, ok := seen.Get(); !ok {
							*seen.Ref() = 1
						}
						if *count.Ref()++; strings.HasPrefix(e.Key, "hot") && e.Value%7 == 0 {
							n, _ := count.Get()
							count.Clear()
							c.Emit(fmt.Sprint(e.Key, "=", n))
						}
					},
				}
			}).
			Sink("out", out)
	}}
}

// countedEvent sees each key once, and then the hot ones again and again, each of which comes from one split.
func countedEvent(n, keys int64) func(int64, *event) {
	return func(i int64, e *event) {
		*e = event{Key: fmt.Sprintf("cold%d", i), Value: i, At: i}
		if i >= keys {
			e.Key = fmt.Sprintf("hot%d", i%99)
		}
	}
}

// A job crashes again and again, and is restored from the newest checkpoint, the only one that is kept. Its checkpoints hold
// what changed, and share objects with earlier ones, which are there as long as they are needed.
func TestIncrementsCrash(t *testing.T) {
	const n, keys = 40_000, 15_000
	want := map[string]int{}
	counts := map[string]int{}
	for i := range int64(n) {
		var e event
		countedEvent(n, keys)(i, &e)
		if counts[e.Key]++; i >= keys && i%7 == 0 {
			want[fmt.Sprint(e.Key, "=", counts[e.Key])]++
			counts[e.Key] = 0
		}
	}
	longest, shared := 0, 0
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 9))
			out := collect.New[string]()
			c := newCluster(t, 2, counted(n, 20_000, keys, out), settings(job.ExactlyOnce, "fs"))
			parallelism := 2
			c.deploy(parallelism)
			for range 25 {
				c.checkpoint(true)
				for _, s := range c.committed.Operators["count"].Subtasks {
					chains, err := statebackend.Chains(s.States)
					if err != nil {
						t.Fatal(err)
					}
					for _, chain := range chains {
						longest = max(longest, len(chain))
						if o := chain[0].Object; o != "" && !strings.HasPrefix(o, snapshot.CheckpointPrefix("test", "job", c.committed.Checkpoint)) {
							shared++
						}
					}
				}
				time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond)
				if rng.IntN(3) == 0 {
					c.crash()
					if rng.IntN(4) == 0 {
						parallelism = 1 + rng.IntN(4)
					}
					c.deploy(parallelism)
				}
			}
			c.finish()
			checkBag(t, "counts", out.Rows(), want)
		})
	}
	if longest < 2 || shared == 0 {
		t.Errorf("the longest chain was of %d segments, and %d times the first was of an earlier checkpoint", longest, shared)
	}
}
