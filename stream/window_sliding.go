package stream

import (
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/window"
)

// SlidingWindowed is a keyed stream grouped by event time, into windows that start at regular
// intervals and may overlap. Aggregations need Merge.
type SlidingWindowed[K comparable, T any] struct{ g grouped[K, T] }

// SlidingWindow groups the records of each key by event time. As to the type parameter see
// Windowed.Reduce.
func (k Keyed[K, T]) SlidingWindow[N ~string](name N, w window.SlidingWindows) SlidingWindowed[K, T] {
	return SlidingWindowed[K, T]{group(k, string(name), w, true)}
}

// SlidingWindowAll groups all records of the stream by event time. They go through one subtask. As to
// the type parameter see Windowed.Reduce.
func (s Stream[T]) SlidingWindowAll[N ~string](name N, w window.SlidingWindows) SlidingWindowed[window.All, T] {
	return SlidingWindowed[window.All, T]{groupAll(s, string(name), w, true)}
}

// AllowedLateness is Windowed.AllowedLateness.
func (w SlidingWindowed[K, T]) AllowedLateness(d time.Duration) SlidingWindowed[K, T] {
	return SlidingWindowed[K, T]{grouped[K, T]{w.g.k, w.g.w.allow(d)}}
}

// Trigger has windows emitted at other times than at their ends too. Each of them has a state of its
// own then: a record costs as many updates as there are windows that it is in, and Merge is not needed.
func (w SlidingWindowed[K, T]) Trigger(t window.Trigger) TriggeredWindowed[K, T] {
	return TriggeredWindowed[K, T]{grouped[K, T]{w.g.k, w.g.w.triggeredBy(t)}}
}

// LateTo is Windowed.LateTo.
func (w SlidingWindowed[K, T]) LateTo(name string) SlidingWindowed[K, T] {
	return SlidingWindowed[K, T]{grouped[K, T]{w.g.k, w.g.w.lateTo(name)}}
}

// Aggregate is Windowed.Aggregate.
func (w SlidingWindowed[K, T]) Aggregate[A, R any](agg window.Aggregator[K, T, A, R]) Stream[R] {
	c, err := codec.Default[A]()
	return w.g.aggregate(agg, c, err, operator.NewSlidingWindow[K, T, A, R])
}

// AggregateWith is Windowed.AggregateWith.
func (w SlidingWindowed[K, T]) AggregateWith[A, R any](agg window.Aggregator[K, T, A, R], c codec.Codec[A]) Stream[R] {
	return w.g.aggregate(agg, c, nil, operator.NewSlidingWindow[K, T, A, R])
}

// AggregateThen is Windowed.AggregateThen.
func (w SlidingWindowed[K, T]) AggregateThen[A, R, U any](agg window.Aggregator[K, T, A, R], f func(p window.Pane[K], r *R, out *operator.Collector[U])) Stream[U] {
	return w.g.aggregateThen(agg, f, operator.NewSlidingWindow[K, T, A, U])
}

// Reduce is Windowed.Reduce.
func (w SlidingWindowed[K, T]) Reduce[F ~func(acc, in *T)](f F) Stream[T] {
	return w.g.reduce(f, operator.NewSlidingWindow[K, T, T, T])
}

// Apply is Windowed.Apply.
func (w SlidingWindowed[K, T]) Apply[R any](f func(p window.Pane[K], records []T, out *operator.Collector[R])) Stream[R] {
	return w.g.apply(f, operator.NewSlidingWindow[K, T, []T, R])
}
