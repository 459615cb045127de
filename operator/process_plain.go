package operator

import (
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

type plainOp[T, U any] struct {
	make    func(*OperatorStates) PlainHandler[T, U]
	handler PlainHandler[T, U]
	states  *OperatorStates
	ctx     PlainContext[U]
}

// ProcessPlain returns an operator without keys, with state of its own. construct is called once for
// each subtask with an OperatorStates that binds what it declares.
func ProcessPlain[T, U any](construct func(*OperatorStates) PlainHandler[T, U]) Operator {
	return &plainOp[T, U]{make: construct}
}

func (p *plainOp[T, U]) Open(c *Context) error {
	p.ctx = PlainContext[U]{Collector: newCollector[U](c.Out), watermark: c.Watermark, subtask: c.Subtask, parallelism: c.Parallelism}
	s := NewOperatorStates()
	s.open(c)
	s.side, s.now = c.Side, &p.ctx.time
	p.states = s
	p.handler = p.make(s)
	return s.problem(c)
}

func (p *plainOp[T, U]) Push(_ int, a record.Any) error {
	b := batchOf[T](a)
	spans(b, func(i int) {
		p.ctx.time = b.Time(i)
		p.handler.Record(&p.ctx, &b.Rows[i])
	}, func(m record.Mark) {
		if m.Kind == record.Watermark {
			p.ctx.watermark = m.Time
		}
		p.ctx.mark(m)
		p.states.outs.mark(m)
	})
	b.Release()
	return p.done()
}

func (p *plainOp[T, U]) done() error {
	if err := p.ctx.done(); err != nil {
		return err
	}
	return p.states.outs.done()
}

func (p *plainOp[T, U]) EndOfData() error {
	p.ctx.time, p.ctx.watermark = p.ctx.watermark, record.MaxTime
	if p.handler.End != nil {
		p.handler.End(&p.ctx)
	}
	return p.done()
}

func (p *plainOp[T, U]) Prepare(job.CheckpointID) error { return nil }
func (p *plainOp[T, U]) Snapshot(job.CheckpointID) (map[string][][]byte, error) {
	return p.states.snapshot()
}

// ItemSchema tells what the items of a list are.
func (p *plainOp[T, U]) ItemSchema(state string) string { return p.states.itemSchema(state) }

func (p *plainOp[T, U]) Committed(job.CheckpointID) error { return nil }

func (p *plainOp[T, U]) Close() error {
	if p.states != nil {
		p.states.outs.drop()
	}
	if p.ctx.Collector != nil {
		p.ctx.drop()
	}
	return nil
}
