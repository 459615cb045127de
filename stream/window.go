package stream

import (
	"fmt"
	"reflect"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/window"
)

// Windowed is a keyed stream grouped by event time.
type Windowed[K comparable, T any] struct {
	k        Keyed[K, T]
	name     string
	w        window.Windows
	trigger  window.Trigger
	lateness time.Duration
	late     string
	single   bool // All records have one key.
	bad      bool // Its problems are recorded.
}

// Window groups the records of each key by event time.
func (k Keyed[K, T]) Window(name string, w window.Windows) Windowed[K, T] {
	out := Windowed[K, T]{k: k, name: name, w: w}
	if w == nil {
		k.s.j.bad("window %q: it has no windows", name)
		out.bad = true
	} else if err := w.Validate(); err != nil {
		k.s.j.bad("window %q: %v", name, err)
		out.bad = true
	}
	return out
}

// AllowedLateness has windows take records for d longer than the watermark would have it. Each of
// these has its window emitted again, with all of its records. The default is 0: a window is emitted
// once and records that come later are counted and dropped.
func (w Windowed[K, T]) AllowedLateness(d time.Duration) Windowed[K, T] {
	if d < 0 || d%time.Millisecond != 0 {
		w.k.s.j.bad("window %q: allowed lateness of %v: it is a whole number of milliseconds, at least 0", w.name, d)
		d = 0
	}
	w.lateness = d
	return w
}

// LateTo puts the records that come too late for every window to a side output of that name, which
// Side returns. They are counted all the same.
func (w Windowed[K, T]) LateTo(name string) Windowed[K, T] {
	if name == "" {
		w.k.s.j.bad("window %q: the side output for late records needs a name", w.name)
	}
	w.late = name
	return w
}

// Trigger has windows emitted at other times than at their ends too. Sessions take none.
func (w Windowed[K, T]) Trigger(t window.Trigger) Windowed[K, T] {
	if err := t.Validate(); err != nil {
		w.k.s.j.bad("window %q: %v", w.name, err)
	} else if !w.bad && t != window.AtEnd() && !window.Fires(w.w) {
		w.k.s.j.bad("window %q: %v is emitted when it is over and takes no trigger", w.name, w.w)
	}
	w.trigger = t
	return w
}

// Aggregate folds the records of each key and window into an accumulator and emits one record when
// the window is complete. The accumulator is encoded by the codec that codec.Default picks for A.
func (w Windowed[K, T]) Aggregate[A, R any](agg window.Aggregator[K, T, A, R]) Stream[R] {
	c, err := codec.Default[A]()
	if err != nil {
		w.k.s.j.bad("window %q: accumulator: %v", w.name, err)
	}
	return w.AggregateWith(agg, c)
}

// AggregateWith is Aggregate with a codec of the caller's choice for the accumulator.
func (w Windowed[K, T]) AggregateWith[A, R any](agg window.Aggregator[K, T, A, R], c codec.Codec[A]) Stream[R] {
	if agg == nil {
		w.k.s.j.bad("window %q: the aggregation is nil", w.name)
	} else if v, ok := agg.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			w.k.s.j.bad("window %q: %v", w.name, err)
		}
	}
	if c == nil || w.k.kc == nil || w.bad || agg == nil {
		return addKeyed[K, T, R](w.k, w.operator(), nil) // A problem was recorded.
	}
	w.needMerge(window.CanMerge(agg))
	return addWindow(w, window.Define(w.w, w.k.key, w.k.kc, c, agg))
}

func (w Windowed[K, T]) needMerge(can bool) {
	if !can && window.NeedsMerge(w.w) {
		w.k.s.j.bad("window %q: %v merges accumulators: the aggregation needs MergeOf", w.name, w.w)
	}
}

// AggregateThen is Aggregate with a function that is given the window and its result and may emit any
// number of records.
func (w Windowed[K, T]) AggregateThen[A, R, U any](agg window.Aggregator[K, T, A, R], f func(p window.Pane[K], r *R, out *operator.Collector[U])) Stream[U] {
	c, err := codec.Default[A]()
	if err != nil {
		w.k.s.j.bad("window %q: accumulator: %v", w.name, err)
	}
	if agg == nil || f == nil {
		w.k.s.j.bad("window %q: the aggregation or the function behind it is nil", w.name)
	}
	if err != nil || w.k.kc == nil || w.bad || agg == nil || f == nil {
		return addKeyed[K, T, U](w.k, w.operator(), nil)
	}
	w.needMerge(window.CanMerge(agg))
	return addWindow(w, window.Then(w.w, w.k.key, w.k.kc, c, agg, f))
}

// Reduce folds the records of each key and window into one of them: f folds in into acc. The first
// record of a window is its own result. Records are encoded in state by the stream's codec.
//
// The type parameter is there so that the operator is only compiled where it is used: the methods
// without any are compiled for every type of records that a program has.
func (w Windowed[K, T]) Reduce[F ~func(acc, in *T)](f F) Stream[T] {
	c := w.records()
	if f == nil {
		w.k.s.j.bad("window %q: the function is nil", w.name)
	}
	if c == nil || w.k.kc == nil || w.bad || f == nil {
		return addKeyed[K, T, T](w.k, w.operator(), nil)
	}
	return addWindow(w, window.Reduce(w.w, w.k.key, w.k.kc, c, f)).withCodecOf(w.k.s.flow)
}

// Apply keeps all records of each key and window and gives them to f, which may emit any number of
// records. They are in the order of their arrival. Records are encoded in state by the stream's
// codec. Aggregate needs less memory wherever it can do the same.
func (w Windowed[K, T]) Apply[R any](f func(p window.Pane[K], records []T, out *operator.Collector[R])) Stream[R] {
	c := w.records()
	if f == nil {
		w.k.s.j.bad("window %q: the function is nil", w.name)
	}
	if c == nil || w.k.kc == nil || w.bad || f == nil {
		return addKeyed[K, T, R](w.k, w.operator(), nil)
	}
	return addWindow(w, window.Apply(w.w, w.k.key, w.k.kc, c, f))
}

// records is the codec of the records in state.
func (w Windowed[K, T]) records() codec.Codec[T] {
	if c := w.k.s.given(); c != nil {
		return c
	}
	c, err := codec.Default[T]()
	if err != nil {
		w.k.s.j.bad("window %q: its records are kept: %v (give the stream a Codec)", w.name, err)
	}
	return c
}

// WindowAll groups all records of the stream by event time. They go through one subtask. As to the
// type parameter see Windowed.Reduce.
func (s Stream[T]) WindowAll[W window.Windows](name string, w W) Windowed[window.All, T] {
	out := s.KeyBy(func(*T) window.All { return 0 }).Window(name, w)
	out.single = true
	return out
}

func (w Windowed[K, T]) operator() job.Operator {
	return job.Operator{Name: w.name, Kind: job.KindWindow, Stateful: true}
}

// addWindow adds the operator that def describes, with what was set on w.
func addWindow[K comparable, T, A, R any](w Windowed[K, T], def operator.WindowAggregate[K, T, A, R]) Stream[R] {
	def.Lateness, def.Late, def.Trigger = w.lateness.Milliseconds(), w.late, w.trigger.Operator()
	op := w.operator()
	op.State = def.Decls()
	op.Params = w.w.String()
	if w.lateness > 0 {
		op.Params += fmt.Sprintf(", lateness %v", w.lateness)
	}
	if t := w.trigger.String(); t != "" {
		op.Params += ", " + t
	}
	if w.single {
		op.Parallelism = 1
	}
	if w.late != "" {
		op.Sides = []string{w.late}
	}
	out := addKeyed[K, T, R](w.k, op, func() operator.Operator { return operator.NewWindow(def) })
	if w.late != "" {
		w.k.s.j.sides[out.op] = map[string]reflect.Type{w.late: reflect.TypeFor[T]()}
	}
	return out
}
