package watermark

import (
	"fmt"
	"time"
)

// Strategy says how the watermarks of a source are made. It is a value; the zero Strategy is None.
type Strategy struct {
	on    bool
	bound time.Duration
	idle  time.Duration
}

// Bounded is for records that come at most d of event time after a later one: the watermark stays
// d and 1 ms behind the newest time seen. What comes later still is late. d is rounded up to
// milliseconds.
func Bounded(d time.Duration) Strategy { return Strategy{on: true, bound: d} }

// Monotonous is for splits whose times never go back: Bounded by 0.
func Monotonous() Strategy { return Bounded(0) }

// None makes no watermarks: event time stands still until the end of the data.
func None() Strategy { return Strategy{} }

// Idle returns s with a timeout: a split that has waited for input for that long no longer holds
// back the watermark of the others, until input comes again. Without one, which is the default, a
// silent split holds event time for ever.
func (s Strategy) Idle(timeout time.Duration) Strategy {
	s.idle = timeout
	return s
}

// IdleTimeout is what Idle set, or 0.
func (s Strategy) IdleTimeout() time.Duration { return s.idle }

// Validate says what is wrong with s.
func (s Strategy) Validate() error {
	if s.bound < 0 {
		return fmt.Errorf("watermark bound %v is negative", s.bound)
	}
	if s.idle < 0 {
		return fmt.Errorf("watermark idle timeout %v is negative", s.idle)
	}
	return nil
}

func (s Strategy) String() string {
	text := "none"
	if s.on {
		text = "bounded " + s.bound.String()
	}
	if s.idle > 0 {
		text += ", idle after " + s.idle.String()
	}
	return text
}

// NewGenerator returns the generator of one split.
func (s Strategy) NewGenerator() *Generator {
	ms := s.bound.Milliseconds()
	if time.Duration(ms)*time.Millisecond < s.bound {
		ms++
	}
	return &Generator{on: s.on, behind: max(ms, 0) + 1, current: Min}
}

// Generator makes the watermarks of one split. One goroutine uses it.
type Generator struct {
	on      bool
	behind  int64
	current int64
}

// OnBatch takes the newest time of the records of a batch.
func (g *Generator) OnBatch(newest int64) {
	if g.on && newest > Min+g.behind {
		g.current = max(g.current, newest-g.behind)
	}
}

// Restore sets a watermark that was emitted before a restart: Current starts from there.
func (g *Generator) Restore(floor int64) { g.current = max(g.current, floor) }

// Current is the watermark, Min before there is any. It never goes back.
func (g *Generator) Current() int64 { return g.current }
