package operator

import (
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// CoHandler is what a keyed operator with two inputs does. Both inputs share keys, states and timers.
type CoHandler[K comparable, A, B, U any] struct {
	// Left is called for each record of the first input, under its key.
	Left func(c *KeyedContext[K, U], in *A)
	// Right is called for each record of the second input, under its key.
	Right func(c *KeyedContext[K, U], in *B)
	// Timer is called for each event-time timer that is due, under the key that set it; nil for an
	// operator without timers.
	Timer func(c *KeyedContext[K, U])
	// Clock is called for each processing-time timer that is due, under the key that set it; nil for
	// an operator without those.
	Clock func(c *KeyedContext[K, U])
}

// BroadcastHandler is what a keyed operator with a broadcast side does.
type BroadcastHandler[K comparable, T, R, U any] struct {
	// Record is called for each record of the keyed input, under its key. It reads broadcast state.
	Record func(c *KeyedContext[K, U], in *T)
	// Broadcast is called in every subtask for each record of the broadcast side. It changes broadcast
	// state; there is no key, so it leaves keyed state and timers alone. What it emits is emitted once by
	// each subtask.
	Broadcast func(c *BroadcastContext[U], in *R)
	// Timer is called for each event-time timer that is due, under the key that set it; nil for an
	// operator without timers.
	Timer func(c *KeyedContext[K, U])
	// Clock is called for each processing-time timer that is due, under the key that set it; nil for
	// an operator without those.
	Clock func(c *KeyedContext[K, U])
}

// BroadcastContext is what the Broadcast function works with during a call.
type BroadcastContext[U any] struct {
	*Collector[U]
	now *int64
}

// Time is the event time of the record, in milliseconds since 1970 UTC.
func (c *BroadcastContext[U]) Time() int64 { return c.time }

// Watermark is the current watermark in milliseconds since 1970 UTC.
func (c *BroadcastContext[U]) Watermark() int64 { return *c.now }

// coOp steps through batches of two types. The loop pushes nothing while the operator is Pending, so one
// of the two is at rest whenever the other has a batch.
type coOp[K comparable, A, B, U any] struct {
	keyedCore[K, U]
	left  segments
	right segments

	leftKey  func(*A) K
	rightKey func(*B) K // nil when the second input is broadcast.
	make     func(*States[K]) CoHandler[K, A, B, U]
	handler  CoHandler[K, A, B, U]

	makeShared func(*States[K]) BroadcastHandler[K, A, B, U]
	broadcast  func(*BroadcastContext[U], *B)
	shared     BroadcastContext[U]
}

// CoProcess returns a keyed operator with two inputs that share states and timers. construct is called
// once for each subtask with a States that binds what it declares.
func CoProcess[K comparable, A, B, U any](left func(*A) K, right func(*B) K, kc codec.Codec[K], construct func(*States[K]) CoHandler[K, A, B, U]) Operator {
	return &coOp[K, A, B, U]{keyedCore: keyedCore[K, U]{kc: kc}, leftKey: left, rightKey: right, make: construct}
}

// ProcessBroadcast returns a keyed operator whose second input every subtask gets whole.
func ProcessBroadcast[K comparable, T, R, U any](key func(*T) K, kc codec.Codec[K], construct func(*States[K]) BroadcastHandler[K, T, R, U]) Operator {
	return &coOp[K, T, R, U]{keyedCore: keyedCore[K, U]{kc: kc}, leftKey: key, makeShared: construct}
}

// NewBroadcastStates makes a States that only collects declarations, for an operator with a broadcast
// side.
func NewBroadcastStates[K comparable](key codec.Codec[K]) *States[K] {
	return &States[K]{key: key, shared: &operatorState{}}
}

func (p *coOp[K, A, B, U]) Open(c *Context) error {
	p.left = segments{process: p.lefts, fire: p.fire, pass: p.pass, done: p.done, now: c.Watermark}
	p.right = segments{process: p.rights, fire: p.fire, pass: p.pass, done: p.done, now: c.Watermark}
	if p.makeShared == nil {
		s := NewStates(p.kc)
		return p.open(c, s, func() (onTimer, onClock func(*KeyedContext[K, U])) {
			p.handler = p.make(s)
			return p.handler.Timer, p.handler.Clock
		})
	}
	s := NewBroadcastStates(p.kc)
	return p.open(c, s, func() (onTimer, onClock func(*KeyedContext[K, U])) {
		h := p.makeShared(s)
		p.handler.Left, p.broadcast = h.Record, h.Broadcast
		p.shared = BroadcastContext[U]{p.ctx.Collector, &p.ctx.now}
		return h.Timer, h.Clock
	})
}

// Ready is called when the state has been restored.
func (p *coOp[K, A, B, U]) Ready() error {
	p.left.firing = p.ready()
	return nil
}

func (p *coOp[K, A, B, U]) Push(input int, a record.Any) error {
	if input == 0 {
		p.left.now = p.ctx.now
		return p.left.push(a)
	}
	p.right.now = p.ctx.now
	return p.right.push(a)
}

func (p *coOp[K, A, B, U]) Pending() bool { return p.left.pending() || p.right.pending() }

func (p *coOp[K, A, B, U]) Resume() error {
	if p.left.pending() {
		return p.left.resume()
	}
	return p.right.resume()
}

func (p *coOp[K, A, B, U]) Interruptible() bool {
	return p.left.interruptible() && p.right.interruptible()
}

func (p *coOp[K, A, B, U]) EndOfData() error { return p.left.advance(record.MaxTime) }

func (p *coOp[K, A, B, U]) lefts(a record.Any, from, to int) error {
	return p.rows(batchOf[A](a), from, to, p.leftKey, p.handler.Left)
}

func (p *coOp[K, A, B, U]) rights(a record.Any, from, to int) error {
	b := batchOf[B](a)
	if p.rightKey != nil {
		return p.rows(b, from, to, p.rightKey, p.handler.Right)
	}
	p.states.aging.look()
	o := p.states.shared
	o.writable = true
	p.cur.key = nil // Of no key: the use of keyed state is a fault.
	for n := from; n < to; n++ {
		i := n
		if b.Sel != nil {
			i = int(b.Sel[n])
		}
		p.ctx.time = b.Time(i)
		p.broadcast(&p.shared, &b.Rows[i])
	}
	p.cur.key = &p.k
	o.writable = false
	return p.ctx.err
}

func (p *coOp[K, A, B, U]) Prepare(job.CheckpointID) error { return nil }

func (p *coOp[K, A, B, U]) Snapshot(job.CheckpointID) (map[string][][]byte, error) {
	return p.states.shared.snapshot()
}

func (p *coOp[K, A, B, U]) Committed(job.CheckpointID) error { return nil }

// Broadcast tells which lists are the same in every subtask.
func (p *coOp[K, A, B, U]) Broadcast(state string) bool { return p.states.shared.isBroadcast(state) }

// ItemSchema tells what the items of a list are.
func (p *coOp[K, A, B, U]) ItemSchema(state string) string { return p.states.shared.itemSchema(state) }

func (p *coOp[K, A, B, U]) Close() error {
	p.left.close()
	p.right.close()
	p.close()
	return nil
}
