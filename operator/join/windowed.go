package join

import (
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
)

// Kind says what becomes of records without a partner.
type Kind int

// The kinds of joins.
const (
	Inner Kind = iota // They are dropped.
	Left              // Those of the first stream are joined with nil.
	Right             // Those of the second stream are joined with nil.
	Outer             // Those of both are joined with nil.
)

func (k Kind) String() string {
	switch k {
	case Left:
		return "left"
	case Right:
		return "right"
	case Outer:
		return "outer"
	}
	return "inner"
}

// Assign gives the window of a time: its start, and its end, which is not part of it.
type Assign func(time int64) (start, end int64)

// The names of the states of joins.
const (
	leftState  = "left"
	rightState = "right"
)

// Windowed declares the states of a windowed join and returns its handler. When a window is complete f
// is called for each pair of records of a key in it; for a record without a partner the other argument is
// nil, where kind says that it is joined. What f returns has the time of the window's last millisecond. The arguments are
// read-only and valid during the call.
func Windowed[K comparable, A, B, U any](s *operator.States[K], assign Assign, kind Kind, f func(a *A, b *B) U) operator.CoHandler[K, A, B, U] {
	left, right := s.Lists[A](leftState), s.Lists[B](rightState)
	// The lists of a window are known by its last millisecond, when its timer fires. This is the window
	// of the record before, mostly the next one's too.
	var start, end int64
	// take tells which window the record is in; ok is false when it is late.
	take := func(c *operator.KeyedContext[K, U]) (ok bool) {
		t := c.Time()
		if t < start || t >= end {
			needTime(t)
			start, end = assign(t)
		}
		if end-1 <= c.Watermark() {
			c.CountLate()
			return false
		}
		return true
	}
	return operator.CoHandler[K, A, B, U]{
		Left: func(c *operator.KeyedContext[K, U], a *A) {
			if take(c) && left.Append(end-1, a) {
				c.SetTimer(end - 1)
			}
		},
		Right: func(c *operator.KeyedContext[K, U], b *B) {
			if take(c) && right.Append(end-1, b) {
				c.SetTimer(end - 1)
			}
		},
		Timer: func(c *operator.KeyedContext[K, U]) {
			w := c.Time()
			n, m := left.Len(w), right.Len(w)
			switch {
			case n > 0 && m > 0:
				for _, p := range left.All(w) {
					a := *p
					for _, b := range right.All(w) {
						c.Emit(f(&a, b))
					}
				}
			case n > 0 && (kind == Left || kind == Outer):
				for _, a := range left.All(w) {
					c.Emit(f(a, nil))
				}
			case m > 0 && (kind == Right || kind == Outer):
				for _, b := range right.All(w) {
					c.Emit(f(nil, b))
				}
			}
			left.Clear(w)
			right.Clear(w)
		},
	}
}

// needTime refuses records that have no event time: they belong nowhere.
func needTime(t int64) {
	if t == record.MinTime {
		panic("a join in event time got a record without one: add Timestamps to the source")
	}
}
