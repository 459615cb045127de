package stream

import (
	"context"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
)

// Async replaces each record by what call answers for it, such as a row of a database. Calls run on
// goroutines of their own, up to o.Capacity records of a subtask at a time; how they are retried,
// and in which order results go on, is in o. Records under way are part of every checkpoint and
// hold no checkpoint up; after a restart their calls are made again.
//
// call returns soon once ctx is done. The record is read-only.
func (s Stream[T]) Async[U any](name string, o operator.AsyncOptions, call func(ctx context.Context, in T) (U, error)) Stream[U] {
	var calls operator.AsyncCalls[T, U]
	if call != nil {
		calls.Call = func(ctx context.Context, in T) ([]U, error) {
			out, err := call(ctx, in)
			if err != nil {
				return nil, err
			}
			return []U{out}, nil
		}
	}
	return s.AsyncWith(name, o, calls)
}

// AsyncWith is Async for calls with any number of results, and with a fallback for those that fail.
func (s Stream[T]) AsyncWith[U any](name string, o operator.AsyncOptions, calls operator.AsyncCalls[T, U]) Stream[U] {
	needFunc(s.flow, "async", name, calls.Call != nil)
	if err := o.Validate(); err != nil {
		s.j.bad("async %q: %v", name, err)
	}
	op := job.Operator{Name: name, Kind: job.KindAsync, Stateful: true}
	c := s.given()
	if c == nil {
		var err error
		if c, err = codec.Default[T](); err != nil {
			s.j.bad("async %q: its records are part of checkpoints: %v (give the stream a Codec)", name, err)
			return add[T, U](s, op, nil) // Never made: a problem was recorded.
		}
	}
	op.State = []job.StateDecl{{Name: operator.CallsState, Kind: "list", Value: operator.CallSchema(c.Schema()).String()}}
	return add[T, U](s, op, func() operator.Operator { return operator.Async(o, calls, c) })
}
