// Package interval says what a few samples of a noisy measurement tell: the median, and where the true one lies.
package interval

import (
	"math"
	"slices"
)

// Interval is the median of some samples and, as benchstat has it, an interval that holds the true
// median with a probability of at least 95 %. It assumes nothing of how the samples are distributed.
type Interval struct{ Lo, Median, Hi float64 }

// Of needs at least six samples for the interval to have that probability; with fewer it is
// all of their range.
func Of(samples []float64) Interval {
	s := slices.Sorted(slices.Values(samples))
	n := len(s)
	if n == 0 {
		return Interval{math.NaN(), math.NaN(), math.NaN()}
	}
	// k samples or fewer are on one side of the median as often as n coins show k heads or fewer: then
	// the k+1st smallest or largest one lies beyond it.
	k := 0
	below, ways := 0.0, 1.0
	for i := range n / 2 {
		below += ways * math.Pow(0.5, float64(n))
		if 2*below > 0.05 {
			break
		}
		k = i
		ways *= float64(n-i) / float64(i+1)
	}
	return Interval{s[k], (s[(n-1)/2] + s[n/2]) / 2, s[n-1-k]}
}
