package operator

import (
	"context"
	"testing"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
)

// withText is a record with strings, as most are.
type withText struct {
	Key, Value, Time int64
	Name, Note       string
}

// BenchmarkStates is what a record costs that uses one state of its key once or twice.
func BenchmarkStates(b *testing.B) {
	const keys = 10_000
	type rec = rec24
	s := shape[rec]{fill: func(r *rec, key, n int64) { r.Key, r.Value, r.Time = key, n, n }}
	run := func(name string, construct func(st *States[int64]) func(c *KeyedContext[int64, int64], r *rec)) {
		b.Run(name, func(b *testing.B) {
			benchOp(b, Process(func(r *rec) int64 { return r.Key }, codec.Int64(), func(st *States[int64]) Handler[int64, rec, int64] {
				return Handler[int64, rec, int64]{Record: construct(st)}
			}), true, s.filler(keys))
		})
	}
	for name, ttl := range map[string][]TTL{"": nil, "/ttl": {{After: time.Hour}}} {
		run("value"+name, func(st *States[int64]) func(*KeyedContext[int64, int64], *rec) {
			v := st.Value[int64]("v", ttl...)
			return func(_ *KeyedContext[int64, int64], r *rec) { *v.Ref() += r.Value }
		})
		run("reducing"+name, func(st *States[int64]) func(*KeyedContext[int64, int64], *rec) {
			v := st.Reducing[int64]("v", func(into, v *int64) { *into += *v }, ttl...)
			return func(_ *KeyedContext[int64, int64], r *rec) { v.Add(&r.Value) }
		})
		run("list-append-remove"+name, func(st *States[int64]) func(*KeyedContext[int64, int64], *rec) {
			l := st.List[rec]("l", ttl...)
			return func(_ *KeyedContext[int64, int64], r *rec) {
				l.Append(r)
				if l.Len() > 16 {
					l.RemoveFirst(8)
				}
			}
		})
		run("map-ref"+name, func(st *States[int64]) func(*KeyedContext[int64, int64], *rec) {
			m := st.Map[int64, int64]("m", ttl...)
			return func(_ *KeyedContext[int64, int64], r *rec) {
				v, _ := m.Ref(r.Value & 7)
				*v++
			}
		})
		run("map-put-delete"+name, func(st *States[int64]) func(*KeyedContext[int64, int64], *rec) {
			m := st.Map[int64, int64]("m", ttl...)
			return func(_ *KeyedContext[int64, int64], r *rec) {
				m.Put(r.Value&7, 1)
				m.Delete((r.Value + 4) & 7)
			}
		})
	}
	text := shape[withText]{fill: func(r *withText, key, n int64) { *r = withText{key, n, n, "a name that is long enough", "a note"} }}
	b.Run("value-set/strings", func(b *testing.B) {
		benchOp(b, Process(func(r *withText) int64 { return r.Key }, codec.Int64(), func(st *States[int64]) Handler[int64, withText, int64] {
			v := st.Value[withText]("v")
			return Handler[int64, withText, int64]{Record: func(_ *KeyedContext[int64, int64], r *withText) { v.Set(*r) }}
		}), true, text.filler(keys))
	})
	b.Run("list-append-remove/strings", func(b *testing.B) {
		benchOp(b, Process(func(r *withText) int64 { return r.Key }, codec.Int64(), func(st *States[int64]) Handler[int64, withText, int64] {
			l := st.List[withText]("l")
			return Handler[int64, withText, int64]{Record: func(_ *KeyedContext[int64, int64], r *withText) {
				l.Append(r)
				if l.Len() > 16 {
					l.RemoveFirst(8)
				}
			}}
		}), true, text.filler(keys))
	})
	b.Run("top-3/strings", func(b *testing.B) {
		benchOp(b, Process(func(r *withText) int64 { return r.Key }, codec.Int64(), func(st *States[int64]) Handler[int64, withText, int64] {
			return TopN(st, 3, func(a, b *withText) bool { return a.Value*7919%100_003 > b.Value*7919%100_003 }, func(i int, _ *withText) int64 { return int64(i) })
		}), true, text.filler(keys))
	})
}

// BenchCo pushes batches of the two sides in turn, one of the left and seven of the right, each with a
// watermark behind it.
func BenchCo[T any](b *testing.B, op Operator, fill func(n int64, left bool, v *T) (time int64)) {
	s := surround(&releaser{})
	st, err := fs.Factory{}.New(context.Background(), statebackend.Params{Operator: "op", Groups: job.GroupRange{First: 0, Last: 719}, K: 720, MaxConcurrent: 1, MaxValue: 16 << 20})
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	s.c.State, s.c.K = st, 720
	if err := op.Open(s.c); err != nil {
		b.Fatal(err)
	}
	defer op.Close()
	if err := op.(Restorable).Ready(); err != nil {
		b.Fatal(err)
	}
	pool := record.PoolOf[T]()
	n := int64(0)
	push := func() int {
		y := op.(Yielder)
		rows := 0
		for side := range 2 {
			bt := pool.Get()
			size := 125
			if side == 1 {
				size = 875
			}
			for range size {
				var v T
				bt.Append(v, 0)
				bt.Times[len(bt.Times)-1] = fill(n, side == 0, &bt.Rows[len(bt.Rows)-1])
				n++
			}
			bt.Mark(record.Watermark, n-1)
			rows += size
			if err := op.Push(side, bt); err != nil {
				b.Fatal(err)
			}
			for y.Pending() {
				if err := y.Resume(); err != nil {
					b.Fatal(err)
				}
			}
		}
		return rows
	}
	timed(b, 100, push)
}
