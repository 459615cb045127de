package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/stream"
)

const (
	idleProgram = "idle"
	idleSettle  = 3 * time.Second
	idleWindow  = 15 * time.Second
	idleCPU     = 1  // Percent of a core.
	idleMemory  = 80 // MiB.
)

// idleJob has a record at its start and then none for hours.
func idleJob(j *stream.Job) {
	rows := j.Source("rows", datagen.Source[row]{Rate: 1.0 / 3600, Make: func(n int64, r *row) {
		*r = row{uint64(n), 1, uint64(n)}
	}})
	runningSum(rows).Sink("out", tally[row]{tallyRows})
}

func measureIdle(ctx context.Context, c config) ([]figure, error) {
	cl, err := startCluster(c, "idle", 1, 2)
	if err != nil {
		return nil, err
	}
	defer cl.stop()
	id, err := submit(ctx, cl.client, "idle", idleProgram, nil, func(s *job.Settings) { s.Parallelism = 2 })
	if err != nil {
		return nil, err
	}
	if err := cl.waitUntil(ctx, id, "every task runs", allRun); err != nil {
		return nil, err
	}
	pid := cl.tms[0].PID()
	if err := sleep(ctx, idleSettle); err != nil {
		return nil, err
	}
	before, err := cpuOfProcess(pid)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	resident := 0.0
	for time.Since(start) < idleWindow {
		if err := sleep(ctx, time.Second); err != nil {
			return nil, err
		}
		now, err := residentOfProcess(pid)
		if err != nil {
			return nil, err
		}
		resident = max(resident, now)
	}
	after, err := cpuOfProcess(pid)
	if err != nil {
		return nil, err
	}
	used := 100 * (after - before).Seconds() / time.Since(start).Seconds()
	note := fmt.Sprintf("over %v, parallelism 2, default settings", idleWindow)
	return []figure{
		{What: "CPU of a TaskManager with an idle job", Value: used, Unit: "%", Limit: idleCPU, Note: note},
		{What: "resident memory of a TaskManager with an idle job", Value: resident, Unit: "MiB", Limit: idleMemory, Note: note},
	}, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
