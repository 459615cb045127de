package watermark

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestGenerator(t *testing.T) {
	for _, x := range []struct {
		name string
		s    Strategy
		seen []int64
		want int64
	}{
		{"nothing seen", Bounded(time.Second), nil, Min},
		{"bounded", Bounded(time.Second), []int64{5000}, 3999},
		{"never back", Bounded(time.Second), []int64{5000, 1000}, 3999},
		{"monotonous", Monotonous(), []int64{5000}, 4999},
		{"bound rounded up", Bounded(time.Microsecond), []int64{5000}, 4998},
		{"none", None(), []int64{5000}, Min},
		{"zero value", Strategy{}, []int64{5000}, Min},
		{"no underflow", Bounded(time.Hour), []int64{Min + 5}, Min},
		{"never final", Monotonous(), []int64{Max}, Max - 1},
		{"longest bound", Bounded(1<<63 - 1), []int64{0}, -9223372036856},
	} {
		g := x.s.NewGenerator()
		for _, ms := range x.seen {
			g.OnBatch(ms)
		}
		if g.Current() != x.want {
			t.Errorf("%s: %d, want %d", x.name, g.Current(), x.want)
		}
	}
}

func TestGeneratorRestored(t *testing.T) {
	g := Bounded(0).NewGenerator()
	g.Restore(100)
	g.OnBatch(50)
	if g.Current() != 100 {
		t.Errorf("%d, want the restored 100", g.Current())
	}
	g.OnBatch(200)
	if g.Current() != 199 {
		t.Errorf("%d, want 199", g.Current())
	}
}

// No record that is out of order by at most the bound is late.
func TestBoundHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := rapid.Int64Range(0, 50).Draw(t, "bound")
		g := Bounded(time.Duration(bound) * time.Millisecond).NewGenerator()
		newest := int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "n") {
			at := newest + rapid.Int64Range(-bound, 20).Draw(t, "step")
			if at <= g.Current() {
				t.Fatalf("the record at %d is late: the watermark is %d", at, g.Current())
			}
			g.OnBatch(at)
			newest = max(newest, at)
		}
	})
}

func TestStrategy(t *testing.T) {
	s := Bounded(5 * time.Second).Idle(time.Minute)
	if s.IdleTimeout() != time.Minute || s.Validate() != nil || s.String() != "bounded 5s, idle after 1m0s" {
		t.Errorf("%v: timeout %v, %v", s, s.IdleTimeout(), s.Validate())
	}
	if None().String() != "none" || (Strategy{}) != None() {
		t.Errorf("None is %v", None())
	}
	for _, s := range []Strategy{Bounded(-1), None().Idle(-1)} {
		if s.Validate() == nil {
			t.Errorf("%v is valid", s)
		}
	}
}
