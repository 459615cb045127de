package operator

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/statebackend"
)

// session is a session of a key. The latest one of a key is at place 0 of the state, where almost
// every record finds it with one lookup; others, which are not closed yet or came late, are at the
// places behind it, the later ones first.
type session[A any] struct {
	First, Last int64 // Times of its first and last record.
	// Next, at place 0, is the watermark at which the key is looked at: that at which the first of
	// its sessions ends, or an earlier one, since a session that grows does not move it.
	Next  int64
	More  int32 // At place 0: how many sessions there are behind it.
	Fired bool  // It was emitted and waits for late records.
	Acc   A
}

// sessionOp keeps the open sessions of each key.
type sessionOp[K comparable, T, A, R any] struct {
	hot   hotKeys[K]
	def   WindowAggregate[K, T, A, R]
	c     *Context
	hash  func(*K) uint64
	state statebackend.Value[timerKey[K], session[A]] // The time of a key is the place.
	index timeIndex[hashed[K]]                        // Keys by Next.
	col   *Collector[R]
	seg   segments
	late  tooLate[T]
	key   timerKey[K] // Storage of the current key.
	plain bool
	acc   A            // Scratch: what a session emits.
	list  []session[A] // Scratch: the sessions of a key.
}

// NewSessionWindow has sessions emitted at their ends.
func NewSessionWindow[K comparable, T, A, R any](def WindowAggregate[K, T, A, R]) WindowOperator {
	return WindowOperator{
		State: []job.StateDecl{windowDecl(timerCodec[K]{def.KeyCodec}.Schema(), sessionCodec[A]{def.AccCodec}.Schema())},
		New:   func() Operator { return &sessionOp[K, T, A, R]{def: def} }, Combines: def.combinable(),
	}
}

func (w *sessionOp[K, T, A, R]) Open(c *Context) error {
	w.c = c
	w.hash = codec.NewHasher(w.def.KeyCodec)
	w.hot.open(w.def.KeyCodec)
	w.col = newCollector[R](c.Out)
	w.late.open(c, w.def.Late)
	w.seg = segments{process: w.records, fire: w.fire, pass: w.pass, done: w.done, now: c.Watermark}
	w.plain = !record.HasPointers(reflect.TypeFor[A]())
	hash := w.hash
	var err error
	w.state, err = statebackend.OpenValue(c.State, statebackend.ValueDesc[timerKey[K], session[A]]{
		Name: windowState, Key: timerCodec[K]{w.def.KeyCodec}, Value: sessionCodec[A]{w.def.AccCodec},
		Hash: func(k *timerKey[K]) (uint64, uint64) {
			h := hash(&k.Key)
			return h, slotAt(h, k.Time)
		},
	})
	return err
}

// Ready rebuilds the index. Sessions that were over when the checkpoint was taken fire first.
func (w *sessionOp[K, T, A, R]) Ready() error {
	for k, s := range w.state.All() {
		if k.Time == 0 {
			w.index.add(s.Next, hashed[K]{k.Key, w.hash(&k.Key)})
		}
	}
	first, ok := w.index.first()
	w.seg.firing = ok && first <= w.seg.now
	return nil
}

func (w *sessionOp[K, T, A, R]) Push(_ int, a record.Any) error { return w.seg.push(a) }
func (w *sessionOp[K, T, A, R]) Pending() bool                  { return w.seg.pending() }
func (w *sessionOp[K, T, A, R]) Resume() error                  { return w.seg.resume() }
func (w *sessionOp[K, T, A, R]) Interruptible() bool            { return w.seg.interruptible() }
func (w *sessionOp[K, T, A, R]) EndOfData() error               { return w.seg.advance(record.MaxTime) }

// ends is the watermark at which a session whose last record is at that time is over.
func (w *sessionOp[K, T, A, R]) ends(last int64) int64 { return last + w.def.Gap - 1 }

// due is the watermark at which something happens to s.
func (w *sessionOp[K, T, A, R]) due(s *session[A]) int64 {
	if s.Fired {
		return w.ends(s.Last) + w.def.Lateness
	}
	return w.ends(s.Last)
}

// HotKeys implements Skewed.
func (w *sessionOp[K, T, A, R]) HotKeys() job.HotKeys { return w.hot.shown() }

func (w *sessionOp[K, T, A, R]) records(a record.Any, from, to int) error {
	if b, ok := a.(*record.Batch[partial[K, A]]); ok {
		return w.partials(b, from, to)
	}
	b := batchOf[T](a)
	w.hot.look(b, from, to, w.def.Key, w.hash)
	haveHash := len(b.Hash) == len(b.Rows) && len(b.Hash) > 0
	if len(b.Times) != len(b.Rows) {
		return noEventTime(w.c)
	}
	gap := w.def.Gap
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
		w.key.Key, w.key.Time = w.def.Key(row), 0
		var h uint64
		if haveHash {
			h = b.Hash[i]
		} else {
			h = w.hash(&w.key.Key)
		}
		s, fresh := w.state.Upsert(h, slotAt(h, 0), &w.key)
		switch {
		case fresh:
			if w.over(t) {
				w.state.Delete(h, slotAt(h, 0), &w.key)
				w.late.note(row, t, w.seg.now)
				continue
			}
			w.def.start(&s.Acc, row)
			w.begin(s, t, t, h)
		case s.Fired:
			w.several(row, t, h)
		case t >= s.First && t-s.Last < gap:
			s.Last = max(s.Last, t)
			w.def.Add(&s.Acc, row)
		case t < s.First && s.First-t < gap && s.More == 0:
			s.First = t
			w.def.Add(&s.Acc, row)
		default:
			w.several(row, t, h)
		}
	}
	return w.col.err
}

// over tells whether a session whose last record is at that time is needed no more.
func (w *sessionOp[K, T, A, R]) over(last int64) bool {
	return w.ends(last)+w.def.Lateness <= w.seg.now
}

// begin makes s, which has its accumulator, the one session of the current key.
func (w *sessionOp[K, T, A, R]) begin(s *session[A], first, last int64, h uint64) {
	s.First, s.Last, s.Fired = first, last, w.ends(last) <= w.seg.now
	s.Next = w.due(s)
	w.index.add(s.Next, hashed[K]{w.key.Key, h})
	if s.Fired {
		w.emit(s, Late, false)
	}
}

// partials takes what senders have combined.
func (w *sessionOp[K, T, A, R]) partials(b *record.Batch[partial[K, A]], from, to int) error {
	lookPartials(&w.hot, b, from, to, w.hash)
	gap := w.def.Gap
	for i := from; i < to; i++ {
		row, first := &b.Rows[i], b.Times[i]
		if first == record.MinTime {
			return noEventTime(w.c)
		}
		last := first + row.Span
		w.key.Key, w.key.Time = row.Key, 0
		h := hashOf(b, i, w.hash)
		s, fresh := w.state.Upsert(h, slotAt(h, 0), &w.key)
		switch {
		case fresh:
			if w.over(last) {
				w.state.Delete(h, slotAt(h, 0), &w.key)
				w.late.counters.noteLate(row.Count, first, w.seg.now)
				continue
			}
			s.Acc = row.Acc
			w.begin(s, first, last, h)
		case s.Fired:
			w.severalOf(row, first, h)
		case first >= s.First && first-s.Last < gap:
			s.Last = max(s.Last, last)
			w.def.Merge(&s.Acc, &row.Acc)
		case first < s.First && s.First-last < gap && s.More == 0:
			s.First, s.Last = first, max(s.Last, last)
			w.def.Merge(&row.Acc, &s.Acc)
			s.Acc = row.Acc
		default:
			w.severalOf(row, first, h)
		}
	}
	return w.col.err
}

// load puts the sessions of the current key into list.
func (w *sessionOp[K, T, A, R]) load(h uint64) {
	w.list = w.list[:0]
	for place := int64(0); ; place++ {
		w.key.Time = place
		w.list = append(w.list, *w.state.Get(h, slotAt(h, place), &w.key))
		if place == int64(w.list[0].More) {
			return
		}
	}
}

// store puts list back; there were so many before. again tells that the key is not in the index.
func (w *sessionOp[K, T, A, R]) store(h uint64, before int, again bool) {
	slices.SortFunc(w.list, func(a, b session[A]) int { return cmp.Compare(b.First, a.First) })
	for place := len(w.list); place < before; place++ {
		w.key.Time = int64(place)
		w.state.Delete(h, slotAt(h, w.key.Time), &w.key)
	}
	if len(w.list) == 0 {
		return
	}
	next := w.due(&w.list[0])
	for i := range w.list {
		next = min(next, w.due(&w.list[i]))
	}
	for i := range w.list {
		w.list[i].Next, w.list[i].More = next, int32(len(w.list)-1)
		w.key.Time = int64(i)
		w.state.Set(h, slotAt(h, w.key.Time), &w.key, &w.list[i])
	}
	if again {
		w.index.add(next, hashed[K]{w.key.Key, h})
	}
	clear(w.list)
}

// several takes a record that may not belong to the latest session of the current key alone.
func (w *sessionOp[K, T, A, R]) several(row *T, t int64, h uint64) {
	w.load(h)
	before, next := len(w.list), w.list[0].Next
	s, found := w.joined(t, t)
	switch {
	case found:
		w.def.Add(&s.Acc, row)
	case w.over(t):
		w.late.note(row, t, w.seg.now)
		clear(w.list)
		return
	default:
		w.def.start(&s.Acc, row)
	}
	w.rejoin(s, h, before, next)
}

// severalOf is several for combined records, the first of them at that time.
func (w *sessionOp[K, T, A, R]) severalOf(row *partial[K, A], first int64, h uint64) {
	w.load(h)
	before, next := len(w.list), w.list[0].Next
	last := first + row.Span
	s, found := w.joined(first, last)
	switch {
	case found && s.First < first:
		w.def.Merge(&s.Acc, &row.Acc)
	case found:
		w.def.Merge(&row.Acc, &s.Acc)
		s.Acc = row.Acc
	case w.over(last):
		w.late.counters.noteLate(row.Count, first, w.seg.now)
		clear(w.list)
		return
	default:
		s.Acc = row.Acc
	}
	w.rejoin(s, h, before, next)
}

// joined takes those sessions off the list that belong together with records of the times from first to last, and gives
// the session of all.
func (w *sessionOp[K, T, A, R]) joined(first, last int64) (s session[A], found bool) {
	s.First, s.Last = first, last
	for i := len(w.list) - 1; i >= 0; i-- { // The earlier ones first.
		o := &w.list[i]
		if first-o.Last >= w.def.Gap || o.First-last >= w.def.Gap {
			continue
		}
		if !found {
			o.First, o.Last = min(o.First, first), max(o.Last, last)
			s, found = *o, true
		} else {
			w.def.Merge(&s.Acc, &o.Acc)
			s.Last = max(s.Last, o.Last)
		}
		w.list = slices.Delete(w.list, i, i+1)
	}
	return s, found
}

// rejoin puts s back into the list and that into the state.
func (w *sessionOp[K, T, A, R]) rejoin(s session[A], h uint64, before int, next int64) {
	s.Fired = w.ends(s.Last) <= w.seg.now
	if s.Fired {
		w.emit(&s, Late, false)
	}
	// The key stays in the index where it is, unless it is to be looked at earlier.
	w.list = append(w.list, s)
	sooner := w.due(&s) < next
	w.store(h, before, sooner)
	if !sooner {
		w.setNext(h, next)
	}
}

// setNext sets Next of the current key.
func (w *sessionOp[K, T, A, R]) setNext(h uint64, next int64) {
	w.key.Time = 0
	s, _ := w.state.Upsert(h, slotAt(h, 0), &w.key)
	s.Next = next
}

// emit emits a session of the current key; last tells that it is needed no more.
func (w *sessionOp[K, T, A, R]) emit(s *session[A], f Firing, last bool) {
	acc := &s.Acc
	if !last {
		acc = &w.acc
		if w.plain {
			*acc = s.Acc
		} else {
			var v A
			w.def.AccCodec.Copy(&v, &s.Acc)
			*acc = v
		}
	}
	end := s.Last + w.def.Gap
	w.def.emit(w.col, end-1, w.key.Key, s.First, end, f, acc)
}

func (w *sessionOp[K, T, A, R]) fire(now int64, limit int) (bool, error) {
	for range limit {
		at, ok := w.index.first()
		if !ok || at > now || w.col.err != nil {
			return false, w.col.err
		}
		p := w.index.pop()
		w.key.Key, w.key.Time = p.key, 0
		s := w.state.Get(p.hash, slotAt(p.hash, 0), &w.key)
		if s == nil || s.Next != at {
			continue // The key is in the index at another time.
		}
		due := w.due(s)
		switch {
		case s.More > 0:
			w.fireSeveral(p.hash, at)
		case due > at: // It has grown.
			w.setNext(p.hash, due)
			w.index.add(due, p)
		case s.Fired:
			w.state.Delete(p.hash, slotAt(p.hash, 0), &w.key)
		case w.def.Lateness == 0:
			w.emit(s, OnTime, true)
			w.state.Delete(p.hash, slotAt(p.hash, 0), &w.key)
		default:
			w.emit(s, OnTime, false)
			s, _ = w.state.Upsert(p.hash, slotAt(p.hash, 0), &w.key)
			s.Fired = true
			s.Next = w.due(s)
			w.index.add(s.Next, p)
		}
	}
	first, ok := w.index.first()
	return ok && first <= now, w.col.err
}

func (w *sessionOp[K, T, A, R]) fireSeveral(h uint64, at int64) {
	w.load(h)
	before, kept := len(w.list), 0
	for i := range w.list {
		s := &w.list[i]
		if w.due(s) <= at {
			if s.Fired {
				continue
			}
			w.emit(s, OnTime, false)
			if w.def.Lateness == 0 {
				continue
			}
			s.Fired = true
		}
		w.list[kept] = *s
		kept++
	}
	clear(w.list[kept:])
	w.list = w.list[:kept]
	w.store(h, before, true)
}

func (w *sessionOp[K, T, A, R]) pass(m record.Mark) {
	w.col.mark(m)
	w.late.outs.mark(m)
}

func (w *sessionOp[K, T, A, R]) done() error {
	if err := w.col.done(); err != nil {
		return err
	}
	return w.late.outs.done()
}

func (w *sessionOp[K, T, A, R]) Close() error {
	w.seg.close()
	w.late.outs.drop()
	if w.col != nil {
		w.col.drop()
	}
	return nil
}

// sessionCodec encodes a session as the time of its first record, the time from there to its last
// one, Next, More and Fired, and the accumulator.
type sessionCodec[A any] struct{ acc codec.Codec[A] }

func (c sessionCodec[A]) Append(dst []byte, v *session[A]) ([]byte, error) {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(v.First))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(v.Next))
	dst = binary.AppendUvarint(dst, uint64(v.Last-v.First))
	more := uint64(v.More) << 1
	if v.Fired {
		more |= 1
	}
	dst = binary.AppendUvarint(dst, more)
	return c.acc.Append(dst, &v.Acc)
}

func (c sessionCodec[A]) Decode(src []byte, v *session[A]) (int, error) {
	if len(src) < 16 {
		return 0, fmt.Errorf("session at byte 0: %d bytes, want at least 16", len(src))
	}
	v.First = int64(binary.LittleEndian.Uint64(src))
	v.Next = int64(binary.LittleEndian.Uint64(src[8:]))
	pos := 16
	var nums [2]uint64
	for i := range nums {
		u, n := binary.Uvarint(src[pos:])
		if n <= 0 {
			return pos, fmt.Errorf("session at byte %d: not a number", pos)
		}
		nums[i] = u
		pos += n
	}
	v.Last, v.More, v.Fired = v.First+int64(nums[0]), int32(nums[1]>>1), nums[1]&1 != 0
	n, err := c.acc.Decode(src[pos:], &v.Acc)
	return pos + n, err
}

func (c sessionCodec[A]) Copy(dst, src *session[A]) {
	*dst = session[A]{First: src.First, Last: src.Last, Next: src.Next, More: src.More, Fired: src.Fired}
	c.acc.Copy(&dst.Acc, &src.Acc)
}

func (c sessionCodec[A]) Schema() codec.Schema {
	return codec.Schema{Codec: "session", Version: 1, Shape: c.acc.Schema().String()}
}

// Evolve reads what was made of older values.
func (c sessionCodec[A]) Evolve(old codec.Schema) (_ codec.Codec[session[A]], err error) {
	if c.acc, err = evolvePart(c.acc, old, c.Schema()); err != nil {
		return nil, err
	}
	return c, nil
}
