package stream

import (
	"fmt"
	"reflect"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/watermark"
)

// Stream is a flow of records of type T. It may be used as an input several times.
type Stream[T any] struct{ *flow }

// flow is what of a stream does not depend on the type of its records. It is not changed: streams share it.
type flow struct {
	j  *Job
	op int
	// partition is how the next operator gets the records: Forward unless changed.
	partition job.Partition
	output    string     // Name of the side output that it is; empty for the main one.
	codec     any        // The codec.Codec[T] that was given; nil for the default one.
	source    *sourceUse // Set directly behind a source.
}

func streamOf[T any](j *Job, op int) Stream[T] {
	return Stream[T]{&flow{j: j, op: op, partition: job.Forward}}
}

// partitioned is f with another way to the next operator.
func partitioned(f flow, p job.Partition) *flow {
	f.partition = p
	return &f
}

func encoded(f flow, codec any) *flow {
	f.codec = codec
	return &f
}

// given is the codec that was given, or nil.
func (s Stream[T]) given() codec.Codec[T] {
	if s.flow == nil {
		panic("stream of no job: streams come from Job.Source")
	}
	c, _ := s.codec.(codec.Codec[T])
	return c
}

// Source adds a source with that name.
func (j *Job) Source[T any](name string, s operator.Source[T]) Stream[T] {
	if s == nil {
		j.bad("source %q is nil", name)
		s = noSource[T]{}
	} else if err := s.Validate(); err != nil {
		j.bad("source %q: %v", name, err)
	}
	def := &sourceDef[T]{source: s, timing: operator.Timing[T]{Strategy: watermark.FromSource()}}
	n := len(j.sources)
	splits := name
	if name == "" {
		splits = fmt.Sprintf("%s-%d", job.KindReader, len(j.ops)+1) // The name that the reader will have.
	}
	en := j.add(job.Operator{
		Name: splits + job.SplitsSuffix, Kind: job.KindEnumerator, Stateful: true, Parallelism: 1, Bounded: s.Bounded(),
		State: []job.StateDecl{{Name: "splits", Kind: "list"}},
	}, operator.Node{New: func() (operator.Operator, error) { return operator.AlignedEnumerator(s, j.peers(n)), nil }})
	sc, err := operator.NewSplitCodec()
	if err != nil {
		j.bad("source %q: %v", name, err)
		return streamOf[T](j, 0)
	}
	r := j.add(job.Operator{
		Name: name, Kind: job.KindReader, Stateful: true,
		Inputs: []job.Edge{{From: en, Partition: job.Splits, Codec: sc.Schema().String()}},
		State:  []job.StateDecl{{Name: "splits", Kind: "list"}},
	}, operator.Node{
		New: func() (operator.Operator, error) { return operator.TimedReader(def.source, def.timing), nil },
		Inputs: []operator.Input{{
			Router: operator.SplitRouter(), Frames: record.NewFrames(sc), Empty: emptyBatch[operator.SplitMessage],
		}},
	})
	j.sources = append(j.sources, aligned{en, r, func() watermark.Strategy { return def.timing.Strategy }})
	return Stream[T]{&flow{j: j, op: r, partition: job.Forward, source: &sourceUse{def: def}}}
}

// Codec sets the codec of the records where they cross a network edge.
func (s Stream[T]) Codec(c codec.Codec[T]) Stream[T] {
	return Stream[T]{encoded(*s.flow, c)}
}

// withCodecOf gives s the codec of another stream.
func (s Stream[T]) withCodecOf(o *flow) Stream[T] { return Stream[T]{encoded(*s.flow, o.codec)} }

// Side returns the side output that the operator which makes s declared under that name. V is the
// type that it was declared with.
func (s Stream[T]) Side[V any](name string) Stream[V] {
	declared, ok := s.j.sides[s.op][name]
	switch {
	case !ok:
		s.j.bad("operator %q has no side output %q", s.j.ops[s.op].Name, name)
	case declared != reflect.TypeFor[V]():
		s.j.bad("side output %q of operator %q has records of %v, not of %v", name, s.j.ops[s.op].Name, declared, reflect.TypeFor[V]())
	}
	return Stream[V]{&flow{j: s.j, op: s.op, output: name, partition: job.Forward}}
}

// Parallelism sets the number of subtasks of the operator that makes this stream.
func (s Stream[T]) Parallelism(n int) Stream[T] {
	if n < 1 {
		s.j.bad("operator %q: parallelism %d: want at least 1", s.j.ops[s.op].Name, n)
		return s
	}
	s.j.ops[s.op].Parallelism = n
	return s
}

// Rebalance deals the records out to the subtasks of the next operator in turn.
func (s Stream[T]) Rebalance() Stream[T] {
	return Stream[T]{partitioned(*s.flow, job.Rebalance)}
}

// Broadcast gives every subtask of the next operator all records.
func (s Stream[T]) Broadcast() Stream[T] {
	return Stream[T]{partitioned(*s.flow, job.Broadcast)}
}

// Filter passes on the records for which keep is true. The name may be empty.
func (s Stream[T]) Filter(name string, keep func(*T) bool) Stream[T] {
	needFunc(s.flow, "filter", name, keep != nil)
	return add[T, T](s, job.Operator{Name: name, Kind: job.KindFilter}, func() operator.Operator { return operator.Filter(keep) }).withCodecOf(s.flow)
}

// Map replaces each record by f of it. The name may be empty.
func (s Stream[T]) Map[U any](name string, f func(*T) U) Stream[U] {
	needFunc(s.flow, "map", name, f != nil)
	return add[T, U](s, job.Operator{Name: name, Kind: job.KindMap}, func() operator.Operator { return operator.Map(f) })
}

// MapInto is Map for large results: f fills *out, which is zero before. The name may be empty.
func (s Stream[T]) MapInto[U any](name string, f func(in *T, out *U)) Stream[U] {
	needFunc(s.flow, "map", name, f != nil)
	return add[T, U](s, job.Operator{Name: name, Kind: job.KindMap}, func() operator.Operator { return operator.MapInto(f) })
}

// FlatMap replaces each record by what f emits for it. The name may be empty.
func (s Stream[T]) FlatMap[U any](name string, f func(in *T, out *operator.Collector[U])) Stream[U] {
	needFunc(s.flow, "flat-map", name, f != nil)
	return add[T, U](s, job.Operator{Name: name, Kind: job.KindFlatMap}, func() operator.Operator { return operator.FlatMap(f) })
}

// Union joins streams of one type. The name may be empty.
func (s Stream[T]) Union(name string, others ...Stream[T]) Stream[T] {
	out := add[T, T](s, job.Operator{Name: name, Kind: job.KindUnion}, operator.Union)
	for _, o := range others {
		s.j.unite(name, out.op, o.flow, rowsOf(o.given()))
	}
	return out.withCodecOf(s.flow)
}

// Sink ends the stream in a sink with that name.
func (s Stream[T]) Sink(name string, k operator.Sink[T]) {
	var problem error
	twoPhase := false
	if k != nil {
		problem, twoPhase = k.Validate(), k.TwoPhase()
	}
	addSink(s.flow, name, k != nil, problem, twoPhase, rowsOf(s.given()), func() operator.Operator { return operator.NewSink(k) })
}

func addSink(f *flow, name string, have bool, problem error, twoPhase bool, r rows, build func() operator.Operator) {
	if !have {
		f.j.bad("sink %q is nil", name)
	} else if problem != nil {
		f.j.bad("sink %q: %v", name, problem)
	}
	addTo(f, job.Operator{Name: name, Kind: job.KindSink, Stateful: true, TwoPhase: twoPhase,
		State: []job.StateDecl{{Name: "committables", Kind: "list"}, {Name: "writer", Kind: "list"}}}, r, build)
}

// needFunc records that an operator was given no function.
func needFunc(f *flow, kind, name string, have bool) {
	if f != nil && !have {
		f.j.bad("%s %q behind %q: the function is nil", kind, name, f.j.ops[f.op].Name)
	}
}

// rows is what an edge has to know of the type of its records.
type rows struct {
	schema                        string
	frames                        record.Frames
	noCodec                       error // Why there are no frames.
	forward, rebalance, broadcast operator.RouterFactory
	empty                         func() record.Any
}

// rowsOf describes the records of a stream with that codec; nil is the default one.
func rowsOf[T any](c codec.Codec[T]) rows {
	r := rows{
		forward: operator.ForwardRouter[T](), rebalance: operator.RebalanceRouter[T](), broadcast: operator.BroadcastRouter[T](),
		empty: emptyBatch[T],
	}
	if c == nil {
		var err error
		if c, err = codec.Default[T](); err != nil {
			r.schema, r.noCodec = "none:"+reflect.TypeFor[T]().String(), fmt.Errorf("%w (give the stream a Codec)", err)
			return r
		}
	}
	r.schema, r.frames = c.Schema().String(), record.NewFrames(c)
	return r
}

func emptyBatch[T any]() record.Any { return record.PoolOf[T]().Get() }

// edgeOf describes the way from f to the operator that reads it.
func edgeOf(f *flow, r rows) (job.Edge, operator.Input) {
	e, in := wayOf(f, r, f.partition)
	switch f.partition {
	case job.Rebalance:
		in.Router = r.rebalance
	case job.Broadcast:
		in.Router = r.broadcast
	default:
		in.Router, in.Rebalance = r.forward, r.rebalance
	}
	return e, in
}

// wayOf is what edges of all partitions have in common.
func wayOf(f *flow, r rows, p job.Partition) (job.Edge, operator.Input) {
	if f.source != nil {
		f.source.used = true
	}
	if r.noCodec != nil && p != job.Forward {
		f.j.bad("operator %q: its records cross a network edge: %v", f.j.ops[f.op].Name, r.noCodec)
	}
	e := job.Edge{From: f.op, Output: f.output, Partition: p, Codec: r.schema}
	return e, operator.Input{Empty: r.empty, Frames: r.frames, NoCodec: r.noCodec}
}

// add appends an operator that reads s.
func add[T, U any](s Stream[T], op job.Operator, build func() operator.Operator) Stream[U] {
	return streamOf[U](s.j, addTo(s.flow, op, rowsOf(s.given()), build))
}

// addTo appends an operator that reads f and returns its index.
func addTo(f *flow, op job.Operator, r rows, build func() operator.Operator) int {
	e, in := edgeOf(f, r)
	return f.j.reading(op, e, in, build)
}

// reading appends an operator that reads an edge and returns its index.
func (j *Job) reading(op job.Operator, e job.Edge, in operator.Input, build func() operator.Operator) int {
	op.Inputs = []job.Edge{e}
	return j.add(op, operator.Node{
		New:    func() (operator.Operator, error) { return build(), nil },
		Inputs: []operator.Input{in},
	})
}

// unite gives a union one more input.
func (j *Job) unite(name string, op int, f *flow, r rows) {
	if f.j != j {
		j.bad("union %q: a stream of another job", name)
		return
	}
	e, in := edgeOf(f, r)
	j.ops[op].Inputs = append(j.ops[op].Inputs, e)
	j.nodes[op].Inputs = append(j.nodes[op].Inputs, in)
}

// noSource stands in for a source that is nil, for as long as it takes to say so.
type noSource[T any] struct{ operator.Source[T] }

func (noSource[T]) Bounded() bool { return true }
