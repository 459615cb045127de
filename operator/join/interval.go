package join

import (
	"math"

	"github.com/cairnstream/cairn/operator"
)

// timed is a record with its event time.
type timed[T any] struct {
	At  int64
	Row T
}

// Interval declares the states of an interval join and returns its handler. f is called for each pair of
// a and b of one key with a's time + lo <= b's time <= a's time + hi, all in milliseconds; what it
// returns has the later one's time. The arguments are read-only and valid during the call.
//
// Records are kept in buckets of time as long as the interval, so that each one looks at two or three of
// them, whatever their number.
func Interval[K comparable, A, B, U any](s *operator.States[K], lo, hi int64, f func(a *A, b *B) U) operator.CoHandler[K, A, B, U] {
	lefts, rights := s.Lists[timed[A]](leftState), s.Lists[timed[B]](rightState)
	width := hi - lo + 1
	bucket := func(t int64) int64 {
		r := t % width
		if r < 0 {
			r += width
		}
		return t - r
	}
	// A bucket of the left side is of no use once the watermark has passed what its last record can
	// meet, that is its time + hi; one of the right side its time - lo.
	leftEnd := func(b int64) int64 { return b + width - 1 + hi }
	rightEnd := func(b int64) int64 { return b + width - 1 - lo }
	late := func(c *operator.KeyedContext[K, U]) bool {
		needTime(c.Time())
		if c.Time() <= c.Watermark() {
			c.CountLate()
			return true
		}
		return false
	}
	return operator.CoHandler[K, A, B, U]{
		Left: func(c *operator.KeyedContext[K, U], a *A) {
			if late(c) {
				return
			}
			t := c.Time()
			for b := bucket(t + lo); b <= t+hi; b += width {
				for _, r := range rights.All(b) {
					if r.At >= t+lo && r.At <= t+hi {
						c.EmitAt(f(a, &r.Row), max(t, r.At))
					}
				}
			}
			if b := bucket(t); leftEnd(b) > c.Watermark() && lefts.Append(b, &timed[A]{t, *a}) {
				c.SetTimer(leftEnd(b))
			}
		},
		Right: func(c *operator.KeyedContext[K, U], r *B) {
			if late(c) {
				return
			}
			t := c.Time()
			for b := bucket(t - hi); b <= t-lo; b += width {
				for _, l := range lefts.All(b) {
					if l.At >= t-hi && l.At <= t-lo {
						c.EmitAt(f(&l.Row, r), max(t, l.At))
					}
				}
			}
			if b := bucket(t); rightEnd(b) > c.Watermark() && rights.Append(b, &timed[B]{t, *r}) {
				c.SetTimer(rightEnd(b))
			}
		},
		Timer: func(c *operator.KeyedContext[K, U]) {
			t := c.Time()
			if b := t - width + 1 - hi; bucket(b) == b {
				lefts.Clear(b)
			}
			if b := t - width + 1 + lo; bucket(b) == b {
				rights.Clear(b)
			}
		},
	}
}

// maxBound is the furthest apart that an interval join takes records: 1000 years.
const maxBound = 1000 * 366 * 24 * 3600 * 1000

// CheckInterval tells whether lo and hi make an interval.
func CheckInterval(lo, hi int64) bool {
	return lo <= hi && math.Abs(float64(lo)) <= maxBound && math.Abs(float64(hi)) <= maxBound
}
