package task_test

import (
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

func makeOther(n int64, e *event) {
	*e = event{Key: fmt.Sprintf("k%d", n*31%1997), Value: -n, At: n/3*1000 - n%7*300}
}

// joined is a job with operators of two inputs, a broadcast side, and operator state.
func joined(n int64, rate float64, pairs, firsts, ruled, held *collect.Sink[string]) stream.Program {
	return stream.Program{Name: "joined", Build: func(j *stream.Job) {
		at := func(e *event) time.Time { return time.UnixMilli(e.At) }
		source := func(name string, count int64, fill func(int64, *event)) stream.Stream[event] {
			return j.Source(name, datagen.Source[event]{Count: count, NumSplits: 3, Rate: rate, Make: fill}).
				Timestamps(at, watermark.Bounded(10*time.Second))
		}
		as, bs := source("as", n, makeEvent), source("bs", n, makeOther)
		key := func(e *event) string { return e.Key }
		as.KeyBy(key).Join(bs.KeyBy(key)).Window(window.Tumbling(10*time.Minute)).
			Apply("windowed", func(a, b *event) string { return fmt.Sprint("w", a.Value, b.Value) }).
			Union("all", as.KeyBy(key).IntervalJoin(bs.KeyBy(key)).Between(-time.Minute, 3*time.Minute).
				Apply("interval", func(a, b *event) string { return fmt.Sprint("i", a.Value, b.Value) })).
			Sink("pairs", pairs)
		as.KeyBy(key).Dedup("first", 0).Map("", func(e *event) string { return e.Key }).Sink("firsts", firsts)
		rules := j.Source("rules", datagen.Source[event]{Count: 5, Make: func(n int64, e *event) { *e = event{Value: n} }}).
			Timestamps(at, watermark.Bounded(time.Hour))
		as.KeyBy(key).ConnectBroadcast(rules).Process("ruled", func(s *operator.States[string]) operator.BroadcastHandler[string, event, event, string] {
			sum := s.Broadcast[int64, int64]("rules")
			return operator.BroadcastHandler[string, event, event, string]{
				Record:    func(c *operator.KeyedContext[string, string], e *event) { c.SetTimer(1 << 50) },
				Broadcast: func(_ *operator.BroadcastContext[string], r *event) { sum.Put(r.Value, r.Value) },
				Timer: func(c *operator.KeyedContext[string, string]) {
					total := int64(0)
					for _, v := range sum.All() {
						total += v
					}
					c.Emit(fmt.Sprint(c.Key(), "=", total, "/", sum.Len()))
				},
			}
		}).Sink("ruled-out", ruled)
		bs.Rebalance().Process("hold", func(s *operator.OperatorStates) operator.PlainHandler[event, string] {
			list := s.List[int64]("held")
			return operator.PlainHandler[event, string]{
				Record: func(_ *operator.PlainContext[string], e *event) { list.Append(e.Value) },
				End: func(c *operator.PlainContext[string]) {
					for _, v := range list.Values() {
						c.Emit(fmt.Sprint(v))
					}
				},
			}
		}).Sink("held", held)
	}}
}

// Joins, broadcast state, deduplication and operator lists give the same output however often the job
// crashes, with whatever parallelism it is restored.
func TestJoinsCrash(t *testing.T) {
	const n = 6000
	wantPairs, wantFirsts, wantRuled, wantHeld := map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}
	byKey := map[string][]event{}
	for i := range int64(n) {
		var e event
		makeOther(i, &e)
		byKey[e.Key] = append(byKey[e.Key], e)
		wantHeld[fmt.Sprint(e.Value)]++
	}
	start := func(t int64) int64 { return t - ((t%600000)+600000)%600000 }
	for i := range int64(n) {
		var a event
		makeEvent(i, &a)
		wantFirsts[a.Key] = 1
		wantRuled[a.Key+"=10/5"] = 1
		for _, b := range byKey[a.Key] {
			if start(a.At) == start(b.At) {
				wantPairs[fmt.Sprint("w", a.Value, b.Value)]++
			}
			if b.At >= a.At-60000 && b.At <= a.At+180000 {
				wantPairs[fmt.Sprint("i", a.Value, b.Value)]++
			}
		}
	}
	for seed := range uint64(4) {
		backend := []string{"fs", "memory"}[seed%2]
		t.Run(fmt.Sprintf("seed=%d/%s", seed, backend), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			pairs, firsts, ruled, held := collect.New[string](), collect.New[string](), collect.New[string](), collect.New[string]()
			rate := 20000.0
			if seed == 0 {
				rate = 0
			}
			c := newCluster(t, 1+int(seed%2), joined(n, rate, pairs, firsts, ruled, held), settings(job.ExactlyOnce, backend))
			c.deploy(1 + rng.IntN(4))
			for range 4 * min(seed, 1) {
				for range rng.IntN(3) {
					c.checkpoint(rng.IntN(3) > 0)
				}
				time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond) // Let some records flow.
				c.crash()
				c.deploy(1 + rng.IntN(4))
			}
			c.finish()
			checkBag(t, "pairs", pairs.Rows(), wantPairs)
			checkBag(t, "firsts", firsts.Rows(), wantFirsts)
			checkBag(t, "ruled", ruled.Rows(), wantRuled)
			checkBag(t, "held", held.Rows(), wantHeld)
		})
	}
}
