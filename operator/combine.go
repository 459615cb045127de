package operator

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/record"
)

// Records of windows whose accumulators can be merged are combined before the exchange: a sender adds up the records of
// a key and window and sends one row for all of them, ahead of the first watermark that needs it and of each barrier.
// Where hardly a key comes twice, and that saves too little, records are sent as they are for a while.
//
// A sender combines what is ahead of its watermark; the rest it sends one by one, since whether such a record is late is
// for the receiver to say. Only after a sender was idle can a row of several records be late, and is so as a whole.

// partial is what one sender has of a key and window.
type partial[K comparable, A any] struct {
	Key   K
	Span  int64 // Of a session: from its first record, whose time is that of the row, to its last one.
	Count int64 // Records.
	Acc   A
}

// combiner is what a sender has to know of a WindowAggregate.
type combiner[K comparable, T, A any] struct {
	key        func(*T) K
	start, add func(acc *A, in *T)
	// pane gives the times around t whose records are added up, and the watermark that they must be ahead of. It is nil
	// for sessions.
	pane func(t int64) (from, to, due int64)
	gap  int64
}

// combinable tells whether records can be combined before the exchange. They cannot where those that are late are put
// out on the side, or the aggregation says so.
func (w *WindowAggregate[K, T, A, R]) combinable() bool {
	return w.Merge != nil && w.Late == "" && !w.Keeps
}

// CombineRouter is the HashRouter of an operator of windows that gets its records combined.
func (w *WindowAggregate[K, T, A, R]) CombineRouter() RouterFactory {
	size := int(unsafe.Sizeof(combined[K, A]{}))
	n := 64
	for n < combineEntries && 2*n*size <= combineBytes {
		n *= 2
	}
	return w.combineRouter(n)
}

// combineRouter combines up to so many keys at a time: a power of 2.
func (w *WindowAggregate[K, T, A, R]) combineRouter(entries int) RouterFactory {
	c := combiner[K, T, A]{key: w.Key, start: w.start, add: w.Add, gap: w.Gap}
	switch slide := w.Slide; {
	case w.Gap > 0:
	case slide.Size > 0:
		length, _ := panesOf(slide)
		c.pane = func(t int64) (from, to, due int64) {
			from = floorTo(t, length, slide.Offset)
			return from, from + length, slide.firstEnd(from) - 1
		}
	default:
		c.pane = func(t int64) (from, to, due int64) {
			from, to = w.Assign(t)
			return from, to, to - 1
		}
	}
	plain := HashRouter(w.Key, w.KeyCodec)
	return func(outs []exchange.Out, k int) Router {
		return newCombineRouter(&c, plain(outs, k).(*hashRouter[K, T]), entries)
	}
}

// combined is an entry of the table that a sender combines records in.
type combined[K comparable, A any] struct {
	hash        uint64
	from, first int64 // Start of the pane, time of the first record.
	due         int64 // Watermark that the records must be ahead of.
	slot        uint32
	row         partial[K, A] // Without records: of what was sent before.

	// Of sessions: the last record that was sent, if any. Its session does not end before sent + gap - 1: later records
	// that belong to it may wait until then. Of an earlier one, which may also belong to a session that ends before, that
	// is not known.
	sent    int64
	hasSent bool
}

// The table fits in the second-level cache of a core together with the batches being filled.
const (
	combineBytes   = 256 << 10
	combineEntries = 2048
)

// Accumulators with pointers may be large, such as sets. So many at most go into a batch, which has to stay below the limit
// of a frame, and so many records are added up before they are sent.
const (
	bulkyRows    = 64
	bulkyRecords = 64 << 10
)

// Records that come on average fewer than combineGain times are not worth it: so many tables full of them are sent as
// they are before the next attempt.
const (
	combineGain  = 2
	combinePause = 32
)

type combineRouter[K comparable, T, A any] struct {
	c     *combiner[K, T, A]
	raw   *hashRouter[K, T]
	parts builders[partial[K, A]]

	// The table: entries, and behind the hash the number of one, from 1 on.
	entries []combined[K, A]
	slots   []uint16
	mask    uint64
	taken   int   // Records since it was empty,
	gave    int   // and the rows that were made of them.
	due     int64 // Watermark that something in it must be ahead of.
	pause   int   // Records to send as they are, still.
	bulky   bool  // Accumulators have pointers: their size is not known.

	now      int64 // Watermark passed on.
	from, to int64 // Pane of the record before,
	paneDue  int64 // and the watermark that its records must be ahead of.
}

func newCombineRouter[K comparable, T, A any](c *combiner[K, T, A], raw *hashRouter[K, T], n int) *combineRouter[K, T, A] {
	r := &combineRouter[K, T, A]{
		c: c, raw: raw, parts: newBuilders[partial[K, A]](raw.outs),
		entries: make([]combined[K, A], 0, n), slots: make([]uint16, 2*n), mask: uint64(2*n - 1),
		due: record.MaxTime, now: record.MinTime, bulky: record.HasPointers(reflect.TypeFor[A]()),
	}
	if r.bulky {
		r.parts.rows = min(r.parts.rows, bulkyRows)
	}
	return r
}

func (r *combineRouter[K, T, A]) Emit(a record.Any) error {
	b := batchOf[T](a)
	if r.pause > 0 || len(b.Times) != len(b.Rows) || r.now == record.MinTime {
		return r.plain(b)
	}
	defer b.Release()
	if r.raw.holding > 0 {
		if err := r.raw.Flush(); err != nil {
			return err
		}
	}
	if r.bulky && r.taken >= bulkyRecords {
		if err := r.empty(); err != nil {
			return err
		}
	}
	start := 0
	for m := 0; ; m++ {
		end := b.Len()
		if m < len(b.Marks) {
			end = b.SelIndex(b.Marks[m].Pos)
		}
		if err := r.combine(b, start, end); err != nil {
			return err
		}
		if m == len(b.Marks) {
			return nil
		}
		if err := r.mark(b.Marks[m]); err != nil {
			return err
		}
		start = end
	}
}

// plain sends the records of b as they are: for a while, or until there was a watermark, before which there is no telling
// what is late.
func (r *combineRouter[K, T, A]) plain(b *record.Batch[T]) error {
	if err := r.empty(); err != nil {
		b.Release()
		return err
	}
	if err := r.parts.Flush(); err != nil {
		b.Release()
		return err
	}
	for _, m := range b.Marks {
		if m.Kind == record.Watermark {
			r.now = max(r.now, m.Time)
		}
	}
	r.pause = max(0, r.pause-b.Len())
	return r.raw.Emit(b)
}

func (r *combineRouter[K, T, A]) combine(b *record.Batch[T], start, end int) error {
	for n := start; n < end; n++ {
		i := n
		if b.Sel != nil {
			i = int(b.Sel[n])
		}
		row, t := &b.Rows[i], b.Times[i]
		due := t
		if r.c.pane != nil {
			if t < r.from || t >= r.to {
				r.from, r.to, r.paneDue = r.c.pane(t)
			}
			due = r.paneDue
			if t < r.from || t >= r.to {
				due = record.MinTime // In no window, which is for the receiver to find.
			}
		}
		r.raw.cur = r.c.key(row)
		h := r.raw.hash(&r.raw.cur)
		if due <= r.now {
			if err := r.single(h, t, row); err != nil {
				return err
			}
			continue
		}
		e := r.find(h)
		if e == nil {
			if len(r.entries) == cap(r.entries) {
				if err := r.full(); err != nil {
					return err
				}
			}
			r.begin(r.enter(h), t, due, row)
			continue
		}
		if r.c.pane == nil {
			last := e.first + e.row.Span
			if e.row.Count > 0 && (t-last >= r.c.gap || e.first-t >= r.c.gap) { // Another session.
				if err := r.give(e); err != nil {
					return err
				}
				r.gave++
			}
			if e.row.Count == 0 {
				if e.hasSent && t >= e.sent && t-e.sent < r.c.gap {
					due = e.sent + r.c.gap - 1
				}
				r.begin(e, t, due, row)
				continue
			}
			if t < e.first {
				if e.first = t; !e.hasSent || t < e.sent || e.due != e.sent+r.c.gap-1 {
					e.due = min(e.due, t)
					r.due = min(r.due, t)
				}
			}
			e.row.Span = max(last, t) - e.first
		}
		r.c.add(&e.row.Acc, row)
		e.row.Count++
		r.taken++
	}
	return nil
}

// begin puts the first record into an entry.
func (r *combineRouter[K, T, A]) begin(e *combined[K, A], t, due int64, row *T) {
	e.first, e.due = t, due
	e.row.Span, e.row.Count = 0, 1
	r.c.start(&e.row.Acc, row)
	r.due = min(r.due, due)
	r.taken++
}

// find is the entry of the current key in the current pane, or nil.
func (r *combineRouter[K, T, A]) find(h uint64) *combined[K, A] {
	for s := slotAt(h, r.from) & r.mask; ; s = (s + 1) & r.mask {
		n := int(r.slots[s]) - 1
		if n < 0 {
			return nil
		}
		if e := &r.entries[n]; e.hash == h && e.from == r.from && e.row.Key == r.raw.cur {
			return e
		}
	}
}

// enter makes an entry for the current key in the current pane, which has none. There is room.
func (r *combineRouter[K, T, A]) enter(h uint64) *combined[K, A] {
	s := slotAt(h, r.from) & r.mask
	for r.slots[s] != 0 {
		s = (s + 1) & r.mask
	}
	n := len(r.entries)
	r.entries = r.entries[:n+1]
	r.slots[s] = uint16(n + 1)
	e := &r.entries[n]
	*e = combined[K, A]{hash: h, from: r.from, slot: uint32(s), row: partial[K, A]{Key: r.raw.cur}}
	return e
}

// single sends one record behind what is held.
func (r *combineRouter[K, T, A]) single(h uint64, t int64, row *T) error {
	e := combined[K, A]{hash: h, first: t, row: partial[K, A]{Key: r.raw.cur, Count: 1}}
	r.c.start(&e.row.Acc, row)
	return r.give(&e)
}

// give moves what an entry has to the channel that it belongs to.
func (r *combineRouter[K, T, A]) give(e *combined[K, A]) error {
	ch := int(r.raw.owners[e.hash%uint64(r.raw.k)])
	to := r.parts.open[ch]
	if to == nil {
		to = r.parts.at(ch)
	}
	to.Rows = append(to.Rows, e.row)
	to.Hash = append(to.Hash, e.hash)
	to.Times = append(to.Times, e.first)
	if last := e.first + e.row.Span; !e.hasSent || last > e.sent {
		e.sent, e.hasSent = last, true
	}
	var none A
	e.row.Count, e.row.Acc = 0, none // The accumulator is the receiver's now.
	if len(to.Rows) >= r.parts.limits[ch] {
		return r.parts.send(ch)
	}
	return nil
}

// full empties the table, since it has no room, and sees whether it was of use.
func (r *combineRouter[K, T, A]) full() error {
	for i := range r.entries {
		if r.entries[i].row.Count > 0 {
			r.gave++
		}
	}
	if r.taken < combineGain*r.gave {
		r.pause = combinePause * len(r.entries)
	}
	return r.empty()
}

// Drain gives out all records. What was in the table leaves with the next Flush.
func (r *combineRouter[K, T, A]) Drain() error { return r.giveUpTo(record.MaxTime) }

// giveUpTo gives out the records that must be ahead of watermark w.
func (r *combineRouter[K, T, A]) giveUpTo(w int64) error {
	if r.c.pane != nil {
		return r.empty() // The others are due soon, and their keys come again.
	}
	r.due = record.MaxTime
	for i := range r.entries {
		switch e := &r.entries[i]; {
		case e.row.Count == 0:
		case e.due > w:
			r.due = min(r.due, e.due)
		default:
			if err := r.give(e); err != nil {
				return err
			}
			r.gave++
		}
	}
	return nil
}

// empty gives out all records and forgets the keys.
func (r *combineRouter[K, T, A]) empty() error {
	for i := range r.entries {
		e := &r.entries[i]
		r.slots[e.slot] = 0
		if e.row.Count == 0 {
			continue
		}
		if err := r.give(e); err != nil {
			return err
		}
	}
	clear(r.entries)
	r.entries, r.taken, r.gave, r.due = r.entries[:0], 0, 0, record.MaxTime
	return nil
}

func (r *combineRouter[K, T, A]) mark(m record.Mark) error {
	var err error
	switch {
	case m.Kind != record.Watermark:
		err = r.empty() // What was sent may be late for the receiver once this sender was idle.
	case m.Time >= r.due:
		err = r.giveUpTo(m.Time)
	}
	if err != nil {
		return err
	}
	if m.Kind == record.Watermark {
		r.now = max(r.now, m.Time)
	}
	r.parts.markAll(m)
	return nil
}

func (r *combineRouter[K, T, A]) Flush() error {
	if err := r.raw.Flush(); err != nil {
		return err
	}
	return r.parts.Flush()
}

func (r *combineRouter[K, T, A]) Holding() bool { return r.raw.Holding() || r.parts.Holding() }

func (r *combineRouter[K, T, A]) Close() {
	r.raw.Close()
	r.parts.Close()
	clear(r.entries)
	r.entries = r.entries[:0]
}

// partialCodec encodes what was combined.
type partialCodec[K comparable, A any] struct {
	key codec.Codec[K]
	acc codec.Codec[A]
}

func (c partialCodec[K, A]) Append(dst []byte, v *partial[K, A]) ([]byte, error) {
	dst, err := c.key.Append(dst, &v.Key)
	if err != nil {
		return dst, err
	}
	dst = binary.AppendUvarint(dst, uint64(v.Span))
	dst = binary.AppendUvarint(dst, uint64(v.Count))
	return c.acc.Append(dst, &v.Acc)
}

func (c partialCodec[K, A]) Decode(src []byte, v *partial[K, A]) (int, error) {
	pos, err := c.key.Decode(src, &v.Key)
	if err != nil {
		return pos, err
	}
	var nums [2]uint64
	for i := range nums {
		u, n := binary.Uvarint(src[pos:])
		if n <= 0 || int64(u) < 0 {
			return pos, fmt.Errorf("combined records at byte %d: not a number", pos)
		}
		nums[i] = u
		pos += n
	}
	v.Span, v.Count = int64(nums[0]), int64(nums[1])
	n, err := c.acc.Decode(src[pos:], &v.Acc)
	return pos + n, err
}

func (c partialCodec[K, A]) Copy(dst, src *partial[K, A]) {
	c.key.Copy(&dst.Key, &src.Key)
	dst.Span, dst.Count = src.Span, src.Count
	c.acc.Copy(&dst.Acc, &src.Acc)
}

func (c partialCodec[K, A]) Schema() codec.Schema {
	return codec.Schema{Codec: "combined", Version: 1, Shape: codec.JoinSchemas(c.key.Schema(), c.acc.Schema())}
}

// CombineFrames carries records as raw does, and what they were combined to.
func (w *WindowAggregate[K, T, A, R]) CombineFrames(raw record.Frames) record.Frames {
	return combineFrames[K, A]{raw, record.NewFrames(partialCodec[K, A]{w.KeyCodec, w.AccCodec})}
}

// combineFrames tells the two by the first byte of a frame.
type combineFrames[K comparable, A any] struct{ raw, parts record.Frames }

const (
	rawFrame      = 'r'
	combinedFrame = 'c'
)

func (f combineFrames[K, A]) Append(dst []byte, b record.Any) ([]byte, error) {
	if _, ok := b.(*record.Batch[partial[K, A]]); ok {
		return f.parts.Append(append(dst, combinedFrame), b)
	}
	return f.raw.Append(append(dst, rawFrame), b)
}

func (f combineFrames[K, A]) Decode(src []byte) (record.Any, error) {
	switch {
	case len(src) > 0 && src[0] == rawFrame:
		return f.raw.Decode(src[1:])
	case len(src) > 0 && src[0] == combinedFrame:
		return f.parts.Decode(src[1:])
	}
	return nil, fmt.Errorf("decode frame of %d bytes: neither of records nor of combined ones", len(src))
}
