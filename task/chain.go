package task

import (
	"sync/atomic"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/statebackend"
)

// link is an operator of a chain with its surroundings.
type link struct {
	op       operator.Operator
	name     string
	ctx      *operator.Context
	state    statebackend.Backend // nil without keyed state.
	keyed    []job.StateHandle    // Keyed state to restore.
	opened   bool
	counters operator.Counters
	from     *outlet // What it reads, when that is in the same chain; else nil.
	main     outlet
	sides    map[string]*outlet
}

// outlet is an output of an operator, main or side.
type outlet struct {
	counters *operator.Counters
	next     []operator.Output // Chained operators and routers that read it.
	mark     atomic.Int64      // The last watermark that went out.
}

// output returns the output with that name, empty for the main one. It is there from then on.
func (l *link) output(name string) *outlet {
	if name == "" {
		return &l.main
	}
	o := l.sides[name]
	if o == nil {
		o = &outlet{counters: &l.counters}
		o.mark.Store(l.main.mark.Load())
		if l.sides == nil {
			l.sides = map[string]*outlet{}
		}
		l.sides[name] = o
	}
	return o
}

// Emit counts b and hands it to everyone who reads it, each with a batch of its own.
func (o *outlet) Emit(b record.Any) error {
	o.counters.Out.Add(int64(b.Len()))
	for _, m := range b.MarkList() {
		if m.Kind == record.Watermark {
			o.mark.Store(m.Time)
		}
	}
	switch len(o.next) {
	case 1:
		return o.next[0].Emit(b)
	case 0:
		b.Release()
		return nil
	}
	for i, n := range o.next {
		c := b
		if i < len(o.next)-1 {
			c = b.Clone()
		}
		if err := n.Emit(c); err != nil {
			if i < len(o.next)-1 {
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
