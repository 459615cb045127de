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
type Stream[T any] struct {
	j     *Job
	op    int
	codec codec.Codec[T] // nil: the default one.
	// partition is how the next operator gets the records: Forward unless changed.
	partition job.Partition
	output    string        // Name of the side output that it is; empty for the main one.
	source    *sourceDef[T] // Set directly behind a source.
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
		Name: splits + ".splits", Kind: job.KindEnumerator, Stateful: true, Parallelism: 1, Bounded: s.Bounded(),
		State: []job.StateDecl{{Name: "splits", Kind: "list"}},
	}, operator.Node{New: func() (operator.Operator, error) { return operator.AlignedEnumerator(s, j.peers(n)), nil }})
	sc, err := operator.NewSplitCodec()
	if err != nil {
		j.bad("source %q: %v", name, err)
		return Stream[T]{j: j}
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
	return Stream[T]{j: j, op: r, partition: job.Forward, source: def}
}

// Codec sets the codec of the records where they cross a network edge.
func (s Stream[T]) Codec(c codec.Codec[T]) Stream[T] {
	s.codec = c
	return s
}

func (s Stream[T]) withCodec(c codec.Codec[T]) Stream[T] {
	s.codec = c
	return s
}

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
	return Stream[V]{j: s.j, op: s.op, output: name, partition: job.Forward}
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
	s.partition = job.Rebalance
	return s
}

// Broadcast gives every subtask of the next operator all records.
func (s Stream[T]) Broadcast() Stream[T] {
	s.partition = job.Broadcast
	return s
}

// Filter passes on the records for which keep is true. The name may be empty.
func (s Stream[T]) Filter(name string, keep func(*T) bool) Stream[T] {
	s.need("filter", name, keep != nil)
	return add[T, T](s, job.Operator{Name: name, Kind: job.KindFilter}, func() operator.Operator { return operator.Filter(keep) }).withCodec(s.codec)
}

// Map replaces each record by f of it. The name may be empty.
func (s Stream[T]) Map[U any](name string, f func(*T) U) Stream[U] {
	s.need("map", name, f != nil)
	return add[T, U](s, job.Operator{Name: name, Kind: job.KindMap}, func() operator.Operator { return operator.Map(f) })
}

// MapInto is Map for large results: f fills *out, which is zero before. The name may be empty.
func (s Stream[T]) MapInto[U any](name string, f func(in *T, out *U)) Stream[U] {
	s.need("map", name, f != nil)
	return add[T, U](s, job.Operator{Name: name, Kind: job.KindMap}, func() operator.Operator { return operator.MapInto(f) })
}

// FlatMap replaces each record by what f emits for it. The name may be empty.
func (s Stream[T]) FlatMap[U any](name string, f func(in *T, out *operator.Collector[U])) Stream[U] {
	s.need("flat-map", name, f != nil)
	return add[T, U](s, job.Operator{Name: name, Kind: job.KindFlatMap}, func() operator.Operator { return operator.FlatMap(f) })
}

// Union joins streams of one type. The name may be empty.
func (s Stream[T]) Union(name string, others ...Stream[T]) Stream[T] {
	out := add[T, T](s, job.Operator{Name: name, Kind: job.KindUnion}, operator.Union)
	for _, o := range others {
		if o.j != s.j {
			s.j.bad("union %q: a stream of another job", name)
			continue
		}
		e, in := o.edge()
		s.j.ops[out.op].Inputs = append(s.j.ops[out.op].Inputs, e)
		s.j.nodes[out.op].Inputs = append(s.j.nodes[out.op].Inputs, in)
	}
	return out.withCodec(s.codec)
}

// Sink ends the stream in a sink with that name.
func (s Stream[T]) Sink(name string, k operator.Sink[T]) {
	if k == nil {
		s.j.bad("sink %q is nil", name)
	} else if err := k.Validate(); err != nil {
		s.j.bad("sink %q: %v", name, err)
	}
	op := job.Operator{Name: name, Kind: job.KindSink, Stateful: true, TwoPhase: k != nil && k.TwoPhase(),
		State: []job.StateDecl{{Name: "committables", Kind: "list"}, {Name: "writer", Kind: "list"}}}
	add[T, T](s, op, func() operator.Operator { return operator.NewSink(k) })
}

// need records that an operator was given no function.
func (s Stream[T]) need(kind, name string, have bool) {
	if s.j != nil && !have {
		s.j.bad("%s %q behind %q: the function is nil", kind, name, s.j.ops[s.op].Name)
	}
}

// edge describes the way from s to the operator that reads it.
func (s Stream[T]) edge() (job.Edge, operator.Input) {
	if s.source != nil {
		s.source.used = true
	}
	e := job.Edge{From: s.op, Output: s.output, Partition: s.partition}
	in := operator.Input{Empty: emptyBatch[T]}
	e.Codec, in.Frames, in.NoCodec = s.frames()
	if in.NoCodec != nil && s.partition != job.Forward {
		s.j.bad("operator %q: its records cross a network edge: %v", s.j.ops[s.op].Name, in.NoCodec)
	}
	switch s.partition {
	case job.Rebalance:
		in.Router = operator.RebalanceRouter[T]()
	case job.Broadcast:
		in.Router = operator.BroadcastRouter[T]()
	default:
		in.Router, in.Rebalance = operator.ForwardRouter[T](), operator.RebalanceRouter[T]()
	}
	return e, in
}

func emptyBatch[T any]() record.Any { return record.PoolOf[T]().Get() }

// frames gives the schema and the frame codec of the records, or why there is none.
func (s Stream[T]) frames() (string, record.Frames, error) {
	c := s.codec
	if c == nil {
		var err error
		if c, err = codec.Default[T](); err != nil {
			return "none:" + reflect.TypeFor[T]().String(), nil, fmt.Errorf("%w (give the stream a Codec)", err)
		}
	}
	return c.Schema().String(), record.NewFrames(c), nil
}

// add appends an operator that reads s.
func add[T, U any](s Stream[T], op job.Operator, build func() operator.Operator) Stream[U] {
	if s.j == nil {
		panic("stream of no job: streams come from Job.Source")
	}
	e, in := s.edge()
	op.Inputs = []job.Edge{e}
	i := s.j.add(op, operator.Node{
		New:    func() (operator.Operator, error) { return build(), nil },
		Inputs: []operator.Input{in},
	})
	return Stream[U]{j: s.j, op: i, partition: job.Forward}
}

// noSource stands in for a source that is nil, for as long as it takes to say so.
type noSource[T any] struct{ operator.Source[T] }

func (noSource[T]) Bounded() bool { return true }
