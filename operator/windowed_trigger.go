package operator

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/statebackend"
)

// WindowTrigger says when a window is emitted beside its end. The zero value is: for each late
// record, with all of its records.
type WindowTrigger struct {
	EarlyCount, LateCount int64 // Before or behind the end: whenever so many records came; 0 for never.
	EarlyEvery, LateEvery int64 // And so many milliseconds of processing time behind a record; 0 for never.
	// Purge has each firing take the records along: the next one is of those that came since.
	Purge bool
	// Rest has the firing at the end left out when no record came since the one before.
	Rest bool
}

// firing is the state of a window with a trigger.
type firing[A any] struct {
	Count int64 // Records since it was emitted.
	Last  int64 // The latest event time.
	Next  int64 // The processing time at which it is emitted, in milliseconds since 1970; 0 for none.
	Fired bool  // The watermark has reached its end.
	Has   bool  // Acc has records.
	Acc   A
}

// triggerOp keeps an accumulator for each key and window, and emits it by a trigger.
type triggerOp[K comparable, T, A, R any] struct {
	hot    hotKeys[K]
	def    WindowAggregate[K, T, A, R]
	c      *Context
	hash   func(*K) uint64
	state  statebackend.Value[timerKey[K], firing[A]]
	index  timeIndex[paneRef[K]] // Windows by the watermark at which something happens to them.
	clock  timeIndex[paneRef[K]] // The same by processing time.
	col    *Collector[R]
	seg    segments
	late   tooLate[T]
	key    timerKey[K] // Storage of the current key.
	plain  bool
	acc    A       // Scratch: what a window emits.
	starts []int64 // Scratch: the windows of a record.
}

// NewTriggeredWindow has windows emitted as their trigger says. Each has a state of its own, also those that overlap.
func NewTriggeredWindow[K comparable, T, A, R any](def WindowAggregate[K, T, A, R]) WindowOperator {
	return WindowOperator{
		State: []job.StateDecl{windowDecl(timerCodec[K]{def.KeyCodec}.Schema(), firingCodec[A]{def.AccCodec}.Schema())},
		New:   func() Operator { return &triggerOp[K, T, A, R]{def: def} },
	}
}

func (w *triggerOp[K, T, A, R]) Open(c *Context) error {
	w.c = c
	w.hash = codec.NewHasher(w.def.KeyCodec)
	w.hot.open(w.def.KeyCodec)
	w.col = newCollector[R](c.Out)
	w.late.open(c, w.def.Late)
	w.seg = segments{process: w.records, fire: w.fire, pass: w.pass, done: w.done, now: c.Watermark}
	w.plain = !record.HasPointers(reflect.TypeFor[A]())
	hash := w.hash
	var err error
	w.state, err = statebackend.OpenValue(c.State, statebackend.ValueDesc[timerKey[K], firing[A]]{
		Name: windowState, Key: timerCodec[K]{w.def.KeyCodec}, Value: firingCodec[A]{w.def.AccCodec},
		Hash: func(k *timerKey[K]) (uint64, uint64) {
			h := hash(&k.Key)
			return h, slotAt(h, k.Time)
		},
	})
	return err
}

// Ready rebuilds the indices. Windows that were complete when the checkpoint was taken fire first.
func (w *triggerOp[K, T, A, R]) Ready() error {
	for k, s := range w.state.All() {
		p := paneRef[K]{k.Key, w.hash(&k.Key), k.Time}
		if end := w.endOf(k.Time); end != record.MaxTime {
			at := w.onTime(end)
			if s.Fired {
				at = w.closing(end)
			}
			w.index.add(at, p)
		}
		if s.Next != 0 {
			w.clock.add(s.Next, p)
		}
	}
	first, ok := w.index.first()
	w.seg.firing = ok && first <= w.seg.now
	return nil
}

func (w *triggerOp[K, T, A, R]) Push(_ int, a record.Any) error { return w.seg.push(a) }
func (w *triggerOp[K, T, A, R]) Pending() bool                  { return w.seg.pending() }
func (w *triggerOp[K, T, A, R]) Resume() error                  { return w.seg.resume() }
func (w *triggerOp[K, T, A, R]) Interruptible() bool            { return w.seg.interruptible() }

// EndOfData has every window fire, also those without an end.
func (w *triggerOp[K, T, A, R]) EndOfData() error {
	for k := range w.state.All() {
		if w.endOf(k.Time) == record.MaxTime {
			w.index.add(record.MaxTime, paneRef[K]{k.Key, w.hash(&k.Key), k.Time})
		}
	}
	return w.seg.advance(record.MaxTime)
}

// Deadline is when the next window is emitted by processing time.
func (w *triggerOp[K, T, A, R]) Deadline() (time.Time, bool) {
	ms, ok := w.clock.first()
	if !ok {
		return time.Time{}, false
	}
	return time.UnixMilli(ms), true
}

// Tick emits windows by processing time.
func (w *triggerOp[K, T, A, R]) Tick(now time.Time) error {
	ms := now.UnixMilli()
	for range firingRun {
		at, ok := w.clock.first()
		if !ok || at > ms {
			break
		}
		p := w.clock.pop()
		w.key.Key, w.key.Time = p.key, p.start
		s := w.state.Get(p.hash, slotAt(p.hash, p.start), &w.key)
		if s == nil || s.Next != at {
			continue // It was emitted otherwise.
		}
		s, _ = w.state.Upsert(p.hash, slotAt(p.hash, p.start), &w.key)
		w.emit(p.hash, p.start, s, Early)
	}
	return w.done()
}

// endOf is the end of the window that starts at start, record.MaxTime if it has none.
func (w *triggerOp[K, T, A, R]) endOf(start int64) int64 {
	if w.def.Slide.Size > 0 {
		return start + w.def.Slide.Size
	}
	return w.def.EndOf(start)
}

// onTime is the watermark at which a window is complete, closing that at which it takes no more.
func (w *triggerOp[K, T, A, R]) onTime(end int64) int64 {
	if end == record.MaxTime {
		return end
	}
	return end - 1
}

func (w *triggerOp[K, T, A, R]) closing(end int64) int64 {
	if end == record.MaxTime {
		return end
	}
	return end - 1 + w.def.Lateness
}

// windows puts the starts of the windows with time t into starts.
func (w *triggerOp[K, T, A, R]) windows(t int64) {
	w.starts = w.starts[:0]
	if s := w.def.Slide; s.Size > 0 {
		for start := floorTo(t-s.Size, s.Step, s.Offset) + s.Step; start <= t; start += s.Step {
			w.starts = append(w.starts, start)
		}
		return
	}
	if start, end := w.def.Assign(t); start <= t && t < end {
		w.starts = append(w.starts, start)
	}
}

// HotKeys implements Skewed.
func (w *triggerOp[K, T, A, R]) HotKeys() job.HotKeys { return w.hot.shown() }

func (w *triggerOp[K, T, A, R]) records(a record.Any, from, to int) error {
	b := batchOf[T](a)
	w.hot.look(b, from, to, w.def.Key, w.hash)
	haveHash := len(b.Hash) == len(b.Rows) && len(b.Hash) > 0
	if len(b.Times) != len(b.Rows) {
		return noEventTime(w.c)
	}
	for n := from; n < to; n++ {
		i := n
		if b.Sel != nil {
			i = int(b.Sel[n])
		}
		t := b.Times[i]
		if t == record.MinTime {
			return noEventTime(w.c)
		}
		row := &b.Rows[i]
		w.key.Key = w.def.Key(row)
		var h uint64
		if haveHash {
			h = b.Hash[i]
		} else {
			h = w.hash(&w.key.Key)
		}
		w.windows(t)
		taken := len(w.starts) == 0 // Between two windows.
		for _, start := range w.starts {
			if w.closing(w.endOf(start)) > w.seg.now {
				taken = true
				w.take(row, t, h, start)
			}
		}
		if !taken {
			w.late.note(row, t, w.seg.now)
		}
	}
	return w.col.err
}

// take adds a record of the current key to a window.
func (w *triggerOp[K, T, A, R]) take(row *T, t int64, h uint64, start int64) {
	w.key.Time = start
	s, fresh := w.state.Upsert(h, slotAt(h, start), &w.key)
	if s.Has {
		w.def.Add(&s.Acc, row)
		s.Last = max(s.Last, t)
	} else {
		w.def.start(&s.Acc, row)
		s.Has, s.Last = true, t
	}
	s.Count++
	if fresh {
		end := w.endOf(start)
		at := w.onTime(end)
		if at <= w.seg.now {
			s.Fired = true
			at = w.closing(end)
		}
		if end != record.MaxTime {
			w.index.add(at, paneRef[K]{w.key.Key, h, start})
		}
	}
	count, every := w.def.Trigger.EarlyCount, w.def.Trigger.EarlyEvery
	if s.Fired {
		count, every = w.def.Trigger.LateCount, w.def.Trigger.LateEvery
		if count == 0 && every == 0 {
			count = 1
		}
	}
	switch {
	case count > 0 && s.Count >= count:
		w.emit(h, start, s, Early)
	case every > 0 && s.Next == 0:
		s.Next = w.c.Now().UnixMilli() + every
		w.clock.add(s.Next, paneRef[K]{w.key.Key, h, start})
	}
}

// emit emits a window of the current key, s in the state. A firing that is not OnTime is Early or
// Late as the window is.
func (w *triggerOp[K, T, A, R]) emit(h uint64, start int64, s *firing[A], f Firing) {
	if f != OnTime && s.Fired {
		f = Late
	}
	end := w.endOf(start)
	at := end - 1
	if end == record.MaxTime {
		at = s.Last
	}
	s.Count, s.Next = 0, 0
	if w.plain || w.def.Trigger.Purge {
		w.acc = s.Acc
	} else {
		var v A
		w.def.AccCodec.Copy(&v, &s.Acc)
		w.acc = v
	}
	if w.def.Trigger.Purge {
		var none A
		s.Acc, s.Has = none, false
		if end == record.MaxTime {
			w.state.Delete(h, slotAt(h, start), &w.key)
		}
	}
	w.def.emit(w.col, at, w.key.Key, start, end, f, &w.acc)
}

func (w *triggerOp[K, T, A, R]) fire(now int64, limit int) (bool, error) {
	for range limit {
		at, ok := w.index.first()
		if !ok || at > now || w.col.err != nil {
			return false, w.col.err
		}
		p := w.index.pop()
		slot := slotAt(p.hash, p.start)
		w.key.Key, w.key.Time = p.key, p.start
		if w.state.Get(p.hash, slot, &w.key) == nil {
			continue
		}
		s, _ := w.state.Upsert(p.hash, slot, &w.key)
		end := w.endOf(p.start)
		if s.Fired {
			if s.Count > 0 { // Late records that were to wait for others.
				w.emit(p.hash, p.start, s, Late)
			}
			w.state.Delete(p.hash, slot, &w.key)
			continue
		}
		s.Fired = true
		if s.Has && (s.Count > 0 || !w.def.Trigger.Rest) {
			w.emit(p.hash, p.start, s, OnTime)
		}
		if at >= w.closing(end) {
			w.state.Delete(p.hash, slot, &w.key)
		} else {
			w.index.add(w.closing(end), p)
		}
	}
	first, ok := w.index.first()
	return ok && first <= now, w.col.err
}

func (w *triggerOp[K, T, A, R]) pass(m record.Mark) {
	w.col.mark(m)
	w.late.outs.mark(m)
}

func (w *triggerOp[K, T, A, R]) done() error {
	if err := w.col.done(); err != nil {
		return err
	}
	return w.late.outs.done()
}

func (w *triggerOp[K, T, A, R]) Close() error {
	w.seg.close()
	w.late.outs.drop()
	if w.col != nil {
		w.col.drop()
	}
	return nil
}

// firingCodec encodes a firing as three numbers of 8 bytes, a byte of flags, and the accumulator if
// there is one.
type firingCodec[A any] struct{ acc codec.Codec[A] }

func (c firingCodec[A]) Append(dst []byte, v *firing[A]) ([]byte, error) {
	for _, n := range [...]int64{v.Count, v.Last, v.Next} {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(n))
	}
	var flags byte
	if v.Fired {
		flags |= 1
	}
	if !v.Has {
		return append(dst, flags), nil
	}
	return c.acc.Append(append(dst, flags|2), &v.Acc)
}

func (c firingCodec[A]) Decode(src []byte, v *firing[A]) (int, error) {
	if len(src) < 25 {
		return 0, fmt.Errorf("window at byte 0: %d bytes, want at least 25", len(src))
	}
	for i, n := range [...]*int64{&v.Count, &v.Last, &v.Next} {
		*n = int64(binary.LittleEndian.Uint64(src[8*i:]))
	}
	v.Fired, v.Has = src[24]&1 != 0, src[24]&2 != 0
	if !v.Has {
		return 25, nil
	}
	n, err := c.acc.Decode(src[25:], &v.Acc)
	return 25 + n, err
}

func (c firingCodec[A]) Copy(dst, src *firing[A]) {
	*dst = firing[A]{Count: src.Count, Last: src.Last, Next: src.Next, Fired: src.Fired, Has: src.Has}
	if src.Has {
		c.acc.Copy(&dst.Acc, &src.Acc)
	}
}

func (c firingCodec[A]) Schema() codec.Schema {
	return codec.Schema{Codec: "firing", Version: 1, Shape: c.acc.Schema().String()}
}

// Evolve reads what was made of older values.
func (c firingCodec[A]) Evolve(old codec.Schema) (_ codec.Codec[firing[A]], err error) {
	if c.acc, err = evolvePart(c.acc, old, c.Schema()); err != nil {
		return nil, err
	}
	return c, nil
}
