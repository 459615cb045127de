package watermark

import "math"

// NoConstraint is reported by those who hold nobody back: readers without splits, or whose splits
// are all idle.
const NoConstraint = Max

// Alignment is what one source of a group knows of all of it: the lowest watermark of each of its
// readers and of each other source. Who has not spoken yet holds everybody back.
//
// Reports may be lost, repeated, or come in another order: each has a number, and one that is not
// above the last is dropped. One goroutine uses an Alignment.
type Alignment struct {
	readers []report
	peers   []report
}

type report struct {
	number    uint64
	watermark int64
}

// NewAlignment returns that of a source with so many readers, in a group with so many others.
func NewAlignment(readers, peers int) *Alignment {
	a := &Alignment{readers: make([]report, readers), peers: make([]report, peers)}
	for _, list := range [][]report{a.readers, a.peers} {
		for i := range list {
			list[i].watermark = Min
		}
	}
	return a
}

// Reader takes the report of a reader; it tells whether it was news.
func (a *Alignment) Reader(i int, number uint64, w int64) bool { return a.readers[i].take(number, w) }

// Peer takes the report of another source.
func (a *Alignment) Peer(i int, number uint64, w int64) bool { return a.peers[i].take(number, w) }

func (r *report) take(number uint64, w int64) bool {
	if number <= r.number {
		return false
	}
	*r = report{number, w}
	return true
}

// Holds tells whether reader i holds others back.
func (a *Alignment) Holds(i int) bool { return a.readers[i].watermark != NoConstraint }

// Own is the lowest watermark of the source's readers.
func (a *Alignment) Own() int64 { return lowest(a.readers, NoConstraint) }

// Lowest is that of the whole group.
func (a *Alignment) Lowest() int64 { return lowest(a.peers, a.Own()) }

func lowest(list []report, w int64) int64 {
	for i := range list {
		w = min(w, list[i].watermark)
	}
	return w
}

// LimitOf is the watermark up to which a split may be read when the lowest of the group is so and
// the drift is in milliseconds. Where somebody has none yet only those may who have none either.
func LimitOf(lowest, drift int64) int64 {
	switch {
	case lowest == Min || lowest == NoConstraint:
		return lowest
	case lowest > math.MaxInt64-drift:
		return NoConstraint
	}
	return lowest + drift
}
