package stream

import (
	"fmt"
	"time"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/dedup"
	"github.com/cairnstream/cairn/operator/window"
)

// Dedup passes on the first record of each key and drops the others. A key is remembered for ttl, in
// processing time from its first record; 0 is for ever. As to the type parameter see Windowed.Reduce.
func (k Keyed[K, T]) Dedup[N ~string](name N, ttl time.Duration) Stream[T] {
	return k.built(job.Operator{Name: string(name), Kind: job.KindDedup, Params: "first", Warnings: forEver(ttl, "every key")}, func(s *operator.States[K]) operator.Handler[K, T, T] {
		return dedup.First[K, T](s, ttlOf(ttl)...)
	}).withCodecOf(k.s.flow)
}

// DedupLast passes on each record that is newer than all of its key before it, as an update: the last one
// counts. newer tells whether a comes after b. A key is forgotten when it had no such record for ttl;
// 0 is never. As to the type parameter see Windowed.Reduce.
func (k Keyed[K, T]) DedupLast[F ~func(a, b *T) bool](name string, ttl time.Duration, newer F) Stream[T] {
	return k.built(job.Operator{Name: name, Kind: job.KindDedup, Params: "last", Warnings: forEver(ttl, "the last record of every key")}, func(s *operator.States[K]) operator.Handler[K, T, T] {
		return dedup.Last(s, newer, ttlOf(ttl)...)
	}).withCodecOf(k.s.flow)
}

// TopN keeps the n best records of each key and emits an update for each rank whose record changed: of
// those with one key and rank the last one counts. better tells whether a is better than b;
// f makes what is emitted of a record and its rank, from 1 for the best.
func (k Keyed[K, T]) TopN[U any](name string, n int, better func(a, b *T) bool, f func(rank int, row *T) U) Stream[U] {
	k.checkTop(name, n)
	return k.built(job.Operator{Name: name, Kind: job.KindTopN, Params: fmt.Sprintf("top %d", n)}, func(s *operator.States[K]) operator.Handler[K, T, U] {
		return operator.TopN(s, n, better, f)
	})
}

// TopNWindow emits the n best records of each key and window when the window is complete.
func (k Keyed[K, T]) TopNWindow[U any](name string, w window.TumblingWindows, n int, better func(a, b *T) bool, f func(rank int, row *T) U) Stream[U] {
	k.checkTop(name, n)
	if err := w.Validate(); err != nil {
		k.s.j.bad("operator %q: %v", name, err)
		w = window.Tumbling(time.Hour)
	}
	assign := w.Assigner()
	return k.built(job.Operator{Name: name, Kind: job.KindTopN, Params: fmt.Sprintf("top %d in %v", n, w)}, func(s *operator.States[K]) operator.Handler[K, T, U] {
		return operator.TopNWindow(s, n, better, f, assign)
	})
}

func (k Keyed[K, T]) checkTop(name string, n int) {
	if n < 1 {
		k.s.j.bad("operator %q: the top %d: want at least 1", name, n)
	}
}

// built is Process for an operator of ours.
func (k Keyed[K, T]) built[U any](op job.Operator, construct func(s *operator.States[K]) operator.Handler[K, T, U]) Stream[U] {
	op.Stateful = true
	if k.kc != nil {
		st := operator.NewStates(k.kc)
		h := construct(st)
		k.s.j.declare(&op, st, h.Timer != nil, h.Clock != nil, k.kc.Schema().String())
	}
	key, kc := k.key, k.kc
	return addKeyed[K, T, U](k, op, func() operator.Operator { return operator.Process(key, kc, construct) })
}
