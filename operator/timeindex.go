package operator

import (
	"math/bits"

	"github.com/cairnstream/cairn/record"
)

// timeIndex keeps values by time, earliest first. Values of one time come in the order they were
// added. The zero value is empty.
//
// Most times are within two seconds of each other: timers of a key that ends soon. These are in a ring with a place for
// each millisecond; all others are in a map, under a heap of times.
type timeIndex[V any] struct {
	ring *[ringSize]*bucket[V] // Of the times [base, base + ringSize); nil before there was any.
	full [ringSize / 64]uint64 // A bit for each place of ring that has a bucket.
	used int                   // How many have.
	base int64
	low  int64 // The earliest time in ring if any place is used.

	at    map[int64]*bucket[V] // Of other times; where a time is in both, these values were added before.
	times timeHeap
	free  []*bucket[V]

	head     *bucket[V] // The bucket of at that pop took from last, or nil.
	headTime int64
}

const ringSize = 2048

// Emptied buckets are kept for other times: enough for many timers of few keys each, and one large
// one for windows, whose keys all have the same time.
const (
	freeBuckets = 1024
	largeBucket = 4096
)

type bucket[V any] struct {
	vs   []V
	next int
}

func (x *timeIndex[V]) add(time int64, v V) {
	if x.used == 0 {
		x.base = max(time, record.MinTime+ringSize) - ringSize/4 // Earlier ones may follow.
	}
	var b *bucket[V]
	if time >= x.base && uint64(time)-uint64(x.base) < ringSize {
		b = x.near(time)
	} else {
		b = x.far(time)
	}
	b.vs = append(b.vs, v)
}

// near is the bucket of a time in the ring's range.
func (x *timeIndex[V]) near(time int64) *bucket[V] {
	if x.ring == nil {
		x.ring = &[ringSize]*bucket[V]{}
	}
	i := uint64(time) % ringSize
	b := x.ring[i]
	if b == nil {
		b = x.fresh()
		x.ring[i] = b
		x.full[i/64] |= 1 << (i % 64)
		if x.used++; x.used == 1 || time < x.low {
			x.low = time
		}
	}
	return b
}

// far is the bucket of any other time.
func (x *timeIndex[V]) far(time int64) *bucket[V] {
	b := x.at[time]
	if b == nil {
		if x.at == nil {
			x.at = map[int64]*bucket[V]{}
		}
		b = x.fresh()
		x.at[time] = b
		x.times.push(time)
	}
	return b
}

func (x *timeIndex[V]) fresh() *bucket[V] {
	n := len(x.free)
	if n == 0 {
		return &bucket[V]{}
	}
	b := x.free[n-1]
	x.free = x.free[:n-1]
	return b
}

func (x *timeIndex[V]) first() (int64, bool) {
	switch {
	case x.nearFirst():
		return x.low, true
	case len(x.times) > 0:
		return x.times[0], true
	}
	return 0, false
}

// nearFirst tells whether the next value is in the ring.
func (x *timeIndex[V]) nearFirst() bool {
	return x.used > 0 && (len(x.times) == 0 || x.low < x.times[0])
}

// pop takes the next value of the first time. The index is not empty.
func (x *timeIndex[V]) pop() V {
	if x.nearFirst() {
		i := uint64(x.low) % ringSize
		b := x.ring[i]
		v := b.take()
		x.base = x.low // All others in the ring are later.
		if b.next == len(b.vs) {
			x.ring[i] = nil
			x.full[i/64] &^= 1 << (i % 64)
			if x.used--; x.used > 0 {
				x.low += int64(x.distance(i))
			}
			x.recycle(b)
		}
		return v
	}
	time := x.times[0]
	b := x.head
	if b == nil || x.headTime != time {
		b = x.at[time]
		x.head, x.headTime = b, time
	}
	v := b.take()
	if b.next == len(b.vs) {
		x.times.pop()
		delete(x.at, time)
		x.head = nil
		x.recycle(b)
	}
	return v
}

// distance is how far behind place i of the ring the next used one is. There is one.
func (x *timeIndex[V]) distance(i uint64) uint64 {
	start := (i + 1) % ringSize
	w := start / 64
	word := x.full[w] >> (start % 64) << (start % 64)
	for word == 0 {
		w = (w + 1) % (ringSize / 64)
		word = x.full[w]
	}
	at := w*64 + uint64(bits.TrailingZeros64(word))
	return (at - i) % ringSize
}

func (b *bucket[V]) take() V {
	v := b.vs[b.next]
	var zero V
	b.vs[b.next] = zero
	b.next++
	return v
}

// recycle keeps an empty bucket for another time.
func (x *timeIndex[V]) recycle(b *bucket[V]) {
	b.vs, b.next = b.vs[:0], 0
	if n := len(x.free); n == 0 || n < freeBuckets && cap(b.vs) <= largeBucket {
		x.free = append(x.free, b)
	}
}

// timeHeap is a binary heap, earliest first.
type timeHeap []int64

func (h *timeHeap) push(t int64) {
	s := append(*h, t)
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if s[parent] <= t {
			break
		}
		s[i] = s[parent]
		i = parent
	}
	s[i] = t
	*h = s
}

// pop removes the earliest.
func (h *timeHeap) pop() {
	s := *h
	n := len(s) - 1
	t := s[n]
	s = s[:n]
	*h = s
	i := 0
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && s[child+1] < s[child] {
			child++
		}
		if s[child] >= t {
			break
		}
		s[i] = s[child]
		i = child
	}
	if n > 0 {
		s[i] = t
	}
}
