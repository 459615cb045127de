package window

import (
	"fmt"
	"time"
)

// Windows say which windows a record is in. Tumbling, Sliding, Session and Global make them.
type Windows interface {
	// Validate says what is wrong with sizes and the like.
	Validate() error
	// String names the windows in plans.
	String() string
	// shape is what an operator is made of. It is called on what is valid.
	shape() shape
}

// shape describes windows to Define.
type shape struct {
	// Windows by their start, none of which overlap: the window of a time and the end of one.
	assign func(t int64) (start, end int64)
	endOf  func(start int64) int64
	// Or windows that start at regular intervals,
	size, step, offset int64
	// or sessions.
	gap int64
	// endless tells that the window has no end.
	endless bool
}

// TumblingWindows are windows of one size, one behind the other. Tumbling makes them.
type TumblingWindows struct {
	size   time.Duration
	offset time.Duration
	loc    *time.Location
	local  bool
}

// Tumbling divides time into windows of the given size, aligned to 1970-01-01 00:00 UTC. The size
// is a whole number of milliseconds, at least one.
func Tumbling(size time.Duration) TumblingWindows { return TumblingWindows{size: size} }

// Offset moves the windows by d, which may be negative. Weeks that begin on Monday have an offset
// of four days, since 1970-01-01 was a Thursday.
func (w TumblingWindows) Offset(d time.Duration) TumblingWindows {
	w.offset = d
	return w
}

// In aligns windows of whole days to the calendar of loc: a day begins at its first instant there
// and has 23 or 25 hours when clocks change. With an Offset of d it begins when clocks show d. loc
// has a name from the time zone database: time.Local, which is another place on every machine, is
// refused.
func (w TumblingWindows) In(loc *time.Location) TumblingWindows {
	w.loc, w.local = loc, true
	return w
}

const day = 24 * time.Hour

// Validate says what is wrong with the size.
func (w TumblingWindows) Validate() error {
	if err := wholeMillis("tumbling window", "size", w.size); err != nil {
		return err
	}
	if w.offset%time.Millisecond != 0 {
		return fmt.Errorf("tumbling window with offset %v: the offset is a whole number of milliseconds", w.offset)
	}
	if !w.local {
		return nil
	}
	if w.loc == nil || w.loc == time.Local {
		return fmt.Errorf("tumbling window of %v: the time zone needs a name, such as Europe/Berlin", w.size)
	}
	if w.size%day != 0 {
		return fmt.Errorf("tumbling window of %v in %v: windows in a time zone are of whole days", w.size, w.loc)
	}
	return nil
}

// wholeMillis says what is wrong with a length.
func wholeMillis(what, part string, d time.Duration) error {
	if d < time.Millisecond || d%time.Millisecond != 0 {
		return fmt.Errorf("%s of %v: the %s is a whole number of milliseconds, at least 1ms", what, d, part)
	}
	return nil
}

// String names the windows in plans.
func (w TumblingWindows) String() string {
	text := fmt.Sprintf("tumbling(%v", w.size)
	if w.offset != 0 {
		text += fmt.Sprintf(", offset %v", w.offset)
	}
	if w.local {
		text += fmt.Sprintf(", in %v", w.loc)
	}
	return text + ")"
}

func (w TumblingWindows) shape() shape {
	if w.local {
		c := calendar{loc: w.loc, size: w.size.Milliseconds(), offset: w.offset.Milliseconds()}
		return shape{assign: c.window, endOf: c.endOf}
	}
	size, offset := w.size.Milliseconds(), w.offset.Milliseconds()
	return shape{
		assign: func(t int64) (int64, int64) {
			s := startOf(t, size, offset)
			return s, s + size
		},
		endOf: func(start int64) int64 { return start + size },
	}
}

// startOf is the start of the window that holds time t: t minus ((t - offset) modulo size), with a
// remainder that is never negative.
func startOf(t, size, offset int64) int64 {
	r := (t - offset) % size
	if r < 0 {
		r += size
	}
	return t - r
}

// SlidingWindows are windows of one size that start at regular intervals. Sliding makes them.
type SlidingWindows struct{ size, slide, offset time.Duration }

// Sliding has a window of the given size start every slide, aligned to 1970-01-01 00:00 UTC. Both
// are whole numbers of milliseconds, at least one. When slide is less than size windows overlap and
// a record is in several; when it is more, records between two windows are in none: they are
// dropped and not counted as late.
//
// The aggregation needs Merge, unless there is a trigger: a record is added once, to a pane as long as
// the greatest common divisor of size and slide, and a window is the merge of its panes.
func Sliding(size, slide time.Duration) SlidingWindows {
	return SlidingWindows{size: size, slide: slide}
}

// Offset moves the windows by d, which may be negative.
func (w SlidingWindows) Offset(d time.Duration) SlidingWindows {
	w.offset = d
	return w
}

// Validate says what is wrong with sizes.
func (w SlidingWindows) Validate() error {
	if err := wholeMillis("sliding window", "size", w.size); err != nil {
		return err
	}
	if err := wholeMillis("sliding window with a slide", "slide", w.slide); err != nil {
		return err
	}
	if w.offset%time.Millisecond != 0 {
		return fmt.Errorf("sliding window with offset %v: the offset is a whole number of milliseconds", w.offset)
	}
	return nil
}

// String names the windows in plans.
func (w SlidingWindows) String() string {
	if w.offset == 0 {
		return fmt.Sprintf("sliding(%v every %v)", w.size, w.slide)
	}
	return fmt.Sprintf("sliding(%v every %v, offset %v)", w.size, w.slide, w.offset)
}

func (w SlidingWindows) shape() shape {
	size, step, offset := w.size.Milliseconds(), w.slide.Milliseconds(), w.offset.Milliseconds()
	return shape{size: size, step: step, offset: offset}
}
