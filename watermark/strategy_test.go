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
	for _, s := range []Strategy{
		Bounded(-1), None().Idle(-1), Monotonous().Align("", time.Second), Monotonous().Align("g", 0), Monotonous().Align("g", -1),
		Monotonous().MaxAhead(-2), Monotonous().BadTimes(Divert + 1), Custom("mine", nil),
	} {
		if s.Validate() == nil {
			t.Errorf("%v is valid", s)
		}
	}
	s = Custom("mine", func() Rule { return &newestButOne{} }).Align("g", 1500*time.Microsecond).MaxAhead(time.Hour).BadTimes(Divert)
	if s.Validate() != nil || s.String() != `custom mine, aligned with "g" within 1.5ms, at most 1h0m0s ahead, bad times: divert` {
		t.Errorf("%v: %v", s, s.Validate())
	}
	if g, d := s.Alignment(); g != "g" || d != 2 {
		t.Errorf("group %q, drift %d", g, d)
	}
	if FromSource().String() != "of the source" || !FromSource().TakesSourceMarks() {
		t.Errorf("%v", FromSource())
	}
}

// newestButOne is a rule with a watermark of the second newest time.
type newestButOne struct{ first, second int64 }

func (r *newestButOne) Times(ms []int64) {
	for _, t := range ms {
		if t > r.first {
			r.first, r.second = t, r.first
		}
	}
}
func (r *newestButOne) Watermark(time.Time) int64 { return r.second }

// A user's rule sees every time; what it says is neither believed when it goes back nor beyond the
// limit.
func TestCustom(t *testing.T) {
	g := Custom("mine", func() Rule { return &newestButOne{} }).NewGenerator()
	g.OnTimes([]int64{5, 9, 7})
	if !g.Ask(time.Time{}, MaxTime) || g.Current() != 5 {
		t.Errorf("%d, want 5", g.Current())
	}
	g.OnTimes([]int64{900, 901})
	if g.Ask(time.Time{}, 100) || g.Current() != 5 {
		t.Errorf("%d beyond the limit", g.Current())
	}
	g.Mark(Max)
	if g.Current() == Max {
		t.Error("a mark is taken for the final watermark")
	}
}

func TestFurthest(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	day := DefaultMaxAhead.Milliseconds()
	for _, x := range []struct {
		s    Strategy
		want int64
	}{
		{Monotonous(), 1_000_000 + day}, {None(), 1_000_000 + day}, {FromSource(), MaxTime}, {FromSource().MaxAhead(time.Second), 1_001_000},
		{Monotonous().MaxAhead(Unlimited), MaxTime}, {Monotonous().MaxAhead(1), 1_000_001},
	} {
		if got := x.s.Furthest(now); got != x.want || x.s.Limited() != (x.want != MaxTime) {
			t.Errorf("%v: %d, want %d", x.s, got, x.want)
		}
	}
}

func TestMillis(t *testing.T) {
	for _, x := range []struct {
		t    time.Time
		want int64
	}{
		{time.UnixMilli(-1), -1}, {time.Unix(0, 999_999), 0}, {time.Time{}, Absent}, {time.Unix(1<<60, 0), Min}, {time.Unix(-1<<60, 0), Min},
		{time.Unix(1<<62/1000, 0), 1 << 62 / 1000 * 1000},
	} {
		if got := Millis(x.t); got != x.want {
			t.Errorf("%v: %d, want %d", x.t, got, x.want)
		}
	}
	if Usable(Min) || Usable(Absent) || Usable(MaxTime+1) || !Usable(0) || !Usable(MinTime) {
		t.Error("usable")
	}
}
