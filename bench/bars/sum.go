package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/cairnstream/cairn/bench/interval"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/stream"
)

// row is a record of 24 bytes.
type row struct{ Key, Value, Time uint64 }

// sumKeys is the number of keys of the sum.
const sumKeys = 100_000

// fillRows makes rows whose keys are as good as random among so many.
func fillRows(first int64, rows []row, keys uint64) {
	for i := range rows {
		n := uint64(first) + uint64(i)
		z := n * 0x9E3779B97F4A7C15
		z ^= z >> 29
		rows[i] = row{Key: (z >> 32) * keys >> 32, Value: n, Time: n}
	}
}

func tallyRows(sum uint64, b *record.Batch[row]) uint64 {
	if b.Sel == nil {
		for i := range b.Rows {
			sum += b.Rows[i].Value ^ b.Rows[i].Time
		}
		return sum
	}
	for _, i := range b.Sel {
		sum += b.Rows[i].Value ^ b.Rows[i].Time
	}
	return sum
}

const sumProgram = "sum"

// sumJob is filter, map, key-by, running sum.
func sumJob(j *stream.Job) {
	rows := j.Source("rows", datagen.Source[row]{NumSplits: 1, Fill: func(first int64, rows []row) {
		made.Add(int64(len(rows)))
		fillRows(first, rows, sumKeys)
	}})
	runningSum(rows.
		Filter("some", func(r *row) bool { return r.Value&7 != 0 }).
		Map("double", func(r *row) row { return row{r.Key, r.Value * 2, r.Time} }),
	).Sink("out", tally[row]{tallyRows})
}

// runningSum emits, for each record, the sum of its key so far.
func runningSum(s stream.Stream[row]) stream.Stream[row] {
	return s.KeyBy(func(r *row) uint64 { return r.Key }).
		Process("sum", func(s *operator.States[uint64]) operator.Handler[uint64, row, row] {
			sum := s.Value[uint64]("sum")
			return operator.Handler[uint64, row, row]{Record: func(c *operator.KeyedContext[uint64, row], r *row) {
				p := sum.Ref()
				*p += r.Value
				c.Emit(row{r.Key, *p, r.Time})
			}}
		})
}

// loop is a program written by hand. It keeps its state from call to call.
type loop interface{ do(first int64, rows []row) }

// sumLoop does what sumJob does, as one writes it without much thought.
type sumLoop struct {
	sums  map[uint64]uint64
	check uint64
}

func (l *sumLoop) do(first int64, rows []row) {
	fillRows(first, rows, sumKeys)
	for i := range rows {
		r := &rows[i]
		if r.Value&7 == 0 {
			continue
		}
		m := row{r.Key, r.Value * 2, r.Time}
		s := l.sums[m.Key] + m.Value
		l.sums[m.Key] = s
		l.check += s ^ m.Time
	}
}

// pointerLoop looks each key up once.
type pointerLoop struct {
	sums  map[uint64]*uint64
	check uint64
}

func (l *pointerLoop) do(first int64, rows []row) {
	fillRows(first, rows, sumKeys)
	for i := range rows {
		r := &rows[i]
		if r.Value&7 == 0 {
			continue
		}
		m := row{r.Key, r.Value * 2, r.Time}
		p := l.sums[m.Key]
		if p == nil {
			p = new(uint64)
			l.sums[m.Key] = p
		}
		*p += m.Value
		l.check += *p ^ m.Time
	}
}

// makeLoop only makes the rows.
type makeLoop struct{}

func (makeLoop) do(first int64, rows []row) { fillRows(first, rows, sumKeys) }

// sampleLoop measures a loop over fresh state, as local.sample does a job.
func sampleLoop(l loop, warm int64, cpu time.Duration) window {
	runtime.GC()
	rows := make([]row, 1024)
	at := int64(0)
	step := func() {
		for range 64 {
			l.do(at, rows)
			at += int64(len(rows))
		}
	}
	for at < warm {
		step()
	}
	start := read(at)
	for cpuOf(processClock)-start.cpu < cpu {
		step()
	}
	return start.to(read(at))
}

const (
	sumWarm   = 3_000_000 // By then every key has a sum.
	sumSample = 600 * time.Millisecond
)

func measureSum(ctx context.Context, c config) ([]figure, error) {
	runtime.GOMAXPROCS(1)
	l, err := startLocal(ctx, "")
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.stop() }() // Nothing is kept of it.
	var jobs, loops, pointers, makes, allocs []float64
	for i := range c.runs {
		w, err := l.sample(ctx, sumProgram, nil, sumWarm, sumSample)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, w.cost())
		allocs = append(allocs, float64(w.mallocs)/float64(w.records))
		loops = append(loops, sampleLoop(&sumLoop{sums: map[uint64]uint64{}}, sumWarm, sumSample).cost())
		pointers = append(pointers, sampleLoop(&pointerLoop{sums: map[uint64]*uint64{}}, sumWarm, sumSample).cost())
		makes = append(makes, sampleLoop(makeLoop{}, 0, sumSample/4).cost())
		if c.verbose {
			fmt.Fprintf(os.Stderr, "sum: job %.1f ns, loop %.1f ns, with pointers %.1f ns, making %.1f ns\n", jobs[i], loops[i], pointers[i], makes[i])
		}
	}
	ratio, bare := interval.Of(ratios(jobs, loops, 0)), interval.Of(ratios(minus(jobs, makes), minus(loops, makes), 0))
	single := interval.Of(ratios(jobs, pointers, 0))
	return []figure{
		{
			What: "running sum, job : loop", Value: ratio.Hi, Unit: "x", Limit: 2, Samples: ratios(jobs, loops, 0),
			Note: fmt.Sprintf("median %.2f; job %.1f ns, loop %.1f ns a record, of which making it %.1f ns", ratio.Median, interval.Of(jobs).Median, interval.Of(loops).Median, interval.Of(makes).Median),
		},
		{What: "  the making of the records taken off both", Value: bare.Hi, Unit: "x", Note: fmt.Sprintf("median %.2f", bare.Median)},
		{What: "  against a loop over a map of pointers", Value: single.Hi, Unit: "x", Note: fmt.Sprintf("median %.2f; loop %.1f ns", single.Median, interval.Of(pointers).Median)},
		{What: "allocations at steady state", Value: interval.Of(allocs).Hi, Unit: "a record", Limit: allocated, Samples: allocs},
	}, nil
}

// allocated is what counts as no allocation: batches come back after a collection of garbage only.
const allocated = 0.0005

func minus(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] - b[i]
	}
	return out
}

const stateProgram = "state"

// stateJob is a running sum over as many keys as the argument says.
func stateJob(j *stream.Job) {
	keys := number64(j, "keys")
	rows := j.Source("rows", datagen.Source[row]{NumSplits: 1, Fill: func(first int64, rows []row) {
		made.Add(int64(len(rows)))
		fillRows(first, rows, keys)
	}})
	runningSum(rows).Sink("out", tally[row]{tallyRows})
}

// number64 reads an argument that is a number.
func number64(j *stream.Job, name string) uint64 {
	var n uint64
	if v := j.Arg(name); v != "" {
		if _, err := fmt.Sscan(v, &n); err != nil || n == 0 {
			j.Fail("argument %s is %q: want a number above 0", name, v)
		}
	}
	return n
}

// every makes checkpoints as often as that.
func every(d time.Duration) func(*job.Settings) {
	return func(s *job.Settings) { s.CheckpointInterval = d }
}

// ratios divides pairwise and subtracts less.
func ratios(a, b []float64, less float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i]/b[i] - less
	}
	return out
}
