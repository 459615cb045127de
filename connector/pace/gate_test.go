package pace

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// Whatever is asked for at a time, the rate over a while is the one that was set, and a pause is not made up for.
func TestRate(t *testing.T) {
	for _, rate := range []float64{0.5, 3, 250, 100_000, 5e6} {
		for _, limit := range []int{1, 7, 1024} {
			synctest.Test(t, func(t *testing.T) {
				woken := make(chan struct{}, 1)
				g := New(rate, nil, func() {
					select {
					case woken <- struct{}{}:
					default:
					}
				})
				defer g.Close()
				run := func(d time.Duration) (n int) {
					for end := time.Now().Add(d); time.Now().Before(end); {
						k := g.Take(limit)
						if n += k; k == 0 {
							<-woken
						}
						if n > 100_000 {
							return -1 // In this bubble time passes in waits only.
						}
					}
					return n
				}
				d := time.Duration(math.Max(20, math.Min(20, 20_000/rate)) * float64(time.Second))
				if rate > 1000 {
					d = 10 * grain
				}
				want := rate * d.Seconds()
				got := run(d)
				if got >= 0 && math.Abs(float64(got)-want) > want*0.15+2+float64(limit) {
					t.Errorf("rate %v, limit %v: %d records in %v", rate, limit, got, d)
				}
				time.Sleep(time.Hour)
				if n := g.Take(math.MaxInt32); float64(n) > rate*burst.Seconds()+1 {
					t.Errorf("rate %v: %d records at once after a pause", rate, n)
				}
			})
		}
	}
}

func TestNil(t *testing.T) {
	g := New(0, nil, nil)
	if n := g.Take(17); n != 17 {
		t.Errorf("took %d", n)
	}
	g.Return(1)
	g.Close()
}

func TestReturn(t *testing.T) {
	now := time.Unix(1, 0)
	g := New(10, func() time.Time { return now }, nil)
	defer g.Close()
	if n := g.Take(5); n != 1 {
		t.Fatalf("took %d", n)
	}
	g.Return(1)
	if n := g.Take(5); n != 1 {
		t.Fatalf("took %d after a return", n)
	}
	if n := g.Take(5); n != 0 {
		t.Fatalf("took %d of nothing", n)
	}
}

func TestShare(t *testing.T) {
	for _, c := range []struct {
		rate   float64
		p, n   int
		expect float64
	}{{100, 4, 4, 25}, {100, 4, 1, 100}, {100, 1, 9, 100}, {100, 0, 0, 100}, {0, 4, 4, 0}} {
		if got := Share(c.rate, c.p, c.n); got != c.expect {
			t.Errorf("Share(%v, %d, %d) = %v", c.rate, c.p, c.n, got)
		}
	}
}

func TestValidate(t *testing.T) {
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1)} {
		if Validate(bad) == nil {
			t.Errorf("%v passed", bad)
		}
	}
	if err := Validate(0.5); err != nil {
		t.Error(err)
	}
}

// Readers of one subtask share its rate; the gate goes with the last of them.
func TestJoin(t *testing.T) {
	now := time.Unix(1, 0)
	clock := func() time.Time { return now }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a, leaveA := Join(ctx, "s", 10, clock, nil)
	b, leaveB := Join(ctx, "s", 10, clock, nil)
	other, leaveOther := Join(ctx, "t", 10, clock, nil)
	if a != b || a == other {
		t.Fatal("gates are mixed up")
	}
	if a.Take(9)+b.Take(9) != 1 {
		t.Error("two readers have twice the rate")
	}
	leaveA()
	leaveA()
	if c, leave := Join(ctx, "s", 10, clock, nil); c != b {
		t.Error("the gate went with the first of two")
	} else {
		leave()
	}
	leaveB()
	leaveOther()
	if len(shared.gates) != 0 {
		t.Errorf("%d gates are left", len(shared.gates))
	}
	if g, leave := Join(ctx, "s", 0, nil, nil); g != nil {
		t.Error("a gate without a rate")
	} else {
		leave()
	}
}
