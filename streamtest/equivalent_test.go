package streamtest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/stream"
)

// Equivalent finds an operator whose state is not in its checkpoints, and one whose answer depends
// on the order of its input.
func TestEquivalentFinds(t *testing.T) {
	e := Equivalence[int64, string]{Text: strings.Clone}
	for i := range int64(300) {
		e.Input = append(e.Input, Event[int64]{Row: i, Time: i * 100})
	}
	for _, x := range []struct {
		name    string
		ordered bool
		program func(in stream.Stream[int64]) stream.Stream[string]
	}{
		{name: "forgets", ordered: true, program: func(in stream.Stream[int64]) stream.Stream[string] {
			return in.KeyBy(func(v *int64) int64 { return *v % 5 }).Process("count", func(*operator.States[int64]) operator.Handler[int64, int64, string] {
				counts := map[int64]int{}
				return operator.Handler[int64, int64, string]{Record: func(c *operator.KeyedContext[int64, string], _ *int64) {
					counts[c.Key()]++
					c.Emit(fmt.Sprint(c.Key(), counts[c.Key()]))
				}}
			})
		}},
		{name: "depends on order", program: func(in stream.Stream[int64]) stream.Stream[string] {
			return in.KeyBy(func(v *int64) int64 { return *v % 5 }).Process("last", func(s *operator.States[int64]) operator.Handler[int64, int64, string] {
				last := s.Value[int64]("last")
				return operator.Handler[int64, int64, string]{Record: func(c *operator.KeyedContext[int64, string], v *int64) {
					c.Emit(fmt.Sprint(*last.Ref(), *v))
					last.Set(*v)
				}}
			})
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			e.Program = x.program
			e.Order = nil
			if x.ordered {
				e.Order = func(v *int64) string { return fmt.Sprint(*v % 5) }
			}
			var want map[string]int
			Run(t, func(_ *testing.T, h *Harness) { want = e.bag(e.plain(h)) })
			found := 0
			for seed := range uint64(10) {
				Run(t, func(_ *testing.T, h *Harness) {
					if len(differences(e.bag(e.disturbed(h, rand.New(rand.NewPCG(seed, 0)))), want)) > 0 {
						found++
					}
				})
			}
			if found < 3 {
				t.Errorf("%d of 10 runs found it", found)
			}
		})
	}
}

// Batches are of all sizes, and no record is behind a watermark of its part.
func TestDeal(t *testing.T) {
	e := Equivalence[int64, string]{}
	for i := range int64(20_000) {
		e.Input = append(e.Input, Event[int64]{Row: i, Time: i * 7919 % 20_011})
	}
	smallest, largest, marks := 1<<20, 0, 0
	for seed := range uint64(20) {
		seen := map[int64]bool{}
		for _, list := range e.deal(rand.New(rand.NewPCG(seed, 0)), 1+int(seed%4)) {
			w := int64(-1 << 62)
			for _, p := range list {
				smallest, largest = min(smallest, len(p.rows)), max(largest, len(p.rows))
				for i, v := range p.rows {
					for len(p.marks) > 0 && int(p.marks[0].Pos) <= i {
						w = p.marks[0].Time
						p.marks = p.marks[1:]
						marks++
					}
					if p.times[i] <= w {
						t.Fatalf("seed %d: record at %d behind watermark %d", seed, p.times[i], w)
					}
					seen[v] = true
				}
				if n := len(p.marks); n > 0 {
					w = p.marks[n-1].Time
				}
			}
		}
		if len(seen) != len(e.Input) {
			t.Errorf("seed %d: %d of %d records", seed, len(seen), len(e.Input))
		}
	}
	if smallest != 1 || largest != 4096 || marks == 0 {
		t.Errorf("batches of %d to %d records, %d watermarks", smallest, largest, marks)
	}
}
