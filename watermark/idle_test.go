package watermark

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func at(sec float64) time.Time { return time.Unix(1000, int64(sec*1e9)) }

func TestIdleAfterTheTimeout(t *testing.T) {
	c := NewIdleClock(3 * time.Second)
	if _, ok := c.Deadline(); ok {
		t.Error("a deadline before any wait")
	}
	if c.Waiting(at(0)) || c.Waiting(at(2.9)) {
		t.Error("idle too early")
	}
	if d, ok := c.Deadline(); !ok || !d.Equal(at(3)) {
		t.Errorf("deadline %v %v", d, ok)
	}
	if !c.Waiting(at(3)) || !c.Idle() {
		t.Error("not idle at the timeout")
	}
	if c.Waiting(at(9)) {
		t.Error("became idle twice")
	}
	if !c.Read() || c.Idle() || c.Read() {
		t.Error("input does not end idleness once")
	}
	if c.Waiting(at(10)) || c.Waiting(at(12)) || !c.Waiting(at(13)) {
		t.Error("the wait does not start anew after input")
	}
}

func TestWithoutTimeoutNeverIdle(t *testing.T) {
	c := NewIdleClock(0)
	if c.Waiting(at(0)) || c.Waiting(at(1e6)) || c.Idle() {
		t.Error("idle")
	}
}

// A slow receiver blocks the output for longer than the idle timeout. The split had data all the
// time: it is not idle.
func TestBackpressureIsNotIdleness(t *testing.T) {
	c := NewIdleClock(5 * time.Second)
	c.Waiting(at(0))
	c.Blocked(at(1))
	if _, ok := c.Deadline(); ok {
		t.Error("a deadline while blocked")
	}
	if c.Waiting(at(11)) {
		t.Error("the time while blocked was counted")
	}
	if d, _ := c.Deadline(); !d.Equal(at(15)) {
		t.Errorf("deadline %v, want 4 s after the block", d)
	}
	if c.Waiting(at(14)) || !c.Waiting(at(15)) {
		t.Error("the clock did not go on from where it stood")
	}
}

// A split that is paused for being ahead cannot become idle, and once resumed is judged anew.
func TestPausedSplitIsNotIdle(t *testing.T) {
	c := NewIdleClock(3 * time.Second)
	c.Read()
	c.Blocked(at(0)) // Paused.
	c.Blocked(at(60))
	if c.Idle() || c.Waiting(at(61)) {
		t.Error("idle because of the pause")
	}
	if c.Read() {
		t.Error("was idle when resumed")
	}
}

// However waits, blocks and input follow each other: idle is exactly what has waited, in sum since
// the last input, for the timeout.
func TestIdleClockAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := NewIdleClock(10 * time.Second)
		now, waited, waiting, idle := 0, 0, false, false
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			d := rapid.IntRange(0, 6).Draw(t, "seconds")
			now += d
			if waiting {
				waited += d
			}
			switch rapid.SampledFrom([]string{"wait", "wait", "block", "read"}).Draw(t, "step") {
			case "wait":
				waiting = true
				became := !idle && waited >= 10
				idle = idle || became
				if got := c.Waiting(at(float64(now))); got != became {
					t.Fatalf("at %d, waited %d: became idle %v", now, waited, got)
				}
			case "block":
				waiting = false
				c.Blocked(at(float64(now)))
			case "read":
				if got := c.Read(); got != idle {
					t.Fatalf("at %d: was idle %v, want %v", now, got, idle)
				}
				waited, waiting, idle = 0, false, false
			}
			if c.Idle() != idle {
				t.Fatalf("at %d: idle %v, want %v", now, c.Idle(), idle)
			}
		}
	})
}

func TestClockGoesBack(t *testing.T) {
	c := NewIdleClock(3 * time.Second)
	c.Waiting(at(10))
	c.Waiting(at(5))
	if c.Waiting(at(7)) || !c.Waiting(at(8)) {
		t.Error("time that went back was counted")
	}
}

// A fast split, one that went silent and one that never had data: event time goes on, and the
// silent one, back again, is counted.
func TestSplitsOfASource(t *testing.T) {
	s := Bounded(0).Idle(3 * time.Second)
	m := NewMerge(3, Min)
	gens := []*Generator{s.NewGenerator(), s.NewGenerator(), s.NewGenerator()}
	clocks := []IdleClock{NewIdleClock(s.IdleTimeout()), NewIdleClock(s.IdleTimeout()), NewIdleClock(s.IdleTimeout())}
	read := func(i int, ms int64) {
		if clocks[i].Read() {
			m.Active(i)
		}
		gens[i].OnBatch(ms)
		m.Update(i, gens[i].Current())
	}
	wait := func(i int, now time.Time) {
		if clocks[i].Waiting(now) {
			m.Idle(i)
		}
	}
	read(0, 1000)
	read(1, 500)
	wait(1, at(0))
	wait(2, at(0))
	if m.Current() != Min {
		t.Errorf("%d: split 2 was passed over before the timeout", m.Current())
	}
	wait(2, at(3))
	if m.Current() != 499 {
		t.Errorf("%d, want that of split 1", m.Current())
	}
	wait(1, at(3))
	if m.Current() != 999 {
		t.Errorf("%d, want that of split 0", m.Current())
	}
	read(0, 2000)
	read(1, 1500)
	read(0, 3000)
	if m.Current() != 1999 {
		t.Errorf("%d, want where split 1 came back", m.Current())
	}
	wait(0, at(5))
	wait(0, at(8))
	wait(1, at(8))
	wait(1, at(20))
	if !m.AllIdle() || m.Current() != 2999 {
		t.Errorf("all idle %v at %d", m.AllIdle(), m.Current())
	}
}
