package operator

import (
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/statebackend"
)

const windowState = "windows"

// WindowAggregate is the typed part of a windowed aggregation. operator/window makes it.
type WindowAggregate[K comparable, T, A, R any] struct {
	Key      func(*T) K
	KeyCodec codec.Codec[K]
	AccCodec codec.Codec[A]
	// Assign gives the window of a time.
	Assign func(time int64) (start, end int64)
	// EndOf gives the end of the window that starts at start.
	EndOf  func(start int64) int64
	Zero   func() A
	Add    func(acc *A, in *T)
	Result func(key K, start, end int64, acc *A) R
}

// Decls lists the operator's states.
func (w WindowAggregate[K, T, A, R]) Decls() []job.StateDecl {
	return []job.StateDecl{{
		Name: windowState, Kind: "value", Key: timerCodec[K]{w.KeyCodec}.Schema().String(), Value: w.AccCodec.Schema().String(),
	}}
}

// windowOp keeps one accumulator for each key and window, and emits it when the watermark has
// passed the window's end. The keys of a window are indexed by its end; the index is rebuilt from
// the state after a restore.
type windowOp[K comparable, T, A, R any] struct {
	def   WindowAggregate[K, T, A, R]
	c     *Context
	hash  func(*K) uint64
	state statebackend.Value[timerKey[K], A]
	index timeIndex[paneRef[K]]
	col   *Collector[R]
	seg   segments[T]
	key   timerKey[K] // Storage of the current key.

	// The window of the record before, since the next one is mostly in it too.
	start, end int64
}

type paneRef[K comparable] struct {
	key   K
	hash  uint64
	start int64
}

// NewWindow returns the operator of a windowed aggregation.
func NewWindow[K comparable, T, A, R any](def WindowAggregate[K, T, A, R]) Operator {
	return &windowOp[K, T, A, R]{def: def}
}

func (w *windowOp[K, T, A, R]) Open(c *Context) error {
	w.c = c
	w.hash = codec.NewHasher(w.def.KeyCodec)
	w.col = newCollector[R](c.Out)
	w.seg = segments[T]{process: w.records, fire: w.fire, pass: w.col.mark, done: w.col.done, now: c.Watermark}
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

func (w *windowOp[K, T, A, R]) Push(_ int, a record.Any) error { return w.seg.push(batchOf[T](a)) }
func (w *windowOp[K, T, A, R]) Pending() bool                  { return w.seg.pending() }
func (w *windowOp[K, T, A, R]) Resume() error                  { return w.seg.resume() }
func (w *windowOp[K, T, A, R]) Interruptible() bool            { return w.seg.interruptible() }
func (w *windowOp[K, T, A, R]) EndOfData() error               { return w.seg.advance(record.MaxTime) }

func (w *windowOp[K, T, A, R]) records(b *record.Batch[T], from, to int) error {
	haveHash := len(b.Hash) == len(b.Rows) && len(b.Hash) > 0
	if len(b.Times) != len(b.Rows) {
		return w.noTime()
	}
	late := int64(0)
	for n := from; n < to; n++ {
		i := n
		if b.Sel != nil {
			i = int(b.Sel[n])
		}
		t := b.Times[i]
		if t < w.start || t >= w.end {
			if t == record.MinTime {
				return w.noTime()
			}
			w.start, w.end = w.def.Assign(t)
		}
		if w.end-1 <= w.seg.now {
			late++
			continue
		}
		row := &b.Rows[i]
		w.key.Key, w.key.Time = w.def.Key(row), w.start
		var h uint64
		if haveHash {
			h = b.Hash[i]
		} else {
			h = w.hash(&w.key.Key)
		}
		acc, fresh := w.state.Upsert(h, slotAt(h, w.start), &w.key)
		if fresh {
			*acc = w.def.Zero()
			w.index.add(w.end-1, paneRef[K]{w.key.Key, h, w.start})
		}
		w.def.Add(acc, row)
	}
	if late > 0 {
		w.c.Counters.Late.Add(late)
	}
	return w.col.err
}

func (w *windowOp[K, T, A, R]) noTime() error {
	return job.Errorf(job.ClassRefused, "window %q: the records have no event time: add Timestamps to the source", w.c.Name)
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
		*w.col.next(last) = w.def.Result(p.key, p.start, last+1, acc)
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
	if w.col != nil {
		w.col.drop()
	}
	return nil
}
