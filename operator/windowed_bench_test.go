package operator

import (
	"fmt"
	"testing"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/record"
)

func benchDef() WindowAggregate[int64, rec24, int64, int64] {
	return WindowAggregate[int64, rec24, int64, int64]{
		Key: func(r *rec24) int64 { return r.Key }, KeyCodec: codec.Int64(), AccCodec: codec.Int64(),
		Zero:   func() int64 { return 0 },
		Add:    func(a *int64, r *rec24) { *a++ },
		Merge:  func(a, b *int64) { *a += *b },
		Result: func(_ int64, _, _ int64, a *int64) int64 { return *a },
	}
}

// benchRows makes batches of records over keys at so many events per second of event time, with a
// watermark behind each batch.
func benchRows(keys, perSecond int64) func(*record.Batch[rec24]) {
	h := codec.NewHasher(codec.Int64())
	n, rows := int64(0), record.RowsFor[rec24]()
	return func(b *record.Batch[rec24]) {
		b.Rows = b.Rows[:rows]
		for i := range b.Rows {
			r := &b.Rows[i]
			r.Key, r.Time = n*7919%keys, n*1000/perSecond
			b.Times = append(b.Times, r.Time)
			b.Hash = append(b.Hash, h(&r.Key))
			n++
		}
		b.Mark(record.Watermark, n*1000/perSecond-1)
	}
}

func BenchmarkWindows(b *testing.B) {
	for _, w := range []struct{ size, step, keys, rate int64 }{
		{10_000, 2000, 100, 10_000},
		{10_000, 100, 100, 10_000},
		{10_000, 2000, 10_000, 10_000},
		{10_000, 100, 1000, 1000}, // 10 emitted rows for each record.
		{10_000, 100, 1000, 100},  // 63 emitted rows for each record.
	} {
		b.Run(fmt.Sprintf("sliding=%dms-%dms/keys=%d/rate=%d", w.size, w.step, w.keys, w.rate), func(b *testing.B) {
			d := benchDef()
			d.Slide = Slide{Size: w.size, Step: w.step}
			benchOp(b, newWindow(d), true, benchRows(w.keys, w.rate))
		})
	}
	b.Run("tumbling=10000ms/keys=100/rate=10000", func(b *testing.B) {
		d := benchDef()
		d.Assign = func(t int64) (int64, int64) { s := t / 10_000 * 10_000; return s, s + 10_000 }
		d.EndOf = func(s int64) int64 { return s + 10_000 }
		benchOp(b, newWindow(d), true, benchRows(100, 10_000))
	})
	b.Run("session=10000ms/keys=100/rate=10000", func(b *testing.B) {
		d := benchDef()
		d.Gap = 10_000
		benchOp(b, newWindow(d), true, benchRows(100, 10_000))
	})
	b.Run("session=10000ms/records=50/rate=10000", func(b *testing.B) {
		d := benchDef()
		d.Gap = 10_000
		// 20 keys at a time, each with 50 records and never again.
		d.Key = func(r *rec24) int64 { return r.Time/100*20 + r.Key%20 }
		fill := benchRows(1000, 10_000)
		h := codec.NewHasher(codec.Int64())
		benchOp(b, newWindow(d), true, func(batch *record.Batch[rec24]) {
			fill(batch)
			for i := range batch.Rows {
				k := d.Key(&batch.Rows[i])
				batch.Hash[i] = h(&k)
			}
		})
	})
	b.Run("fill", func(b *testing.B) { benchOp(b, Union(), false, benchRows(100, 10_000)) })
}
