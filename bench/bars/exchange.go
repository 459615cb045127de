package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cairnstream/cairn/bench/interval"
	"github.com/cairnstream/cairn/bench/transport"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/stream"
)

const (
	exchangeLimit = 8e6 // Records a second.
	exchangeRuns  = 3
)

var transportLoad = transport.Load{Records: 40_000_000, Times: true}

const edgeProgram = "edge"

// edgeJob sends records over a hash edge to a running sum.
func edgeJob(j *stream.Job) {
	count := number64(j, "records")
	rows := j.Source("rows", datagen.Source[row]{Count: int64(count), Fill: func(first int64, rows []row) {
		fillRows(first, rows, sumKeys)
	}})
	runningSum(rows).Sink("out", noteSink[row]{dir: j.Arg("dir")})
}

func measureExchange(ctx context.Context, c config) ([]figure, error) {
	var rates, costs []float64
	for range exchangeRuns {
		r, err := transportLoad.Measure(ctx, []string{c.self, "receive"})
		if err != nil {
			return nil, err
		}
		rates, costs = append(rates, r.RecordsPerSecond/1e6), append(costs, r.CPUPerRecord)
	}
	rate := interval.Of(rates)
	out := []figure{{
		What: "transport alone, two processes", Value: rate.Median, Unit: "M/s", Limit: exchangeLimit / 1e6, AtLeast: true, Samples: rates,
		Note: fmt.Sprintf("median of %d, best %.1f; %.0f ns of CPU a record, both processes", exchangeRuns, rate.Hi, interval.Of(costs).Median),
	}}
	f, err := measureEdge(ctx, c)
	return append(out, f...), err
}

// measureEdge runs a whole job over two TaskManagers.
func measureEdge(ctx context.Context, c config) ([]figure, error) {
	cl, err := startCluster(c, "exchange", 2, 2)
	if err != nil {
		return nil, err
	}
	defer cl.stop()
	const records = 40_000_000
	var rates, costs []float64
	for i := range exchangeRuns {
		dir := filepath.Join(cl.dir, fmt.Sprintf("notes-%d", i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		before, err := cl.cpu()
		if err != nil {
			return nil, err
		}
		id, err := submit(ctx, cl.client, fmt.Sprintf("edge-%d", i), edgeProgram, map[string]string{"records": fmt.Sprint(records), "dir": dir}, func(s *job.Settings) {
			s.Parallelism, s.CheckpointMode = 4, job.Off
		})
		if err != nil {
			return nil, err
		}
		if err := cl.waitFinished(ctx, id); err != nil {
			return nil, err
		}
		after, err := cl.cpu()
		if err != nil {
			return nil, err
		}
		notes, err := readNotes(dir, 0)
		if err != nil {
			return nil, err
		}
		var first, last time.Time
		var sum int64
		for _, n := range notes {
			if first.IsZero() || n.First.Before(first) {
				first = n.First
			}
			if n.Last.After(last) {
				last = n.Last
			}
			sum += n.Records
		}
		if sum != records {
			return nil, fmt.Errorf("the sinks saw %d records of %d", sum, int64(records))
		}
		rates = append(rates, records/last.Sub(first).Seconds()/1e6)
		costs = append(costs, float64(after-before)/records)
	}
	rate := interval.Of(rates)
	return []figure{{
		What: "a job over two TaskManagers: source, hash edge, sum", Value: rate.Median, Unit: "M/s", Limit: exchangeLimit / 1e6, AtLeast: true, Samples: rates,
		Note: fmt.Sprintf("median of %d, best %.1f; half of the records stay in their process; %.0f ns of CPU a record", exchangeRuns, rate.Hi, interval.Of(costs).Median),
	}}, nil
}
