package stream

import (
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/window"
)

// TriggeredWindowed is a keyed stream grouped into windows that are emitted at other times than at their
// ends too.
type TriggeredWindowed[K comparable, T any] struct{ g grouped[K, T] }

// GlobalWindow puts all records of a key into one window. As to the type parameter see
// Windowed.Reduce.
func (k Keyed[K, T]) GlobalWindow[N ~string](name N, w window.GlobalWindows) TriggeredWindowed[K, T] {
	return TriggeredWindowed[K, T]{group(k, string(name), w, false)}
}

// GlobalWindowAll puts all records of the stream into one window. They go through one subtask. As to
// the type parameter see Windowed.Reduce.
func (s Stream[T]) GlobalWindowAll[N ~string](name N, w window.GlobalWindows) TriggeredWindowed[window.All, T] {
	return TriggeredWindowed[window.All, T]{groupAll(s, string(name), w, false)}
}

// AllowedLateness is Windowed.AllowedLateness.
func (w TriggeredWindowed[K, T]) AllowedLateness(d time.Duration) TriggeredWindowed[K, T] {
	return TriggeredWindowed[K, T]{grouped[K, T]{w.g.k, w.g.w.allow(d)}}
}

// Trigger says when windows are emitted.
func (w TriggeredWindowed[K, T]) Trigger(t window.Trigger) TriggeredWindowed[K, T] {
	return TriggeredWindowed[K, T]{grouped[K, T]{w.g.k, w.g.w.triggeredBy(t)}}
}

// LateTo is Windowed.LateTo.
func (w TriggeredWindowed[K, T]) LateTo(name string) TriggeredWindowed[K, T] {
	return TriggeredWindowed[K, T]{grouped[K, T]{w.g.k, w.g.w.lateTo(name)}}
}

// Aggregate is Windowed.Aggregate.
func (w TriggeredWindowed[K, T]) Aggregate[A, R any](agg window.Aggregator[K, T, A, R]) Stream[R] {
	c, err := codec.Default[A]()
	return w.g.aggregate(agg, c, err, operator.NewTriggeredWindow[K, T, A, R])
}

// AggregateWith is Windowed.AggregateWith.
func (w TriggeredWindowed[K, T]) AggregateWith[A, R any](agg window.Aggregator[K, T, A, R], c codec.Codec[A]) Stream[R] {
	return w.g.aggregate(agg, c, nil, operator.NewTriggeredWindow[K, T, A, R])
}

// AggregateThen is Windowed.AggregateThen.
func (w TriggeredWindowed[K, T]) AggregateThen[A, R, U any](agg window.Aggregator[K, T, A, R], f func(p window.Pane[K], r *R, out *operator.Collector[U])) Stream[U] {
	return w.g.aggregateThen(agg, f, operator.NewTriggeredWindow[K, T, A, U])
}

// Reduce is Windowed.Reduce.
func (w TriggeredWindowed[K, T]) Reduce[F ~func(acc, in *T)](f F) Stream[T] {
	return w.g.reduce(f, operator.NewTriggeredWindow[K, T, T, T])
}

// Apply is Windowed.Apply.
func (w TriggeredWindowed[K, T]) Apply[R any](f func(p window.Pane[K], records []T, out *operator.Collector[R])) Stream[R] {
	return w.g.apply(f, operator.NewTriggeredWindow[K, T, []T, R])
}
