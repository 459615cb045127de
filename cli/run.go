package cli

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/rpc"
	"github.com/cairnstream/cairn/serve"
)

func (a *App) runCommand() *cobra.Command {
	var r request
	var s coordinator.Submission
	var format string
	c := serve.LocalConfig{Listen: "127.0.0.1:0", HTTP: serve.Off}
	level := "error"
	o := &options{}
	a.jobFlags(o, &r)
	o.text(&c.Dir, "dir", "DIR", "keep metadata and snapshots there, so that another run goes on from the newest checkpoint (default: a temporary one)").flag = true
	o.yesNo(&s.Fresh, "fresh", "start from nothing, not from the newest checkpoint in --dir").flag = true
	a.fromFlags(o, &r.from)
	o.yesNo(&r.overwrite, "overwrite", "let sinks overwrite output that they do not know of").flag = true
	o.number(&c.TaskManagers, "taskmanagers", "number of TaskManagers in this process (default 1)").flag = true
	o.number(&c.Slots, "slots", "slots of each TaskManager (default: as many as the job needs)").flag = true
	o.size(&c.StateMemory, "state-memory", stateMemoryUsage).flag = true
	o.number(&c.Uploads, "upload-concurrency", uploadsUsage).flag = true
	o.rate(&c.UploadRate, "upload-rate", uploadRateUsage).flag = true
	o.text(&c.HTTP, "http", "HOST:PORT", "/metrics, /healthz, /readyz of the run (default off)").flag = true
	o.choice(&level, "log-level", "least level that is logged", logLevels...).flag = true
	o.output(&format)
	return a.command(&cobra.Command{
		Use: "run NAME", Short: "runs a program on a cluster in this process until it ends; the exit code tells how",
	}, o, func(ctx context.Context, args []string) error {
		spec, err := a.spec(args[0], r)
		if err != nil {
			return err
		}
		p, err := job.NewPlan(spec.Graph, spec.Settings)
		if err != nil {
			return wrongInput(err)
		}
		c.TaskManagers = max(c.TaskManagers, 1)
		if c.Slots == 0 {
			c.Slots = (p.Slots() + c.TaskManagers - 1) / c.TaskManagers
		}
		c = c.WithDefaults()
		if err := c.Validate(); err != nil {
			return wrongInput(err)
		}
		s.Spec, s.Overwrite = spec, r.overwrite
		if err := r.from.into(&s); err != nil {
			return err
		}
		c.Programs, c.Version, c.Log = a.Programs, Version, logger(a.Stderr, level)
		c.InMemory = c.Dir == ""
		defer a.deadline(ctx, c.ShutdownTimeout)()
		d, err := a.runLocal(ctx, c, s)
		if err != nil {
			return err
		}
		return a.ended(d, format)
	})
}

// errPart is why a run ends early whose cluster says when it is stopped what has failed.
var errPart = errors.New("a part of the cluster has failed")

// runLocal runs a job on a cluster of its own.
func (a *App) runLocal(ctx context.Context, c serve.LocalConfig, s coordinator.Submission) (d coordinator.JobDetail, err error) {
	l, err := serve.StartLocal(ctx, c)
	if err != nil {
		return d, err
	}
	defer func() {
		switch serr := l.Stop(); {
		case err == nil:
			err = serr
		case serr != nil && errors.Is(err, errPart):
			err = fmt.Errorf("%w: %w", err, serr)
		}
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-l.Failed():
			cancel(errPart)
		case <-ctx.Done():
		}
	}()
	jobs, err := rpc.NewClient(rpc.ClientConfig{JobManagers: []string{l.Address()}, ElectionPatience: time.Minute})
	if err != nil {
		return d, err
	}
	defer jobs.Close()

	// Before there are slots, so that what an earlier run left behind does not begin to run.
	id, err := a.leftover(ctx, jobs, s)
	if err != nil {
		return d, causeOf(ctx, err)
	}
	if err := l.StartTaskManagers(); err != nil {
		return d, err
	}
	if id == "" {
		if err := connected(ctx, jobs, c.TaskManagers); err != nil {
			return d, causeOf(ctx, err)
		}
		res, err := jobs.Submit(ctx, s)
		if err != nil {
			return d, causeOf(ctx, err)
		}
		a.notes(res)
		id = res.Job.ID
	}
	d, err = a.follow(ctx, jobs, string(id))
	if err != nil && ctx.Err() != nil && c.Dir != "" {
		fmt.Fprintf(a.Stderr, "interrupted: run it again with --dir %s to go on\n", c.Dir)
	}
	return d, causeOf(ctx, err)
}

// connected waits until n TaskManagers have registered.
func connected(ctx context.Context, jobs rpc.Jobs, n int) error {
	for {
		nodes, err := jobs.Nodes(ctx)
		if err != nil || len(nodes) >= n {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// leftover finds the job that an earlier run on the same directory did not finish and that s means too. One that was
// started in another way is cancelled, so that s may go on from its newest checkpoint.
func (a *App) leftover(ctx context.Context, jobs rpc.Jobs, s coordinator.Submission) (job.ID, error) {
	list, err := jobs.List(ctx)
	if err != nil {
		return "", err
	}
	for _, j := range list {
		if j.Name != s.Spec.Name || j.State.Ended() {
			continue
		}
		d, err := jobs.Get(ctx, string(j.ID))
		if err != nil {
			return "", err
		}
		if !s.Fresh && (s.From == "" || s.From == d.Job.From) && sameSpec(d.Spec, s.Spec) {
			if j.Checkpoint > 0 {
				fmt.Fprintf(a.Stderr, "job %q (%s) goes on from checkpoint %d of an earlier run (--fresh starts from nothing)\n", j.Name, j.ID, uint64(j.Checkpoint))
			} else {
				fmt.Fprintf(a.Stderr, "job %q (%s) of an earlier run had no checkpoint yet: it starts from nothing\n", j.Name, j.ID)
			}
			return j.ID, nil
		}
		if d.Spec.Settings.OnCancel == "delete" && !s.Fresh && s.From == "" && j.Checkpoint > 0 {
			return "", &codeError{code: Refused, err: fmt.Errorf(
				"job %q of an earlier run has not ended, was started in another way, and its checkpoint.on-cancel is delete: run it as before to go on, or with --fresh to lose checkpoint %d",
				j.Name, uint64(j.Checkpoint))}
		}
		if _, err := jobs.Cancel(ctx, string(j.ID)); err != nil {
			return "", err
		}
		if err := jobs.Watch(ctx, string(j.ID), func(coordinator.JobDetail) error { return nil }); err != nil {
			return "", err
		}
	}
	return "", nil
}

// sameSpec compares by content: an empty map and none are the same.
func sameSpec(a, b job.Spec) bool {
	norm := func(s job.Spec) job.Spec {
		if len(s.Args) == 0 {
			s.Args = nil
		}
		s.Graph = job.Graph{}
		return s
	}
	return a.Graph.Fingerprint() == b.Graph.Fingerprint() && reflect.DeepEqual(norm(a), norm(b))
}

// causeOf says why ctx ended, if that is why there is an error.
func causeOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
