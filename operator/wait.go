package operator

import "time"

// Sleeper is implemented by readers that tell true waiting from other delays: the loop says how
// long it slept, for want of anything to do, since the last Poll.
type Sleeper interface{ Slept(d time.Duration) }

// waitClock is the time by which readers judge idleness. It advances while the loop sleeps. While
// the loop is about something else, such as records in its chain, a barrier, or an output that is
// full, input may be there unseen: of each such interruption only a little counts, so that a
// split that is silent beside a busy one becomes idle in the end.
type waitClock struct {
	now     time.Time
	grace   time.Duration // What counts of an interruption.
	last    time.Time     // Wall time of now.
	asleep  time.Duration // Since then.
	running bool
}

// longestGrace is far above what a batch takes in a healthy chain and far below idle timeouts.
const longestGrace = 100 * time.Millisecond

func newWaitClock(timeout time.Duration) waitClock {
	return waitClock{grace: min(timeout/10, longestGrace), running: timeout > 0}
}

func (c *waitClock) slept(d time.Duration) { c.asleep += d }

// to advances the clock: it is wall now.
func (c *waitClock) to(wall time.Time) {
	if !c.running {
		return
	}
	if c.last.IsZero() {
		c.now = wall
	} else if gap := wall.Sub(c.last); gap > 0 {
		waited := min(c.asleep, gap)
		c.now = c.now.Add(waited + min(gap-waited, c.grace))
	}
	c.last, c.asleep = wall, 0
}

// wall is when the clock will be at t if it advances from now on.
func (c *waitClock) wall(t time.Time) time.Time { return c.last.Add(t.Sub(c.now)) }
