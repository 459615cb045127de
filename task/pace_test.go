package task

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	p := newPace(2)
	feed := func(perRow time.Duration, batches int) int {
		for range batches {
			p.took(p.rows, time.Duration(p.rows)*perRow)
		}
		return p.rows
	}
	for i, want := range []int{2, 4, 8, 16} {
		if got := feed(time.Microsecond, 1); got != want {
			t.Errorf("after %d fast batches: %d rows, want %d", i+1, got, want)
		}
	}
	if got := feed(time.Microsecond, 20); got < 10_000 {
		t.Errorf("fast for long: %d rows", got)
	}
	if got := feed(10*time.Millisecond, 30); got < 4 || got > 6 { // 50 ms for each of the two ports.
		t.Errorf("10 ms a row: %d rows", got)
	}
	if got := feed(10*time.Second, 30); got != 1 {
		t.Errorf("10 s a row: %d rows", got)
	}
	if got := feed(time.Microsecond, 100); got < 10_000 {
		t.Errorf("fast again: %d rows", got)
	}
}
