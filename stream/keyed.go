package stream

import (
	"reflect"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
)

// Keyed is a stream whose records are grouped by a key: all records of a key go through the same
// subtask of the next operator.
type Keyed[K comparable, T any] struct {
	s   Stream[T]
	key func(*T) K
	kc  codec.Codec[K]
}

// KeyBy groups the records by key. The key is encoded by the codec that codec.Default picks for K.
func (s Stream[T]) KeyBy[K comparable](key func(*T) K) Keyed[K, T] {
	c, err := codec.Default[K]()
	if err != nil {
		s.j.bad("key of %q: %v", s.j.ops[s.op].Name, err)
		return Keyed[K, T]{s: s, key: key}
	}
	return s.KeyByWith(key, c)
}

// KeyByWith is KeyBy with a codec of the caller's choice.
func (s Stream[T]) KeyByWith[K comparable](key func(*T) K, c codec.Codec[K]) Keyed[K, T] {
	if key == nil {
		s.j.bad("key of %q: the function is nil", s.j.ops[s.op].Name)
	}
	if c == nil {
		s.j.bad("key of %q: the codec is nil", s.j.ops[s.op].Name)
	} else if err := codec.CheckKey(c); err != nil {
		s.j.bad("key of %q: %v", s.j.ops[s.op].Name, err)
	}
	return Keyed[K, T]{s: s, key: key, kc: c}
}

// edge describes the hash edge to the operator that reads k.
func (k Keyed[K, T]) edge() (job.Edge, operator.Input) {
	e, in := wayOf(k.s.flow, rowsOf(k.s.given()), job.Hash)
	in.Router = operator.HashRouter(k.key, k.kc)
	if k.kc != nil {
		e.Key = k.kc.Schema().String()
	}
	return e, in
}

// Process adds an operator with keyed state and timers. construct declares the states on its
// argument and returns what to do with records and timers; it is called once to build the job and
// once for each subtask.
func (k Keyed[K, T]) Process[U any](name string, construct func(s *operator.States[K]) operator.Handler[K, T, U]) Stream[U] {
	j := k.s.j
	op := job.Operator{Name: name, Kind: job.KindProcess, Stateful: true}
	var sides map[string]reflect.Type
	if k.kc != nil {
		st := operator.NewStates(k.kc)
		h := construct(st)
		sides = j.declare(&op, st, h.Timer != nil, h.Clock != nil, k.kc.Schema().String())
		if h.Record == nil {
			j.bad("operator %q: its Handler has no Record function", name)
		}
	}
	out := addKeyed[K, T, U](k, op, func() operator.Operator { return operator.Process(k.key, k.kc, construct) })
	j.sides[out.op] = sides
	return out
}

func addKeyed[K comparable, T, U any](k Keyed[K, T], op job.Operator, build func() operator.Operator) Stream[U] {
	e, in := k.edge()
	return streamOf[U](k.s.j, k.s.j.reading(op, e, in, build))
}
