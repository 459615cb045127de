package operator

import "github.com/cairnstream/cairn/record"

// Collector takes the records that user code emits and hands them on in batches. Records that were
// emitted belong to the runtime: user code does not change them afterwards.
type Collector[T any] struct {
	out  Output
	pool *record.Pool[T]
	rows int
	b    *record.Batch[T]
	time int64
	err  error
}

func newCollector[T any](out Output) *Collector[T] {
	p := record.PoolOf[T]()
	return &Collector[T]{out: out, pool: p, rows: p.Rows(), time: record.MinTime}
}

// Emit emits v with the event time of the record or timer being processed.
func (c *Collector[T]) Emit(v T) {
	if c.b == nil {
		c.b = c.pool.Get()
	}
	c.b.Append(v, c.time)
	if len(c.b.Rows) >= c.rows {
		c.flush()
	}
}

// next returns the place of the next record, for the caller to fill at once. What is in it is
// left over from an earlier use.
func (c *Collector[T]) next(time int64) *T {
	if c.b == nil {
		c.b = c.pool.Get()
	} else if len(c.b.Rows) >= c.rows {
		c.flush()
		c.b = c.pool.Get()
	}
	n := len(c.b.Rows)
	if n < cap(c.b.Rows) {
		c.b.Rows = c.b.Rows[:n+1]
	} else {
		var zero T
		c.b.Rows = append(c.b.Rows, zero)
	}
	c.b.Times = append(c.b.Times, time)
	return &c.b.Rows[n]
}

// mark puts m behind what was emitted.
func (c *Collector[T]) mark(m record.Mark) {
	if c.b == nil {
		c.b = c.pool.Get()
	}
	c.b.Mark(m.Kind, m.Time)
}

// flush hands on what was collected. The first error stays.
func (c *Collector[T]) flush() {
	b := c.b
	c.b = nil
	if b == nil {
		return
	}
	if c.err != nil {
		b.Release()
		return
	}
	c.err = c.out.Emit(b)
}

// done flushes and returns the first error.
func (c *Collector[T]) done() error {
	c.flush()
	return c.err
}

// drop releases what was not handed on.
func (c *Collector[T]) drop() {
	if c.b != nil {
		c.b.Release()
		c.b = nil
	}
}
