package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"time"

	"github.com/cairnstream/cairn/blob"
	bloblocal "github.com/cairnstream/cairn/blob/local"
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
)

const (
	pauseLimit       = 5 // Milliseconds.
	pauseKeys        = 1_000_000
	pauseCheckpoints = 10
	pauseMerge       = 100 * time.Microsecond // What a task gives to merging after a batch.
)

// pauses are the longest steps of each kind, on the clock and in CPU time.
type pauses struct{ freeze, merge, batch step }

type step struct {
	wall, cpu time.Duration
	n         int
}

func (s *step) do(f func()) {
	wall, cpu := time.Now(), cpuOf(threadClock)
	f()
	s.wall = max(s.wall, time.Since(wall))
	s.cpu = max(s.cpu, cpuOf(threadClock)-cpu)
	s.n++
}

// figure judges the CPU time: a thread that had to wait for a core was not held up by its own work. On a quiet machine
// the clock says the same.
func (s step) figure(what string, limit float64) figure {
	return figure{
		What: what, Value: s.cpu.Seconds() * 1000, Unit: "ms", Limit: limit,
		Note: fmt.Sprintf("worst of %d in CPU time; on the clock %.2f ms", s.n, s.wall.Seconds()*1000),
	}
}

// measurePause does what a task does with a map state of 1 M keys, and times each step.
func measurePause(ctx context.Context, c config) ([]figure, error) {
	runtime.LockOSThread() // For the CPU time of a step.
	defer runtime.UnlockOSThread()
	store, err := bloblocal.Open(blob.Location{Scheme: blob.SchemeFile, Path: filepath.Join(c.dir, "pause")})
	if err != nil {
		return nil, err
	}
	numbers, err := codec.Default[uint64]()
	if err != nil {
		return nil, err
	}
	b, err := fs.Factory{}.New(ctx, statebackend.Params{
		Operator: "sum", Groups: job.GroupsOf(0, job.DefaultMaxParallelism, 1), K: job.DefaultMaxParallelism, MaxConcurrent: 1,
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = b.Close() }() // Memory only.
	hash := codec.NewHasher(numbers)
	sums, err := statebackend.OpenValue(b, statebackend.ValueDesc[uint64, uint64]{
		Name: "sum", Key: numbers, Value: numbers, Hash: func(k *uint64) (uint64, uint64) { h := hash(k); return h, h },
	})
	if err != nil {
		return nil, err
	}
	rows := make([]row, 1024)
	at := int64(0)
	batch := func() {
		fillRows(at, rows, pauseKeys)
		at += int64(len(rows))
		for i := range rows {
			h := hash(&rows[i].Key)
			p, _ := sums.Upsert(h, h, &rows[i].Key)
			*p += rows[i].Value
		}
	}
	for at < 20*pauseKeys {
		batch()
	}
	var p pauses
	for id := range job.CheckpointID(pauseCheckpoints) {
		if err := p.checkpoint(ctx, b, store, id+1, batch); err != nil {
			return nil, err
		}
	}
	return []figure{
		p.freeze.figure(fmt.Sprintf("freezing %d keys", sums.Len()), pauseLimit),
		p.merge.figure("a step of merging", pauseLimit),
		p.batch.figure("  a batch of 1024 records meanwhile, pages copied included", 0),
	}, nil
}

// checkpoint takes one while batches go on, and merges until nothing is left.
func (p *pauses) checkpoint(ctx context.Context, b statebackend.Backend, store blob.Store, id job.CheckpointID, batch func()) error {
	var frozen statebackend.Snapshot
	var err error
	p.freeze.do(func() { frozen, err = b.Freeze(id) })
	if err != nil {
		return err
	}
	stored := make(chan error, 1)
	go func() {
		err := storeFrozen(ctx, frozen, store, id)
		frozen.Release()
		stored <- err
	}()
	merging := true
	for done := false; merging || !done; {
		p.batch.do(batch)
		p.merge.do(func() { merging = b.Merge(pauseMerge) })
		if !done {
			select {
			case err = <-stored:
				done = true
			default:
			}
		}
	}
	b.Committed(id)
	return err
}

// storeFrozen writes one snapshot.
func storeFrozen(ctx context.Context, frozen statebackend.Snapshot, store blob.Store, id job.CheckpointID) error {
	w, err := snapshot.NewWriter(snapshot.WriterConfig{
		Store: store, Cluster: "bars", Job: "pause", Checkpoint: id, Attempt: 1, Epoch: 1, Task: job.Task{Vertex: "sum"},
	})
	if err != nil {
		return err
	}
	defer w.Close()
	_, err = frozen.Write(ctx, w.Operator("sum"))
	return errors.Join(err, w.Finish(ctx))
}
