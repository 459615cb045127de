package stream

import (
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/window"
)

// SessionWindowed is a keyed stream grouped into sessions. They are emitted when they are over and take
// no trigger. Aggregations need Merge.
type SessionWindowed[K comparable, T any] struct{ g grouped[K, T] }

// SessionWindow groups the records of each key into sessions. As to the type parameter see
// Windowed.Reduce.
func (k Keyed[K, T]) SessionWindow[N ~string](name N, w window.SessionWindows) SessionWindowed[K, T] {
	return SessionWindowed[K, T]{group(k, string(name), w, true)}
}

// SessionWindowAll groups all records of the stream into sessions. They go through one subtask. As to
// the type parameter see Windowed.Reduce.
func (s Stream[T]) SessionWindowAll[N ~string](name N, w window.SessionWindows) SessionWindowed[window.All, T] {
	return SessionWindowed[window.All, T]{groupAll(s, string(name), w, true)}
}

// AllowedLateness is Windowed.AllowedLateness.
func (w SessionWindowed[K, T]) AllowedLateness(d time.Duration) SessionWindowed[K, T] {
	return SessionWindowed[K, T]{grouped[K, T]{w.g.k, w.g.w.allow(d)}}
}

// LateTo is Windowed.LateTo.
func (w SessionWindowed[K, T]) LateTo(name string) SessionWindowed[K, T] {
	return SessionWindowed[K, T]{grouped[K, T]{w.g.k, w.g.w.lateTo(name)}}
}

// Aggregate is Windowed.Aggregate.
func (w SessionWindowed[K, T]) Aggregate[A, R any](agg window.Aggregator[K, T, A, R]) Stream[R] {
	c, err := codec.Default[A]()
	return w.g.aggregate(agg, c, err, operator.NewSessionWindow[K, T, A, R])
}

// AggregateWith is Windowed.AggregateWith.
func (w SessionWindowed[K, T]) AggregateWith[A, R any](agg window.Aggregator[K, T, A, R], c codec.Codec[A]) Stream[R] {
	return w.g.aggregate(agg, c, nil, operator.NewSessionWindow[K, T, A, R])
}

// AggregateThen is Windowed.AggregateThen.
func (w SessionWindowed[K, T]) AggregateThen[A, R, U any](agg window.Aggregator[K, T, A, R], f func(p window.Pane[K], r *R, out *operator.Collector[U])) Stream[U] {
	return w.g.aggregateThen(agg, f, operator.NewSessionWindow[K, T, A, U])
}

// Reduce is Windowed.Reduce.
func (w SessionWindowed[K, T]) Reduce[F ~func(acc, in *T)](f F) Stream[T] {
	return w.g.reduce(f, operator.NewSessionWindow[K, T, T, T])
}

// Apply is Windowed.Apply.
func (w SessionWindowed[K, T]) Apply[R any](f func(p window.Pane[K], records []T, out *operator.Collector[R])) Stream[R] {
	return w.g.apply(f, operator.NewSessionWindow[K, T, []T, R])
}
