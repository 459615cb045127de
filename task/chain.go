package task

import (
	"sync/atomic"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/statebackend"
)

// link is an operator of a chain with its surroundings, and the Output of that operator.
type link struct {
	op       operator.Operator
	name     string
	ctx      *operator.Context
	state    statebackend.Backend // nil without keyed state.
	keyed    []job.StateHandle    // Keyed state to restore.
	opened   bool
	counters operator.Counters
	next     []operator.Output // Chained operators and routers that read this operator's output.

	// mark is the last watermark that the operator emitted.
	mark atomic.Int64
}

// Emit counts b and hands it to everyone who reads it, each with a batch of its own.
func (l *link) Emit(b record.Any) error {
	l.counters.Out.Add(int64(b.Len()))
	for _, m := range b.MarkList() {
		if m.Kind == record.Watermark {
			l.mark.Store(m.Time)
		}
	}
	switch len(l.next) {
	case 1:
		return l.next[0].Emit(b)
	case 0:
		b.Release()
		return nil
	}
	for i, n := range l.next {
		c := b
		if i < len(l.next)-1 {
			c = b.Clone()
		}
		if err := n.Emit(c); err != nil {
			if i < len(l.next)-1 {
				b.Release()
			}
			return err
		}
	}
	return nil
}

// push is the Output of an operator that the next one of the chain reads.
type push struct{ l *link }

func (p push) Emit(b record.Any) error {
	p.l.counters.In.Add(int64(b.Len()))
	return p.l.op.Push(0, b)
}
