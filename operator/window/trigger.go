package window

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cairnstream/cairn/operator"
)

// Trigger says when windows are emitted. The zero value is AtEnd.
type Trigger struct {
	earlyCount, lateCount int64
	earlyEvery, lateEvery time.Duration
	set                   [4]bool // Which of them were.
	purge, rest           bool
}

// AtEnd emits a window when the watermark reaches its end, and again for each late record within the
// allowed lateness.
func AtEnd() Trigger { return Trigger{} }

// EveryCount emits a window whenever n records came, and what is left of it at its end.
func EveryCount(n int64) Trigger {
	t := Trigger{rest: true}.EarlyCount(n)
	return t.LateCount(n)
}

// EveryInterval emits a window when d of processing time has passed since the first record that it
// was not emitted with, and what is left of it at its end.
func EveryInterval(d time.Duration) Trigger {
	t := Trigger{rest: true}.EarlyEvery(d)
	return t.LateEvery(d)
}

// EarlyCount emits a window before its end too, whenever n records came.
func (t Trigger) EarlyCount(n int64) Trigger {
	t.earlyCount, t.set[0] = n, true
	return t
}

// EarlyEvery emits a window before its end too, when d of processing time has passed since the first
// record that it was not emitted with.
func (t Trigger) EarlyEvery(d time.Duration) Trigger {
	t.earlyEvery, t.set[1] = d, true
	return t
}

// LateCount emits a window behind its end whenever n late records came, and when the allowed
// lateness is over, instead of for each of them.
func (t Trigger) LateCount(n int64) Trigger {
	t.lateCount, t.set[2] = n, true
	return t
}

// LateEvery emits a window behind its end when d of processing time has passed since the first late
// record that it was not emitted with, and when the allowed lateness is over, instead of for each.
func (t Trigger) LateEvery(d time.Duration) Trigger {
	t.lateEvery, t.set[3] = d, true
	return t
}

// Purging has each firing take the records along: the next one is of those that came since. Else a
// window is emitted with all of its records each time.
func (t Trigger) Purging() Trigger {
	t.purge = true
	return t
}

// Validate says what is wrong with counts and intervals.
func (t Trigger) Validate() error {
	var errs []error
	for i, n := range [...]int64{t.earlyCount, 0, t.lateCount, 0} {
		if t.set[i] && i%2 == 0 && n < 1 {
			errs = append(errs, fmt.Errorf("a trigger after %d records: the count is at least 1", n))
		}
	}
	for i, d := range [...]time.Duration{0, t.earlyEvery, 0, t.lateEvery} {
		if t.set[i] && i%2 == 1 {
			errs = append(errs, wholeMillis("a trigger with an interval", "interval", d))
		}
	}
	return errors.Join(errs...)
}

// String names the trigger in plans; it is empty for AtEnd.
func (t Trigger) String() string {
	var parts []string
	for i, what := range [...]string{"early count %d", "early every %v", "late count %d", "late every %v"} {
		if t.set[i] {
			parts = append(parts, fmt.Sprintf(what, [...]any{t.earlyCount, t.earlyEvery, t.lateCount, t.lateEvery}[i]))
		}
	}
	if t.purge {
		parts = append(parts, "purging")
	}
	if t.rest {
		parts = append(parts, "rest at the end")
	}
	return strings.Join(parts, ", ")
}

// Operator is the trigger as the operator wants it.
func (t Trigger) Operator() operator.WindowTrigger {
	return operator.WindowTrigger{
		EarlyCount: t.earlyCount, LateCount: t.lateCount,
		EarlyEvery: t.earlyEvery.Milliseconds(), LateEvery: t.lateEvery.Milliseconds(),
		Purge: t.purge, Rest: t.rest,
	}
}
