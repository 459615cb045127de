package operator

import (
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/record"
)

// The states of event-time and of processing-time timers.
const (
	timersState      = "timers"
	clockTimersState = "clock-timers"
)

// Handler is what a keyed process operator does.
type Handler[K comparable, T, U any] struct {
	// Record is called for each record, under its key.
	Record func(c *KeyedContext[K, U], in *T)
	// Timer is called for each event-time timer that is due, under the key that set it; nil for an
	// operator without timers.
	Timer func(c *KeyedContext[K, U])
	// Clock is called for each processing-time timer that is due, under the key that set it; nil for
	// an operator without those.
	Clock func(c *KeyedContext[K, U])
}

type processOp[K comparable, T, U any] struct {
	keyedCore[K, U]
	key     func(*T) K
	make    func(*States[K]) Handler[K, T, U]
	handler Handler[K, T, U]
	seg     segments
}

// Process returns a keyed operator with state and timers. construct is called once for each
// subtask with a States that binds what it declares.
func Process[K comparable, T, U any](key func(*T) K, kc codec.Codec[K], construct func(*States[K]) Handler[K, T, U]) Operator {
	return &processOp[K, T, U]{keyedCore: keyedCore[K, U]{kc: kc}, key: key, make: construct}
}

func (p *processOp[K, T, U]) Open(c *Context) error {
	s := NewStates(p.kc)
	p.seg = segments{process: p.records, fire: p.fire, pass: p.pass, done: p.done, now: c.Watermark}
	return p.open(c, s, func() (onTimer, onClock func(*KeyedContext[K, U])) {
		p.handler = p.make(s)
		return p.handler.Timer, p.handler.Clock
	})
}

// Ready is called when the state has been restored.
func (p *processOp[K, T, U]) Ready() error {
	p.seg.firing = p.ready()
	return nil
}

func (p *processOp[K, T, U]) Push(_ int, a record.Any) error { return p.seg.push(a) }
func (p *processOp[K, T, U]) Pending() bool                  { return p.seg.pending() }
func (p *processOp[K, T, U]) Resume() error                  { return p.seg.resume() }
func (p *processOp[K, T, U]) Interruptible() bool            { return p.seg.interruptible() }
func (p *processOp[K, T, U]) EndOfData() error               { return p.seg.advance(record.MaxTime) }

func (p *processOp[K, T, U]) records(a record.Any, from, to int) error {
	return p.rows(batchOf[T](a), from, to, p.key, p.handler.Record)
}

func (p *processOp[K, T, U]) Close() error {
	p.seg.close()
	p.close()
	return nil
}
