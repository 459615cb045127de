package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cairnstream/cairn/bench/interval"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/watermark"
)

const (
	parallelProgram = "parallel"
	parallelSample  = 2 * time.Second // Of CPU time.
	parallelSpread  = 25              // Percent.
)

// parallelJob is the sum of sumJob, from as many splits as it has subtasks.
func parallelJob(j *stream.Job) {
	rows := j.Source("rows", datagen.Source[row]{Fill: func(first int64, rows []row) {
		made.Add(int64(len(rows)))
		fillRows(first, rows, sumKeys)
	}})
	runningSum(rows).Sink("out", tally[row]{tallyRows})
}

// measureParallel compares what a record costs at several parallelisms, whatever the number of cores.
func measureParallel(ctx context.Context, c config) ([]figure, error) {
	l, err := startLocal(ctx, "")
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.stop() }() // Nothing is kept of it.
	parallelisms := []int{1, 2, 4, 8}
	costs := make([][]float64, len(parallelisms))
	for range c.runs {
		for i, p := range parallelisms {
			set := func(s *job.Settings) { withoutCheckpoints(s); s.Parallelism = p }
			err := l.run(ctx, parallelProgram, nil, set, sumWarm, func(id job.ID) error {
				start := read(made.Load())
				err := l.waitFor(ctx, id, func() bool { return cpuOf(processClock)-start.cpu >= parallelSample })
				costs[i] = append(costs[i], start.to(read(made.Load())).cost())
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	var medians []float64
	note := "ns of CPU a record:"
	for i, p := range parallelisms {
		medians = append(medians, interval.Of(costs[i]).Median)
		note += fmt.Sprintf(" %.0f at %d", medians[i], p)
	}
	spread := 100 * (slices.Max(medians)/slices.Min(medians) - 1)
	return []figure{{What: "CPU of a record at parallelism 1, 2, 4, 8: spread", Value: spread, Unit: "%", Limit: parallelSpread, Note: note}}, nil
}

const (
	wideProgram     = "wide"
	wideParallelism = 100 // Two operators, all to all: 200 subtasks and 10,000 channels.
	wideWindow      = 15 * time.Second
	wideCPU         = 5   // Percent of a core.
	wideMemory      = 300 // MiB.
	wideWarm        = 10 * time.Second
)

// wideJob takes sums by an edge from all to all. Its argument is the rate of records.
func wideJob(j *stream.Job) {
	rows := j.Source("rows", datagen.Source[row]{Rate: float64(number64(j, "per-hour")) / 3600, Make: func(n int64, r *row) {
		*r = row{uint64(n), 1, uint64(n)}
	}}).Timestamps(func(r *row) time.Time { return time.UnixMilli(int64(r.Time)) }, watermark.Bounded(time.Second).Idle(time.Second))
	runningSum(rows).Sink("out", tally[row]{tallyRows})
}

// measureChannels measures what 10,000 channels cost: time while there is no data, and memory when all are in use.
func measureChannels(ctx context.Context, c config) (out []figure, err error) {
	for _, processes := range []int{1, 2} {
		figures, err := wide(ctx, c, processes)
		out = append(out, figures...)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

func wide(ctx context.Context, c config, processes int) ([]figure, error) {
	cl, err := startCluster(c, fmt.Sprintf("channels-%d", processes), processes, wideParallelism/processes)
	if err != nil {
		return nil, err
	}
	defer cl.stop()
	resident := func() (sum float64, err error) {
		for _, p := range cl.tms {
			n, err := residentOfProcess(p.PID())
			if err != nil {
				return 0, err
			}
			sum += n
		}
		return sum, nil
	}
	empty, err := resident()
	if err != nil {
		return nil, err
	}
	set := func(s *job.Settings) { s.Parallelism, s.CheckpointInterval = wideParallelism, time.Second }
	start := func(name string, perHour int) (job.ID, error) {
		id, err := submit(ctx, cl.client, name, wideProgram, map[string]string{"per-hour": strconv.Itoa(perHour)}, set)
		if err == nil {
			err = cl.waitUntil(ctx, id, "every task runs", allRun)
		}
		if err == nil {
			err = sleep(ctx, wideWarm)
		}
		return id, err
	}
	id, err := start("quiet", 1)
	if err != nil {
		return nil, err
	}
	before, err := cl.cpu()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := sleep(ctx, wideWindow); err != nil {
		return nil, err
	}
	after, err := cl.cpu()
	if err != nil {
		return nil, err
	}
	open, err := resident()
	if err != nil {
		return nil, err
	}
	used := 100 * (after - before).Seconds() / time.Since(began).Seconds()
	if _, err := cl.client.Cancel(ctx, string(id)); err != nil {
		return nil, err
	}
	if err := waitEnded(ctx, cl.client, id); err != nil {
		return nil, err
	}
	if _, err := start("busy", 3600*200_000); err != nil {
		return nil, err
	}
	full, err := resident()
	if err != nil {
		return nil, err
	}
	where := "in one process"
	cpuLimit, busyLimit := float64(wideCPU), float64(wideMemory)
	if processes > 1 { // Frames on their way come on top; the bars are about one process.
		where, cpuLimit, busyLimit = fmt.Sprintf("over %d processes", processes), 0, 0
	}
	return []figure{
		{
			What: "CPU of 200 subtasks without data, 10,000 channels, " + where, Value: used, Unit: "%", Limit: cpuLimit,
			Note: "a checkpoint every second; all TaskManagers together",
		},
		{
			What: "memory of 10,000 channels without data, " + where, Value: open - empty, Unit: "MiB", Limit: wideMemory,
			Note: fmt.Sprintf("%.0f MiB resident with 200 subtasks, %.0f before the job", open, empty),
		},
		{
			What: "memory of 10,000 channels in use, " + where, Value: full - empty, Unit: "MiB", Limit: busyLimit,
			Note: fmt.Sprintf("%.0f MiB resident with 200 k records/s and 200 subtasks, %.0f before the job", full, empty),
		},
	}, nil
}

const (
	timersProgram = "timers"
	timersDue     = 5_000_000
	timersAt      = 1_000_000_000 // Event time, beyond all records that set one.
	timersLimit   = 200           // Milliseconds.
	timersPause   = 20 * time.Second
)

// timersFired counts in this process.
var timersFired atomic.Int64

// timersJob sets a timer for each of so many keys, all at one time. The first source does so and ends; the other one
// holds the watermark back with its first record and lets it pass with its second.
func timersJob(j *stream.Job) {
	at := func(r *row) time.Time { return time.UnixMilli(int64(r.Time)) }
	many := j.Source("many", datagen.Source[row]{Count: timersDue, Make: func(n int64, r *row) {
		made.Add(1)
		*r = row{Key: uint64(n), Time: 1}
	}}).Timestamps(at, watermark.Monotonous())
	clock := j.Source("clock", datagen.Source[row]{NumSplits: 1, Rate: 1 / timersPause.Seconds(), Make: func(n int64, r *row) {
		*r = row{Key: timersDue + uint64(n), Time: 1 + uint64(n)*(timersAt+1)}
	}}).Timestamps(at, watermark.Monotonous())
	many.Union("both", clock).KeyBy(func(r *row) uint64 { return r.Key }).
		Process("timers", func(s *operator.States[uint64]) operator.Handler[uint64, row, row] {
			return operator.Handler[uint64, row, row]{
				Record: func(c *operator.KeyedContext[uint64, row], r *row) {
					if r.Key < timersDue {
						c.SetTimer(timersAt)
					}
				},
				Timer: func(*operator.KeyedContext[uint64, row]) { timersFired.Add(1) },
			}
		}).Sink("out", tally[row]{tallyRows})
}

// measureTimers has five million timers become due by one watermark, and takes a checkpoint as soon as the first fires.
func measureTimers(ctx context.Context, c config) ([]figure, error) {
	l, err := startLocal(ctx, "")
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.stop() }() // Nothing is kept of it.
	timersFired.Store(0)
	var worst, whole time.Duration
	var left int64
	err = l.run(ctx, timersProgram, nil, every(24*time.Hour), timersDue, func(id job.ID) error {
		if err := l.waitFor(ctx, id, func() bool { return timersFired.Load() > 0 }); err != nil {
			return err
		}
		start := time.Now()
		cp, err := l.client.TriggerCheckpoint(ctx, string(id), coordinator.TriggerOptions{})
		if err != nil {
			return err
		}
		d, err := l.client.GetCheckpoint(ctx, string(id), cp.ID)
		if err != nil {
			return err
		}
		whole = time.Since(start)
		left = timersDue - timersFired.Load()
		for _, t := range d.Tasks {
			worst = max(worst, t.Stats.Start+t.Stats.Align+t.Stats.Sync)
		}
		return l.waitFor(ctx, id, func() bool { return timersFired.Load() >= timersDue })
	})
	if err != nil {
		return nil, err
	}
	f := figure{
		What: "a barrier behind the watermark of 5 M timers", Value: worst.Seconds() * 1000, Unit: "ms", Limit: timersLimit,
		Note: fmt.Sprintf("from its trigger until the slowest task had taken its snapshot; %d timers were left when the checkpoint was complete, after %v",
			left, whole.Round(time.Millisecond)),
	}
	if left <= 0 {
		f.Failed = "every timer had fired before the checkpoint was complete, so the figure says nothing"
	}
	return []figure{f}, nil
}
