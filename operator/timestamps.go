package operator

import (
	"time"

	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/watermark"
)

type timestampsOp[T any] struct {
	out  Output
	time func(*T) time.Time
	gen  *watermark.Generator
	last int64
}

// Timestamps returns an operator that gives records their event time and makes watermarks of its
// own. Watermarks that come from upstream are dropped, except the final one.
// A source's own timestamps are better: they keep a watermark for each split.
func Timestamps[T any](f func(*T) time.Time, s watermark.Strategy) Operator {
	return &timestampsOp[T]{time: f, gen: s.NewGenerator()}
}

func (t *timestampsOp[T]) Open(c *Context) error {
	t.out = c.Out
	t.last = c.Watermark
	return nil
}

func (t *timestampsOp[T]) Push(_ int, a record.Any) error {
	b := batchOf[T](a)
	newest := record.MinTime
	b.Times = b.Times[:0]
	if b.Sel == nil {
		for i := range b.Rows {
			ms := t.time(&b.Rows[i]).UnixMilli()
			b.Times = append(b.Times, ms)
			newest = max(newest, ms)
		}
	} else {
		for range b.Rows {
			b.Times = append(b.Times, record.MinTime)
		}
		for _, i := range b.Sel { // f sees no record that was filtered away.
			ms := t.time(&b.Rows[i]).UnixMilli()
			b.Times[i] = ms
			newest = max(newest, ms)
		}
	}
	keep := b.Marks[:0]
	for _, m := range b.Marks {
		if m.Kind != record.Watermark {
			keep = append(keep, m)
		}
	}
	b.Marks = keep
	if newest > record.MinTime {
		t.gen.OnBatch(newest)
		if w := t.gen.Current(); w > t.last {
			t.last = w
			b.Mark(record.Watermark, w)
		}
	}
	if b.Len() == 0 && len(b.Marks) == 0 {
		b.Release()
		return nil
	}
	return t.out.Emit(b)
}

func (t *timestampsOp[T]) EndOfData() error { return nil }
func (t *timestampsOp[T]) Close() error     { return nil }
