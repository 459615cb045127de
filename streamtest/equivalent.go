package streamtest

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/stream"
)

// Equivalence is an operator, or a part of a job, whose answer must not depend on how it runs.
type Equivalence[T, U any] struct {
	// Program is what is tested. It is built for each run and each restart.
	Program func(in stream.Stream[T]) stream.Stream[U]
	// Input is all that the program gets, with event times. Watermarks are put between the records,
	// as far as none makes one of them late.
	Input []Event[T]
	// Order, if set, names what must stay in the order of Input: records with the same name come in
	// that order. Without it records come in any.
	Order func(row *T) string
	// Want is the answer, in any order; nil for that of a plain run, which nothing disturbs.
	Want []U
	// Text tells answers apart; nil for fmt's %+v.
	Text func(U) string
	// Runs is the number of runs, 0 for 10.
	Runs int
	// Seed is that of the first run; the next ones count up. A run that fails names its own: set it
	// here, with Runs 1, to have that run again.
	Seed uint64
}

// Equivalent runs the program of e with its input split, interleaved and cut into batches of 1 to
// 4096 records at random, on 1 to 4 subtasks, with checkpoints, crashes and restores to another
// parallelism at random places, and fails the test unless every run gives the same answer.
func Equivalent[T, U any](t *testing.T, e Equivalence[T, U]) {
	t.Helper()
	if e.Text == nil {
		e.Text = func(v U) string { return fmt.Sprintf("%+v", v) }
	}
	if e.Runs == 0 {
		e.Runs = 10
	}
	var want map[string]int
	if e.Want != nil {
		want = e.bag(e.Want)
	} else {
		t.Run("plain", func(t *testing.T) {
			Run(t, func(_ *testing.T, h *Harness) { want = e.bag(e.plain(h)) })
		})
	}
	for seed := e.Seed; seed < e.Seed+uint64(e.Runs); seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			Run(t, func(t *testing.T, h *Harness) {
				rng := rand.New(rand.NewPCG(seed, 0))
				if diff := differences(e.bag(e.disturbed(h, rng)), want); len(diff) > 0 {
					t.Errorf("%d rows differ, among them\n%s", len(diff), strings.Join(diff[:min(10, len(diff))], "\n"))
				}
			})
		})
	}
}

func (e *Equivalence[T, U]) bag(rows []U) map[string]int {
	m := make(map[string]int, len(rows))
	for _, r := range rows {
		m[e.Text(r)]++
	}
	return m
}

func differences(got, want map[string]int) (list []string) {
	for r, n := range want {
		if got[r] != n {
			list = append(list, fmt.Sprintf("%s: %d times instead of %d", r, got[r], n))
		}
	}
	for r, n := range got {
		if want[r] == 0 {
			list = append(list, fmt.Sprintf("%s: %d times instead of 0", r, n))
		}
	}
	slices.Sort(list)
	return list
}

// plain runs the program with everything in one batch of one part.
func (e *Equivalence[T, U]) plain(h *Harness) []U {
	in, out := h.Operator(e.Program)
	var p push[T]
	for _, ev := range e.Input {
		p.rows, p.times = append(p.rows, ev.Row), append(p.times, ev.Time)
	}
	in.parts[0].push(p)
	h.EndOfData()
	return out.Rows()
}

// disturbed runs the program as rng has it.
func (e *Equivalence[T, U]) disturbed(h *Harness, rng *rand.Rand) []U {
	in, out := h.PartedInput[T](1+rng.IntN(4)), h.Output[U]()
	h.Set("state.backend", []string{"fs", "memory", "pebble"}[rng.IntN(3)])
	h.Set("parallelism", fmt.Sprint(1+rng.IntN(4)))
	h.Start(func(j *stream.Job) { e.Program(j.Source("input", in)).Sink("output", out) })

	left := e.deal(rng, len(in.parts))
	total := 0
	for _, list := range left {
		total += len(list)
	}
	disturb := min(1, 8/float64(max(1, total))) // About 8 times a run.
	var newest *Snapshot
	for open := allParts(left); len(open) > 0; {
		n := rng.IntN(len(open))
		i := open[n]
		if len(left[i]) == 0 {
			in.parts[i].End()
			open = slices.Delete(open, n, n+1)
			continue
		}
		in.parts[i].push(left[i][0])
		left[i] = left[i][1:]
		if rng.IntN(4) == 0 {
			h.Settle()
		}
		if rng.Float64() >= disturb {
			continue
		}
		if rng.IntN(3) > 0 {
			newest = h.checkpoint(rng.IntN(4) > 0)
		}
		if rng.IntN(3) > 0 {
			h.Restore(newest, 1+rng.IntN(4))
		}
	}
	h.EndOfData()
	return out.Rows()
}

func allParts[T any](left [][]T) (list []int) {
	for i := range left {
		list = append(list, i)
	}
	return list
}

// deal gives each part its records in batches, with watermarks between them that none is behind.
func (e *Equivalence[T, U]) deal(rng *rand.Rand, parts int) [][]push[T] {
	input := slices.Clone(e.Input)
	if e.Order == nil {
		rng.Shuffle(len(input), func(i, j int) { input[i], input[j] = input[j], input[i] })
		if rng.IntN(3) > 0 { // Else any order; so watermarks stay low until the end.
			slices.SortStableFunc(input, func(a, b Event[T]) int { return int(a.Time/1000 - b.Time/1000) })
		}
	}
	lists := make([][]Event[T], parts)
	for _, ev := range input {
		i := rng.IntN(parts)
		if e.Order != nil {
			f := fnv.New32a()
			_, _ = f.Write([]byte(e.Order(&ev.Row)))
			i = int(f.Sum32() % uint32(parts))
		}
		lists[i] = append(lists[i], ev)
	}
	out := make([][]push[T], parts)
	marks := rng.IntN(20)     // A watermark behind every so many records, 0 for none.
	sizes := 1 + rng.IntN(13) // Batches are of 1 to 4096 records; in some runs all of them are small.
	for i, list := range lists {
		// lowest[n] is the lowest time from record n on.
		lowest := make([]int64, len(list)+1)
		lowest[len(list)] = record.MaxTime
		for n := len(list) - 1; n >= 0; n-- {
			lowest[n] = min(lowest[n+1], list[n].Time)
		}
		for n := 0; n < len(list); {
			size := min(1<<rng.IntN(sizes), len(list)-n)
			var p push[T]
			for range size {
				p.rows, p.times = append(p.rows, list[n].Row), append(p.times, list[n].Time)
				n++
				if marks > 0 && rng.IntN(marks) == 0 && lowest[n] != record.MaxTime && lowest[n] != record.MinTime {
					p.marks = append(p.marks, record.Mark{Kind: record.Watermark, Pos: int32(len(p.rows)), Time: lowest[n] - 1})
				}
			}
			out[i] = append(out[i], p)
		}
	}
	return out
}
