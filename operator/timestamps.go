package operator

import (
	"fmt"
	"time"

	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/watermark"
)

type timestampsOp[T any] struct {
	stamper[T]
	out  Output
	gen  *watermark.Generator
	last int64
	kept []record.Mark // Scratch.
}

// Timestamps returns an operator that gives records their event time and makes watermarks of its
// own. Watermarks that come from upstream are dropped, except the final one.
// A source's own timestamps are better: they keep a watermark for each split, and see idleness.
func Timestamps[T any](f func(*T) time.Time, s watermark.Strategy) Operator {
	return TimestampsOf(Timing[T]{Time: f, Strategy: s})
}

// TimestampsOf is Timestamps with all that a Timing can say. Idleness and alignment are of sources:
// here they have no effect.
func TimestampsOf[T any](t Timing[T]) Operator {
	return &timestampsOp[T]{stamper: stamper[T]{Timing: t}, gen: t.Strategy.NewGenerator()}
}

func (t *timestampsOp[T]) Open(c *Context) error {
	t.out = c.Out
	t.last = c.Watermark
	t.gen.Restore(c.Watermark)
	t.open(c, fmt.Sprintf("timestamps %q", c.Name))
	return nil
}

func (t *timestampsOp[T]) Push(_ int, a record.Any) error {
	b := batchOf[T](a)
	var now time.Time
	if t.limited || t.Strategy.NeedsTimes() {
		now = t.c.Now()
	}
	newest, err := t.stamp(b, now)
	if err != nil {
		b.Release()
		return err
	}
	t.kept = append(t.kept[:0], b.Marks...)
	b.Marks = b.Marks[:0]
	mergeMarks(t.kept, t.marks, func(m record.Mark, own bool) {
		if own {
			t.gen.Mark(m.Time)
			t.advance(b, m.Pos)
		} else if m.Kind != record.Watermark {
			b.Marks = append(b.Marks, m)
		}
	})
	if err := t.tell(b, t.gen, newest, now); err != nil {
		b.Release()
		return err
	}
	t.advance(b, int32(len(b.Rows)))
	if err := t.emitSide(b.Marks); err != nil {
		b.Release()
		return err
	}
	if b.Len() == 0 && len(b.Marks) == 0 {
		b.Release()
		return nil
	}
	return t.out.Emit(b)
}

// advance marks b at pos if the watermark moved.
func (t *timestampsOp[T]) advance(b *record.Batch[T], pos int32) {
	if w := t.gen.Current(); w > t.last {
		t.last = w
		b.Marks = append(b.Marks, record.Mark{Kind: record.Watermark, Pos: pos, Time: w})
	}
}

// mergeMarks calls f for the marks of both lists in the order of their positions; own tells those
// of the second.
func mergeMarks(a, own []record.Mark, f func(m record.Mark, own bool)) {
	for len(a) > 0 || len(own) > 0 {
		if len(own) == 0 || len(a) > 0 && a[0].Pos <= own[0].Pos {
			f(a[0], false)
			a = a[1:]
		} else {
			f(own[0], true)
			own = own[1:]
		}
	}
}

func (t *timestampsOp[T]) EndOfData() error { return nil }

func (t *timestampsOp[T]) Close() error {
	t.drop()
	return nil
}
