package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
)

const (
	checkpointEvery = time.Second
	// checkpointWindow is a multiple of checkpointEvery, so that every run has the same number of checkpoints.
	checkpointWindow = 4 * time.Second
)

func measureCheckpoints(ctx context.Context, c config) ([]figure, error) {
	l, err := startLocal(ctx, filepath.Join(c.dir, "checkpoints"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.stop() }() // Nothing is kept of it.
	var out []figure
	for _, size := range []struct {
		keys  int64
		limit float64
	}{{1_000_000, 10}, {10_000, 2}} {
		fs, err := checkpointsCost(ctx, c, l, size.keys, size.limit)
		out = append(out, fs...)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

func checkpointsCost(ctx context.Context, c config, l *local, keys int64, limit float64) ([]figure, error) {
	args := map[string]string{"keys": fmt.Sprint(keys)}
	var on, off, sizes, each, cores []float64
	var sync, completed float64
	for i := range c.runs {
		var with, without window
		var details []coordinator.CheckpointDetail
		withRun := func() error {
			return l.run(ctx, stateProgram, args, every(checkpointEvery), 4*keys+sumWarm, func(id job.ID) (err error) {
				if with, err = l.span(ctx, id); err != nil {
					return err
				}
				details, err = l.checkpoints(ctx, id)
				return err
			})
		}
		withoutRun := func() error {
			return l.run(ctx, stateProgram, args, withoutCheckpoints, 4*keys+sumWarm, func(id job.ID) (err error) {
				without, err = l.span(ctx, id)
				return err
			})
		}
		first, second := withRun, withoutRun
		if i%2 == 1 {
			first, second = second, first
		}
		if err := first(); err != nil {
			return nil, err
		}
		if err := second(); err != nil {
			return nil, err
		}
		on, off = append(on, with.cost()), append(off, without.cost())
		each = append(each, (with.cost()-without.cost())*float64(with.records)/1e6/(with.wall.Seconds()/checkpointEvery.Seconds()))
		cores = append(cores, with.cpu.Seconds()/with.wall.Seconds())
		for _, d := range details {
			completed++
			sizes = append(sizes, float64(d.Checkpoint.Bytes)/(1<<20))
			for _, t := range d.Tasks {
				sync = max(sync, t.Stats.Sync.Seconds()*1000)
			}
		}
		if c.verbose {
			fmt.Fprintf(os.Stderr, "checkpoints of %d keys: with %.1f ns, without %.1f ns, %.0f ms of CPU each, %.2f cores, %d completed, sync %.2f ms\n",
				keys, with.cost(), without.cost(), each[i], cores[i], len(details), sync)
		}
	}
	cost := ratios(on, off, 1)
	for i := range cost {
		cost[i] *= 100
	}
	iv := intervalOf(cost)
	return []figure{
		{
			What: fmt.Sprintf("a checkpoint every second, %d keys", keys), Value: iv.hi, Unit: "%", Limit: limit, Samples: cost,
			Note: fmt.Sprintf("median %.1f; %.1f ns a record with, %.1f without; %.1f MiB each, %.1f completed a run",
				iv.median, intervalOf(on).median, intervalOf(off).median, intervalOf(sizes).median, completed/float64(c.runs)),
		},
		{
			What: fmt.Sprintf("  CPU time of such a checkpoint, %d keys", keys), Value: intervalOf(each).median, Unit: "ms", Samples: each,
			Note: fmt.Sprintf("the job had %.2f cores: with fewer than it can use, a checkpoint is a larger part of its second", intervalOf(cores).median),
		},
		{What: fmt.Sprintf("  synchronous part of a snapshot, worst, %d keys", keys), Value: sync, Unit: "ms", Limit: pauseLimit, Note: "as the tasks report it"},
	}, nil
}

// span measures a job for checkpointWindow.
func (l *local) span(ctx context.Context, id job.ID) (window, error) {
	start := read(made.Load())
	if err := l.waitFor(ctx, id, func() bool { return time.Since(start.wall) >= checkpointWindow }); err != nil {
		return window{}, err
	}
	return start.to(read(made.Load())), nil
}

// checkpoints are the completed checkpoints of a job.
func (l *local) checkpoints(ctx context.Context, id job.ID) (out []coordinator.CheckpointDetail, err error) {
	list, err := l.client.ListCheckpoints(ctx, string(id))
	if err != nil {
		return nil, err
	}
	for _, cp := range list {
		if cp.State != coordinator.CheckpointCompleted && cp.State != coordinator.CheckpointSubsumed {
			continue
		}
		d, err := l.client.GetCheckpoint(ctx, string(id), cp.ID)
		if err != nil {
			continue // Its files may be gone already.
		}
		out = append(out, d)
	}
	return out, nil
}
