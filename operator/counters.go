package operator

import (
	"sync/atomic"
	"time"
)

// Counters are the counts of one operator of one subtask. The subtask's goroutine writes, others
// read.
type Counters struct {
	In, Out atomic.Int64 // Records.
	Late    atomic.Int64 // Records that no window took, since they had closed.
	// LateBy counts those by how far they were behind the watermark: up to LateBounds[i], and more
	// than all of these last. LateMost is the furthest, LateSum all of them together, in milliseconds.
	LateBy            [len(LateBounds) + 1]atomic.Int64
	LateMost, LateSum atomic.Int64
	Bytes             atomic.Int64
	// NoTime counts records without a usable event time, Ahead those further ahead of the wall clock
	// than was allowed.
	NoTime, Ahead atomic.Int64
}

// LateBounds are the bounds of Counters.LateBy.
var LateBounds = [...]time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour}

// maxLate is the most milliseconds that a record is counted as late by: some 35,000 years, so that many
// of them have a sum.
const maxLate = 1 << 50

// noteLate counts n records with event time t that come too late at watermark now.
func (c *Counters) noteLate(n, t, now int64) {
	by := min(max(now-t, 0), maxLate)
	if now > t && by == 0 { // Out of the range of the difference.
		by = maxLate
	}
	c.Late.Add(n)
	c.LateSum.Add(n * by)
	if by > c.LateMost.Load() {
		c.LateMost.Store(by)
	}
	i := 0
	for i < len(LateBounds) && by > LateBounds[i].Milliseconds() {
		i++
	}
	c.LateBy[i].Add(n)
}
