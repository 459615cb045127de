package operator

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// Records of the two inputs with one key meet; timers fire whichever input brought the watermark.
func TestCoProcess(t *testing.T) {
	type pair struct{ Key, Left, Right, At int64 }
	mk := func() Operator {
		return CoProcess(func(v *int64) int64 { return *v % 10 }, func(v *string) int64 { return int64(len(*v)) }, codec.Int64(),
			func(s *States[int64]) CoHandler[int64, int64, string, pair] {
				sums := s.Value[[2]int64]("sums")
				return CoHandler[int64, int64, string, pair]{
					Left:  func(c *KeyedContext[int64, pair], v *int64) { sums.Ref()[0] += *v; c.SetTimer(c.Time() / 100 * 100) },
					Right: func(c *KeyedContext[int64, pair], v *string) { sums.Ref()[1]++; c.SetTimer(c.Time()/100*100 + 50) },
					Timer: func(c *KeyedContext[int64, pair]) {
						v, _ := sums.Get()
						c.Emit(pair{c.Key(), v[0], v[1], c.Time()})
					},
				}
			})
	}
	Scenarios(t, func(t *testing.T, sc Scenario, rng *rand.Rand) {
		s := StartScaled[int64, int64, string, pair](t, sc.Backend, sc.Par, codec.Int64(), func(v *int64) int64 { return *v % 10 }, func(v *string) int64 { return int64(len(*v)) }, mk)
		var as, bs []Feed[int64, string]
		for i := range int64(600) {
			as = append(as, Feed[int64, string]{Time: i, A: i})
			bs = append(bs, Feed[int64, string]{Input: 1, Time: 2 * i, B: "123456789"[:rng.IntN(10)]})
		}
		events := Interleave(rng, as, bs)
		// The model: sums as of each timer, in order.
		type key struct{ k, at int64 }
		timers := map[key]bool{}
		sums := map[int64][2]int64{}
		var want []pair
		now := record.MinTime
		fire := func(w int64) {
			if w <= now {
				return
			}
			now = w
			for k := range timers {
				if k.at <= w {
					delete(timers, k)
					want = append(want, pair{k.k, sums[k.k][0], sums[k.k][1], k.at})
				}
			}
		}
		for _, e := range events {
			switch {
			case e.Mark:
				fire(e.Time)
			case e.Input == 0:
				v := sums[e.A%10]
				v[0] += e.A
				sums[e.A%10] = v
				timers[key{e.A % 10, e.Time / 100 * 100}] = true
			default:
				k := int64(len(e.B))
				v := sums[k]
				v[1]++
				sums[k] = v
				timers[key{k, e.Time/100*100 + 50}] = true
			}
		}
		// Timers behind the watermark fire at a restore or at the next one: with stops the two differ.
		fire(record.MaxTime)
		s.Play(sc, rng, events)
		if sc.Stops == 0 {
			SameRows(t, fmt.Sprintf("%+v", sc), s.Rows(), want)
		}
	})
}

// Timers due at one watermark fire in bounded runs, whichever input brought it, and a barrier may be taken
// between them.
func TestCoBoundedFiring(t *testing.T) {
	const keys = 3*firingRun + 5
	for input := range 2 {
		out := &recorder[int]{}
		each := func(v *int) int { return *v }
		k := startKeyed(t, "fs", out, func() Operator {
			return CoProcess(each, each, intCodec(), func(*States[int]) CoHandler[int, int, int, int] {
				set := func(c *KeyedContext[int, int], _ *int) { c.SetTimer(100) }
				return CoHandler[int, int, int, int]{Left: set, Right: set, Timer: func(c *KeyedContext[int, int]) { c.Emit(c.Key()) }}
			})
		})
		b := record.PoolOf[int]().Get()
		for i := range keys {
			b.Append(i, 0)
		}
		if err := k.op.Push(1-input, b); err != nil {
			t.Fatal(err)
		}
		b = record.PoolOf[int]().Get()
		b.Mark(record.Watermark, 100)
		if err := k.op.Push(input, b); err != nil {
			t.Fatal(err)
		}
		y := k.op.(Yielder)
		if !y.Pending() || !y.Interruptible() || len(out.events) != firingRun {
			t.Fatalf("pending %v, interruptible %v, %d fired", y.Pending(), y.Interruptible(), len(out.events))
		}
		k.restart(100)
		if n := len(out.events); n != keys+1 || !out.events[n-1].mark {
			t.Errorf("%d events", n)
		}
		k.close()
	}
}

type rule struct {
	Name  string
	Limit int64
}

// Broadcast state is the same in every subtask and survives restores with any parallelism.
func TestBroadcast(t *testing.T) {
	key := func(v *int64) int64 { return *v % 17 }
	mk := func() Operator {
		return ProcessBroadcast(key, codec.Int64(), func(s *States[int64]) BroadcastHandler[int64, int64, rule, string] {
			rules := s.Broadcast[string, int64]("rules")
			seen := s.Value[int64]("seen")
			return BroadcastHandler[int64, int64, rule, string]{
				Record: func(c *KeyedContext[int64, string], v *int64) {
					*seen.Ref()++
					n, _ := seen.Get()
					text := ""
					for name, limit := range rules.All() {
						if *v > limit {
							text += name
						}
					}
					c.Emit(fmt.Sprint(*v, n, text, rules.Len()))
				},
				Broadcast: func(c *BroadcastContext[string], r *rule) {
					if r.Limit < 0 {
						rules.Delete(r.Name)
						return
					}
					rules.Put(r.Name, r.Limit)
				},
			}
		})
	}
	Scenarios(t, func(t *testing.T, sc Scenario, rng *rand.Rand) {
		s := StartScaled[int64, int64, rule, string](t, sc.Backend, sc.Par, codec.Int64(), key, nil, mk)
		var as, bs []Feed[int64, rule]
		for i := range int64(500) {
			as = append(as, Feed[int64, rule]{Time: i, A: rng.Int64N(1000)})
			if i%5 == 0 {
				bs = append(bs, Feed[int64, rule]{Input: 1, Time: i, B: rule{string(rune('a' + rng.IntN(6))), rng.Int64N(1000) - 200}})
			}
		}
		events := Interleave(rng, as, bs)
		var want []string
		var order []string
		limits, seen := map[string]int64{}, map[int64]int64{}
		for _, e := range events {
			if e.Mark {
				continue
			}
			if e.Input == 1 {
				_, had := limits[e.B.Name]
				if e.B.Limit < 0 {
					delete(limits, e.B.Name)
					for i, n := range order {
						if n == e.B.Name {
							order = append(order[:i:i], order[i+1:]...)
							break
						}
					}
					continue
				}
				limits[e.B.Name] = e.B.Limit
				if !had {
					order = append(order, e.B.Name)
				}
				continue
			}
			seen[e.A%17]++
			text := ""
			for _, n := range order {
				if e.A > limits[n] {
					text += n
				}
			}
			want = append(want, fmt.Sprint(e.A, seen[e.A%17], text, len(order)))
		}
		s.Play(sc, rng, events)
		SameRows(t, fmt.Sprintf("%+v", sc), s.Rows(), want)
	})
}

// Broadcast state is changed by the broadcast side alone.
func TestBroadcastIsReadOnly(t *testing.T) {
	op := ProcessBroadcast(func(v *int64) int64 { return *v }, codec.Int64(), func(s *States[int64]) BroadcastHandler[int64, int64, int64, int64] {
		b := s.Broadcast[int64, int64]("b")
		return BroadcastHandler[int64, int64, int64, int64]{
			Record:    func(_ *KeyedContext[int64, int64], v *int64) { b.Put(*v, 1) },
			Broadcast: func(*BroadcastContext[int64], *int64) {},
		}
	})
	k := startKeyed(t, "fs", &recorder[int64]{}, func() Operator { return op })
	defer k.close()
	defer func() {
		if recover() == nil {
			t.Error("a record of the keyed side changed broadcast state")
		}
	}()
	b := record.PoolOf[int64]().Get()
	b.Append(1, 1)
	_ = k.op.Push(0, b)
}

// The list of an operator without keys is dealt out again, and nothing of it is lost or doubled.
func TestOperatorList(t *testing.T) {
	for range 20 {
		mk := func() Operator {
			return &plainReady{ProcessPlain(func(s *OperatorStates) PlainHandler[int64, int64] {
				held := s.List[int64]("held")
				return PlainHandler[int64, int64]{
					Record: func(_ *PlainContext[int64], v *int64) { held.Append(*v) },
					End: func(c *PlainContext[int64]) {
						for _, v := range held.Values() {
							c.Emit(v)
						}
					},
				}
			})}
		}
		rng := rand.New(rand.NewPCG(1, 2))
		each := func(v *int64) int64 { return *v }
		s := StartScaled[int64, int64, int64, int64](t, "fs", 2, codec.Int64(), each, each, mk)
		var events []Feed[int64, int64]
		var want []int64
		for i := range int64(300) {
			events = append(events, Feed[int64, int64]{Time: i, A: i})
			want = append(want, i)
		}
		s.Play(Scenario{size: 1 + rng.IntN(100), Stops: 4}, rng, events)
		SameRows(t, "held", s.Rows(), want)
	}
}

// plainReady is an operator without keyed state under a harness for those that have it.
type plainReady struct{ Operator }

func (p *plainReady) Ready() error        { return nil }
func (p *plainReady) Pending() bool       { return false }
func (p *plainReady) Resume() error       { return nil }
func (p *plainReady) Interruptible() bool { return true }
func (p *plainReady) Prepare(id job.CheckpointID) error {
	return p.Operator.(Checkpointed).Prepare(id)
}
func (p *plainReady) Snapshot(id job.CheckpointID) (map[string][][]byte, error) {
	return p.Operator.(Checkpointed).Snapshot(id)
}
func (p *plainReady) ItemSchema(state string) string { return p.Operator.(Itemized).ItemSchema(state) }
func (p *plainReady) Committed(id job.CheckpointID) error {
	return p.Operator.(Checkpointed).Committed(id)
}
