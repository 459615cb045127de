package watermark

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// model is Merge by its definition: it looks at every input at every step.
type model struct {
	merged int64
	times  []int64
	state  []inputState
}

func (m *model) settle() {
	lowest, highestIdle := Max, Min
	active, idle := false, false
	for i, t := range m.times {
		switch m.state[i] {
		case inputActive:
			active, lowest = true, min(lowest, t)
		case inputIdle:
			idle, highestIdle = true, max(highestIdle, t)
		}
	}
	switch {
	case active:
		m.merged = max(m.merged, lowest)
	case idle:
		m.merged = max(m.merged, highestIdle)
	default:
		m.merged = Max
	}
}

func (m *model) allIdle() bool {
	idle := false
	for _, s := range m.state {
		if s == inputActive {
			return false
		}
		idle = idle || s == inputIdle
	}
	return idle
}

func TestMergeAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "inputs")
		floor := rapid.SampledFrom([]int64{Min, 5}).Draw(t, "floor")
		m := NewMerge(n, floor)
		ref := &model{merged: floor, times: make([]int64, n), state: make([]inputState, n)}
		for i := range ref.times {
			ref.times[i] = Min
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, n-1).Draw(t, "input")
			before := m.Current()
			var merged int64
			var advanced bool
			step := rapid.SampledFrom([]string{"update", "update", "update", "idle", "active", "close", "max"}).Draw(t, "step")
			switch step {
			case "update":
				time := rapid.Int64Range(-3, 40).Draw(t, "time")
				merged, advanced = m.Update(i, time)
				if ref.state[i] != inputEnded {
					ref.times[i], ref.state[i] = max(ref.times[i], time), inputActive
				}
			case "idle":
				merged, advanced = m.Idle(i)
				if ref.state[i] == inputActive {
					ref.state[i] = inputIdle
				}
			case "active":
				merged, advanced = m.Active(i)
				if ref.state[i] == inputIdle {
					ref.state[i] = inputActive
				}
			case "close":
				merged, advanced = m.Close(i)
				ref.state[i] = inputEnded
			case "max":
				merged, advanced = m.Update(i, Max)
				ref.state[i] = inputEnded
			}
			ref.settle()
			if merged != ref.merged || m.Current() != merged || m.AllIdle() != ref.allIdle() {
				t.Fatalf("%s %d: merged %d, idle %v; want %d, %v", step, i, merged, m.AllIdle(), ref.merged, ref.allIdle())
			}
			if advanced != (merged > before) || merged < before {
				t.Fatalf("%s %d: %d after %d, advanced %v", step, i, merged, before, advanced)
			}
		}
	})
}

func TestMerge(t *testing.T) {
	check := func(t *testing.T, m *Merge, merged int64, idle bool) {
		t.Helper()
		if m.Current() != merged || m.AllIdle() != idle {
			t.Errorf("merged %d, idle %v; want %d, %v", m.Current(), m.AllIdle(), merged, idle)
		}
	}
	t.Run("the slowest input counts", func(t *testing.T) {
		m := NewMerge(2, Min)
		m.Update(0, 10)
		check(t, m, Min, false)
		m.Update(1, 7)
		check(t, m, 7, false)
		m.Update(1, 3) // Goes back: not believed.
		check(t, m, 7, false)
		m.Update(1, 20)
		check(t, m, 10, false)
	})
	// An input without anything to read says that it is idle, and so holds nothing up.
	t.Run("an input that never had data", func(t *testing.T) {
		m := NewMerge(2, Min)
		m.Update(0, 10)
		if merged, advanced := m.Idle(1); merged != 10 || !advanced {
			t.Errorf("merged %d, advanced %v", merged, advanced)
		}
		m.Update(0, 11)
		check(t, m, 11, false)
	})
	t.Run("an input comes back behind", func(t *testing.T) {
		m := NewMerge(2, Min)
		m.Update(1, 1)
		m.Idle(1)
		m.Update(0, 10)
		check(t, m, 10, false)
		m.Active(1)
		m.Update(0, 20)
		check(t, m, 10, false) // Waits for input 1.
		m.Update(1, 15)
		check(t, m, 15, false)
	})
	t.Run("a watermark ends idleness", func(t *testing.T) {
		m := NewMerge(1, Min)
		m.Idle(0)
		check(t, m, Min, true)
		m.Update(0, 4)
		check(t, m, 4, false)
	})
	t.Run("the order of becoming idle plays no part", func(t *testing.T) {
		for _, order := range [][]int{{0, 1}, {1, 0}} {
			m := NewMerge(2, Min)
			m.Update(0, 10)
			m.Update(1, 5)
			for _, i := range order {
				m.Idle(i)
			}
			check(t, m, 10, true)
		}
	})
	t.Run("the end", func(t *testing.T) {
		m := NewMerge(3, Min)
		m.Update(0, 10)
		m.Update(1, 5)
		m.Idle(2)
		m.Close(1)
		check(t, m, 10, false)
		m.Update(0, Max)
		check(t, m, 10, true) // Input 2 may come back.
		m.Update(2, 12)
		check(t, m, 12, false)
		m.Close(2)
		check(t, m, Max, false)
		if _, advanced := m.Close(2); advanced {
			t.Error("the end came twice")
		}
	})
	t.Run("behind", func(t *testing.T) {
		m := NewMerge(3, Min)
		behind := func(want int) {
			t.Helper()
			if got := m.Behind(); got != want {
				t.Errorf("input %d is behind, want %d", got, want)
			}
		}
		behind(-1)
		m.Update(0, 10)
		behind(-1) // Of the others nothing is known.
		m.Update(1, 10)
		m.Update(2, 10)
		behind(-1)
		m.Update(0, 20)
		m.Update(2, 20)
		behind(1)
		m.Idle(1)
		behind(-1)
		m.Update(2, 30)
		behind(0)
		m.Active(1)
		behind(1)
		m.Close(1)
		behind(0)
		m.Close(0)
		behind(-1)
	})
	// A restored job starts from the watermark of its checkpoint, and moves on from there.
	t.Run("restored", func(t *testing.T) {
		m := NewMerge(2, 100)
		check(t, m, 100, false)
		m.Update(0, 90)
		if merged, advanced := m.Update(1, 95); merged != 100 || advanced {
			t.Errorf("merged %d, advanced %v", merged, advanced)
		}
		m.Update(0, 130)
		if merged, advanced := m.Update(1, 120); merged != 120 || !advanced {
			t.Errorf("merged %d, advanced %v", merged, advanced)
		}
	})
}

func BenchmarkMerge(b *testing.B) {
	for _, n := range []int{2, 16, 4096} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := NewMerge(n, Min)
			b.ReportAllocs()
			i, time := 0, int64(0)
			for b.Loop() {
				if i++; i == n {
					i, time = 0, time+1
				}
				m.Update(i, time)
			}
		})
	}
}
