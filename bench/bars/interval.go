package main

import (
	"math"
	"slices"
)

// interval is the median of some samples and, as benchstat has it, an interval that holds the true
// median with a probability of at least 95 %. It assumes nothing of how the samples are distributed.
type interval struct{ lo, median, hi float64 }

// intervalOf needs at least six samples for the interval to have that probability; with fewer it is
// all of their range.
func intervalOf(samples []float64) interval {
	s := slices.Sorted(slices.Values(samples))
	n := len(s)
	if n == 0 {
		return interval{math.NaN(), math.NaN(), math.NaN()}
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
	return interval{s[k], (s[(n-1)/2] + s[n/2]) / 2, s[n-1-k]}
}

// ratios divides pairwise and subtracts less.
func ratios(a, b []float64, less float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i]/b[i] - less
	}
	return out
}
