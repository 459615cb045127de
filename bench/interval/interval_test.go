package interval

import (
	"math"
	"testing"
)

// The interval of ten samples leaves out the smallest and the largest, that of six none, as benchstat's.
func TestInterval(t *testing.T) {
	for _, c := range []struct {
		n              int
		lo, median, hi float64
	}{{1, 1, 1, 1}, {5, 1, 3, 5}, {6, 1, 3.5, 6}, {8, 1, 4.5, 8}, {9, 2, 5, 8}, {10, 2, 5.5, 9}, {20, 6, 10.5, 15}} {
		samples := make([]float64, c.n)
		for i := range samples {
			samples[(i*7)%c.n] = float64(i + 1)
		}
		if c.n%7 == 0 {
			t.Fatal("choose another step")
		}
		if got := Of(samples); got != (Interval{c.lo, c.median, c.hi}) {
			t.Errorf("%d samples: %+v", c.n, got)
		}
	}
	if !math.IsNaN(Of(nil).Median) {
		t.Error("a median of nothing")
	}
}
