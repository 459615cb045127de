package main

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
		if got := intervalOf(samples); got != (interval{c.lo, c.median, c.hi}) {
			t.Errorf("%d samples: %+v", c.n, got)
		}
	}
	if !math.IsNaN(intervalOf(nil).median) {
		t.Error("a median of nothing")
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		f   figure
		met bool
	}{
		{figure{Value: 5}, true},
		{figure{Value: 5, Limit: 5}, true},
		{figure{Value: 6, Limit: 5}, false},
		{figure{Value: 6, Limit: 5, AtLeast: true}, true},
		{figure{Value: 4, Limit: 5, AtLeast: true}, false},
		{figure{Value: math.NaN(), Limit: 5}, false},
		{figure{Failed: "x"}, false},
	} {
		if c.f.judge(); c.f.Met != c.met {
			t.Errorf("%+v", c.f)
		}
	}
}

func TestChoose(t *testing.T) {
	if all, problems := choose(""); len(all) != len(bars) || problems != nil {
		t.Error(len(all), problems)
	}
	if some, problems := choose("idle,x,sum,y"); len(some) != 2 || len(problems) != 2 {
		t.Error(len(some), problems)
	}
}
