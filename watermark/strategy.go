package watermark

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Strategy says how the watermarks of a source are made, and what guards them. It is a value that
// can be compared; the zero Strategy is None.
type Strategy struct {
	kind   kind
	bound  time.Duration
	rule   *custom
	idle   time.Duration
	group  string
	drift  time.Duration
	ahead  time.Duration // 0: the default of the kind; negative: no limit.
	action Action
}

type kind uint8

const (
	kindNone kind = iota
	kindBounded
	kindCustom
	kindSource
)

type custom struct {
	name string
	make func() Rule
}

// Rule is a way of the user's own to make the watermarks of one split. One goroutine uses it.
type Rule interface {
	// Times takes the times of records that were just read, in their order. The slice is the
	// caller's.
	Times(ms []int64)
	// Watermark is asked behind each batch of records, and about once a second while there is none;
	// now is the wall clock. What it gives behind an earlier answer is taken for the earlier; Min is
	// for none yet.
	Watermark(now time.Time) int64
}

// Bounded is for records that come at most d of event time after a later one: the watermark stays
// d and 1 ms behind the newest time seen. What comes later still is late. d is rounded up to
// milliseconds.
func Bounded(d time.Duration) Strategy { return Strategy{kind: kindBounded, bound: d} }

// Monotonous is for splits whose times never go back: Bounded by 0.
func Monotonous() Strategy { return Bounded(0) }

// None makes no watermarks: event time stands still until the end of the data, unless records carry
// markers.
func None() Strategy { return Strategy{} }

// FromSource takes the watermarks that the source itself puts between its records. It is what a
// source has when nothing else is said.
func FromSource() Strategy { return Strategy{kind: kindSource} }

// Custom makes watermarks by a rule of the user's own. newRule is called for each split; name is
// for people.
func Custom(name string, newRule func() Rule) Strategy {
	return Strategy{kind: kindCustom, rule: &custom{name, newRule}}
}

// Idle returns s with a timeout: a split that has waited for input for that long no longer holds
// back the watermark of the others, until input comes again. Without one, which is the default, a
// silent split holds event time for ever.
//
// Only time counts in which the source really waited. While its output is blocked, while it is
// paused for being ahead of others, and while its records are worked on, input may be there unseen:
// of each such interruption at most 100 ms count, or a tenth of the timeout if that is less.
func (s Strategy) Idle(timeout time.Duration) Strategy {
	s.idle = timeout
	return s
}

// Align returns s with a bound on how far the splits of all sources of the job with that group may
// be apart: one whose watermark is more than drift ahead of the lowest is not read until the others
// have caught up, so that what its records wait for does not pile up in state. A split that is idle
// holds nobody back, nor does a reader without splits; a split that waits for input and is not idle
// yet does. The bound is kept to within what is read in about a second. A source on its own has its
// splits aligned with each other.
func (s Strategy) Align(group string, drift time.Duration) Strategy {
	s.group, s.drift = group, drift
	return s
}

// Unlimited is for MaxAhead: any time is believed.
const Unlimited time.Duration = -1

// DefaultMaxAhead is the limit of MaxAhead where none is set, except with FromSource, which has
// none: a day covers every time zone that was taken for another.
const DefaultMaxAhead = 24 * time.Hour

// MaxAhead returns s with a limit on how far the time of a record may be ahead of the wall clock.
// A clock gone wrong must not close all windows: what is further ahead never moves the watermark. It
// is counted, and BadTimes says what else becomes of it. Unlimited switches that off, such as for
// records made for tests.
func (s Strategy) MaxAhead(d time.Duration) Strategy {
	s.ahead = d
	return s
}

// Action says what becomes of a record whose time cannot be right.
type Action uint8

// The actions. Whichever is chosen, the records are counted, and none of them moves the watermark.
const (
	// Hold lets a record that is too far ahead go on with its time: its window waits until event
	// time gets there. One without a usable time fails the job. It is the default.
	Hold Action = iota
	// Fail fails the job at the first such record, with its place and content.
	Fail
	// Drop leaves them out.
	Drop
	// Divert sends them to the side output named SideOutput instead.
	Divert
)

// SideOutput is the name of the side output of Divert.
const SideOutput = "bad-times"

func (a Action) String() string {
	switch a {
	case Hold:
		return "hold"
	case Fail:
		return "fail"
	case Drop:
		return "drop"
	case Divert:
		return "divert"
	}
	return fmt.Sprintf("action %d", uint8(a))
}

// BadTimes returns s with what becomes of records whose time is absent (the zero time.Time), is
// beyond what 64-bit milliseconds safely hold, or is further ahead than MaxAhead.
func (s Strategy) BadTimes(a Action) Strategy {
	s.action = a
	return s
}

// IdleTimeout is what Idle set, or 0.
func (s Strategy) IdleTimeout() time.Duration { return s.idle }

// Alignment is what Align set: an empty group for none. The drift is in milliseconds, rounded up.
func (s Strategy) Alignment() (group string, drift int64) { return s.group, millisUp(s.drift) }

// Action is what BadTimes set.
func (s Strategy) Action() Action { return s.action }

// MakesWatermarks tells whether watermarks are made of the times of records.
func (s Strategy) MakesWatermarks() bool { return s.kind == kindBounded || s.kind == kindCustom }

// TakesSourceMarks tells whether the watermarks of the source itself count.
func (s Strategy) TakesSourceMarks() bool { return s.kind == kindSource }

// NeedsTimes tells whether generators want every time, and want to be asked again while no record
// comes.
func (s Strategy) NeedsTimes() bool { return s.kind == kindCustom }

// Furthest is the time up to which records are believed at now.
func (s Strategy) Furthest(now time.Time) int64 {
	d := s.ahead
	if d == 0 && s.kind != kindSource {
		d = DefaultMaxAhead
	}
	if d <= 0 {
		return MaxTime
	}
	return min(now.UnixMilli()+millisUp(d), MaxTime)
}

// Limited tells whether Furthest depends on the clock.
func (s Strategy) Limited() bool { return s.ahead > 0 || s.ahead == 0 && s.kind != kindSource }

// Validate says what is wrong with s.
func (s Strategy) Validate() error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(s.bound < 0, "watermark bound %v is negative", s.bound)
	bad(s.idle < 0, "watermark idle timeout %v is negative", s.idle)
	bad(s.kind == kindCustom && s.rule.make == nil, "watermark rule %q is nil", s.rule.nameOrNone())
	bad(s.drift < 0 || s.group != "" && s.drift == 0, "watermark drift %v of group %q: want more than 0", s.drift, s.group)
	bad(s.group == "" && s.drift > 0, "watermark alignment needs the name of a group")
	bad(s.ahead < 0 && s.ahead != Unlimited, "watermark limit ahead of the clock %v is negative", s.ahead)
	bad(s.action > Divert, "watermark action for bad times: %v is unknown", s.action)
	return errors.Join(errs...)
}

func (c *custom) nameOrNone() string {
	if c == nil {
		return ""
	}
	return c.name
}

func (s Strategy) String() string {
	var text string
	switch s.kind {
	case kindBounded:
		text = "bounded " + s.bound.String()
	case kindCustom:
		text = "custom " + s.rule.name
	case kindSource:
		text = "of the source"
	default:
		text = "none"
	}
	if s.idle > 0 {
		text += ", idle after " + s.idle.String()
	}
	if s.group != "" {
		text += fmt.Sprintf(", aligned with %q within %v", s.group, s.drift)
	}
	if s.ahead > 0 {
		text += fmt.Sprintf(", at most %v ahead", s.ahead)
	}
	if s.action != Hold {
		text += ", bad times: " + s.action.String()
	}
	return text
}

// MaxTime and MinTime bound the times of records that are believed: 146 million years around 1970,
// so that sums of times and sizes of windows do not overflow.
const (
	MaxTime int64 = 1 << 62
	MinTime int64 = -MaxTime
)

// Absent is the zero time.Time in milliseconds: that of a record whose time was never set.
const Absent int64 = -62135596800000

// Millis gives t in milliseconds since 1970 UTC, or Min when that is out of MinTime to MaxTime.
func Millis(t time.Time) int64 {
	sec := t.Unix()
	if sec > MaxTime/1000 || sec < MinTime/1000 {
		return Min
	}
	return sec*1000 + int64(t.Nanosecond())/1e6
}

// Usable tells whether a record may have that time.
func Usable(ms int64) bool { return ms >= MinTime && ms <= MaxTime && ms != Absent }

func millisUp(d time.Duration) int64 {
	ms := d.Milliseconds()
	if time.Duration(ms)*time.Millisecond < d {
		ms++
	}
	return ms
}

// NewGenerator returns the generator of one split.
func (s Strategy) NewGenerator() *Generator {
	g := &Generator{on: s.kind == kindBounded, behind: max(millisUp(s.bound), 0) + 1, current: Min}
	if s.kind == kindCustom {
		g.rule = s.rule.make()
	}
	return g
}

// Generator makes the watermarks of one split. One goroutine uses it.
type Generator struct {
	on      bool
	behind  int64
	rule    Rule // Of Custom.
	current int64
}

// OnBatch takes the newest time of the records of a batch.
func (g *Generator) OnBatch(newest int64) {
	if g.on && newest > Min+g.behind {
		g.current = max(g.current, newest-g.behind)
	}
}

// OnTimes gives a rule of the user's own the times of records.
func (g *Generator) OnTimes(ms []int64) {
	if g.rule != nil && len(ms) > 0 {
		g.rule.Times(ms)
	}
}

// Ask asks a rule of the user's own for its watermark. One beyond furthest is not believed; ok is
// false then.
func (g *Generator) Ask(now time.Time, furthest int64) (ok bool) {
	if g.rule == nil {
		return true
	}
	w := g.rule.Watermark(now)
	if w > furthest {
		return false
	}
	g.Mark(w)
	return true
}

// Mark takes a watermark that a record or the source gave. It is never taken for the final one.
func (g *Generator) Mark(w int64) { g.current = max(g.current, min(w, math.MaxInt64-1)) }

// Restore sets a watermark that was emitted before a restart: Current starts from there.
func (g *Generator) Restore(floor int64) { g.Mark(floor) }

// Current is the watermark, Min before there is any. It never goes back.
func (g *Generator) Current() int64 { return g.current }
