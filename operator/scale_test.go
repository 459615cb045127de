package operator

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/statetest"
)

// Feed is the input of an operator with one or two inputs: records in some order, with watermarks.
type Feed[A, B any] struct {
	Input int
	Mark  bool
	Time  int64 // Event time, or the watermark.
	A     A
	B     B
}

// Scaled runs the subtasks of an operator and restores them with another parallelism.
type Scaled[K comparable, A, B, U any] struct {
	t       fataler
	backend string
	make    func() Operator
	left    func(*A) K
	right   func(*B) K // nil: the second input is broadcast.
	hash    func(*K) uint64
	now     time.Time // The wall clock.
	out     *recorder[U]
	subs    []*keyedOp
	objects *statetest.Objects
	next    job.CheckpointID
	wm      int64
	Late    int64
}

func StartScaled[K comparable, A, B, U any](t fataler, backend string, par int, kc codec.Codec[K], left func(*A) K, right func(*B) K, mk func() Operator) *Scaled[K, A, B, U] {
	s := &Scaled[K, A, B, U]{
		t: t, backend: backend, make: mk, left: left, right: right, hash: codec.NewHasher(kc),
		now: time.Unix(1_000_000, 0), out: &recorder[U]{}, objects: statetest.NewObjects(), wm: record.MinTime,
	}
	s.open(par, nil, nil)
	return s
}

type listSnapshot struct {
	broadcast bool
	schema    string
	items     [][][]byte // By old subtask.
}

func (s *Scaled[K, A, B, U]) open(par int, handles []job.StateHandle, lists map[string]*listSnapshot) {
	s.t.Helper()
	s.subs = nil
	for i := range par {
		k := &keyedOp{t: s.t, factory: factories[s.backend], make: s.make, out: s.out, objects: s.objects}
		k.s = surround(s.out)
		k.s.c.Subtask, k.s.c.Parallelism = i, par
		k.s.c.Groups = job.GroupsOf(i, k.s.c.K, par)
		k.s.c.Now = func() time.Time { return s.now }
		k.s.c.Watermark = s.wm
		k.s.c.Side = func(string) Output { return &releaser{} }
		b, err := k.factory.New(context.Background(), statebackend.Params{Operator: "op", Groups: k.s.c.Groups, K: k.s.c.K, MaxConcurrent: 1})
		if err != nil {
			s.t.Fatalf("%v", err)
		}
		k.s.c.State = b
		k.s.c.List, k.s.c.Items = map[string][][]byte{}, map[string]string{}
		for name, l := range lists {
			var all [][]byte
			for _, items := range l.items {
				all = append(all, items...)
			}
			switch {
			case l.broadcast:
				all = l.items[i%len(l.items)]
			case len(l.items) == par:
				all = l.items[i]
			default:
				var mine [][]byte
				for n := i; n < len(all); n += par {
					mine = append(mine, all[n])
				}
				all = mine
			}
			k.s.c.List[name] = all
			if l.schema != "" {
				k.s.c.Items[name] = l.schema
			}
		}
		k.op = s.make()
		if err := k.op.Open(k.s.c); err != nil {
			s.t.Fatalf("open: %v", err)
		}
		if handles != nil {
			if err := b.Restore(context.Background(), s.objects, handles); err != nil {
				s.t.Fatalf("restore: %v", err)
			}
			if u := b.Unopened(); len(u) > 0 {
				s.t.Fatalf("states %v were not opened", u)
			}
		}
		if err := k.op.(Restorable).Ready(); err != nil {
			s.t.Fatalf("ready: %v", err)
		}
		k.settle()
		s.subs = append(s.subs, k)
	}
}

// Run feeds the events in batches of up to size rows; a batch ends where the input changes.
func (s *Scaled[K, A, B, U]) Run(events []Feed[A, B], size int) {
	s.t.Helper()
	type open struct {
		a *record.Batch[A]
		b *record.Batch[B]
		n int
	}
	batches := make([]open, len(s.subs))
	flush := func(i int) {
		o := batches[i]
		batches[i] = open{}
		if o.a != nil {
			s.pushTo(i, 0, o.a)
		}
		if o.b != nil {
			s.pushTo(i, 1, o.b)
		}
	}
	put := func(i int, e *Feed[A, B]) {
		o := &batches[i]
		if e.Input == 0 && o.b != nil || e.Input == 1 && o.a != nil || o.n >= size {
			flush(i)
		}
		if e.Input == 0 {
			if o.a == nil {
				o.a = record.PoolOf[A]().Get()
			}
			if e.Mark {
				o.a.Mark(record.Watermark, e.Time)
				return
			}
			o.a.Append(e.A, e.Time)
		} else {
			if o.b == nil {
				o.b = record.PoolOf[B]().Get()
			}
			if e.Mark {
				o.b.Mark(record.Watermark, e.Time)
				return
			}
			o.b.Append(e.B, e.Time)
		}
		o.n++
	}
	for n := range events {
		e := &events[n]
		switch {
		case e.Mark || e.Input == 1 && s.right == nil:
			if e.Mark {
				s.wm = max(s.wm, e.Time)
			}
			for i := range s.subs {
				put(i, e)
			}
		default:
			var k K
			if e.Input == 0 {
				k = s.left(&e.A)
			} else {
				k = s.right(&e.B)
			}
			h := s.hash(&k)
			put(job.OwnerOf(int(h%uint64(s.subs[0].s.c.K)), s.subs[0].s.c.K, len(s.subs)), e)
		}
	}
	for i := range s.subs {
		flush(i)
	}
}

func (s *Scaled[K, A, B, U]) pushTo(i, input int, b record.Any) {
	s.t.Helper()
	k := s.subs[i]
	if err := k.op.Push(input, b); err != nil {
		s.t.Fatalf("push: %v", err)
	}
	k.settle()
}

// freeze takes a snapshot of all subtasks.
func (s *Scaled[K, A, B, U]) freeze() ([]job.StateHandle, map[string]*listSnapshot) {
	s.t.Helper()
	s.next++
	handles := []job.StateHandle{}
	lists := map[string]*listSnapshot{}
	for _, k := range s.subs {
		k.next = s.next - 1
		if c, ok := k.op.(Checkpointed); ok {
			items, err := c.Snapshot(s.next)
			if err != nil {
				s.t.Fatalf("snapshot: %v", err)
			}
			for name, list := range items {
				if lists[name] == nil {
					b, ok := k.op.(Broadcaster)
					lists[name] = &listSnapshot{broadcast: ok && b.Broadcast(name)}
					if i, ok := k.op.(Itemized); ok {
						lists[name].schema = i.ItemSchema(name)
					}
				}
				lists[name].items = append(lists[name].items, list)
			}
		}
		handles = append(handles, k.freeze()...)
	}
	return handles, lists
}

// restart stops all subtasks and restores them with that parallelism.
func (s *Scaled[K, A, B, U]) restart(par int) {
	s.t.Helper()
	handles, lists := s.freeze()
	s.Close()
	s.open(par, handles, lists)
}

func (s *Scaled[K, A, B, U]) Close() {
	s.t.Helper()
	for _, k := range s.subs {
		k.close()
		s.Late += k.late
	}
}

func (s *Scaled[K, A, B, U]) end() {
	s.t.Helper()
	for _, k := range s.subs {
		if err := k.op.EndOfData(); err != nil {
			s.t.Fatalf("end of data: %v", err)
		}
		k.settle()
	}
}

// Rows are the records that came out.
func (s *Scaled[K, A, B, U]) Rows() (out []U) {
	for _, e := range s.out.events {
		if !e.mark {
			out = append(out, e.row)
		}
	}
	return out
}

// Entries counts what is in keyed state.
func (s *Scaled[K, A, B, U]) Entries() (n int64) {
	handles, _ := s.freeze()
	for _, h := range handles {
		n += h.Entries
	}
	return n
}

func SameRows[U comparable](t fataler, what string, got, want []U) {
	t.Helper()
	n := map[U]int{}
	for _, u := range want {
		n[u]++
	}
	for _, u := range got {
		n[u]--
	}
	for u, k := range n {
		switch {
		case k > 0:
			t.Fatalf("%s: %v is missing %d times (%d rows, want %d)", what, u, k, len(got), len(want))
		case k < 0:
			t.Fatalf("%s: %v came %d times too often (%d rows, want %d)", what, u, -k, len(got), len(want))
		}
	}
}

// Scenario is how one run of an equivalence test goes: in which batches, with which restarts.
type Scenario struct {
	seed    uint64
	Backend string
	size    int
	Par     int
	Stops   int
}

// Scenarios calls f with each of a fixed set of runs: batch sizes from 1 to 4096, with and without
// restarts, on both backends.
func Scenarios(t *testing.T, f func(t *testing.T, s Scenario, rng *rand.Rand)) {
	for i, size := range []int{1, 2, 7, 64, 513, 4096} {
		for stops := range 3 {
			for _, backend := range []string{"fs", "memory"} {
				s := Scenario{seed: uint64(i*10 + stops), Backend: backend, size: size, Par: 1 + i%3, Stops: 3 * stops}
				f(t, s, rand.New(rand.NewPCG(s.seed, 1)))
			}
		}
	}
}

// Play feeds the events with the scenario's restarts, each with another parallelism, and ends the input.
func (s *Scaled[K, A, B, U]) Play(sc Scenario, rng *rand.Rand, events []Feed[A, B]) {
	s.t.Helper()
	cuts := make([]int, sc.Stops)
	for i := range cuts {
		cuts[i] = rng.IntN(len(events) + 1)
	}
	slices.Sort(cuts)
	from := 0
	for _, c := range cuts {
		s.Run(events[from:c], sc.size)
		s.restart(1 + rng.IntN(4))
		from = c
	}
	s.Run(events[from:], sc.size)
	s.end()
	s.Close()
}

// Interleave merges two streams in random order, each keeping its own, and puts watermarks that hold for
// both between them.
func Interleave[A, B any](rng *rand.Rand, as, bs []Feed[A, B]) []Feed[A, B] {
	var out []Feed[A, B]
	for len(as)+len(bs) > 0 {
		if rng.IntN(len(as)+len(bs)) < len(as) {
			out, as = append(out, as[0]), as[1:]
		} else {
			out, bs = append(out, bs[0]), bs[1:]
		}
	}
	// From the back: what is yet to come at each place.
	low := record.MaxTime
	var marked []Feed[A, B]
	for i := len(out) - 1; i >= 0; i-- {
		low = min(low, out[i].Time)
		marked = append(marked, out[i])
		if rng.IntN(6) == 0 && low > record.MinTime {
			marked = append(marked, Feed[A, B]{Input: rng.IntN(2), Mark: true, Time: low - 1})
		}
	}
	slices.Reverse(marked)
	return marked
}

// Through calls h.Record and emits f of what it emits.
func Through[K comparable, T, M, U any](h Handler[K, T, M], f func(*M) U) func(*KeyedContext[K, U], *T) {
	var got recorder[M]
	inner := KeyedContext[K, M]{Collector: newCollector[M](&got)}
	return func(c *KeyedContext[K, U], in *T) {
		inner.cur, inner.now, inner.time = c.cur, c.now, c.time
		h.Record(&inner, in)
		_ = inner.done()
		for _, e := range got.events {
			c.Emit(f(&e.row))
		}
		got.events = got.events[:0]
	}
}
