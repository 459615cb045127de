package stream

import (
	"reflect"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
)

// Connected are two keyed streams of one type of key: records of both with the same key meet in the same
// subtask.
type Connected[K comparable, A, B any] struct {
	left  Keyed[K, A]
	right Keyed[K, B]
}

// Connect joins k with another keyed stream for an operator that takes both.
func (k Keyed[K, T]) Connect[B any](right Keyed[K, B]) Connected[K, T, B] {
	return Connected[K, T, B]{k, right}
}

// Process adds an operator with two inputs, keyed state and timers. construct declares the states on its
// argument and returns what to do with the records of each input and with timers; it is called once to
// build the job and once for each subtask.
func (c Connected[K, A, B]) Process[U any](name string, construct func(s *operator.States[K]) operator.CoHandler[K, A, B, U]) Stream[U] {
	op := job.Operator{Name: name, Kind: job.KindProcess, Stateful: true}
	return c.add[U](op, construct)
}

// add adds an operator whose states construct declares.
func (c Connected[K, A, B]) add[U any](op job.Operator, construct func(s *operator.States[K]) operator.CoHandler[K, A, B, U]) Stream[U] {
	j := c.left.s.j
	var sides map[string]reflect.Type
	if c.left.kc != nil && c.right.kc != nil {
		st := operator.NewStates(c.left.kc)
		h := construct(st)
		sides = j.declare(&op, st, h.Timer != nil, h.Clock != nil, c.left.kc.Schema().String())
		if h.Left == nil || h.Right == nil {
			j.bad("operator %q: its CoHandler has no Left or no Right function", op.Name)
		}
	}
	left, right, kc := c.left.key, c.right.key, c.left.kc
	out := addKeyed[K, A, U](c.left, op, func() operator.Operator { return operator.CoProcess(left, right, kc, construct) })
	e, in := c.right.edge()
	j.second(out.op, c.right.s.j, e, in)
	if l := j.ops[out.op].Inputs[0].Key; l != e.Key {
		j.bad("operator %q: its inputs have different codecs of keys: %s and %s", j.ops[out.op].Name, l, e.Key)
	}
	j.sides[out.op] = sides
	return out
}

// BroadcastConnected is a keyed stream beside one that every subtask gets whole.
type BroadcastConnected[K comparable, T, R any] struct {
	k     Keyed[K, T]
	rules Stream[R]
}

// ConnectBroadcast joins k with a stream, such as of rules, whose records go to every subtask and make up
// state that is the same in all of them. Several subtasks upstream send their records in no common
// order, so where the order matters that stream has a parallelism of 1.
func (k Keyed[K, T]) ConnectBroadcast[R any](rules Stream[R]) BroadcastConnected[K, T, R] {
	return BroadcastConnected[K, T, R]{k, rules.Broadcast()}
}

// Process adds an operator with a keyed and a broadcast input. construct declares keyed and broadcast
// states on its argument and returns what to do with records and timers; it is called once to build
// the job and once for each subtask.
func (c BroadcastConnected[K, T, R]) Process[U any](name string, construct func(s *operator.States[K]) operator.BroadcastHandler[K, T, R, U]) Stream[U] {
	j := c.k.s.j
	op := job.Operator{Name: name, Kind: job.KindProcess, Stateful: true}
	var sides map[string]reflect.Type
	if c.k.kc != nil {
		st := operator.NewBroadcastStates(c.k.kc)
		h := construct(st)
		sides = j.declare(&op, st, h.Timer != nil, h.Clock != nil, c.k.kc.Schema().String())
		if h.Record == nil || h.Broadcast == nil {
			j.bad("operator %q: its BroadcastHandler has no Record or no Broadcast function", name)
		}
	}
	key, kc := c.k.key, c.k.kc
	out := addKeyed[K, T, U](c.k, op, func() operator.Operator { return operator.ProcessBroadcast(key, kc, construct) })
	e, in := edgeOf(c.rules.flow, rowsOf(c.rules.given()))
	j.second(out.op, c.rules.j, e, in)
	j.sides[out.op] = sides
	return out
}

// Process adds an operator without keys that has state of its own. construct declares it on its argument
// and returns what to do with records; it is called once to build the job and once for each subtask.
func (s Stream[T]) Process[U any](name string, construct func(s *operator.OperatorStates) operator.PlainHandler[T, U]) Stream[U] {
	op := job.Operator{Name: name, Kind: job.KindProcess, Stateful: true}
	st := operator.NewOperatorStates()
	h := construct(st)
	sides := s.j.declare(&op, st, false, false, "")
	if h.Record == nil {
		s.j.bad("operator %q: its PlainHandler has no Record function", name)
	}
	out := add[T, U](s, op, func() operator.Operator { return operator.ProcessPlain(construct) })
	s.j.sides[out.op] = sides
	return out
}

// declared is what a constructor declared.
type declared interface {
	Decls() []job.StateDecl
	Problems() []string
	Sides() (names []string, types map[string]reflect.Type)
}

// declare takes over what a constructor declared into op and returns the types of its side outputs.
// timers and clock tell whether its handler has timers of event time and of processing time.
func (j *Job) declare(op *job.Operator, d declared, timers, clock bool, key string) (sides map[string]reflect.Type) {
	op.State = d.Decls()
	op.Sides, sides = d.Sides()
	for _, p := range d.Problems() {
		j.bad("operator %q: %s", op.Name, p)
	}
	if timers {
		op.State = append(op.State, job.StateDecl{Name: "timers", Kind: "timers", Key: key})
	}
	if clock {
		op.State = append(op.State, job.StateDecl{Name: "clock-timers", Kind: "timers", Key: key})
	}
	return sides
}

// second gives an operator a second input.
func (j *Job) second(op int, of *Job, e job.Edge, in operator.Input) {
	if of != j {
		j.bad("operator %q: its second input is of another job", j.ops[op].Name)
		return
	}
	j.ops[op].Inputs = append(j.ops[op].Inputs, e)
	j.nodes[op].Inputs = append(j.nodes[op].Inputs, in)
}
