package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"path/filepath"

	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/stream"
)

// loneRecord says where and when it was made.
type loneRecord struct {
	Key  uint64
	PID  int64
	Made int64 // Nanoseconds since 1970.
}

const (
	loneProgram = "lone"
	loneRecords = 2200 // Half of them cross.
	loneRate    = 100  // A second: each finds the stream idle, since the one before has left long ago.
	loneWanted  = 1000
	loneLimit   = 2 * time.Millisecond // Beside the flush timeout.
)

// loneJob sends a record now and then over a hash edge.
func loneJob(j *stream.Job) {
	j.Source("ticks", datagen.Source[loneRecord]{Count: loneRecords, Rate: loneRate, NumSplits: 1, Make: func(n int64, r *loneRecord) {
		*r = loneRecord{Key: uint64(n), PID: int64(os.Getpid()), Made: time.Now().UnixNano()}
	}}).
		KeyBy(func(r *loneRecord) uint64 { return r.Key }).
		Process("pass", func(*operator.States[uint64]) operator.Handler[uint64, loneRecord, loneRecord] {
			return operator.Handler[uint64, loneRecord, loneRecord]{Record: func(c *operator.KeyedContext[uint64, loneRecord], r *loneRecord) {
				c.Emit(*r)
			}}
		}).
		Sink("out", noteSink[loneRecord]{dir: j.Arg("dir"), see: func(n *note, r *loneRecord) {
			if r.PID != int64(n.PID) {
				n.Delays = append(n.Delays, time.Duration(time.Now().UnixNano()-r.Made))
			}
		}})
}

func measureLone(ctx context.Context, c config) ([]figure, error) {
	cl, err := startCluster(c, "lone", 2, 1)
	if err != nil {
		return nil, err
	}
	defer cl.stop()
	dir := filepath.Join(cl.dir, "notes")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var flush time.Duration
	id, err := submit(ctx, cl.client, "lone", loneProgram, map[string]string{"dir": dir}, func(s *job.Settings) {
		s.Parallelism = 2
		flush = s.FlushTimeout
	})
	if err != nil {
		return nil, err
	}
	if err := cl.waitFinished(ctx, id); err != nil {
		return nil, err
	}
	notes, err := readNotes(dir, 0)
	if err != nil {
		return nil, err
	}
	var delays []float64
	for _, n := range notes {
		for _, d := range n.Delays {
			delays = append(delays, d.Seconds()*1000)
		}
	}
	if len(delays) < loneWanted {
		return nil, fmt.Errorf("%d records crossed from one TaskManager to the other, want %d", len(delays), loneWanted)
	}
	slices.Sort(delays)
	at := func(q float64) float64 { return delays[int(q*float64(len(delays)-1))] }
	return []figure{{
		What: "a lone record between two TaskManagers, p99", Value: at(0.99), Unit: "ms", Limit: (flush + loneLimit).Seconds() * 1000,
		Note: fmt.Sprintf("of %d; p50 %.2f, max %.2f; flush timeout %v", len(delays), at(0.5), at(1), flush),
	}}, nil
}
