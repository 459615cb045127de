package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cairnstream/cairn/bench/interval"
	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
)

const (
	// checkpointEvery is how long a stretch is that is measured: one with a checkpoint at its beginning, or without.
	// Other machines on the same host make a stretch differ from the next by far more than a checkpoint costs, and more
	// so the further they are apart, so there are many short ones.
	checkpointEvery = time.Second
	// checkpointPairs is the number of comparisons within one job.
	checkpointPairs = 10
	// stretchesPerRun is the number of comparisons for each of the runs that were asked for.
	stretchesPerRun = 4
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

// checkpointsCost alternates stretches of one job with a checkpoint every second and without any. Two jobs that do
// the same differ by far more than a checkpoint costs (where their tables lie in memory, and with which hash seed), so
// both sides of a pair are the same job; several jobs take turns so that none decides the median.
func checkpointsCost(ctx context.Context, c config, l *local, keys int64, limit float64) ([]figure, error) {
	args := map[string]string{"keys": fmt.Sprint(keys)}
	var on, off, sizes, each, cores []float64
	var sync float64
	pair := func(id job.ID, onFirst bool) error {
		var without, with window
		order := []*window{&without, &with}
		if onFirst {
			slices.Reverse(order)
		}
		for _, w := range order {
			var err error
			if *w, err = l.span(ctx, id, w == &with); err != nil {
				return err
			}
		}
		on, off = append(on, with.cost()), append(off, without.cost())
		each = append(each, (with.cost()-without.cost())*float64(with.records)/1e6/with.wall.Seconds()*checkpointEvery.Seconds())
		cores = append(cores, with.cpu.Seconds()/with.wall.Seconds())
		if c.verbose {
			fmt.Fprintf(os.Stderr, "checkpoints of %d keys: with %.1f ns, without %.1f ns, %.0f ms of CPU each, %.2f cores\n",
				keys, with.cost(), without.cost(), each[len(each)-1], cores[len(cores)-1])
		}
		return nil
	}
	for done, all := 0, stretchesPerRun*c.runs; done < all; {
		err := l.run(ctx, stateProgram, args, every(24*time.Hour), 4*keys+sumWarm, func(id job.ID) error {
			pairs := min(checkpointPairs, all-done)
			for range pairs {
				if err := pair(id, done%2 == 0); err != nil {
					return err
				}
				done++
			}
			details, err := l.checkpoints(ctx, id, pairs)
			for _, d := range details {
				sizes = append(sizes, float64(d.Checkpoint.Bytes)/(1<<20))
				for _, t := range d.Tasks {
					sync = max(sync, t.Stats.Sync.Seconds()*1000)
				}
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	cost := ratios(on, off, 1)
	for i := range cost {
		cost[i] *= 100
	}
	iv := interval.Of(cost)
	return []figure{
		{
			What: fmt.Sprintf("a checkpoint every second, %d keys", keys), Value: iv.Hi, Unit: "%", Limit: limit, Samples: cost,
			Note: fmt.Sprintf("median %.1f; %.1f ns a record with, %.1f without; %.1f MiB each",
				iv.Median, interval.Of(on).Median, interval.Of(off).Median, interval.Of(sizes).Median),
		},
		{
			What: fmt.Sprintf("  CPU time of such a checkpoint, %d keys", keys), Value: interval.Of(each).Median, Unit: "ms", Samples: each,
			Note: fmt.Sprintf("the job had %.2f cores: with fewer than it can use, a checkpoint is a larger part of its second", interval.Of(cores).Median),
		},
		{What: fmt.Sprintf("  synchronous part of a snapshot, worst, %d keys", keys), Value: sync, Unit: "ms", Limit: pauseLimit, Note: "as the tasks report it"},
	}, nil
}

// span measures a job for checkpointEvery. The checkpoint, if any, is triggered at once.
func (l *local) span(ctx context.Context, id job.ID, checkpoint bool) (window, error) {
	start := read(made.Load())
	if checkpoint {
		if _, err := l.client.TriggerCheckpoint(ctx, string(id), coordinator.TriggerOptions{}); err != nil {
			return window{}, err
		}
	}
	err := l.waitFor(ctx, id, func() bool { return time.Since(start.wall) >= checkpointEvery })
	return start.to(read(made.Load())), err
}

// checkpoints are the completed checkpoints of a job whose files are still there. It is an error when fewer than want
// were completed.
func (l *local) checkpoints(ctx context.Context, id job.ID, want int) (out []coordinator.CheckpointDetail, err error) {
	list, err := l.client.ListCheckpoints(ctx, string(id))
	if err != nil {
		return nil, err
	}
	completed := 0
	for _, cp := range list {
		if cp.State != coordinator.CheckpointCompleted && cp.State != coordinator.CheckpointSubsumed {
			continue
		}
		completed++
		d, err := l.client.GetCheckpoint(ctx, string(id), cp.ID)
		if err != nil {
			continue // Its files may be gone already.
		}
		out = append(out, d)
	}
	if completed < want {
		return nil, fmt.Errorf("job %s: %d checkpoints were completed of %d", id, completed, want)
	}
	return out, nil
}
