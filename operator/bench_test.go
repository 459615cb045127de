package operator

import (
	"context"
	"fmt"
	"testing"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
)

// Records of 24, 32 and 128 bytes.
type (
	rec24 struct{ Key, Value, Time int64 }
	rec32 struct {
		rec24
		Pad [1]int64
	}
	rec128 struct {
		rec24
		Pad [13]int64
	}
)

func (r *rec24) fields() *rec24 { return r }

type benchRec[T any] interface {
	*T
	fields() *rec24
}

// releaser ends a chain.
type releaser struct{ n int }

func (r *releaser) Emit(b record.Any) error {
	r.n += b.Len()
	b.Release()
	return nil
}

// perRecord pushes full batches, made by fill, and reports the cost per record. Filling them is
// part of it; BenchmarkFill shows how much.
func perRecord[T any](b *testing.B, op Operator, fill func(*record.Batch[T])) {
	b.Helper()
	pool := record.PoolOf[T]()
	push := func() int {
		batch := pool.Get()
		fill(batch)
		n := batch.Len()
		if err := op.Push(0, batch); err != nil {
			b.Fatal(err)
		}
		if y, ok := op.(Yielder); ok {
			for y.Pending() {
				if err := y.Resume(); err != nil {
					b.Fatal(err)
				}
			}
		}
		return n
	}
	for range 3000 {
		push()
	}
	b.ReportAllocs()
	n := 0
	b.ResetTimer()
	for n < b.N {
		n += push()
	}
}

func benchOp[T any](b *testing.B, op Operator, keyed bool, fill func(*record.Batch[T])) {
	s := surround(&releaser{})
	if keyed {
		st, err := fs.Factory{}.New(context.Background(), statebackend.Params{Operator: "op", Groups: job.GroupRange{First: 0, Last: 719}, K: 720, MaxConcurrent: 1})
		if err != nil {
			b.Fatal(err)
		}
		defer st.Close()
		s.c.State, s.c.K = st, 720
	}
	if err := op.Open(s.c); err != nil {
		b.Fatal(err)
	}
	if r, ok := op.(Restorable); ok {
		if err := r.Ready(); err != nil {
			b.Fatal(err)
		}
	}
	defer op.Close()
	perRecord(b, op, fill)
}

// filler makes full batches of rows with rising times over that many keys, with a watermark each.
func filler[T any, P benchRec[T]](keys int64) func(*record.Batch[T]) {
	n, rows := int64(0), record.RowsFor[T]()
	return func(b *record.Batch[T]) {
		b.Rows = b.Rows[:rows]
		for i := range b.Rows {
			r := P(&b.Rows[i]).fields()
			r.Key, r.Value, r.Time = n*7919%keys, n, n
			b.Times = append(b.Times, n)
			n++
		}
		b.Mark(record.Watermark, n-1)
	}
}

func benchAll[T any, P benchRec[T]](b *testing.B, name string) {
	key := func(r *T) int64 { return P(r).fields().Key }
	b.Run("fill/"+name, func(b *testing.B) { benchOp(b, Union(), false, filler[T, P](1000)) })
	b.Run("filter/"+name, func(b *testing.B) {
		benchOp(b, Filter(func(r *T) bool { return P(r).fields().Value%10 != 0 }), false, filler[T, P](1000))
	})
	b.Run("map/"+name, func(b *testing.B) {
		benchOp(b, Map(func(r *T) T { c := *r; P(&c).fields().Value++; return c }), false, filler[T, P](1000))
	})
	b.Run("map-into/"+name, func(b *testing.B) {
		benchOp(b, MapInto(func(in, out *T) { *out = *in; P(out).fields().Value++ }), false, filler[T, P](1000))
	})
	b.Run("flat-map/"+name, func(b *testing.B) {
		benchOp(b, FlatMap(func(r *T, c *Collector[T]) { c.Emit(*r) }), false, filler[T, P](1000))
	})
	for _, keys := range []int64{1000, 100_000} {
		b.Run(fmt.Sprintf("process/%s/keys=%d", name, keys), func(b *testing.B) {
			benchOp(b, Process(key, codec.Int64(), func(s *States[int64]) Handler[int64, T, int64] {
				sum := s.Value[int64]("sum")
				return Handler[int64, T, int64]{Record: func(c *KeyedContext[int64, int64], r *T) {
					p := sum.Ref()
					*p += P(r).fields().Value
					c.Emit(*p)
				}}
			}), true, filler[T, P](keys))
		})
	}
	b.Run("timer/"+name, func(b *testing.B) {
		benchOp(b, Process(key, codec.Int64(), func(s *States[int64]) Handler[int64, T, int64] {
			return Handler[int64, T, int64]{
				Record: func(c *KeyedContext[int64, int64], r *T) { c.SetTimer(c.Time() + 5000) },
				Timer:  func(c *KeyedContext[int64, int64]) { c.Emit(c.Time()) },
			}
		}), true, filler[T, P](1000))
	})
	b.Run("window/"+name, func(b *testing.B) {
		benchOp(b, NewWindow(WindowAggregate[int64, T, int64, int64]{
			Key: key, KeyCodec: codec.Int64(), AccCodec: codec.Int64(),
			Assign: func(t int64) (int64, int64) { s := t / 60_000 * 60_000; return s, s + 60_000 },
			EndOf:  func(s int64) int64 { return s + 60_000 },
			Zero:   func() int64 { return 0 },
			Add:    func(a *int64, r *T) { *a += P(r).fields().Value },
			Result: func(_ int64, _, _ int64, a *int64) int64 { return *a },
		}), true, filler[T, P](1000))
	})
}

func BenchmarkOperators(b *testing.B) {
	benchAll[rec24](b, "24B")
	benchAll[rec32](b, "32B")
	benchAll[rec128](b, "128B")
}
