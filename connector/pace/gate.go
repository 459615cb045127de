// Package pace limits how fast a source reads: [Gate] deals out a rate in records per second to the readers of one
// subtask. It keeps no goroutine; a timer that is armed while a reader waits is stopped by Close.
package pace

import (
	"fmt"
	"math"
	"time"
)

// Tokens pile up while nobody takes them, but not without bound: a source that was held up does not catch up with a
// flood.
const (
	burst = 100 * time.Millisecond // What piles up at most.
	grain = 10 * time.Millisecond  // What a reader waits for at least, so that it is not woken for each record.
)

// Gate lets records through at a rate. It belongs to one reader. A nil Gate lets everything through.
type Gate struct {
	rate   float64 // Records per second.
	now    func() time.Time
	wake   func()
	last   time.Time
	tokens float64
	timer  *time.Timer
}

// New makes a gate; a rate of 0 gives nil. wake is called, on any goroutine, when it is worth asking again. A nil
// now means time.Now, a nil wake means that nobody wants to know.
func New(rate float64, now func() time.Time, wake func()) *Gate {
	if rate <= 0 {
		return nil
	}
	if now == nil {
		now = time.Now
	}
	if wake == nil {
		wake = func() {}
	}
	return &Gate{rate: rate, now: now, wake: wake}
}

// Share is the part of a source's rate that one reader gets when splits are read by parallelism subtasks, so that
// the whole is never above rate and reaches it while every subtask has a split.
func Share(rate float64, parallelism, splits int) float64 {
	return rate / float64(max(1, min(parallelism, splits)))
}

// Validate says what is wrong with a rate.
func Validate(rate float64) error {
	if rate < 0 || math.IsNaN(rate) || math.IsInf(rate, 0) {
		return fmt.Errorf("a rate is a number of records per second from 0 (no limit) up, not %v", rate)
	}
	return nil
}

// Take asks for up to limit records and returns how many may pass now. When it returns 0 it has arranged for a call
// of wake.
func (g *Gate) Take(limit int) int {
	if g == nil {
		return limit
	}
	now := g.now()
	need := max(1, math.Min(g.rate*grain.Seconds(), float64(limit)))
	if g.last.IsZero() {
		g.tokens = 1 // The first record does not wait.
	} else if d := now.Sub(g.last); d > 0 {
		g.tokens = math.Min(g.tokens+g.rate*d.Seconds(), math.Max(need, g.rate*burst.Seconds()))
	}
	first := g.last.IsZero()
	g.last = now
	if g.tokens < need && !first {
		g.arm(time.Duration(math.Ceil((need - g.tokens) / g.rate * float64(time.Second))))
		return 0
	}
	n := min(int(g.tokens), limit)
	g.tokens -= float64(n)
	return n
}

// Return gives back what was taken and not used.
func (g *Gate) Return(n int) {
	if g != nil {
		g.tokens += float64(n)
	}
}

func (g *Gate) arm(d time.Duration) {
	d = max(d, time.Microsecond)
	if g.timer == nil {
		g.timer = time.AfterFunc(d, g.wake)
		return
	}
	g.timer.Reset(d)
}

// Close stops the timer.
func (g *Gate) Close() {
	if g != nil && g.timer != nil {
		g.timer.Stop()
	}
}
