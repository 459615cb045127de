package watermark

import "time"

// IdleClock tells when a split is idle: when it has waited for input, without getting any, for the
// timeout. The clock runs only while the split is really waiting. While its output is blocked, or
// it is paused because it is too far ahead of the others, input may be there unseen; so the clock
// stands still, and goes on from where it stood.
//
// A split that never had input becomes idle like any other. One goroutine uses a clock.
type IdleClock struct {
	timeout time.Duration
	waited  time.Duration // Up to since.
	since   time.Time     // Start of the wait that goes on; zero while the clock stands still.
	idle    bool
}

// NewIdleClock returns a clock that stands still. With a timeout of 0 it never tells idle.
func NewIdleClock(timeout time.Duration) IdleClock { return IdleClock{timeout: timeout} }

// Waiting says that the split has no input at now, and could take some. It is called when the wait
// begins, and may be called again during it. It tells whether the split became idle by now.
func (c *IdleClock) Waiting(now time.Time) (became bool) {
	if c.timeout <= 0 || c.idle {
		return false
	}
	if c.since.IsZero() {
		c.since = now
	}
	c.elapse(now)
	c.idle = c.waited >= c.timeout
	return c.idle
}

// Blocked says that from now on the split takes no input even if there is some.
func (c *IdleClock) Blocked(now time.Time) {
	if !c.since.IsZero() {
		c.elapse(now)
		c.since = time.Time{}
	}
}

// Read says that input came. It tells whether the split was idle until then.
func (c *IdleClock) Read() (wasIdle bool) {
	wasIdle = c.idle
	c.waited, c.since, c.idle = 0, time.Time{}, false
	return wasIdle
}

// Idle tells whether the split is idle.
func (c *IdleClock) Idle() bool { return c.idle }

// Deadline is when Waiting will tell that the split became idle, if it goes on waiting.
func (c *IdleClock) Deadline() (time.Time, bool) {
	if c.timeout <= 0 || c.idle || c.since.IsZero() {
		return time.Time{}, false
	}
	return c.since.Add(c.timeout - c.waited), true
}

// elapse adds the time from since to now. A clock that goes back adds nothing.
func (c *IdleClock) elapse(now time.Time) {
	if d := now.Sub(c.since); d > 0 {
		c.waited += d
	}
	c.since = now
}
