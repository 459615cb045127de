package main

import (
	"math"
	"testing"
)

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
