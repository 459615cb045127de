package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/rpc"
	"github.com/cairnstream/cairn/serve"
)

// made counts the records that the source of the job in this process has made.
var made atomic.Int64

// local is a cluster in this process, with one TaskManager. It runs one job at a time.
type local struct {
	cluster *serve.LocalCluster
	client  *rpc.Client
	jobs    int
}

// startLocal starts one; its metadata are in memory unless dir is given.
func startLocal(ctx context.Context, dir string) (*local, error) {
	c, err := serve.StartLocal(ctx, serve.LocalConfig{
		Slots: 8, Listen: "127.0.0.1:0", HTTP: serve.Off, Dir: dir, InMemory: dir == "",
		Programs: cairn.NewPrograms(programs()...),
	})
	if err != nil {
		return nil, err
	}
	l := &local{cluster: c}
	if l.client, err = rpc.NewClient(rpc.ClientConfig{JobManagers: []string{c.Address()}}); err == nil {
		err = c.StartTaskManagers()
	}
	if err != nil {
		return nil, errors.Join(err, l.stop())
	}
	return l, nil
}

func (l *local) stop() error {
	if l.client != nil {
		_ = l.client.Close()
	}
	return l.cluster.Stop()
}

// submit starts a job of a program. Nothing of an earlier one is taken over.
func submit(ctx context.Context, c *rpc.Client, name, program string, args map[string]string, set func(*job.Settings)) (job.ID, error) {
	p := cairn.NewPrograms(programs()...)
	spec := job.Spec{Name: name, Program: program, Version: p.List()[0].Version, Args: args}
	bp, err := p.Build(spec)
	if err != nil {
		return "", err
	}
	spec.Graph, spec.Settings = bp.Graph, job.DefaultSettings()
	if err := spec.Settings.Apply(bp.Settings); err != nil {
		return "", err
	}
	if set != nil {
		set(&spec.Settings)
	}
	if err := spec.Validate(); err != nil {
		return "", err
	}
	sub, err := c.Submit(ctx, coordinator.Submission{Spec: spec, Fresh: true})
	if err != nil {
		return "", fmt.Errorf("submit %s: %w", name, err)
	}
	return sub.Job.ID, nil
}

// withoutCheckpoints is a setting.
func withoutCheckpoints(s *job.Settings) { s.CheckpointMode = job.Off }

// run starts a job, waits until its source has made warm records, calls measure, and cancels it.
func (l *local) run(ctx context.Context, program string, args map[string]string, set func(*job.Settings), warm int64, measure func(job.ID) error) error {
	runtime.GC()
	made.Store(0)
	l.jobs++
	id, err := submit(ctx, l.client, fmt.Sprintf("%s-%d", program, l.jobs), program, args, func(s *job.Settings) {
		s.OnCancel = "delete"
		if set != nil {
			set(s)
		}
	})
	if err != nil {
		return err
	}
	err = l.waitFor(ctx, id, func() bool { return made.Load() >= warm })
	if err == nil {
		err = measure(id)
	}
	if _, cerr := l.client.Cancel(ctx, string(id)); err == nil {
		err = cerr
	}
	if werr := waitEnded(ctx, l.client, id); err == nil {
		err = werr
	}
	return err
}

// sample measures a job until this process has used that much CPU time.
func (l *local) sample(ctx context.Context, program string, args map[string]string, warm int64, cpu time.Duration) (w window, err error) {
	err = l.run(ctx, program, args, withoutCheckpoints, warm, func(id job.ID) error {
		start := read(made.Load())
		if err := l.waitFor(ctx, id, func() bool { return cpuOf(processClock)-start.cpu >= cpu }); err != nil {
			return err
		}
		w = start.to(read(made.Load()))
		return nil
	})
	return w, err
}

// waitFor looks every few milliseconds whether cond holds, and now and then, since that allocates, whether the job
// is well.
func (l *local) waitFor(ctx context.Context, id job.ID, cond func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	looked := time.Now()
	for !cond() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if time.Since(looked) < 5*time.Second {
			continue
		}
		looked = time.Now()
		d, err := l.client.Get(ctx, string(id))
		if err != nil {
			return err
		}
		if d.Job.Failure != nil {
			return fmt.Errorf("job %s: %s", id, d.Job.Failure.Message)
		}
	}
	return nil
}

// waitEnded waits until nothing more happens to a job.
func waitEnded(ctx context.Context, c *rpc.Client, id job.ID) error {
	return c.Watch(ctx, string(id), func(coordinator.JobDetail) error { return nil })
}

// tally is a sink that does what the loops do with a record: it adds it up.
type tally[T any] struct {
	add func(sum uint64, b *record.Batch[T]) uint64
}

// Writer implements operator.Sink.
func (t tally[T]) Writer(context.Context, operator.SinkContext) (operator.Writer[T], error) {
	return &tallyWriter[T]{add: t.add}, nil
}

// Committer implements operator.Sink.
func (tally[T]) Committer(context.Context, operator.SinkContext) (operator.Committer, error) {
	return nil, nil
}

// TwoPhase implements operator.Sink.
func (tally[T]) TwoPhase() bool { return false }

// Validate implements operator.Sink.
func (tally[T]) Validate() error { return nil }

type tallyWriter[T any] struct {
	add func(uint64, *record.Batch[T]) uint64
	sum uint64
}

// Write implements operator.Writer.
func (w *tallyWriter[T]) Write(b *record.Batch[T]) error {
	w.sum = w.add(w.sum, b)
	return nil
}

// Prepare implements operator.Writer.
func (w *tallyWriter[T]) Prepare(job.CheckpointID) ([][]byte, error) { return nil, nil }

// State implements operator.Writer.
func (w *tallyWriter[T]) State() ([]byte, error) { return nil, nil }

// Close implements operator.Writer.
func (w *tallyWriter[T]) Close() error { return nil }
