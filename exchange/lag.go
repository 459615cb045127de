package exchange

import "time"

// lag keeps the ports of a gate in step by event time. What other ports bring beyond the one that the merged watermark
// waits for has to be kept in state until then, so that one is served first, and while it has nothing the others wait
// a little: senders that run ahead are held up by their full channels. All of it is bounded, since the port may bring nothing
// for long, or be behind for good.
type lag struct {
	prefer int // The port that is behind, or -1.
	ahead  int // Items taken from it ahead of its turn.

	since    time.Time // When the others began to wait; zero when they do not.
	gaveUp   bool      // It brought nothing in time; the others do not wait again until it does.
	credit   time.Duration
	refilled time.Time
	now      func() time.Time
}

const (
	// lagRun is how many items a port that is behind is served for each turn of the others.
	lagRun = 4
	// lagWait is for how long the others wait at a time: about as long as a sender needs for a batch or two.
	lagWait = time.Millisecond
	// Waiting takes at most one part in lagShare of the time, and up to lagCredit on top of that: what it takes to make
	// up for senders that did not start together.
	lagShare  = 16
	lagCredit = 20 * time.Millisecond
)

func newLag() lag { return lag{prefer: -1, credit: lagCredit, now: time.Now} }

// Prefer says which port is behind the others in event time, -1 for none. The subtask's goroutine calls it.
func (g *Gate) Prefer(i int) {
	if i == g.mu.lag.prefer { // Written by this goroutine alone.
		return
	}
	g.mu.Lock()
	l := &g.mu.lag
	l.stop()
	l.prefer, l.ahead, l.gaveUp = i, 0, false
	g.mu.Unlock()
}

// WaitsUntil is when Poll should be called again although Ready was not signalled: there is something to take, but it
// waits for the port that is behind.
func (g *Gate) WaitsUntil() (at time.Time, waits bool) {
	since := g.mu.lag.since // Written by this goroutine alone.
	return since.Add(lagWait), !since.IsZero()
}

// next is the port to take from, or nil. g.mu is held.
func (g *Gate) next() *Port {
	l, r := &g.mu.lag, &g.mu.runnable
	var behind *Port
	if l.prefer >= 0 && !g.ports[l.prefer].blocked {
		behind = g.ports[l.prefer]
	}
	if behind == nil || behind.len() > 0 {
		l.stop() // There is nothing to wait for, or no more.
	}
	if behind != nil && behind.len() > 0 {
		if l.gaveUp = false; l.ahead < lagRun-1 {
			l.ahead++
			return behind // If it is in the list it stays there, and is passed over should it be empty then.
		}
	}
	l.ahead = 0
	for r.n > 0 {
		p := g.ports[r.first()]
		if !p.blocked && p.len() > 0 {
			if behind != nil && behind.len() == 0 && l.wait() {
				return nil
			}
			r.pop()
			p.listed = false
			return p
		}
		r.pop()
		p.listed = false
	}
	l.stop() // Nobody is left who would wait.
	return nil
}

// wait tells whether the others are to wait, still.
func (l *lag) wait() bool {
	if l.gaveUp {
		return false
	}
	now := l.now()
	if l.since.IsZero() {
		if !l.refilled.IsZero() {
			l.credit = min(lagCredit, l.credit+now.Sub(l.refilled)/lagShare)
		}
		l.refilled = now
		if l.credit <= 0 {
			return false
		}
		l.since = now
		return true
	}
	if now.Sub(l.since) < lagWait {
		return true
	}
	l.stop()
	l.gaveUp = true
	return false
}

// stop ends the waiting of the others.
func (l *lag) stop() {
	if !l.since.IsZero() {
		l.credit -= min(l.now().Sub(l.since), 2*lagWait)
		l.since = time.Time{}
	}
}

// awaits tells whether the others wait for port i.
func (l *lag) awaits(i int) bool { return i == l.prefer && !l.since.IsZero() }
