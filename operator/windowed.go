package operator

import (
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/statebackend"
)

const windowState = "windows"

// WindowAggregate is the typed part of a windowed aggregation. operator/window makes it. What becomes an operator of it
// is said by who adds it, not found out when a job starts: a program compiles the operators of the windows that it has
// and no others. NewWindow and NewTriggeredWindow need Assign and EndOf, the latter or Slide; NewSlidingWindow needs
// Slide, NewSessionWindow Gap.
type WindowAggregate[K comparable, T, A, R any] struct {
	Key      func(*T) K
	KeyCodec codec.Codec[K]
	AccCodec codec.Codec[A]
	// Assign gives the window of a time. A time outside of what it returns is in no window.
	Assign func(time int64) (start, end int64)
	// Endless is set when a window has no end: its end is record.MaxTime.
	Endless bool
	// Keeps is set when records are not to be combined before the exchange: the accumulator keeps all of them, or they can
	// only be added one by one.
	Keeps bool
	// EndOf gives the end of the window that starts at start.
	EndOf func(start int64) int64
	// Slide has windows start at regular intervals. NewSlidingWindow needs Merge.
	Slide Slide
	// Gap is that of sessions: a record joins those of its key that are less than Gap milliseconds away.
	// Merge is needed.
	Gap int64

	Zero func() A
	Add  func(acc *A, in *T)
	// First makes the accumulator of a window's first record, instead of Zero and Add; nil for those.
	First func(acc *A, in *T)
	// Merge folds from, of the same or later times, into into.
	Merge func(into, from *A)
	// Result makes the record that a window emits. Fired, when it is set, is called instead where the
	// firing is not OnTime. Emit, when it is set, is called instead of both and may emit any number.
	// What acc points to is theirs to keep.
	Result func(key K, start, end int64, acc *A) R
	Fired  func(key K, start, end int64, firing Firing, acc *A) R
	Emit   func(key K, start, end int64, firing Firing, acc *A, out *Collector[R])

	// Lateness is for how many milliseconds behind its end a window takes late records. Each of them
	// has it emitted again at once, unless Trigger says otherwise. NewWindow knows none.
	Lateness int64
	// Trigger has windows of NewTriggeredWindow emitted at other times than their ends too.
	Trigger WindowTrigger
	// Late names the side output of the records that come too late for every window; empty for none.
	Late string
}

// Slide are windows of Size milliseconds that start every Step, at multiples of Step from Offset.
type Slide struct{ Size, Step, Offset int64 }

// Firing says why a window is emitted.
type Firing uint8

// The firings of a window.
const (
	// OnTime is when the watermark has reached the window's end.
	OnTime Firing = iota
	// Early is before that.
	Early
	// Late is behind that, for records that came late and within the allowed lateness.
	Late
)

// String names the firing.
func (f Firing) String() string {
	switch f {
	case Early:
		return "early"
	case Late:
		return "late"
	}
	return "on time"
}

// start makes acc the accumulator of a window with the one record in.
func (w *WindowAggregate[K, T, A, R]) start(acc *A, in *T) {
	if w.First != nil {
		var zero A
		*acc = zero
		w.First(acc, in)
		return
	}
	*acc = w.Zero()
	w.Add(acc, in)
}

// emit emits a window with event time at. acc is the callee's.
func (w *WindowAggregate[K, T, A, R]) emit(col *Collector[R], at int64, key K, start, end int64, f Firing, acc *A) {
	if w.Emit != nil {
		col.time = at
		w.Emit(key, start, end, f, acc, col)
		return
	}
	if f != OnTime && w.Fired != nil {
		*col.next(at) = w.Fired(key, start, end, f, acc)
		return
	}
	*col.next(at) = w.Result(key, start, end, acc)
}

// WindowOperator is an operator of windows: its states, and what makes it for a subtask.
type WindowOperator struct {
	State []job.StateDecl
	New   func() Operator
	// Combines tells that it takes records which were combined before the exchange: those of CombineRouter.
	Combines bool
}

// windowDecl declares the state of windows by key and time.
func windowDecl(key, value codec.Schema) job.StateDecl {
	return job.StateDecl{Name: windowState, Kind: "value", Key: key.String(), Value: value.String()}
}

// windowOp keeps one accumulator for each key and window, and emits it when the watermark has
// passed the window's end. The keys of a window are indexed by its end; the index is rebuilt from
// the state after a restore.
type windowOp[K comparable, T, A, R any] struct {
	hot   hotKeys[K]
	def   WindowAggregate[K, T, A, R]
	c     *Context
	hash  func(*K) uint64
	state statebackend.Value[timerKey[K], A]
	index timeIndex[paneRef[K]]
	col   *Collector[R]
	seg   segments
	key   timerKey[K] // Storage of the current key.
	late  tooLate[T]

	// The window of the record before, since the next one is mostly in it too.
	start, end int64
}

type paneRef[K comparable] struct {
	key   K
	hash  uint64
	start int64
}

// NewWindow has windows that do not overlap emitted at their ends.
func NewWindow[K comparable, T, A, R any](def WindowAggregate[K, T, A, R]) WindowOperator {
	return WindowOperator{
		State: []job.StateDecl{windowDecl(timerCodec[K]{def.KeyCodec}.Schema(), def.AccCodec.Schema())},
		New:   func() Operator { return &windowOp[K, T, A, R]{def: def} }, Combines: def.combinable(),
	}
}

func (w *windowOp[K, T, A, R]) Open(c *Context) error {
	w.c = c
	w.hash = codec.NewHasher(w.def.KeyCodec)
	w.hot.open(w.def.KeyCodec)
	w.col = newCollector[R](c.Out)
	w.late.open(c, w.def.Late)
	w.seg = segments{process: w.records, fire: w.fire, pass: w.pass, done: w.done, now: c.Watermark}
	hash := w.hash
	var err error
	w.state, err = statebackend.OpenValue(c.State, statebackend.ValueDesc[timerKey[K], A]{
		Name: windowState, Key: timerCodec[K]{w.def.KeyCodec}, Value: w.def.AccCodec,
		Hash: func(k *timerKey[K]) (uint64, uint64) {
			h := hash(&k.Key)
			return h, slotAt(h, k.Time)
		},
	})
	return err
}

// Ready rebuilds the index. Windows that were complete when the checkpoint was taken fire first.
func (w *windowOp[K, T, A, R]) Ready() error {
	for k := range w.state.All() {
		w.index.add(w.def.EndOf(k.Time)-1, paneRef[K]{k.Key, w.hash(&k.Key), k.Time})
	}
	first, ok := w.index.first()
	w.seg.firing = ok && first <= w.seg.now
	return nil
}

func (w *windowOp[K, T, A, R]) Push(_ int, a record.Any) error { return w.seg.push(a) }
func (w *windowOp[K, T, A, R]) Pending() bool                  { return w.seg.pending() }
func (w *windowOp[K, T, A, R]) Resume() error                  { return w.seg.resume() }
func (w *windowOp[K, T, A, R]) Interruptible() bool            { return w.seg.interruptible() }
func (w *windowOp[K, T, A, R]) EndOfData() error               { return w.seg.advance(record.MaxTime) }

// HotKeys implements Skewed.
func (w *windowOp[K, T, A, R]) HotKeys() job.HotKeys { return w.hot.shown() }

func (w *windowOp[K, T, A, R]) records(a record.Any, from, to int) error {
	if b, ok := a.(*record.Batch[partial[K, A]]); ok {
		return w.partials(b, from, to)
	}
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
		if t < w.start || t >= w.end {
			if t == record.MinTime {
				return noEventTime(w.c)
			}
			w.start, w.end = w.def.Assign(t)
			if t < w.start || t >= w.end {
				continue // Between two windows.
			}
		}
		row := &b.Rows[i]
		if w.end-1 <= w.seg.now {
			w.late.note(row, t, w.seg.now)
			continue
		}
		w.key.Key, w.key.Time = w.def.Key(row), w.start
		var h uint64
		if haveHash {
			h = b.Hash[i]
		} else {
			h = w.hash(&w.key.Key)
		}
		acc, fresh := w.state.Upsert(h, slotAt(h, w.start), &w.key)
		if !fresh {
			w.def.Add(acc, row)
			continue
		}
		w.def.start(acc, row)
		w.index.add(w.end-1, paneRef[K]{w.key.Key, h, w.start})
	}
	return w.col.err
}

// partials takes what senders have combined.
func (w *windowOp[K, T, A, R]) partials(b *record.Batch[partial[K, A]], from, to int) error {
	lookPartials(&w.hot, b, from, to, w.hash)
	for i := from; i < to; i++ {
		row, t := &b.Rows[i], b.Times[i]
		if t == record.MinTime {
			return noEventTime(w.c)
		}
		if t < w.start || t >= w.end {
			w.start, w.end = w.def.Assign(t)
			if t < w.start || t >= w.end {
				continue // Between two windows.
			}
		}
		if w.end-1 <= w.seg.now {
			w.late.counters.noteLate(row.Count, t, w.seg.now)
			continue
		}
		w.key.Key, w.key.Time = row.Key, w.start
		h := hashOf(b, i, w.hash)
		acc, fresh := w.state.Upsert(h, slotAt(h, w.start), &w.key)
		if !fresh {
			w.def.Merge(acc, &row.Acc)
			continue
		}
		*acc = row.Acc
		w.index.add(w.end-1, paneRef[K]{row.Key, h, w.start})
	}
	return w.col.err
}

// hashOf is the hash of the key of row i, which came along unless the row crossed the network.
func hashOf[K comparable, A any](b *record.Batch[partial[K, A]], i int, hash func(*K) uint64) uint64 {
	if i < len(b.Hash) {
		return b.Hash[i]
	}
	return hash(&b.Rows[i].Key)
}

func noEventTime(c *Context) error {
	return job.Errorf(job.ClassRefused, "window %q: the records have no event time: add Timestamps to the source", c.Name)
}

func (w *windowOp[K, T, A, R]) pass(m record.Mark) {
	w.col.mark(m)
	w.late.outs.mark(m)
}

func (w *windowOp[K, T, A, R]) done() error {
	if err := w.col.done(); err != nil {
		return err
	}
	return w.late.outs.done()
}

func (w *windowOp[K, T, A, R]) fire(now int64, limit int) (bool, error) {
	for range limit {
		last, ok := w.index.first()
		if !ok || last > now {
			return false, w.col.err
		}
		p := w.index.pop()
		w.key.Key, w.key.Time = p.key, p.start
		slot := slotAt(p.hash, p.start)
		acc := w.state.Get(p.hash, slot, &w.key)
		if acc == nil {
			continue
		}
		w.def.emit(w.col, last, p.key, p.start, last+1, OnTime, acc)
		w.state.Delete(p.hash, slot, &w.key)
		if w.col.err != nil {
			return false, w.col.err
		}
	}
	first, ok := w.index.first()
	return ok && first <= now, nil
}

func (w *windowOp[K, T, A, R]) Close() error {
	w.seg.close()
	w.late.outs.drop()
	if w.col != nil {
		w.col.drop()
	}
	return nil
}
