package window

import (
	"fmt"
	"time"
)

// TumblingWindows are windows of one size, one behind the other. Tumbling makes them.
type TumblingWindows struct {
	size   time.Duration
	offset time.Duration
}

// Tumbling divides time into windows of the given size, aligned to 1970-01-01 00:00 UTC. The size
// is a whole number of milliseconds, at least one.
func Tumbling(size time.Duration) TumblingWindows { return TumblingWindows{size: size} }

// Offset moves the windows by d, for days that do not begin at midnight UTC.
func (w TumblingWindows) Offset(d time.Duration) TumblingWindows {
	w.offset = d
	return w
}

// Validate says what is wrong with the size.
func (w TumblingWindows) Validate() error {
	if w.size < time.Millisecond || w.size%time.Millisecond != 0 {
		return fmt.Errorf("tumbling window of %v: the size is a whole number of milliseconds, at least 1ms", w.size)
	}
	if w.offset%time.Millisecond != 0 {
		return fmt.Errorf("tumbling window with offset %v: the offset is a whole number of milliseconds", w.offset)
	}
	return nil
}

// String names the windows in plans and schemas.
func (w TumblingWindows) String() string {
	if w.offset == 0 {
		return fmt.Sprintf("tumbling(%v)", w.size)
	}
	return fmt.Sprintf("tumbling(%v, offset %v)", w.size, w.offset)
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
