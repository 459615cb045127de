package watermark

import (
	"testing"

	"pgregory.net/rapid"
)

// Readers and other sources of a group: the lowest counts, who is silent holds all, and old mail
// changes nothing.
func TestAlignment(t *testing.T) {
	a := NewAlignment(2, 1)
	want := func(own, lowest int64) {
		t.Helper()
		if a.Own() != own || a.Lowest() != lowest {
			t.Errorf("own %d, lowest %d; want %d, %d", a.Own(), a.Lowest(), own, lowest)
		}
	}
	want(Min, Min)
	a.Reader(0, 1, 100)
	want(Min, Min)
	a.Reader(1, 1, NoConstraint) // It has no split.
	want(100, Min)
	a.Peer(0, 1, 50)
	want(100, 50)
	a.Peer(0, 3, 200)
	if a.Peer(0, 2, 60) || a.Peer(0, 3, 70) {
		t.Error("mail that was overtaken or repeated is taken")
	}
	want(100, 100)
	if !a.Holds(0) || a.Holds(1) {
		t.Error("who holds")
	}
	a.Reader(0, 2, NoConstraint)
	want(NoConstraint, 200)
	a.Peer(0, 4, NoConstraint)
	want(NoConstraint, NoConstraint)
}

func TestLimitOf(t *testing.T) {
	for _, x := range [][3]int64{
		{Min, 10, Min}, {100, 10, 110}, {NoConstraint, 10, NoConstraint}, {Max - 5, 10, NoConstraint}, {Min + 1, 10, Min + 11},
	} {
		if got := LimitOf(x[0], x[1]); got != x[2] {
			t.Errorf("limit of %d with drift %d is %d, want %d", x[0], x[1], got, x[2])
		}
	}
}

// However splits advance, whatever reports get lost, repeated or late: who is at the lowest
// watermark may be read as soon as its own newest report has come through, and nobody is read who
// is further than the drift from the lowest that was ever reported last.
func TestAlignmentProgress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const drift = 10
		n := rapid.IntRange(1, 5).Draw(t, "readers")
		a := NewAlignment(n, 0)
		at := make([]int64, n)
		number := make([]uint64, n)
		for i := range at {
			at[i] = Min
		}
		type mail struct {
			i int
			n uint64
			w int64
		}
		var sent []mail
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			i := rapid.IntRange(0, n-1).Draw(t, "i")
			if at[i] <= LimitOf(a.Lowest(), drift) {
				at[i] = max(at[i], 0) + rapid.Int64Range(1, 15).Draw(t, "step")
			}
			number[i]++
			sent = append(sent, mail{i, number[i], at[i]})
			m := sent[rapid.IntRange(0, len(sent)-1).Draw(t, "which")]
			a.Reader(m.i, m.n, m.w)
		}
		low, high := NoConstraint, Min
		for i := range at {
			low, high = min(low, at[i]), max(high, at[i])
		}
		if low != Min && high > low+drift+15 {
			t.Fatalf("%d and %d are further apart than the drift and one step", low, high)
		}
		if a.Lowest() > low {
			t.Fatalf("the lowest is %d, believed %d", low, a.Lowest())
		}
		for i := range at {
			number[i]++
			a.Reader(i, number[i], at[i])
		}
		if low > LimitOf(a.Lowest(), drift) {
			t.Fatalf("the lowest, at %d, may not be read", low)
		}
	})
}
