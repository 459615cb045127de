package operator

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

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
	timed(b, 400, push)
}

// timed measures push, which returns how many records it pushed, after so many calls to warm up.
func timed(b *testing.B, warm int, push func() int) {
	b.Helper()
	for range warm {
		push()
	}
	b.ReportAllocs()
	n := 0
	b.ResetTimer()
	start := cpuTime(b)
	for n < b.N {
		n += push()
	}
	b.ReportMetric(float64(cpuTime(b)-start)/float64(n), "cpu-ns/record")
}

// cpuTime is the time that the process has had of the cores, for machines that others use too.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func benchOp[T any](b *testing.B, op Operator, keyed bool, fill func(*record.Batch[T])) {
	s := surround(&releaser{})
	if keyed {
		st, err := fs.Factory{}.New(context.Background(), statebackend.Params{Operator: "op", Groups: job.GroupRange{First: 0, Last: 719}, K: 720, MaxConcurrent: 1, MaxValue: 16 << 20})
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

// shape is what the benchmarks need to know of a record type.
type shape[T any] struct {
	fill func(r *T, key, n int64)
	keep func(*T) bool
	next func(*T) T
	into func(in, out *T)
	key  func(*T) int64
	val  func(*T) int64
}

// filler makes full batches of rows with rising times over that many keys, with a watermark each.
func (s shape[T]) filler(keys int64) func(*record.Batch[T]) {
	n, rows := int64(0), record.RowsFor[T]()
	return func(b *record.Batch[T]) {
		b.Rows = b.Rows[:rows]
		for i := range b.Rows {
			s.fill(&b.Rows[i], n*7919%keys, n)
			b.Times = append(b.Times, n)
			n++
		}
		b.Mark(record.Watermark, n-1)
	}
}

func benchAll[T any](b *testing.B, name string, s shape[T]) {
	few := func() func(*record.Batch[T]) { return s.filler(1000) }
	b.Run("fill/"+name, func(b *testing.B) { benchOp(b, Union(), false, few()) })
	b.Run("filter/"+name, func(b *testing.B) { benchOp(b, Filter(s.keep), false, few()) })
	b.Run("map/"+name, func(b *testing.B) { benchOp(b, Map(s.next), false, few()) })
	b.Run("map-into/"+name, func(b *testing.B) { benchOp(b, MapInto(s.into), false, few()) })
	b.Run("flat-map/"+name, func(b *testing.B) {
		benchOp(b, FlatMap(func(r *T, c *Collector[T]) { c.Emit(*r) }), false, few())
	})
	for _, keys := range []int64{1000, 100_000} {
		b.Run(fmt.Sprintf("process/%s/keys=%d", name, keys), func(b *testing.B) {
			benchOp(b, Process(s.key, codec.Int64(), func(st *States[int64]) Handler[int64, T, int64] {
				sum := st.Value[int64]("sum")
				return Handler[int64, T, int64]{Record: func(c *KeyedContext[int64, int64], r *T) {
					p := sum.Ref()
					*p += s.val(r)
					c.Emit(*p)
				}}
			}), true, s.filler(keys))
		})
	}
	b.Run("timer/"+name, func(b *testing.B) {
		benchOp(b, Process(s.key, codec.Int64(), func(*States[int64]) Handler[int64, T, int64] {
			return Handler[int64, T, int64]{
				Record: func(c *KeyedContext[int64, int64], r *T) { c.SetTimer(c.Time() + 5000) },
				Timer:  func(c *KeyedContext[int64, int64]) { c.Emit(c.Time()) },
			}
		}), true, few())
	})
	b.Run("window/"+name, func(b *testing.B) {
		benchOp(b, newWindow(WindowAggregate[int64, T, int64, int64]{
			Key: s.key, KeyCodec: codec.Int64(), AccCodec: codec.Int64(),
			Assign: func(t int64) (int64, int64) { s := t / 60_000 * 60_000; return s, s + 60_000 },
			EndOf:  func(s int64) int64 { return s + 60_000 },
			Zero:   func() int64 { return 0 },
			Add:    func(a *int64, r *T) { *a += s.val(r) },
			Result: func(_ int64, _, _ int64, a *int64) int64 { return *a },
		}), true, few())
	})
}

func BenchmarkOperators(b *testing.B) {
	benchAll(b, "24B", shape[rec24]{
		fill: func(r *rec24, key, n int64) { r.Key, r.Value, r.Time = key, n, n },
		keep: func(r *rec24) bool { return r.Value%10 != 0 },
		next: func(r *rec24) rec24 { return rec24{r.Key, r.Value + 1, r.Time} },
		into: func(in, out *rec24) { *out = *in; out.Value++ },
		key:  func(r *rec24) int64 { return r.Key },
		val:  func(r *rec24) int64 { return r.Value },
	})
	benchAll(b, "32B", shape[rec32]{
		fill: func(r *rec32, key, n int64) { r.Key, r.Value, r.Time = key, n, n },
		keep: func(r *rec32) bool { return r.Value%10 != 0 },
		next: func(r *rec32) rec32 { c := *r; c.Value++; return c },
		into: func(in, out *rec32) { *out = *in; out.Value++ },
		key:  func(r *rec32) int64 { return r.Key },
		val:  func(r *rec32) int64 { return r.Value },
	})
	benchAll(b, "128B", shape[rec128]{
		fill: func(r *rec128, key, n int64) { r.Key, r.Value, r.Time = key, n, n },
		keep: func(r *rec128) bool { return r.Value%10 != 0 },
		next: func(r *rec128) rec128 { c := *r; c.Value++; return c },
		into: func(in, out *rec128) { *out = *in; out.Value++ },
		key:  func(r *rec128) int64 { return r.Key },
		val:  func(r *rec128) int64 { return r.Value },
	})
}
