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

// Windows of each sort have a type and an operator of their own, so that a program compiles the operators that it uses:
// each aggregation is compiled for the types of its records, its accumulator and its result.

// windowing is what was said of windows before their aggregation.
type windowing struct {
	j        *Job
	name     string
	w        window.Windows
	merges   bool // Accumulators are merged.
	trigger  window.Trigger
	lateness time.Duration
	late     string
	single   bool // All records have one key.
	bad      bool // Its problems are recorded.
}

// grouped is a keyed stream grouped by event time.
type grouped[K comparable, T any] struct {
	k Keyed[K, T]
	w *windowing
}

func group[K comparable, T any](k Keyed[K, T], name string, w window.Windows, merges bool) grouped[K, T] {
	return grouped[K, T]{k, newWindowing(k.s.j, name, w, merges)}
}

func groupAll[T any](s Stream[T], name string, w window.Windows, merges bool) grouped[window.All, T] {
	g := group(s.KeyBy(func(*T) window.All { return 0 }), name, w, merges)
	g.w.single = true
	return g
}

func newWindowing(j *Job, name string, w window.Windows, merges bool) *windowing {
	out := &windowing{j: j, name: name, w: w, merges: merges}
	if err := w.Validate(); err != nil {
		j.bad("window %q: %v", name, err)
		out.bad = true
	}
	return out
}

func (w windowing) allow(d time.Duration) *windowing {
	if d < 0 || d%time.Millisecond != 0 {
		w.j.bad("window %q: allowed lateness of %v: it is a whole number of milliseconds, at least 0", w.name, d)
		d = 0
	}
	w.lateness = d
	return &w
}

func (w windowing) lateTo(name string) *windowing {
	if name == "" {
		w.j.bad("window %q: the side output for late records needs a name", w.name)
	}
	w.late = name
	return &w
}

func (w windowing) triggeredBy(t window.Trigger) *windowing {
	if err := t.Validate(); err != nil {
		w.j.bad("window %q: %v", w.name, err)
	}
	w.trigger, w.merges = t, false
	return &w
}

// refuse records a problem, unless there is none.
func (w *windowing) refuse(problem bool, format string, args ...any) {
	if problem {
		w.j.bad("window %q: %s", w.name, fmt.Sprintf(format, args...))
		w.bad = true
	}
}

// check looks at an aggregation.
func (w *windowing) check(have bool, agg any, canMerge bool, acc error) {
	w.refuse(acc != nil, "accumulator: %v", acc)
	w.refuse(!have, "the aggregation is nil")
	if v, ok := agg.(interface{ Validate() error }); ok && have {
		if err := v.Validate(); err != nil {
			w.refuse(true, "%v", err)
		}
	}
	w.refuse(!canMerge && w.merges, "%v merges accumulators: the aggregation needs MergeOf", w.w)
}

func (w *windowing) operator() job.Operator {
	return job.Operator{Name: w.name, Kind: job.KindWindow, Stateful: true}
}

// described is the operator with what was set on w.
func (w *windowing) described(state []job.StateDecl) job.Operator {
	op := w.operator()
	op.State = state
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
	return op
}

// windowOperator is what makes the operator of a sort of windows.
type windowOperator[K comparable, T, A, R any] func(operator.WindowAggregate[K, T, A, R]) operator.WindowOperator

// add adds the operator that def describes, with what was set on g.
func (g grouped[K, T]) add[A, R any](def operator.WindowAggregate[K, T, A, R], construct windowOperator[K, T, A, R]) Stream[R] {
	def.Lateness, def.Late, def.Trigger = g.w.lateness.Milliseconds(), g.w.late, g.w.trigger.Operator()
	made := construct(def)
	op := g.w.described(made.State)
	e, in := g.k.edge()
	if made.Combines {
		in.Router = def.CombineRouter()
		if in.Frames != nil {
			in.Frames = def.CombineFrames(in.Frames)
		}
		op.Params += ", combined before the exchange"
	}
	out := streamOf[R](g.w.j, g.w.j.reading(op, e, in, made.New))
	if g.w.late != "" {
		g.w.j.sides[out.op] = map[string]reflect.Type{g.w.late: reflect.TypeFor[T]()}
	}
	return out
}

// unfit stands in for the operator when a problem was recorded.
func (g grouped[K, T]) unfit[R any]() (Stream[R], bool) {
	if !g.w.bad && g.k.kc != nil {
		return Stream[R]{}, false
	}
	return addKeyed[K, T, R](g.k, g.w.operator(), nil), true
}

func (g grouped[K, T]) aggregate[A, R any](agg window.Aggregator[K, T, A, R], c codec.Codec[A], acc error, construct windowOperator[K, T, A, R]) Stream[R] {
	if c == nil && acc == nil {
		acc = fmt.Errorf("the codec is nil")
	}
	g.w.check(agg != nil, agg, window.CanMerge(agg), acc)
	if out, bad := g.unfit[R](); bad {
		return out
	}
	return g.add(window.Define(g.w.w, g.k.key, g.k.kc, c, agg), construct)
}

func (g grouped[K, T]) aggregateThen[A, R, U any](agg window.Aggregator[K, T, A, R], f func(p window.Pane[K], r *R, out *operator.Collector[U]), construct windowOperator[K, T, A, U]) Stream[U] {
	c, err := codec.Default[A]()
	g.w.check(agg != nil, agg, window.CanMerge(agg), err)
	g.w.refuse(f == nil, "the function behind the aggregation is nil")
	if out, bad := g.unfit[U](); bad {
		return out
	}
	return g.add(window.Then(g.w.w, g.k.key, g.k.kc, c, agg, f), construct)
}

func (g grouped[K, T]) reduce[F ~func(acc, in *T)](f F, construct windowOperator[K, T, T, T]) Stream[T] {
	c := g.records()
	g.w.refuse(f == nil, "the function is nil")
	out, bad := g.unfit[T]()
	if !bad {
		out = g.add(window.Reduce(g.w.w, g.k.key, g.k.kc, c, f), construct)
	}
	return out.withCodecOf(g.k.s.flow)
}

func (g grouped[K, T]) apply[R any](f func(p window.Pane[K], records []T, out *operator.Collector[R]), construct windowOperator[K, T, []T, R]) Stream[R] {
	c := g.records()
	g.w.refuse(f == nil, "the function is nil")
	if out, bad := g.unfit[R](); bad {
		return out
	}
	return g.add(window.Apply(g.w.w, g.k.key, g.k.kc, c, f), construct)
}

// records is the codec of the records in state.
func (g grouped[K, T]) records() codec.Codec[T] {
	if c := g.k.s.given(); c != nil {
		return c
	}
	c, err := codec.Default[T]()
	g.w.refuse(err != nil, "its records are kept: %v (give the stream a Codec)", err)
	return c
}
