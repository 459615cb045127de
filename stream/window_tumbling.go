package stream

import (
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/window"
)

// Windowed is a keyed stream grouped by event time, into windows that do not overlap.
type Windowed[K comparable, T any] struct{ g grouped[K, T] }

// Window groups the records of each key by event time. As to the type parameter see
// Windowed.Reduce.
func (k Keyed[K, T]) Window[N ~string](name N, w window.TumblingWindows) Windowed[K, T] {
	return Windowed[K, T]{group(k, string(name), w, false)}
}

// WindowAll groups all records of the stream by event time. They go through one subtask. As to the
// type parameter see Windowed.Reduce.
func (s Stream[T]) WindowAll[N ~string](name N, w window.TumblingWindows) Windowed[window.All, T] {
	return Windowed[window.All, T]{groupAll(s, string(name), w, false)}
}

// AllowedLateness has windows take records for d longer than the watermark would have it. Each of
// these has its window emitted again, with all of its records. Without it a window is emitted once
// and records that come later are counted and dropped.
func (w Windowed[K, T]) AllowedLateness(d time.Duration) TriggeredWindowed[K, T] {
	return TriggeredWindowed[K, T]{grouped[K, T]{w.g.k, w.g.w.allow(d)}}
}

// Trigger has windows emitted at other times than at their ends too.
func (w Windowed[K, T]) Trigger(t window.Trigger) TriggeredWindowed[K, T] {
	return TriggeredWindowed[K, T]{grouped[K, T]{w.g.k, w.g.w.triggeredBy(t)}}
}

// LateTo puts the records that come too late for every window to a side output of that name, which
// Side returns. They are counted all the same.
func (w Windowed[K, T]) LateTo(name string) Windowed[K, T] {
	return Windowed[K, T]{grouped[K, T]{w.g.k, w.g.w.lateTo(name)}}
}

// Aggregate folds the records of each key and window into an accumulator and emits one record when
// the window is complete. The accumulator is encoded by the codec that codec.Default picks for A.
func (w Windowed[K, T]) Aggregate[A, R any](agg window.Aggregator[K, T, A, R]) Stream[R] {
	c, err := codec.Default[A]()
	return w.g.aggregate(agg, c, err, operator.NewWindow[K, T, A, R])
}

// AggregateWith is Aggregate with a codec of the caller's choice for the accumulator.
func (w Windowed[K, T]) AggregateWith[A, R any](agg window.Aggregator[K, T, A, R], c codec.Codec[A]) Stream[R] {
	return w.g.aggregate(agg, c, nil, operator.NewWindow[K, T, A, R])
}

// AggregateThen is Aggregate with a function that is given the window and its result and may emit any
// number of records.
func (w Windowed[K, T]) AggregateThen[A, R, U any](agg window.Aggregator[K, T, A, R], f func(p window.Pane[K], r *R, out *operator.Collector[U])) Stream[U] {
	return w.g.aggregateThen(agg, f, operator.NewWindow[K, T, A, U])
}

// Reduce folds the records of each key and window into one of them: f folds in into acc. The first
// record of a window is its own result. Records are encoded in state by the stream's codec.
//
// The type parameter is there so that the operator is only compiled where it is used: the methods
// without any are compiled for every type of records that a program has.
func (w Windowed[K, T]) Reduce[F ~func(acc, in *T)](f F) Stream[T] {
	return w.g.reduce(f, operator.NewWindow[K, T, T, T])
}

// Apply keeps all records of each key and window and gives them to f, which may emit any number of
// records. They are in the order of their arrival. Records are encoded in state by the stream's
// codec. Aggregate needs less memory wherever it can do the same.
func (w Windowed[K, T]) Apply[R any](f func(p window.Pane[K], records []T, out *operator.Collector[R])) Stream[R] {
	return w.g.apply(f, operator.NewWindow[K, T, []T, R])
}
