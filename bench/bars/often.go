package main

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/stream"
)

const (
	oftenCheckpoints = 1000
	oftenInterval    = 100 * time.Millisecond
	oftenLimit       = 100 // Milliseconds, 99 of 100.
	oftenGrowth      = 1.2 // From a fifth of the checkpoints to all of them.

	emptyProgram     = "empty"
	emptyParallelism = 100 // Two operators: 200 subtasks.
	emptyStates      = 10
	emptyCheckpoints = 10
	emptyLimit       = 5 // Objects written for a checkpoint by a TaskManager.
)

// emptyJob has many states, and nothing comes.
func emptyJob(j *stream.Job) {
	states := func(name string) func(s *operator.States[uint64]) operator.Handler[uint64, row, row] {
		return func(s *operator.States[uint64]) operator.Handler[uint64, row, row] {
			var sums []*operator.ValueState[uint64]
			for i := range emptyStates {
				sums = append(sums, s.Value[uint64](name+strconv.Itoa(i)))
			}
			return operator.Handler[uint64, row, row]{Record: func(c *operator.KeyedContext[uint64, row], r *row) {
				for _, s := range sums {
					*s.Ref() += r.Value
				}
				c.Emit(*r)
			}}
		}
	}
	j.Source("rows", datagen.Source[row]{Rate: 1.0 / 3600, Make: func(n int64, r *row) { *r = row{uint64(n), 1, uint64(n)} }}).
		KeyBy(func(r *row) uint64 { return r.Key }).Process("first", states("a")).
		KeyBy(func(r *row) uint64 { return r.Value }).Process("second", states("b")).
		Sink("out", tally[row]{tallyRows})
}

// measureOften takes checkpoints of an idle job as often as the interval says, and looks at what is left of them.
func measureOften(ctx context.Context, c config) ([]figure, error) {
	cl, err := startCluster(c, "often", 1, 2)
	if err != nil {
		return nil, err
	}
	defer cl.stop()
	id, err := submit(ctx, cl.client, "often", idleProgram, nil, func(s *job.Settings) {
		s.Parallelism, s.CheckpointInterval, s.Retained = 2, oftenInterval, 5
	})
	if err != nil {
		return nil, err
	}
	durations := map[job.CheckpointID]float64{}
	var early, late sizes
	for len(durations) < oftenCheckpoints {
		list, err := cl.client.ListCheckpoints(ctx, string(id))
		if err != nil {
			return nil, err
		}
		for _, cp := range list {
			if cp.State == coordinator.CheckpointCompleted {
				durations[cp.ID] = cp.Duration.Seconds() * 1000
			}
		}
		if early.objects == 0 && len(durations) >= oftenCheckpoints/5 {
			if early, err = cl.sizes(); err != nil {
				return nil, err
			}
		}
		if err := sleep(ctx, oftenInterval); err != nil {
			return nil, err
		}
	}
	if late, err = cl.sizes(); err != nil {
		return nil, err
	}
	var all []float64
	for _, d := range durations {
		all = append(all, d)
	}
	slices.Sort(all)
	at := func(part float64) float64 { return all[int(part*float64(len(all)-1))] }
	return []figure{
		{What: "a checkpoint every 100 ms, idle job of 4 subtasks, embedded etcd: 99 of 100 take", Value: at(0.99), Unit: "ms", Limit: oftenLimit,
			Note: fmt.Sprintf("of %d; median %.1f, longest %.1f", len(all), at(0.5), at(1))},
		{What: "  objects at the end, for one after a fifth of them", Value: float64(late.objects) / float64(early.objects), Limit: oftenGrowth,
			Note: fmt.Sprintf("%d and %d; files of the metadata store %.1f and %.1f MB", early.objects, late.objects, early.metadata/1e6, late.metadata/1e6)},
	}, nil
}

// sizes are what a cluster keeps.
type sizes struct {
	objects  int
	metadata float64 // Bytes.
}

func (cl *cluster) sizes() (s sizes, err error) {
	err = filepath.WalkDir(filepath.Join(cl.dir, "jobmanager-blob"), func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			s.objects++
		}
		return nil // Objects come and go.
	})
	if err != nil {
		return s, err
	}
	return s, filepath.WalkDir(filepath.Join(cl.dir, "jobmanager-metadata"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		if info, err := e.Info(); err == nil {
			s.metadata += float64(info.Size())
		}
		return nil
	})
}

// measureEmpty counts the objects that TaskManagers write for checkpoints of many states with nothing in them.
func measureEmpty(ctx context.Context, c config) ([]figure, error) {
	cl, err := startCluster(c, "empty", 1, emptyParallelism)
	if err != nil {
		return nil, err
	}
	defer cl.stop()
	id, err := submit(ctx, cl.client, "empty", emptyProgram, nil, func(s *job.Settings) {
		s.Parallelism, s.CheckpointInterval = emptyParallelism, 500*time.Millisecond
	})
	if err != nil {
		return nil, err
	}
	from := func(n job.CheckpointID) (job.CheckpointID, float64, error) {
		var at job.CheckpointID
		err := cl.waitUntil(ctx, id, fmt.Sprintf("checkpoint %d is complete", uint64(n)), func(d coordinator.JobDetail) bool {
			at = d.Job.Checkpoint
			return at >= n
		})
		if err != nil {
			return 0, 0, err
		}
		puts, err := counter(ctx, "http://"+cl.tms[0].Ports["http"]+"/metrics", `cairn_blob_requests_total{op="put"`)
		return at, puts, err
	}
	first, before, err := from(2)
	if err != nil {
		return nil, err
	}
	last, after, err := from(first + emptyCheckpoints)
	if err != nil {
		return nil, err
	}
	return []figure{{
		What: "objects written for a checkpoint by a TaskManager, 200 subtasks of 10 states without entries", Value: (after - before) / float64(last-first), Limit: emptyLimit,
		Note: fmt.Sprintf("%d checkpoints", last-first),
	}}, nil
}

// counter sums the values of a metric whose lines begin with prefix.
func counter(ctx context.Context, url, prefix string) (sum float64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if line := lines.Text(); strings.HasPrefix(line, prefix) {
			v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %q: %w", url, line, err)
			}
			sum += v
		}
	}
	return sum, lines.Err()
}
