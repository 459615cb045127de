package operator

// tooLate counts the records that no window takes any more and puts them out on the side.
type tooLate[T any] struct {
	counters *Counters
	side     *Side[T] // nil when nobody asked for them.
	outs     sides
	time     int64 // Event time of the record being put out.
}

func (l *tooLate[T]) open(c *Context, name string) {
	l.counters = c.Counters
	if name == "" {
		return
	}
	l.side = &Side[T]{col: newCollector[T](c.Side(name)), now: &l.time}
	l.outs = sides{l.side.col}
}

// note takes a record with event time t that comes too late at watermark now.
func (l *tooLate[T]) note(row *T, t, now int64) {
	l.counters.noteLate(1, t, now)
	if l.side != nil {
		l.time = t
		l.side.Emit(*row)
	}
}
