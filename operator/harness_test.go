package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
	"github.com/cairnstream/cairn/statebackend/memory"
	"github.com/cairnstream/cairn/statebackend/statetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fataler is what a testing.T and a rapid.T have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// ev is a row or a mark of a stream, seen one by one.
type ev[T any] struct {
	mark bool
	kind record.MarkKind
	time int64
	row  T
}

func (e ev[T]) String() string {
	switch {
	case !e.mark:
		return fmt.Sprintf("%v@%d", e.row, e.time)
	case e.kind == record.Watermark:
		return fmt.Sprintf("W%d", e.time)
	case e.kind == record.Idle:
		return "idle"
	}
	return "active"
}

// unroll goes over b the slow and obvious way.
func unroll[T any](b *record.Batch[T]) []ev[T] {
	var out []ev[T]
	kept := make([]bool, len(b.Rows))
	for _, i := range b.Sel {
		kept[i] = true
	}
	marks := map[int][]record.Mark{}
	for _, m := range b.Marks {
		marks[int(m.Pos)] = append(marks[int(m.Pos)], m)
	}
	for pos := range len(b.Rows) + 1 {
		for _, m := range marks[pos] {
			out = append(out, ev[T]{mark: true, kind: m.Kind, time: m.Time})
		}
		if pos == len(b.Rows) || b.Sel != nil && !kept[pos] {
			continue
		}
		t := record.MinTime
		if len(b.Times) > 0 {
			t = b.Times[pos]
		}
		out = append(out, ev[T]{time: t, row: b.Rows[pos]})
	}
	return out
}

// tidy drops watermarks that another one follows at once.
func tidy[T any](in []ev[T]) []ev[T] {
	var out []ev[T]
	for _, e := range in {
		if n := len(out); n > 0 && e.mark && e.kind == record.Watermark && out[n-1].mark && out[n-1].kind == record.Watermark {
			out[n-1] = e
			continue
		}
		out = append(out, e)
	}
	return out
}

func same[T any](t fataler, what string, got, want []ev[T]) {
	t.Helper()
	got, want = tidy(got), tidy(want)
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("%s: event %d of %d is missing: %v", what, i, len(want), want[i])
		case i >= len(want):
			t.Fatalf("%s: event %d is too much: %v", what, i, got[i])
		case any(got[i]) != any(want[i]):
			t.Fatalf("%s: event %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

// sorted puts the rows between two marks in a fixed order.
func sorted[T any](in []ev[T]) []ev[T] {
	type named struct {
		ev[T]
		name string
	}
	var list []named
	for _, e := range tidy(in) {
		n := named{ev: e}
		if !e.mark {
			n.name = fmt.Sprint(e.row)
		}
		list = append(list, n)
	}
	for i := 0; i < len(list); {
		j := i
		for j < len(list) && !list[j].mark {
			j++
		}
		slices.SortFunc(list[i:j], func(a, b named) int {
			return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.name, b.name))
		})
		i = j + 1
	}
	out := make([]ev[T], len(list))
	for i := range list {
		out[i] = list[i].ev
	}
	return out
}

// recorder is an Output that unrolls what it gets. It spoils the rows before it releases them, as
// an owner may.
type recorder[T any] struct {
	events  []ev[T]
	batches int
	fail    error
}

func (r *recorder[T]) Emit(a record.Any) error {
	b := a.(*record.Batch[T])
	r.events = append(r.events, unroll(b)...)
	r.batches++
	spoil(b)
	return r.fail
}

func spoil[T any](b *record.Batch[T]) {
	var zero T
	for i := range b.Rows {
		b.Rows[i] = zero
	}
	for i := range b.Times {
		b.Times[i] = -77
	}
	b.Release()
}

// channelEnd is an exchange.Out that unrolls what it gets.
type channelEnd[T any] struct {
	recorder[T]
	check func(b *record.Batch[T])
}

func (c *channelEnd[T]) Send(a record.Any) error {
	if c.check != nil {
		c.check(a.(*record.Batch[T]))
	}
	return c.Emit(a)
}
func (c *channelEnd[T]) Control(record.Control) error { return nil }
func (c *channelEnd[T]) Close()                       {}

func ends[T any](n int) ([]*channelEnd[T], []exchange.Out) {
	list := make([]*channelEnd[T], n)
	outs := make([]exchange.Out, n)
	for i := range list {
		list[i] = &channelEnd[T]{}
		outs[i] = list[i]
	}
	return list, outs
}

var sizes = rapid.SampledFrom([]int{0, 1, 1, 2, 3, 7, 20, 20, 50, 50, 100, 100, 100, 511, 513, 1024, 4096})

// drawBatch makes a batch of any shape: with or without times, filtered or not, marks anywhere.
// The watermark only rises.
func drawBatch[T any](t *rapid.T, row func(i int) T, timed bool, w *int64) *record.Batch[T] {
	b := record.PoolOf[T]().Get()
	n := sizes.Draw(t, "rows")
	b.Rows = slices.Grow(b.Rows, n)
	seed := rapid.Uint64().Draw(t, "seed")
	next := func(k int) int {
		seed = seed*6364136223846793005 + 1442695040888963407
		return int(seed>>33) % k
	}
	density := []int{0, 1, 200}[next(3)]
	for i := range n {
		if density > 0 && next(density) == 0 {
			drawMark(b, next, w)
		}
		b.Rows = append(b.Rows, row(next(1<<20)))
		if timed {
			b.Times = append(b.Times, *w+int64(next(100))-20)
		}
		_ = i
	}
	if next(2) == 0 {
		drawMark(b, next, w)
	}
	switch next(4) {
	case 0:
		b.Sel = b.Selection()
		for i := range n {
			if next(3) > 0 {
				b.Sel = append(b.Sel, int32(i))
			}
		}
	case 1:
		b.Sel = b.Selection() // Nothing is left.
	}
	return b
}

func drawMark[T any](b *record.Batch[T], next func(int) int, w *int64) {
	switch next(8) {
	case 0:
		b.Mark(record.Idle, 0)
	case 1:
		b.Mark(record.Active, 0)
	default:
		*w += int64(next(30))
		b.Mark(record.Watermark, *w)
	}
}

// surroundings are the context of an operator under test.
type surroundings struct {
	c   *Context
	now time.Time
	mu  sync.Mutex
	// posted is what Post was given and not run yet.
	posted []func() error
	wake   chan struct{}
	mail   []job.Task
}

func surround(out Output) *surroundings {
	s := &surroundings{now: time.Unix(1000, 0), wake: make(chan struct{}, 1)}
	s.c = &Context{
		Context: context.Background(), Name: "op", Parallelism: 1, K: 8, Groups: job.GroupRange{First: 0, Last: 7},
		Settings: job.DefaultSettings(), Watermark: record.MinTime, Out: out, Log: zap.NewNop(),
		Now: func() time.Time { return s.now },
		Post: func(f func() error) {
			s.mu.Lock()
			s.posted = append(s.posted, f)
			s.mu.Unlock()
			select {
			case s.wake <- struct{}{}:
			default:
			}
		},
		Enumerator: "op.splits", Mail: func(to job.Task, _ []byte) { s.mail = append(s.mail, to) },
		Counters: &Counters{},
	}
	return s
}

// run runs what was posted so far.
func (s *surroundings) run() error {
	s.mu.Lock()
	list := s.posted
	s.posted = nil
	s.mu.Unlock()
	for _, f := range list {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// await runs what is posted until cond holds.
func (s *surroundings) await(t fataler, what string, cond func() bool) error {
	t.Helper()
	timeout := time.After(10 * time.Second)
	for {
		if err := s.run(); err != nil {
			return err
		}
		if cond() {
			return nil
		}
		select {
		case <-s.wake:
		case <-timeout:
			t.Fatalf("waiting for %s", what)
		}
	}
}

var factories = map[string]statebackend.Factory{"fs": fs.Factory{}, "memory": memory.Factory{}}

// keyedOp runs a keyed operator on a backend, with restores.
type keyedOp struct {
	t       fataler
	factory statebackend.Factory
	make    func() Operator
	out     Output
	s       *surroundings
	op      Operator
	objects *statetest.Objects
	next    job.CheckpointID
	late    int64 // Of operators before the present one.
}

func startKeyed(t fataler, backend string, out Output, mk func() Operator) *keyedOp {
	k := &keyedOp{t: t, factory: factories[backend], make: mk, out: out, objects: statetest.NewObjects()}
	k.open(record.MinTime, nil)
	return k
}

func (k *keyedOp) open(watermark int64, handles []job.StateHandle) {
	k.t.Helper()
	k.s = surround(k.out)
	b, err := k.factory.New(context.Background(), statebackend.Params{Operator: "op", Groups: k.s.c.Groups, K: k.s.c.K, MaxConcurrent: 1})
	if err != nil {
		k.t.Fatalf("%v", err)
	}
	k.s.c.State, k.s.c.Watermark = b, watermark
	k.op = k.make()
	if err := k.op.Open(k.s.c); err != nil {
		k.t.Fatalf("open: %v", err)
	}
	if handles != nil {
		if err := b.Restore(context.Background(), k.objects, handles); err != nil {
			k.t.Fatalf("restore: %v", err)
		}
		if u := b.Unopened(); len(u) > 0 {
			k.t.Fatalf("states %v were not opened", u)
		}
	}
	if err := k.op.(Restorable).Ready(); err != nil {
		k.t.Fatalf("ready: %v", err)
	}
	k.settle()
}

// settle lets the operator do what it held back.
func (k *keyedOp) settle() {
	k.t.Helper()
	y := k.op.(Yielder)
	for y.Pending() {
		if err := y.Resume(); err != nil {
			k.t.Fatalf("resume: %v", err)
		}
		k.s.c.State.Merge(time.Millisecond)
	}
}

func (k *keyedOp) push(b record.Any) {
	k.t.Helper()
	if err := k.op.Push(0, b); err != nil {
		k.t.Fatalf("push: %v", err)
	}
	k.settle()
}

// freeze takes a snapshot and writes it.
func (k *keyedOp) freeze() []job.StateHandle {
	k.t.Helper()
	k.next++
	snap, err := k.s.c.State.Freeze(k.next)
	if err != nil {
		k.t.Fatalf("freeze: %v", err)
	}
	handles, err := snap.Write(context.Background(), k.objects)
	if err != nil {
		k.t.Fatalf("write: %v", err)
	}
	snap.Release()
	if handles == nil {
		handles = []job.StateHandle{}
	}
	return handles
}

// restart snapshots and restores.
func (k *keyedOp) restart(watermark int64) {
	k.t.Helper()
	handles := k.freeze()
	k.close()
	k.open(watermark, handles)
}

func (k *keyedOp) close() {
	k.late += k.s.c.Counters.Late.Load()
	if err := k.op.Close(); err != nil {
		k.t.Fatalf("close: %v", err)
	}
	if err := k.s.c.State.Close(); err != nil {
		k.t.Fatalf("close of state: %v", err)
	}
}
