package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cairnstream/cairn/bench/interval"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/internal/proc"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/stream"
)

const (
	steadyProgram = "steady"
	steadyRate    = 20_000 // Records per second.
	recoveryKills = 4      // Of each kind.
	recoveryLimit = 3      // Seconds.
)

// steadyJob is a running sum that never ends, at a moderate rate.
func steadyJob(j *stream.Job) {
	rows := j.Source("rows", datagen.Source[row]{Rate: steadyRate, Fill: func(first int64, rows []row) {
		fillRows(first, rows, sumKeys)
	}})
	runningSum(rows).Sink("out", noteSink[row]{dir: j.Arg("dir"), early: true})
}

func measureRecovery(ctx context.Context, c config) ([]figure, error) {
	cl, err := startCluster(c, "recovery", 2, 1)
	if err != nil {
		return nil, err
	}
	defer cl.stop()
	dir := filepath.Join(cl.dir, "notes")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	id, err := submit(ctx, cl.client, steadyProgram, steadyProgram, map[string]string{"dir": dir}, func(s *job.Settings) { s.Parallelism = 2 })
	if err != nil {
		return nil, err
	}
	err = cl.waitUntil(ctx, id, "a checkpoint is complete", func(d coordinator.JobDetail) bool { return d.Job.Checkpoint > 0 })
	if err != nil {
		return nil, err
	}
	// Without a slot to spare somebody must start another TaskManager, here at once.
	var replaced, spare []float64
	for range recoveryKills {
		d, err := cl.recover(ctx, id, dir, true)
		if err != nil {
			return nil, err
		}
		replaced = append(replaced, d.Seconds())
	}
	if _, err := cl.startTaskManager(1); err != nil {
		return nil, err
	}
	for range recoveryKills {
		d, err := cl.recover(ctx, id, dir, false)
		if err != nil {
			return nil, err
		}
		spare = append(spare, d.Seconds())
		if _, err := cl.startTaskManager(1); err != nil {
			return nil, err
		}
	}
	f := func(what string, s []float64) figure {
		iv := interval.Of(s)
		return figure{
			What: what, Value: iv.Hi, Unit: "s", Limit: recoveryLimit, Samples: s,
			Note: fmt.Sprintf("worst of %d kills, median %.2f", len(s), iv.Median),
		}
	}
	return []figure{
		f("kill -9 to the first record, with a slot to spare", spare),
		f("kill -9 to the first record, a new TaskManager is started", replaced),
	}, nil
}

// recover kills a TaskManager that has tasks, and tells how long it takes until a record is processed.
func (cl *cluster) recover(ctx context.Context, id job.ID, dir string, replace bool) (time.Duration, error) {
	if err := cl.waitUntil(ctx, id, "every task runs", allRun); err != nil {
		return 0, err
	}
	select { // Records flow for a while.
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(time.Second):
	}
	d, err := cl.client.Get(ctx, string(id))
	if err != nil {
		return 0, err
	}
	before := d.Job.Attempt
	victim, err := cl.busy(ctx)
	if err != nil {
		return 0, err
	}
	killed := time.Now()
	victim.Kill()
	if replace {
		if _, err := cl.startTaskManager(1); err != nil {
			return 0, err
		}
	}
	deadline := killed.Add(30 * time.Second)
	for time.Now().Before(deadline) {
		notes, err := readNotes(dir, 0)
		if err != nil {
			return 0, err
		}
		first := time.Time{}
		for _, n := range notes {
			if n.Attempt > before && (first.IsZero() || n.First.Before(first)) && !n.First.IsZero() {
				first = n.First
			}
		}
		if !first.IsZero() {
			return first.Sub(killed), nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return 0, errors.New("no record was processed within 30 s of the kill")
}

// busy is a TaskManager with tasks.
func (cl *cluster) busy(ctx context.Context) (*proc.Process, error) {
	nodes, err := cl.client.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		for _, p := range cl.tms {
			if n.Tasks > 0 && p.PID() == n.Worker.PID {
				return p, nil
			}
		}
	}
	return nil, errors.New("no TaskManager has tasks")
}
