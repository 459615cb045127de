package operator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/statetest"
)

// fleet runs the subtasks of a keyed operator, with checkpoints in the middle of what they do and
// restores with other parallelisms.
type fleet[T, R any] struct {
	t       fataler
	backend string
	make    func() Operator
	key     func(*T) uint64 // Hash of the key.
	subs    []*fleetSub[T]
	out     recorder[R]
	late    recorder[T]
	counted int64 // Late records of operators before the present ones.
	now     int64
	objects *statetest.Objects
	next    job.CheckpointID
	clock   time.Time

	// A sender that combines records, or nil: then they are dealt out as they are.
	route  RouterFactory
	router Router
	all    bool // Whether operators do all of what they have to when something is sent.
	in     *record.Batch[T]
}

// fleetOut is a channel from the sender to a subtask.
type fleetOut[T, R any] struct {
	f   *fleet[T, R]
	s   *fleetSub[T]
	all *bool
}

func (o fleetOut[T, R]) Send(b record.Any) error {
	o.f.run(o.s, true)
	if err := o.s.op.Push(0, b); err != nil {
		return err
	}
	o.f.run(o.s, *o.all)
	return nil
}

func (o fleetOut[T, R]) Control(record.Control) error { return nil }
func (o fleetOut[T, R]) Close()                       {}

type fleetSub[T any] struct {
	op Operator
	s  *surroundings
	b  *record.Batch[T]
}

const fleetGroups = 13

func newFleet[T, R any](t fataler, backend string, key func(*T) uint64, mk func() Operator, route RouterFactory, n int) *fleet[T, R] {
	f := &fleet[T, R]{t: t, backend: backend, make: mk, key: key, route: route, now: record.MinTime, objects: statetest.NewObjects(), clock: time.UnixMilli(0)}
	f.open(n, nil, nil)
	return f
}

func (f *fleet[T, R]) open(n int, handles []job.StateHandle, lists map[string][][]byte) {
	f.t.Helper()
	f.subs = nil
	for i := range n {
		s := surround(&f.out)
		s.c.K, s.c.Groups = fleetGroups, job.GroupRange{First: (i*fleetGroups + n - 1) / n, Last: ((i+1)*fleetGroups - 1) / n}
		s.c.Side = func(string) Output { return &f.late }
		s.c.Now = func() time.Time { return f.clock }
		s.c.Watermark, s.c.Union, s.c.List = f.now, lists, lists
		b, err := factories[f.backend].New(context.Background(), statebackend.Params{Operator: "op", Groups: s.c.Groups, K: fleetGroups, MaxConcurrent: 1})
		if err != nil {
			f.t.Fatalf("%v", err)
		}
		s.c.State = b
		sub := &fleetSub[T]{op: f.make(), s: s, b: record.PoolOf[T]().Get()}
		if err := sub.op.Open(s.c); err != nil {
			f.t.Fatalf("open: %v", err)
		}
		if handles != nil {
			if err := b.Restore(context.Background(), f.objects, handles); err != nil {
				f.t.Fatalf("restore: %v", err)
			}
			if u := b.Unopened(); len(u) > 0 {
				f.t.Fatalf("states %v were not opened", u)
			}
		}
		if err := sub.op.(Restorable).Ready(); err != nil {
			f.t.Fatalf("ready: %v", err)
		}
		f.subs = append(f.subs, sub)
	}
	if f.route != nil {
		var outs []exchange.Out
		for _, s := range f.subs {
			outs = append(outs, fleetOut[T, R]{f, s, &f.all})
		}
		f.router, f.in = f.route(outs, fleetGroups), record.PoolOf[T]().Get()
	}
}

// run lets an operator do all of what it held back, or so much that a barrier may be taken.
func (f *fleet[T, R]) run(s *fleetSub[T], all bool) {
	f.t.Helper()
	y := s.op.(Yielder)
	for y.Pending() && (all || !y.Interruptible()) {
		if err := y.Resume(); err != nil {
			f.t.Fatalf("resume: %v", err)
		}
		s.s.c.State.Merge(time.Millisecond)
	}
}

func (f *fleet[T, R]) record(row T, t int64) {
	if f.router != nil {
		f.in.Append(row, t)
		if len(f.in.Rows) == 3 { // A sender has many batches between two flushes.
			f.emit()
		}
		return
	}
	s := f.subs[0]
	for _, o := range f.subs {
		if g := int(f.key(&row) % fleetGroups); o.s.c.Groups.First <= g && g <= o.s.c.Groups.Last {
			s = o
		}
	}
	s.b.Append(row, t)
}

func (f *fleet[T, R]) watermark(w int64) {
	f.now = max(f.now, w)
	if f.router != nil {
		f.in.Mark(record.Watermark, w)
		return
	}
	for _, s := range f.subs {
		s.b.Mark(record.Watermark, w)
	}
}

// push hands the batches on. What is then left to do may be left for a restore.
func (f *fleet[T, R]) push(all bool) {
	f.t.Helper()
	if f.router != nil {
		f.all = all
		f.emit()
		f.flush()
		return
	}
	for _, s := range f.subs {
		f.run(s, true)
		b := s.b
		s.b = record.PoolOf[T]().Get()
		if err := s.op.Push(0, b); err != nil {
			f.t.Fatalf("push: %v", err)
		}
		f.run(s, all)
	}
}

func (f *fleet[T, R]) emit() {
	f.t.Helper()
	b := f.in
	f.in = record.PoolOf[T]().Get()
	if err := f.router.Emit(b); err != nil {
		f.t.Fatalf("emit: %v", err)
	}
}

func (f *fleet[T, R]) flush() {
	f.t.Helper()
	if err := f.router.Flush(); err != nil {
		f.t.Fatalf("flush: %v", err)
	}
}

// drain has the sender give out all that it holds.
func (f *fleet[T, R]) drain() {
	f.t.Helper()
	if f.router == nil {
		return
	}
	if err := f.router.Drain(); err != nil {
		f.t.Fatalf("drain: %v", err)
	}
	f.flush()
}

// tick sets the clock and lets the operators know when they asked for it.
func (f *fleet[T, R]) tick(to time.Time) {
	f.t.Helper()
	f.push(true)
	f.clock = to
	for _, s := range f.subs {
		c, ok := s.op.(Clocked)
		for ok {
			if at, due := c.Deadline(); !due || at.After(to) {
				break
			}
			if err := c.Tick(to); err != nil {
				f.t.Fatalf("tick: %v", err)
			}
		}
	}
}

// restart takes a checkpoint and restores it with n subtasks.
func (f *fleet[T, R]) restart(n int) {
	f.t.Helper()
	f.push(false)
	f.drain()
	f.next++
	var handles []job.StateHandle
	lists := map[string][][]byte{}
	for _, s := range f.subs {
		if c, ok := s.op.(Checkpointed); ok {
			if err := c.Prepare(f.next); err != nil {
				f.t.Fatalf("prepare: %v", err)
			}
			l, err := c.Snapshot(f.next)
			if err != nil {
				f.t.Fatalf("snapshot: %v", err)
			}
			for name, items := range l {
				lists[name] = append(lists[name], items...)
			}
		}
		snap, err := s.s.c.State.Freeze(f.next)
		if err != nil {
			f.t.Fatalf("freeze: %v", err)
		}
		h, err := snap.Write(context.Background(), f.objects)
		if err != nil {
			f.t.Fatalf("write: %v", err)
		}
		snap.Release()
		handles = append(handles, h...)
	}
	f.close()
	f.open(n, handles, lists)
}

func (f *fleet[T, R]) close() {
	f.t.Helper()
	for _, s := range f.subs {
		f.counted += s.s.c.Counters.Late.Load()
		s.b.Release()
		if err := s.op.Close(); err != nil {
			f.t.Fatalf("close: %v", err)
		}
		if err := s.s.c.State.Close(); err != nil {
			f.t.Fatalf("close of state: %v", err)
		}
	}
}

// end ends the input and checks that no state is left.
func (f *fleet[T, R]) end() {
	f.t.Helper()
	f.push(true)
	f.drain()
	for _, s := range f.subs {
		if err := s.op.EndOfData(); err != nil {
			f.t.Fatalf("end: %v", err)
		}
		f.run(s, true)
	}
	for _, s := range f.subs {
		handles, err := freezeAll(s.s.c.State)
		if err != nil || handles > 0 {
			f.t.Fatalf("%d states are left at the end (%v)", handles, err)
		}
	}
	f.close()
}

func freezeAll(b statebackend.Backend) (int, error) {
	snap, err := b.Freeze(1 << 40)
	if err != nil {
		return 0, err
	}
	defer snap.Release()
	handles, err := snap.Write(context.Background(), statetest.NewObjects())
	return len(handles), err
}

// bagOf counts the rows among events.
func bagOf[T comparable](events []ev[T]) map[ev[T]]int {
	m := map[ev[T]]int{}
	for _, e := range events {
		if !e.mark {
			m[e]++
		}
	}
	return m
}

func sameBag[T comparable](t fataler, what string, got, want map[ev[T]]int) {
	t.Helper()
	if maps.Equal(got, want) {
		return
	}
	var diff []string
	for e, n := range want {
		if got[e] != n {
			diff = append(diff, fmt.Sprintf("%v: %d instead of %d", e, got[e], n))
		}
	}
	for e, n := range got {
		if want[e] == 0 {
			diff = append(diff, fmt.Sprintf("%v: %d instead of 0", e, n))
		}
	}
	slices.Sort(diff)
	t.Fatalf("%s: %d rows differ: %v", what, len(diff), diff[:min(len(diff), 8)])
}

// fired is what the windows of these tests emit. Order holds the values in the order of merging,
// as far as it is kept: the first record of the window's first pane first.
type fired struct {
	Key        string
	Start, End int64
	Sum, Count int64
	Firing     Firing
}

// plainSum has no pointers; listed has, so that sharing memory would show.
type listed struct{ Values []int64 }

// windowDef is an aggregation without windows.
func sumDef() WindowAggregate[string, int, sumCount, fired] {
	ac, err := codec.Default[sumCount]()
	if err != nil {
		panic(err)
	}
	return WindowAggregate[string, int, sumCount, fired]{
		Key: keyName, KeyCodec: textCodec(), AccCodec: ac, Late: "late",
		Zero:  func() sumCount { return sumCount{} },
		Add:   func(a *sumCount, v *int) { a.Sum += int64(*v); a.Count++ },
		Merge: func(a, b *sumCount) { a.Sum += b.Sum; a.Count += b.Count },
		Emit: func(k string, start, end int64, f Firing, a *sumCount, out *Collector[fired]) {
			out.Emit(fired{k, start, end, a.Sum, a.Count, f})
			a.Sum, a.Count = -1, -1 // It is ours.
		},
	}
}

func listDef() WindowAggregate[string, int, listed, fired] {
	ac, err := codec.Default[listed]()
	if err != nil {
		panic(err)
	}
	d := sumDef()
	return WindowAggregate[string, int, listed, fired]{
		Key: d.Key, KeyCodec: d.KeyCodec, AccCodec: ac, Late: d.Late,
		Zero:  func() listed { return listed{} },
		Add:   func(a *listed, v *int) { a.Values = append(a.Values, int64(*v)) },
		First: func(a *listed, v *int) { a.Values = append(make([]int64, 0, 8), int64(*v)) },
		Merge: func(a, b *listed) { a.Values = append(a.Values, b.Values...) },
		Emit: func(k string, start, end int64, f Firing, a *listed, out *Collector[fired]) {
			r := fired{Key: k, Start: start, End: end, Count: int64(len(a.Values)), Firing: f}
			for i, v := range a.Values {
				r.Sum += v
				a.Values[i] = -1 << 40 // It is ours.
			}
			out.Emit(r)
		},
	}
}

// step is one thing that happens to an operator under test.
type step struct {
	kind stepKind
	row  int
	time int64 // Of a record, a watermark or the clock.
	n    int   // Subtasks after a restart.
}

type stepKind int

const (
	aRecord stepKind = iota
	aWatermark
	aBatch
	aTick
	aRestart
)

// readSteps reads steps from bytes, two each: any bytes are a script, for fuzzing.
func readSteps(data []byte) (steps []step) {
	w, n, clock := int64(-100), 0, int64(0)
	for ; len(data) >= 2; data = data[2:] {
		a, b := int(data[0]), int64(data[1])
		switch kind := a & 15; {
		case kind < 11:
			n++
			steps = append(steps, step{kind: aRecord, row: (a >> 4 & 3) + 13*n, time: w + b - 60})
		case kind < 13:
			w += b % 64
			steps = append(steps, step{kind: aWatermark, time: w})
		case kind == 13 && b%2 == 0:
			steps = append(steps, step{kind: aBatch})
		case kind == 13:
			clock += b
			steps = append(steps, step{kind: aTick, time: clock})
		case kind == 14:
			steps = append(steps, step{kind: aRestart, n: 1 + int(b%4)})
		default: // Far away.
			w += b * 8
			steps = append(steps, step{kind: aWatermark, time: w})
		}
	}
	return steps
}

// naive is what should come out: rows and late records.
type naive struct {
	rows     []ev[fired]
	lateRows []ev[int]
}

func (n *naive) emit(r fired) { n.rows = append(n.rows, ev[fired]{time: r.End - 1, row: r}) }

// naiveWindows does what the operators do with a map of all windows, record by record.
func naiveWindows(steps []step, lateness int64, trigger WindowTrigger, assign func(t int64) [][2]int64) *naive {
	type win struct {
		key        string
		start, end int64
	}
	type content struct {
		sumCount
		since, last, next int64 // Records since it was emitted, the latest of all, when the clock has it emitted.
		fired             bool
	}
	out, all, now, clock := &naive{}, map[win]*content{}, record.MinTime, int64(0)
	emit := func(k win, c *content, f Firing) {
		if f != OnTime && c.fired {
			f = Late
		}
		at := k.end - 1
		if k.end == record.MaxTime {
			at = c.last
		}
		out.rows = append(out.rows, ev[fired]{time: at, row: fired{k.key, k.start, k.end, c.Sum, c.Count, f}})
		c.since, c.next = 0, 0
		if trigger.Purge {
			c.sumCount = sumCount{}
		}
	}
	due := func(end, more int64) bool {
		if end == record.MaxTime {
			return now == record.MaxTime
		}
		return end-1+more <= now
	}
	pass := func(w int64) {
		now = max(now, w)
		for k, c := range all {
			if due(k.end, 0) && !c.fired {
				if c.fired = true; c.Count > 0 && (c.since > 0 || !trigger.Rest) {
					emit(k, c, OnTime)
				}
			}
			if due(k.end, lateness) {
				if c.since > 0 {
					emit(k, c, Late)
				}
				delete(all, k)
			}
		}
	}
	for _, s := range steps {
		switch s.kind {
		case aWatermark:
			pass(s.time)
		case aTick:
			clock = s.time
			for k, c := range all {
				if c.next > 0 && c.next <= clock {
					emit(k, c, Early)
				}
			}
		case aRecord:
			taken, in := false, assign(s.time)
			for _, w := range in {
				k := win{keyName(&s.row), w[0], w[1]}
				if due(k.end, lateness) {
					continue
				}
				taken = true
				c := all[k]
				if c == nil {
					c = &content{fired: due(k.end, 0)}
					all[k] = c
				}
				if c.Count == 0 {
					c.last = s.time
				}
				c.Sum, c.Count, c.since, c.last = c.Sum+int64(s.row), c.Count+1, c.since+1, max(c.last, s.time)
				count, every := trigger.EarlyCount, trigger.EarlyEvery
				if c.fired {
					if count, every = trigger.LateCount, trigger.LateEvery; count+every == 0 {
						count = 1
					}
				}
				if count > 0 && c.since >= count {
					emit(k, c, Early)
				} else if every > 0 && c.next == 0 {
					c.next = clock + every
				}
			}
			if !taken && len(in) > 0 {
				out.lateRows = append(out.lateRows, ev[int]{time: s.time, row: s.row})
			}
		}
	}
	pass(record.MaxTime)
	return out
}

// play runs steps and compares.
func play(t fataler, backend string, steps []step, mk func() (Operator, RouterFactory), want *naive) {
	t.Helper()
	_, route := mk()
	f := newFleet[int, fired](t, backend, nameHash(), func() Operator { op, _ := mk(); return op }, route, 2)
	for _, s := range steps {
		switch s.kind {
		case aRecord:
			f.record(s.row, s.time)
		case aWatermark:
			f.watermark(s.time)
		case aBatch:
			f.push(true)
		case aTick:
			f.tick(time.UnixMilli(s.time))
		case aRestart:
			f.restart(s.n)
		}
	}
	f.end()
	sameBag(t, "windows", bagOf(f.out.events), bagOf(want.rows))
	if route == nil { // Combined records are only counted.
		sameBag(t, "late records", bagOf(f.late.events), bagOf(want.lateRows))
	}
	if f.counted != int64(len(want.lateRows)) {
		t.Fatalf("%d late records were counted, want %d", f.counted, len(want.lateRows))
	}
}

func nameHash() func(*int) uint64 {
	h := codec.NewHasher(textCodec())
	return func(v *int) uint64 { k := keyName(v); return h(&k) }
}

func slidingOf(s Slide) func(t int64) [][2]int64 {
	return func(t int64) (in [][2]int64) {
		for start := floorTo(t, s.Step, s.Offset); start > t-s.Size; start -= s.Step {
			in = append(in, [2]int64{start, start + s.Size})
		}
		return in
	}
}

func checkSliding(t fataler, backend string, s Slide, lateness int64, pointers bool, combine int, data []byte) {
	t.Helper()
	steps := readSteps(data)
	play(t, backend, steps, func() (Operator, RouterFactory) {
		if pointers {
			d := listDef()
			d.Slide, d.Lateness = s, lateness
			return windowAndRouter(d, combine)
		}
		d := sumDef()
		d.Slide, d.Lateness = s, lateness
		return windowAndRouter(d, combine)
	}, naiveWindows(steps, lateness, WindowTrigger{}, slidingOf(s)))
}

// drawCombine draws how many keys senders combine at a time: none, so few that they run out of room, or enough.
func drawCombine(t *rapid.T) int { return rapid.SampledFrom([]int{0, 1, 2, 64}).Draw(t, "combine") }

// drawScript draws bytes for readSteps. Long runs of records between watermarks occur too.
func drawScript(t *rapid.T) []byte {
	n := rapid.SampledFrom([]int{4, 20, 100, 1000}).Draw(t, "steps")
	return rapid.SliceOfN(rapid.Byte(), 0, 2*n).Draw(t, "script")
}

func TestSliding(t *testing.T) {
	for backend := range factories {
		t.Run(backend, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				step := rapid.Int64Range(1, 30).Draw(t, "step")
				s := Slide{Size: max(step+rapid.Int64Range(-30, 150).Draw(t, "more"), 1), Step: step, Offset: rapid.Int64Range(-20, 20).Draw(t, "offset")}
				lateness := rapid.SampledFrom([]int64{0, 0, 1, 10, 100}).Draw(t, "lateness")
				checkSliding(t, backend, s, lateness, rapid.Bool().Draw(t, "pointers"), drawCombine(t), drawScript(t))
			})
		})
	}
}

// naiveSessions does what the operator does with a list of all sessions.
func naiveSessions(steps []step, gap, lateness int64) *naive {
	type content struct {
		key         string
		first, last int64
		sumCount
		fired bool
	}
	out, now := &naive{}, record.MinTime
	var all []*content
	emit := func(c *content, f Firing) {
		out.emit(fired{c.key, c.first, c.last + gap, c.Sum, c.Count, f})
	}
	pass := func(w int64) {
		now = max(now, w)
		all = slices.DeleteFunc(all, func(c *content) bool {
			if end := c.last + gap - 1; end <= now {
				if !c.fired {
					c.fired = true
					emit(c, OnTime)
				}
				return end <= now-lateness
			}
			return false
		})
	}
	for _, s := range steps {
		switch s.kind {
		case aWatermark:
			pass(s.time)
		case aRecord:
			n := &content{keyName(&s.row), s.time, s.time, sumCount{int64(s.row), 1}, false}
			merged := false
			all = slices.DeleteFunc(all, func(c *content) bool {
				if c.key != n.key || s.time-c.last >= gap || c.first-s.time >= gap {
					return false
				}
				merged = true
				n.first, n.last = min(n.first, c.first), max(n.last, c.last)
				n.Sum += c.Sum
				n.Count += c.Count
				return true
			})
			if !merged && n.last+gap-1+lateness <= now {
				out.lateRows = append(out.lateRows, ev[int]{time: s.time, row: s.row})
				continue
			}
			if n.fired = n.last+gap-1 <= now; n.fired {
				emit(n, Late)
			}
			all = append(all, n)
		}
	}
	pass(record.MaxTime)
	return out
}

func checkSessions(t fataler, backend string, gap, lateness int64, pointers bool, combine int, data []byte) {
	t.Helper()
	steps := readSteps(data)
	play(t, backend, steps, func() (Operator, RouterFactory) {
		if pointers {
			d := listDef()
			d.Gap, d.Lateness = gap, lateness
			return windowAndRouter(d, combine)
		}
		d := sumDef()
		d.Gap, d.Lateness = gap, lateness
		return windowAndRouter(d, combine)
	}, naiveSessions(steps, gap, lateness))
}

func TestSessions(t *testing.T) {
	for backend := range factories {
		t.Run(backend, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				gap := rapid.Int64Range(1, 60).Draw(t, "gap")
				lateness := rapid.SampledFrom([]int64{0, 0, 1, 10, 100}).Draw(t, "lateness")
				checkSessions(t, backend, gap, lateness, rapid.Bool().Draw(t, "pointers"), drawCombine(t), drawScript(t))
			})
		})
	}
}

func FuzzSessions(f *testing.F) {
	f.Add(int64(10), int64(0), []byte("0123 abc 12\x0b\x20abcd\x0e\x02abcdefgh\x0f\x02"))
	f.Add(int64(20), int64(5), []byte("\x01\x50\x01\x64\x01\x5a\x0b\x10bbbb\x0b\x09\x1e\x01cccc\x0b\x30aabb\x0e\x03"))
	f.Add(int64(3), int64(50), []byte("\x01\x50\x11\x51\x0b\x3f\x0e\x01\x0b\x3f\x01\x30\x0b\x3f\x0b\x3f"))
	f.Fuzz(func(t *testing.T, gap, lateness int64, data []byte) {
		if len(data) > 1000 {
			data = data[:1000]
		}
		checkSessions(t, "memory", 1+mod(gap, 100), mod(lateness, 150), len(data)%2 == 0, len(data)&4, data)
	})
}

// Windows that do not overlap, with and without allowed lateness, with gaps between them, and
// windows that overlap and have a state each.
func TestAssigned(t *testing.T) {
	for backend := range factories {
		t.Run(backend, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				s := Slide{Size: rapid.Int64Range(1, 60).Draw(t, "size"), Offset: rapid.Int64Range(-20, 20).Draw(t, "offset")}
				s.Step = s.Size + rapid.Int64Range(0, 20).Draw(t, "between")
				lateness := rapid.SampledFrom([]int64{0, 0, 1, 10, 100}).Draw(t, "lateness")
				own := rapid.Bool().Draw(t, "overlap") // Windows overlap and each has a state of its own.
				if own {
					s.Step = 1 + s.Size/4
				}
				steps := readSteps(drawScript(t))
				pointers := rapid.Bool().Draw(t, "pointers")
				combine := 0
				if !own && lateness == 0 {
					combine = drawCombine(t)
				}
				play(t, backend, steps, func() (Operator, RouterFactory) {
					d, l := sumDef(), listDef()
					l.Lateness, d.Lateness = lateness, lateness
					if own {
						l.Slide, d.Slide = s, s
						// Late records are emitted at once, as without a trigger.
						l.Trigger, d.Trigger = WindowTrigger{LateCount: 1}, WindowTrigger{LateCount: 1}
					} else {
						d.Assign = func(t int64) (int64, int64) { f := floorTo(t, s.Step, s.Offset); return f, f + s.Size }
						d.EndOf = func(start int64) int64 { return start + s.Size }
						l.Assign, l.EndOf = d.Assign, d.EndOf
					}
					if pointers {
						return windowAndRouter(l, combine)
					}
					return windowAndRouter(d, combine)
				}, naiveWindows(steps, lateness, WindowTrigger{}, slidingOf(s)))
			})
		})
	}
}

// Triggers: early and late firings by count and by the clock, accumulating and purging, of windows
// that overlap or not and of those without an end.
func TestTriggers(t *testing.T) {
	for backend := range factories {
		t.Run(backend, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				count := func(name string) int64 { return rapid.SampledFrom([]int64{0, 0, 1, 2, 5}).Draw(t, name) }
				trigger := WindowTrigger{
					EarlyCount: count("early count"), LateCount: count("late count"),
					EarlyEvery: 20 * count("early every"), LateEvery: 20 * count("late every"),
					Purge: rapid.Bool().Draw(t, "purge"), Rest: rapid.Bool().Draw(t, "rest"),
				}
				if trigger == (WindowTrigger{}) {
					trigger.LateCount = 1 // As without.
				}
				lateness := rapid.SampledFrom([]int64{0, 0, 1, 10, 100}).Draw(t, "lateness")
				s := Slide{Size: rapid.Int64Range(1, 60).Draw(t, "size"), Offset: rapid.Int64Range(-20, 20).Draw(t, "offset")}
				s.Step = 1 + s.Size/2
				assign := slidingOf(s)
				endless := rapid.Bool().Draw(t, "endless")
				if endless {
					assign = func(int64) [][2]int64 { return [][2]int64{{record.MinTime, record.MaxTime}} }
				}
				steps := readSteps(drawScript(t))
				pointers := rapid.Bool().Draw(t, "pointers")
				play(t, backend, steps, func() (Operator, RouterFactory) {
					d, l := sumDef(), listDef()
					l.Lateness, d.Lateness, l.Trigger, d.Trigger = lateness, lateness, trigger, trigger
					if endless {
						d.Assign = func(int64) (int64, int64) { return record.MinTime, record.MaxTime }
						d.EndOf = func(int64) int64 { return record.MaxTime }
						l.Assign, l.EndOf, l.Endless, d.Endless = d.Assign, d.EndOf, true, true
					} else {
						l.Slide, d.Slide = s, s
					}
					if pointers {
						return newWindow(l), nil
					}
					return newWindow(d), nil
				}, naiveWindows(steps, lateness, trigger, assign))
			})
		})
	}
}

func FuzzSliding(f *testing.F) {
	f.Add(int64(10), int64(2), int64(0), int64(0), []byte("0123 abc 12\x0b\x20abcd\x0e\x02abcdefgh\x0f\x02"))
	f.Add(int64(7), int64(3), int64(1), int64(5), []byte("aaaa\x0b\x10bbbb\x0b\x09\x1e\x01cccc\x0b\x30aabb\x0e\x03"))
	f.Add(int64(100), int64(1), int64(0), int64(20), []byte("\x01\x50\x11\x51\x0b\x3f\x0e\x01\x0b\x3f\x01\x30\x0b\x3f\x0b\x3f"))
	f.Fuzz(func(t *testing.T, size, step, offset, lateness int64, data []byte) {
		s := Slide{Size: 2 + mod(size, 200), Offset: mod(offset, 50)}
		s.Step = 1 + mod(step, 2*s.Size)
		if len(data) > 1000 {
			data = data[:1000]
		}
		checkSliding(t, "memory", s, mod(lateness, 150), len(data)%2 == 0, len(data)&4, data)
	})
}

func mod(a, b int64) int64 { return (a%b + b) % b }

// windowAndRouter makes an operator and, if senders combine so many keys, their routers.
func windowAndRouter[K comparable, T, A, R any](def WindowAggregate[K, T, A, R], combine int) (Operator, RouterFactory) {
	if combine == 0 {
		return newWindow(def), nil
	}
	def.Late = ""
	return newWindow(def), def.combineRouter(combine)
}

// newWindow makes the operator that fits a definition.
func newWindow[K comparable, T, A, R any](def WindowAggregate[K, T, A, R]) Operator {
	switch {
	case def.Gap > 0:
		return NewSessionWindow(def).New()
	case def.Trigger != WindowTrigger{} || def.Endless || def.Lateness > 0 && def.Slide.Size == 0:
		return NewTriggeredWindow(def).New()
	case def.Slide.Size > 0:
		return NewSlidingWindow(def).New()
	}
	return NewWindow(def).New()
}
