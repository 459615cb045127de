package operator

import (
	"fmt"

	"github.com/cairnstream/cairn/record"
)

// stateless is what operators without state have in common.
type stateless struct{ out Output }

func (s *stateless) Open(c *Context) error { s.out = c.Out; return nil }
func (s *stateless) EndOfData() error      { return nil }
func (s *stateless) Close() error          { return nil }

// batchOf gives a its type. A wrong one is a fault of the graph's construction.
func batchOf[T any](a record.Any) *record.Batch[T] {
	b, ok := a.(*record.Batch[T])
	if !ok {
		panic(fmt.Sprintf("operator for %T got %T", (*record.Batch[T])(nil), a))
	}
	b.CheckLive()
	return b
}

type filterOp[T any] struct {
	stateless
	keep func(*T) bool
}

// Filter returns an operator that passes on the records for which keep is true. It marks the
// others as left out and moves nothing.
func Filter[T any](keep func(*T) bool) Operator { return &filterOp[T]{keep: keep} }

func (f *filterOp[T]) Push(_ int, a record.Any) error {
	b := batchOf[T](a)
	keep, rows := f.keep, b.Rows
	if b.Sel == nil {
		sel := b.Selection()[:len(rows)]
		n := 0
		for i := range rows {
			sel[n] = int32(i)
			if keep(&rows[i]) {
				n++
			}
		}
		b.Sel = sel[:n]
	} else {
		sel := b.Sel
		n := 0
		for _, i := range sel {
			sel[n] = i
			if keep(&rows[i]) {
				n++
			}
		}
		b.Sel = sel[:n]
	}
	if len(b.Sel) == 0 && len(b.Marks) == 0 {
		b.Release()
		return nil
	}
	return f.out.Emit(b)
}

type mapOp[A, B any] struct {
	stateless
	f    func(*A) B
	into func(*A, *B)
	pool *record.Pool[B]
}

// Map returns an operator that replaces each record by f of it.
func Map[A, B any](f func(*A) B) Operator { return &mapOp[A, B]{f: f, pool: record.PoolOf[B]()} }

// MapInto is Map for large results: f fills *out, which is zero before.
func MapInto[A, B any](f func(in *A, out *B)) Operator {
	return &mapOp[A, B]{into: f, pool: record.PoolOf[B]()}
}

func (m *mapOp[A, B]) Push(_ int, a record.Any) error {
	in := batchOf[A](a)
	n := in.Len()
	if n > 4*m.pool.Rows() {
		return m.grow(in)
	}
	out := m.pool.Get()
	if cap(out.Rows) < n {
		out.Rows = make([]B, n)
	}
	rows := out.Rows[:n]
	out.Rows = rows
	switch {
	case m.into != nil:
		clear(rows)
		if in.Sel == nil {
			src := in.Rows[:n]
			for i := range src {
				m.into(&src[i], &rows[i])
			}
		} else {
			for i, j := range in.Sel {
				m.into(&in.Rows[j], &rows[i])
			}
		}
	case in.Sel == nil:
		f, src := m.f, in.Rows[:n]
		for i := range src {
			rows[i] = f(&src[i])
		}
	default:
		f, src := m.f, in.Rows
		for i, j := range in.Sel {
			rows[i] = f(&src[j])
		}
	}
	moveTimes(out, in)
	in.Release()
	return m.out.Emit(out)
}

// grow maps a batch whose results are much larger than the records, in batches that the pool keeps.
func (m *mapOp[A, B]) grow(in *record.Batch[A]) error {
	col := Collector[B]{out: m.out, pool: m.pool, rows: m.pool.Rows(), time: record.MinTime}
	spans(in, func(i int) {
		out := col.next(in.Time(i))
		if m.into == nil {
			*out = m.f(&in.Rows[i])
			return
		}
		var zero B
		*out = zero
		m.into(&in.Rows[i], out)
	}, col.mark)
	in.Release()
	return col.done()
}

// moveTimes gives out, which holds one row for each selected row of in, the times and marks of in.
func moveTimes[A, B any](out *record.Batch[B], in *record.Batch[A]) {
	if in.Sel == nil {
		out.Times, in.Times = in.Times, out.Times[:0]
		out.Marks, in.Marks = in.Marks, out.Marks[:0]
		return
	}
	if len(in.Times) > 0 {
		for _, j := range in.Sel {
			out.Times = append(out.Times, in.Times[j])
		}
	}
	for _, mk := range in.Marks {
		mk.Pos = int32(in.SelIndex(mk.Pos))
		out.Marks = append(out.Marks, mk)
	}
}

type flatMapOp[A, B any] struct {
	stateless
	f   func(*A, *Collector[B])
	col *Collector[B]
}

// FlatMap returns an operator that replaces each record by what f emits for it.
func FlatMap[A, B any](f func(in *A, out *Collector[B])) Operator { return &flatMapOp[A, B]{f: f} }

func (m *flatMapOp[A, B]) Open(c *Context) error {
	m.col = newCollector[B](c.Out)
	return nil
}

func (m *flatMapOp[A, B]) Push(_ int, a record.Any) error {
	in := batchOf[A](a)
	runs(in, func(from, to int) { // spans would call a function for each row.
		if in.Sel == nil {
			for i := from; i < to; i++ {
				m.col.time = in.Time(i)
				m.f(&in.Rows[i], m.col)
			}
			return
		}
		for _, i := range in.Sel[from:to] {
			m.col.time = in.Time(int(i))
			m.f(&in.Rows[i], m.col)
		}
	}, m.col.mark)
	in.Release()
	return m.col.done()
}

func (m *flatMapOp[A, B]) Close() error {
	if m.col != nil {
		m.col.drop()
	}
	return nil
}

// spans calls row for each selected row of b and mark for each mark, in order.
func spans[T any](b *record.Batch[T], row func(i int), mark func(record.Mark)) {
	runs(b, func(from, to int) {
		if b.Sel == nil {
			for i := from; i < to; i++ {
				row(i)
			}
			return
		}
		for _, i := range b.Sel[from:to] {
			row(int(i))
		}
	}, mark)
}

// runs calls rows for the selected rows between two marks, as indices into the selection, and mark for each mark, in order.
func runs[T any](b *record.Batch[T], rows func(from, to int), mark func(record.Mark)) {
	start := 0
	for m := 0; ; m++ {
		end := b.Len()
		if m < len(b.Marks) {
			end = b.SelIndex(b.Marks[m].Pos)
		}
		rows(start, end)
		if m == len(b.Marks) {
			return
		}
		mark(b.Marks[m])
		start = end
	}
}

type unionOp struct{ stateless }

// Union returns an operator that passes on the records of all its inputs. The task merges their
// watermarks.
func Union() Operator { return &unionOp{} }

func (u *unionOp) Push(_ int, b record.Any) error { return u.out.Emit(b) }
