package operator

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/statebackend"
)

// Windows that overlap share panes: the pieces into which all their starts and ends cut time, each
// as long as the greatest common divisor of size and step. A record changes one pane, however many
// windows it is in. A window is the merge of its panes.
//
// The state holds panes in chunks of consecutive ones of a key. Where windows have many panes
// chunks are longer, so that a lookup that finds no chunk yet is rare.
//
// What is emitted per key is kept beside the state and made anew after a restore: the keys with
// records in the current window, each with two stacks (slideRun), so that moving on by one pane
// takes a bounded number of merges on average, and a key whose panes did not change takes none.

// firedState is the list state with the end of the last window that fired, per range of key groups.
const firedState = "fired"

// fewPanes is the most panes of a window for which each pane is a chunk of its own.
const fewPanes = 8

// chunkOf is the state's value: consecutive panes of a key.
type chunkOf[C any] struct {
	Has uint8 // Bit i: pane i has records.
	Acc C
}

// chunkArray is the accumulators of a chunk.
type chunkArray[A any] interface{ [1]A | [8]A }

// slideRun is a key with live panes.
//
// The panes of the current window are in two stacks: front has, for each of the older panes, the
// merge of it and of the later ones of front, the oldest pane last; back is the merge of the others.
type slideRun[K comparable, A any] struct {
	key   K
	hash  uint64
	live  int32 // Panes in the lists, of the current window or later; 0 for a free place.
	panes int32 // Panes of the current window.
	stale bool  // The stacks are made anew from the state.
	valid bool  // total is the merge of both stacks.
	full  bool  // back holds something.
	front []suffix[A]
	back  A
	total A
}

type suffix[A any] struct {
	start int64
	acc   A
}

// slidePane lists the runs with records in a pane.
type slidePane struct {
	start int64
	runs  []int32
}

type slidingOp[K comparable, T, A, R any, C chunkArray[A]] struct {
	hot    hotKeys[K]
	def    WindowAggregate[K, T, A, R]
	c      *Context
	hash   func(*K) uint64
	state  statebackend.Value[timerKey[K], chunkOf[C]]
	expiry timeIndex[paneRef[K]] // Chunks by the time when the last of their windows is gone.
	col    *Collector[R]
	seg    segments
	late   tooLate[T]
	key    timerKey[K] // Storage of the current key.
	plain  bool        // Accumulators hold no pointers.
	acc    A           // Scratch: what a window emits.
	other  A           // Scratch: what is merged.

	size, step, offset int64
	pane               int64 // Length of a pane,
	chunk              int64 // and of a chunk.

	// The pane of the record before: [from, to).
	from, to int64
	slot     int64 // Its chunk.
	bit      int   // Its place there.
	fate     fate  // Of records in it.

	panes   map[int64]*slidePane
	last    *slidePane   // The one that was used last.
	spare   []*slidePane // For other panes.
	waiting timeHeap     // Starts of panes that no window has reached.
	entered []*slidePane // Panes of the current window, by start.
	runs    []slideRun[K, A]
	free    []int32
	find    runIndex
	active  int // Runs with panes in the current window.

	fired int64   // End of the last window that fired, record.MinTime for none.
	done  []int64 // Restored with several of them: by key group; nil when all are fired.
	phase slidePhase
	end   int64 // Of the current window.
	next  int   // Where the present phase goes on.
}

// fate is what becomes of records in a pane.
type fate uint8

const (
	counts fate = iota // All windows are to come.
	behind             // Some window has been reached already.
	again              // Some window has fired and takes late records.
	gone
	outside // There is none: it is between two windows.
)

// slidePhase is how far the firing of a window has come.
type slidePhase uint8

const (
	slideIdle slidePhase = iota
	slideLeave
	slideEnter
	slideEmit
)

// NewSlidingWindow has windows that start at regular intervals emitted at their ends.
func NewSlidingWindow[K comparable, T, A, R any](def WindowAggregate[K, T, A, R]) WindowOperator {
	key := timerCodec[K]{def.KeyCodec}.Schema()
	fired := job.StateDecl{Name: firedState, Kind: "list"}
	pane, n := panesOf(def.Slide)
	if n <= fewPanes {
		return WindowOperator{
			State: []job.StateDecl{windowDecl(key, paneCodec[A, [1]A]{def.AccCodec, pane}.Schema()), fired},
			New:   func() Operator { return &slidingOp[K, T, A, R, [1]A]{def: def} }, Combines: def.combinable(),
		}
	}
	return WindowOperator{
		State: []job.StateDecl{windowDecl(key, paneCodec[A, [8]A]{def.AccCodec, pane}.Schema()), fired},
		New:   func() Operator { return &slidingOp[K, T, A, R, [8]A]{def: def} }, Combines: def.combinable(),
	}
}

// panesOf gives the length of a pane and their number in a window.
func panesOf(s Slide) (pane, n int64) {
	a, b := s.Size, s.Step
	for b != 0 {
		a, b = b, a%b
	}
	return a, s.Size / a
}

func (w *slidingOp[K, T, A, R, C]) Open(c *Context) error {
	w.c = c
	w.hash = codec.NewHasher(w.def.KeyCodec)
	w.hot.open(w.def.KeyCodec)
	w.col = newCollector[R](c.Out)
	w.late.open(c, w.def.Late)
	w.seg = segments{process: w.records, fire: w.fire, pass: w.pass, done: w.flush, now: c.Watermark}
	w.plain = !record.HasPointers(reflect.TypeFor[A]())
	w.size, w.step, w.offset = w.def.Slide.Size, w.def.Slide.Step, w.def.Slide.Offset
	w.pane, _ = panesOf(w.def.Slide)
	var acc C
	w.chunk = w.pane * int64(len(acc))
	w.panes = map[int64]*slidePane{}
	w.fired, w.end = record.MinTime, record.MinTime
	if err := w.readFired(c.Union[firedState]); err != nil {
		return err
	}
	hash := w.hash
	var err error
	w.state, err = statebackend.OpenValue(c.State, statebackend.ValueDesc[timerKey[K], chunkOf[C]]{
		Name: windowState, Key: timerCodec[K]{w.def.KeyCodec}, Value: paneCodec[A, C]{w.def.AccCodec, w.pane},
		Hash: func(k *timerKey[K]) (uint64, uint64) {
			h := hash(&k.Key)
			return h, slotAt(h, k.Time)
		},
	})
	return err
}

// readFired learns which windows have fired for which key groups.
func (w *slidingOp[K, T, A, R, C]) readFired(items [][]byte) error {
	g := w.c.Groups
	done := make([]int64, g.Last-g.First+1)
	for i := range done {
		done[i] = record.MinTime
	}
	for _, b := range items {
		if len(b) != 16 {
			return job.Errorf(job.ClassRefused, "window %q: a list entry of %d bytes, want 16", w.c.Name, len(b))
		}
		first, last := int(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:]))
		for i := max(first, g.First); i <= min(last, g.Last); i++ {
			done[i-g.First] = max(done[i-g.First], int64(binary.LittleEndian.Uint64(b[8:])))
		}
	}
	if len(done) == 0 {
		return nil
	}
	w.fired = slices.Min(done)
	if slices.Max(done) != w.fired {
		w.done = done
	}
	return nil
}

// Ready makes the lists of keys anew. Windows that were complete when the checkpoint was taken fire
// first.
func (w *slidingOp[K, T, A, R, C]) Ready() error {
	for k, v := range w.state.All() {
		h := w.hash(&k.Key)
		w.expiry.add(w.expires(k.Time), paneRef[K]{k.Key, h, k.Time})
		for i := range len(v.Acc) {
			if p := k.Time + int64(i)*w.pane; v.Has>>i&1 != 0 && w.lastEnd(p) > w.fired {
				w.join(p, &k.Key, h)
			}
		}
	}
	w.seg.firing = w.due(w.seg.now)
	return nil
}

func (w *slidingOp[K, T, A, R, C]) Push(_ int, a record.Any) error { return w.seg.push(a) }
func (w *slidingOp[K, T, A, R, C]) Pending() bool                  { return w.seg.pending() }
func (w *slidingOp[K, T, A, R, C]) Resume() error                  { return w.seg.resume() }
func (w *slidingOp[K, T, A, R, C]) Interruptible() bool            { return w.seg.interruptible() }
func (w *slidingOp[K, T, A, R, C]) EndOfData() error               { return w.seg.advance(record.MaxTime) }

// Prepare finishes the window that is being emitted, so that a checkpoint is between two windows.
func (w *slidingOp[K, T, A, R, C]) Prepare(job.CheckpointID) error {
	for w.phase != slideIdle {
		w.advance(firingRun)
		if w.col.err != nil {
			return w.col.err
		}
	}
	return w.flush()
}

// Snapshot keeps which windows have fired.
func (w *slidingOp[K, T, A, R, C]) Snapshot(job.CheckpointID) (map[string][][]byte, error) {
	g := w.c.Groups
	var items [][]byte
	item := func(first, last int, end int64) {
		if end == record.MinTime {
			return
		}
		b := binary.LittleEndian.AppendUint32(nil, uint32(first))
		b = binary.LittleEndian.AppendUint32(b, uint32(last))
		items = append(items, binary.LittleEndian.AppendUint64(b, uint64(end)))
	}
	if w.done == nil {
		item(g.First, g.Last, w.fired)
	}
	for i, end := range w.done {
		item(g.First+i, g.First+i, max(end, w.fired))
	}
	return map[string][][]byte{firedState: items}, nil
}

// Committed implements Checkpointed.
func (w *slidingOp[K, T, A, R, C]) Committed(job.CheckpointID) error { return nil }

// floorTo is the largest time of the grid (offset + a multiple of step) that is at or before t.
func floorTo(t, step, offset int64) int64 {
	r := (t - offset) % step
	if r < 0 {
		r += step
	}
	return t - r
}

// firstEnd and lastEnd are the ends of the first and the last window with the pane that starts at p.
func (s Slide) firstEnd(p int64) int64 { return floorTo(p-s.Size, s.Step, s.Offset) + s.Step + s.Size }
func (s Slide) lastEnd(p int64) int64  { return floorTo(p, s.Step, s.Offset) + s.Size }

func (w *slidingOp[K, T, A, R, C]) firstEnd(p int64) int64 { return w.def.Slide.firstEnd(p) }
func (w *slidingOp[K, T, A, R, C]) lastEnd(p int64) int64  { return w.def.Slide.lastEnd(p) }

// expires is the watermark at which the chunk that starts at c is needed no more.
func (w *slidingOp[K, T, A, R, C]) expires(c int64) int64 {
	return w.lastEnd(c+w.chunk-w.pane) - 1 + w.def.Lateness
}

// closed is the watermark, or that at which the last window fired if that is later.
func (w *slidingOp[K, T, A, R, C]) closed() int64 {
	if w.fired == record.MinTime {
		return w.seg.now
	}
	return max(w.seg.now, w.fired-1)
}

// at makes the pane of time t the current one.
func (w *slidingOp[K, T, A, R, C]) at(t int64) {
	w.from = floorTo(t, w.pane, w.offset)
	w.to = w.from + w.pane
	w.slot = floorTo(w.from, w.chunk, w.offset)
	w.bit = int((w.from - w.slot) / w.pane)
	now := w.closed()
	switch {
	case w.lastEnd(w.from) <= w.from:
		w.fate = outside
	case w.lastEnd(w.from)-1+w.def.Lateness <= now:
		w.fate = gone
	case w.firstEnd(w.from)-1 > now:
		w.fate = counts
	case w.def.Lateness > 0:
		w.fate = again
	default:
		w.fate = behind
	}
}

// HotKeys implements Skewed.
func (w *slidingOp[K, T, A, R, C]) HotKeys() job.HotKeys { return w.hot.shown() }

func (w *slidingOp[K, T, A, R, C]) records(a record.Any, from, to int) error {
	if b, ok := a.(*record.Batch[partial[K, A]]); ok {
		return w.partials(b, from, to)
	}
	b := batchOf[T](a)
	w.hot.look(b, from, to, w.def.Key, w.hash)
	haveHash := len(b.Hash) == len(b.Rows) && len(b.Hash) > 0
	if len(b.Times) != len(b.Rows) {
		return noEventTime(w.c)
	}
	w.from, w.to = 0, 0 // The watermark may have moved.
	for n := from; n < to; n++ {
		i := n
		if b.Sel != nil {
			i = int(b.Sel[n])
		}
		t := b.Times[i]
		if t < w.from || t >= w.to {
			if t == record.MinTime {
				return noEventTime(w.c)
			}
			w.at(t)
		}
		row := &b.Rows[i]
		if w.fate >= gone {
			if w.fate == gone {
				w.late.note(row, t, w.closed())
			}
			continue
		}
		w.key.Key, w.key.Time = w.def.Key(row), w.slot
		var h uint64
		if haveHash {
			h = b.Hash[i]
		} else {
			h = w.hash(&w.key.Key)
		}
		if acc, has := w.accOf(h); has {
			w.def.Add(acc, row)
		} else {
			w.def.start(acc, row)
		}
		if w.fate != counts {
			w.changed(h)
		}
	}
	return w.col.err
}

// accOf is the accumulator of the current key in the current pane, and whether the pane has records of it already.
func (w *slidingOp[K, T, A, R, C]) accOf(h uint64) (acc *A, has bool) {
	c, fresh := w.state.Upsert(h, slotAt(h, w.slot), &w.key)
	bit := uint8(1) << w.bit
	if c.Has&bit != 0 {
		return &c.Acc[w.bit], true
	}
	c.Has |= bit
	if fresh {
		w.expiry.add(w.expires(w.slot), paneRef[K]{w.key.Key, h, w.slot})
	}
	if w.lastEnd(w.from) > w.fired {
		w.join(w.from, &w.key.Key, h)
	}
	return &c.Acc[w.bit], false
}

// partials takes what senders have combined.
func (w *slidingOp[K, T, A, R, C]) partials(b *record.Batch[partial[K, A]], from, to int) error {
	lookPartials(&w.hot, b, from, to, w.hash)
	w.from, w.to = 0, 0 // The watermark may have moved.
	for i := from; i < to; i++ {
		row, t := &b.Rows[i], b.Times[i]
		if t == record.MinTime {
			return noEventTime(w.c)
		}
		if t < w.from || t >= w.to {
			w.at(t)
		}
		if w.fate >= gone {
			if w.fate == gone {
				w.late.counters.noteLate(row.Count, t, w.closed())
			}
			continue
		}
		w.key.Key, w.key.Time = row.Key, w.slot
		h := hashOf(b, i, w.hash)
		if acc, has := w.accOf(h); has {
			w.def.Merge(acc, &row.Acc)
		} else {
			*acc = row.Acc
		}
		if w.fate != counts {
			w.changed(h)
		}
	}
	return w.col.err
}

// changed sees to a pane of the current key that some window has been reached for.
func (w *slidingOp[K, T, A, R, C]) changed(h uint64) {
	if i := w.lookup(&w.key.Key, h); i >= 0 && w.from < w.end {
		w.runs[i].stale, w.runs[i].valid = true, false
	}
	if w.fate != again {
		return
	}
	now, key, pane := w.closed(), w.key.Key, w.from
	for end := w.firstEnd(pane); end <= w.lastEnd(pane) && end-1 <= now; end += w.step {
		if end-1+w.def.Lateness <= now {
			continue
		}
		first := true
		w.key.Key = key
		w.eachPane(&w.key.Key, h, end-w.size, end, func(_ int64, acc *A) {
			// From the latest pane to the earliest.
			if first {
				w.copyAcc(&w.acc, acc)
				first = false
				return
			}
			w.copyAcc(&w.other, acc)
			w.def.Merge(&w.other, &w.acc)
			w.acc = w.other
		})
		w.def.emit(w.col, end-1, key, end-w.size, end, Late, &w.acc)
	}
	w.key.Key = key
}

// copyAcc makes *dst an accumulator of its own.
func (w *slidingOp[K, T, A, R, C]) copyAcc(dst, src *A) {
	if w.plain {
		*dst = *src
		return
	}
	var v A
	w.def.AccCodec.Copy(&v, src)
	*dst = v
}

// eachPane calls f with the panes of a key in [from, to), the latest first.
func (w *slidingOp[K, T, A, R, C]) eachPane(key *K, h uint64, from, to int64, f func(start int64, acc *A)) {
	w.key.Key = *key
	for slot := floorTo(to-w.pane, w.chunk, w.offset); slot+w.chunk > from; slot -= w.chunk {
		w.key.Time = slot
		c := w.state.Get(h, slotAt(h, slot), &w.key)
		if c == nil {
			continue
		}
		for i := len(c.Acc) - 1; i >= 0; i-- {
			if p := slot + int64(i)*w.pane; c.Has>>i&1 != 0 && p >= from && p < to {
				f(p, &c.Acc[i])
			}
		}
	}
}

// join adds the key to the list of the pane that starts at p.
func (w *slidingOp[K, T, A, R, C]) join(p int64, key *K, h uint64) {
	l := w.last
	if l == nil || l.start != p {
		if l = w.panes[p]; l == nil {
			if n := len(w.spare); n > 0 {
				l, w.spare = w.spare[n-1], w.spare[:n-1]
			} else {
				l = &slidePane{}
			}
			l.start = p
			w.panes[p] = l
			if p < w.end {
				at, _ := slices.BinarySearchFunc(w.entered, p, func(l *slidePane, p int64) int { return int(min(max(l.start-p, -1), 1)) })
				w.entered = slices.Insert(w.entered, at, l)
			} else {
				w.waiting.push(p)
			}
		}
		w.last = l
	}
	i := w.lookup(key, h)
	if i < 0 {
		i = w.addRun(key, h)
	}
	r := &w.runs[i]
	r.live++
	l.runs = append(l.runs, i)
	if p < w.end {
		r.stale, r.valid = true, false
		if r.panes++; r.panes == 1 {
			w.active++
		}
	}
}

func (w *slidingOp[K, T, A, R, C]) addRun(key *K, h uint64) int32 {
	var i int32
	if n := len(w.free); n > 0 {
		i, w.free = w.free[n-1], w.free[:n-1]
	} else {
		i = int32(len(w.runs))
		w.runs = append(w.runs, slideRun[K, A]{})
	}
	r := &w.runs[i]
	r.key, r.hash = *key, h
	w.find.add(h, i)
	return i
}

// lookup finds the run of a key, or -1.
func (w *slidingOp[K, T, A, R, C]) lookup(key *K, h uint64) int32 {
	for s := w.find.first(h); ; s = w.find.after(s) {
		e := w.find.at(s)
		if e.run < 0 || e.hash == h && w.runs[e.run].key == *key {
			return e.run
		}
	}
}

// nextEnd is the end of the next window with records; ok is false when there is none.
func (w *slidingOp[K, T, A, R, C]) nextEnd() (end int64, ok bool) {
	if w.active > 0 {
		return w.end + w.step, true
	}
	if len(w.waiting) == 0 {
		return 0, false
	}
	end = w.firstEnd(w.waiting[0])
	if w.fired != record.MinTime {
		end = max(end, w.fired+w.step)
	}
	return end, true
}

func (w *slidingOp[K, T, A, R, C]) due(now int64) bool {
	if w.phase != slideIdle {
		return true
	}
	if end, ok := w.nextEnd(); ok && end-1 <= now {
		return true
	}
	at, ok := w.expiry.first()
	return ok && at <= now
}

func (w *slidingOp[K, T, A, R, C]) fire(now int64, limit int) (bool, error) {
	for limit > 0 && w.col.err == nil {
		if w.phase == slideIdle {
			end, ok := w.nextEnd()
			if !ok || end-1 > now {
				w.passed(now)
				w.expire(now, limit)
				break
			}
			w.end, w.phase, w.next = end, slideLeave, 0
		}
		limit -= w.advance(limit)
	}
	return w.due(now), w.col.err
}

// passed notes that the windows up to watermark now are over, also those without records so far: a
// late record does not bring them back.
func (w *slidingOp[K, T, A, R, C]) passed(now int64) {
	if now != record.MaxTime {
		w.fired = max(w.fired, floorTo(now+1-w.size, w.step, w.offset)+w.size)
		if w.active == 0 && (len(w.waiting) == 0 || w.waiting[0] >= w.fired) {
			w.end = w.fired
		}
	}
	if w.done != nil && slices.Max(w.done) <= w.fired {
		w.done = nil
	}
}

// expire removes chunks that no window needs.
func (w *slidingOp[K, T, A, R, C]) expire(now int64, limit int) {
	for range limit {
		at, ok := w.expiry.first()
		if !ok || at > now {
			return
		}
		p := w.expiry.pop()
		w.key.Key, w.key.Time = p.key, p.start
		w.state.Delete(p.hash, slotAt(p.hash, p.start), &w.key)
	}
}

// advance goes on with the firing of the current window and tells how much it did, about limit.
func (w *slidingOp[K, T, A, R, C]) advance(limit int) (done int) {
	switch w.phase {
	case slideLeave:
		done = w.leave(limit)
	case slideEnter:
		done = w.enter(limit)
	case slideEmit:
		done = w.emit(limit)
	}
	return done + 1
}

// leave takes the panes before the current window out.
func (w *slidingOp[K, T, A, R, C]) leave(limit int) (done int) {
	for len(w.entered) > 0 && w.entered[0].start < w.end-w.size {
		l := w.entered[0]
		for ; w.next < len(l.runs); w.next++ {
			if done++; done > limit {
				return done
			}
			w.leaves(l.runs[w.next], l.start)
		}
		w.entered = slices.Delete(w.entered, 0, 1)
		w.dropPane(l)
		w.next = 0
	}
	// Panes that were passed over: the windows in between had fired before a restore.
	for len(w.waiting) > 0 && w.waiting[0] < w.end-w.size {
		l := w.panes[w.waiting[0]]
		for _, i := range l.runs {
			w.release(i)
		}
		w.waiting.pop()
		w.dropPane(l)
	}
	w.phase, w.next = slideEnter, 0
	return done
}

func (w *slidingOp[K, T, A, R, C]) dropPane(l *slidePane) {
	delete(w.panes, l.start)
	if w.last == l {
		w.last = nil
	}
	if l.runs = l.runs[:0]; cap(l.runs) <= largeBucket {
		w.spare = append(w.spare, l)
	}
}

func (w *slidingOp[K, T, A, R, C]) leaves(i int32, start int64) {
	r := &w.runs[i]
	r.valid = false
	r.panes--
	switch n := len(r.front); {
	case r.panes == 0:
		var none A
		r.front, r.back, r.total, r.full, r.stale = r.front[:0], none, none, false, false
		w.active--
	case r.stale:
	case n > 0 && r.front[n-1].start == start:
		r.front[n-1] = suffix[A]{}
		r.front = r.front[:n-1]
	default:
		r.stale = true
	}
	w.release(i)
}

// release notes that a run is in one pane less.
func (w *slidingOp[K, T, A, R, C]) release(i int32) {
	r := &w.runs[i]
	if r.live--; r.live > 0 {
		return
	}
	w.find.remove(r.hash, i)
	*r = slideRun[K, A]{front: r.front[:0]}
	w.free = append(w.free, i)
	if len(w.free) == len(w.runs) {
		w.runs, w.free = w.runs[:0], w.free[:0]
	}
}

// enter takes the panes up to the end of the current window in.
func (w *slidingOp[K, T, A, R, C]) enter(limit int) (done int) {
	for len(w.waiting) > 0 && w.waiting[0] < w.end {
		l := w.panes[w.waiting[0]]
		slot := floorTo(l.start, w.chunk, w.offset)
		bit := int((l.start - slot) / w.pane)
		for ; w.next < len(l.runs); w.next++ {
			if done++; done > limit {
				return done
			}
			r := &w.runs[l.runs[w.next]]
			if r.panes++; r.panes == 1 {
				w.active++
			}
			r.valid = false
			if r.stale {
				continue
			}
			w.key.Key, w.key.Time = r.key, slot
			c := w.state.Get(r.hash, slotAt(r.hash, slot), &w.key)
			if r.full {
				w.def.Merge(&r.back, &c.Acc[bit])
			} else {
				w.copyAcc(&r.back, &c.Acc[bit])
				r.full = true
			}
		}
		w.waiting.pop()
		w.entered = append(w.entered, l)
		w.next = 0
	}
	w.phase, w.next = slideEmit, 0
	return done
}

// emit emits the current window of each key.
func (w *slidingOp[K, T, A, R, C]) emit(limit int) (done int) {
	start := w.end - w.size
	for ; w.next < len(w.runs); w.next++ {
		r := &w.runs[w.next]
		if r.panes == 0 {
			continue
		}
		if done++; done > limit {
			return done
		}
		if w.done != nil && w.done[w.group(r.hash)] >= w.end {
			continue
		}
		if !r.valid {
			w.refresh(r)
		}
		w.copyAcc(&w.acc, &r.total)
		w.def.emit(w.col, w.end-1, r.key, start, w.end, OnTime, &w.acc)
	}
	w.fired = w.end
	w.phase = slideIdle
	if w.done != nil && slices.Max(w.done) <= w.fired {
		w.done = nil
	}
	return done
}

func (w *slidingOp[K, T, A, R, C]) group(h uint64) int {
	return int(h%uint64(w.c.K)) - w.c.Groups.First
}

// refresh makes a run's total.
func (w *slidingOp[K, T, A, R, C]) refresh(r *slideRun[K, A]) {
	if r.stale {
		r.stale, r.full = false, false
		r.front = r.front[:0]
		w.eachPane(&r.key, r.hash, w.end-w.size, w.end, func(start int64, acc *A) {
			var v suffix[A]
			v.start = start
			w.copyAcc(&v.acc, acc)
			if n := len(r.front); n > 0 {
				w.def.Merge(&v.acc, &r.front[n-1].acc)
			}
			r.front = append(r.front, v)
		})
	}
	r.valid = true
	n := len(r.front)
	if n == 0 {
		w.copyAcc(&r.total, &r.back)
		return
	}
	w.copyAcc(&r.total, &r.front[n-1].acc)
	if r.full {
		w.def.Merge(&r.total, &r.back)
	}
}

func (w *slidingOp[K, T, A, R, C]) pass(m record.Mark) {
	w.col.mark(m)
	w.late.outs.mark(m)
}

func (w *slidingOp[K, T, A, R, C]) flush() error {
	if err := w.col.done(); err != nil {
		return err
	}
	return w.late.outs.done()
}

func (w *slidingOp[K, T, A, R, C]) Close() error {
	w.seg.close()
	w.late.outs.drop()
	if w.col != nil {
		w.col.drop()
	}
	return nil
}

// runIndex finds runs by the hash of their key: open addressing with linear probing. The zero value
// is empty.
type runIndex struct {
	slots []runSlot
	n     int
	shift uint8 // 64 - log2 of the number of slots.
}

type runSlot struct {
	hash uint64
	run  int32 // -1 in an empty slot.
}

var noRuns = runSlot{run: -1}

func (x *runIndex) first(h uint64) int {
	return int(h * 0x9E3779B97F4A7C15 >> (x.shift & 63))
}

func (x *runIndex) after(s int) int { return (s + 1) & (len(x.slots) - 1) }

func (x *runIndex) at(s int) runSlot {
	if uint(s) >= uint(len(x.slots)) {
		return noRuns
	}
	return x.slots[s]
}

func (x *runIndex) add(h uint64, run int32) {
	if 4*(x.n+1) > 3*len(x.slots) {
		old := x.slots
		size, shift := 16, uint8(60)
		if len(old) > 0 {
			size, shift = 2*len(old), x.shift-1
		}
		x.slots, x.shift = make([]runSlot, size), shift
		for i := range x.slots {
			x.slots[i] = noRuns
		}
		for _, e := range old {
			if e.run >= 0 {
				x.put(e)
			}
		}
	}
	x.n++
	x.put(runSlot{h, run})
}

func (x *runIndex) put(e runSlot) {
	s := x.first(e.hash)
	for x.slots[s].run >= 0 {
		s = x.after(s)
	}
	x.slots[s] = e
}

// remove takes a run out and moves those behind it that would not be found any more.
func (x *runIndex) remove(h uint64, run int32) {
	hole := x.first(h)
	for x.slots[hole].run != run {
		hole = x.after(hole)
	}
	x.n--
	mask := len(x.slots) - 1
	for s := x.after(hole); x.slots[s].run >= 0; s = x.after(s) {
		// The distance of an entry from its home shows whether it may move to the hole.
		if home := x.first(x.slots[s].hash); (s-home)&mask >= (s-hole)&mask {
			x.slots[hole] = x.slots[s]
			hole = s
		}
	}
	x.slots[hole] = noRuns
}

// paneCodec encodes a chunk as a byte that tells which panes have records, and their accumulators.
type paneCodec[A any, C chunkArray[A]] struct {
	acc  codec.Codec[A]
	pane int64 // Milliseconds, for the schema.
}

func (c paneCodec[A, C]) Append(dst []byte, v *chunkOf[C]) ([]byte, error) {
	dst = append(dst, v.Has)
	var err error
	for i := range len(v.Acc) {
		if v.Has>>i&1 != 0 {
			if dst, err = c.acc.Append(dst, &v.Acc[i]); err != nil {
				return dst, err
			}
		}
	}
	return dst, nil
}

func (c paneCodec[A, C]) Decode(src []byte, v *chunkOf[C]) (int, error) {
	if len(src) == 0 {
		return 0, fmt.Errorf("panes of a key at byte 0: truncated")
	}
	v.Has = src[0]
	if v.Has == 0 || int(v.Has)>>len(v.Acc) != 0 {
		return 0, fmt.Errorf("panes of a key at byte 0: %08b of %d panes", v.Has, len(v.Acc))
	}
	pos := 1
	for i := range len(v.Acc) {
		if v.Has>>i&1 != 0 {
			n, err := c.acc.Decode(src[pos:], &v.Acc[i])
			if err != nil {
				return pos + n, err
			}
			pos += n
		}
	}
	return pos, nil
}

func (c paneCodec[A, C]) Copy(dst, src *chunkOf[C]) {
	dst.Has = src.Has
	for i := range len(src.Acc) {
		if src.Has>>i&1 != 0 {
			c.acc.Copy(&dst.Acc[i], &src.Acc[i])
		}
	}
}

func (c paneCodec[A, C]) Schema() codec.Schema {
	var acc C
	return codec.Schema{Codec: "panes", Version: 1, Shape: fmt.Sprintf("%dx%dms:%s", len(acc), c.pane, c.acc.Schema())}
}

// Evolve reads what was made of older values.
func (c paneCodec[A, C]) Evolve(old codec.Schema) (_ codec.Codec[chunkOf[C]], err error) {
	if c.acc, err = evolvePart(c.acc, old, c.Schema()); err != nil {
		return nil, err
	}
	return c, nil
}
