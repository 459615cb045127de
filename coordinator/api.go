package coordinator

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/coordinator/checkpoint"
	"github.com/cairnstream/cairn/job"
)

// find resolves what a person calls a job: its id, its name (then the job that the name belongs to), or
// a unique prefix of its id. A name is looked at before a prefix.
func (c *Coordinator) find(ref string) (*entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.mu.jobs[job.ID(ref)]; e != nil {
		return e, nil
	}
	if e := c.mu.jobs[c.mu.names[ref]]; e != nil {
		return e, nil
	}
	var found []string
	for id := range c.mu.jobs {
		if ref != "" && strings.HasPrefix(string(id), ref) {
			found = append(found, string(id))
		}
	}
	slices.Sort(found)
	switch len(found) {
	case 0:
		return nil, errorf(ErrNotFound, "there is no job with id or name %q", ref)
	case 1:
		return c.mu.jobs[job.ID(found[0])], nil
	}
	return nil, errorf(ErrNotFound, "%q is the beginning of the ids of %d jobs: %s", ref, len(found), strings.Join(found, ", "))
}

// List lists jobs, newest first.
func (c *Coordinator) List(context.Context) ([]Job, error) {
	c.mu.Lock()
	out := make([]Job, 0, len(c.mu.jobs))
	for _, e := range c.mu.jobs {
		v, _ := e.look()
		out = append(out, v.detail.Job)
	}
	c.mu.Unlock()
	slices.SortFunc(out, func(a, b Job) int {
		return cmp.Or(b.Submitted.Compare(a.Submitted), cmp.Compare(a.ID, b.ID))
	})
	return out, nil
}

// Get gives all about a job.
func (c *Coordinator) Get(_ context.Context, ref string) (JobDetail, error) {
	e, err := c.find(ref)
	if err != nil {
		return JobDetail{}, err
	}
	v, _ := e.look()
	d := v.detail
	d.HotKeys = v.hotKeys()
	return d, nil
}

// Watch calls f with the job as it is and then after each change, one call at a time on the caller's
// goroutine, until the job has ended, f returns an error, which Watch returns as it is, or ctx is
// done. Events are those since the call before. A job that changes faster than f returns is seen less
// often; no event is left out that Get would show.
func (c *Coordinator) Watch(ctx context.Context, ref string, f func(JobDetail) error) error {
	e, err := c.find(ref)
	if err != nil {
		return err
	}
	seen := 0
	for {
		v, changed := e.look()
		d := v.detail
		d.Events = d.Events[min(max(seen-v.events, 0), len(d.Events)):]
		seen = v.events + len(v.detail.Events)
		if err := f(d); err != nil {
			return err
		}
		if d.Job.State.Ended() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.done:
			return errStopped()
		case <-changed:
		}
	}
}

// Cancel asks for the end of a job and returns before it has ended. That it was asked for is on
// record. A job that has ended is left as it is.
func (c *Coordinator) Cancel(ctx context.Context, ref string) (Job, error) {
	e, err := c.find(ref)
	if err != nil {
		return Job{}, err
	}
	v, _ := e.look()
	if v.detail.Job.State.Ended() {
		return v.detail.Job, nil
	}
	sctx, cancel := context.WithTimeout(ctx, c.opt.StoreTimeout)
	defer cancel()
	if err := c.records.putCancel(sctx, e.id, v.submission); err != nil {
		return Job{}, c.storeError("cancel", err)
	}
	e.mail.put(cancelAsked{})
	v, _ = e.look()
	return v.detail.Job, nil
}

// TriggerOptions say what kind of checkpoint is wanted; the zero value leaves it to the job's settings.
type TriggerOptions struct {
	Full        bool // It builds on no other checkpoint.
	Incremental bool // It builds on another one; refused when checkpoint.incremental is off.
}

// TriggerCheckpoint starts a checkpoint and waits for its end. It is ErrRefused if the job cannot take
// one as it stands, ErrFailed if the checkpoint failed.
func (c *Coordinator) TriggerCheckpoint(ctx context.Context, ref string, o TriggerOptions) (Checkpoint, error) {
	e, err := c.find(ref)
	if err != nil {
		return Checkpoint{}, err
	}
	v, _ := e.look()
	name := v.detail.Job.Name
	if e.mail == nil || v.detail.Job.State.Ended() {
		return Checkpoint{}, errorf(ErrRefused, "job %q is %s: it takes no checkpoints", name, v.detail.Job.State)
	}
	switch {
	case o.Full && o.Incremental:
		return Checkpoint{}, errorf(ErrInvalid, "a checkpoint is full or incremental, not both")
	case o.Incremental && !v.detail.Spec.Settings.Incremental:
		return Checkpoint{}, errorf(ErrRefused, "job %q takes no incremental checkpoints: its checkpoint.incremental is false", name)
	}
	reply := make(chan checkpoint.Reply, 1)
	e.mail.put(triggerAsked{o.Full, reply})
	r, err := c.await(ctx, reply)
	if err != nil {
		return Checkpoint{}, err
	}
	switch r.Verdict {
	case checkpoint.VerdictOff:
		return Checkpoint{}, errorf(ErrRefused, "job %q runs without checkpoints: its checkpoint.mode is off", name)
	case checkpoint.VerdictNotRunning:
		v, _ = e.look()
		return Checkpoint{}, errorf(ErrRefused, "job %q is %s: only a running job takes checkpoints", name, v.detail.Job.State)
	}
	// The reply comes before the view that shows what it says.
	for {
		v, changed := e.look()
		i := slices.IndexFunc(v.checkpoints, func(d *CheckpointDetail) bool { return d.Checkpoint.ID == r.ID })
		if i >= 0 && v.checkpoints[i].Checkpoint.State != CheckpointInProgress {
			found := v.checkpoints[i].Checkpoint
			if r.Verdict == checkpoint.VerdictFailed {
				return found, errorf(ErrFailed, "checkpoint %d failed: %s", r.ID, found.Reason)
			}
			return found, nil
		}
		select {
		case <-ctx.Done():
			return Checkpoint{}, ctx.Err()
		case <-c.done:
			return Checkpoint{}, errStopped()
		case <-changed:
		}
	}
}

// await waits for the answer of a job's checkpoint machine.
func (c *Coordinator) await(ctx context.Context, reply <-chan checkpoint.Reply) (checkpoint.Reply, error) {
	select {
	case <-ctx.Done():
		return checkpoint.Reply{}, ctx.Err()
	case <-c.done:
		return checkpoint.Reply{}, errStopped()
	case r := <-reply:
		return r, nil
	}
}

// ListCheckpoints lists what is known of a job's checkpoints, newest first.
func (c *Coordinator) ListCheckpoints(_ context.Context, ref string) ([]Checkpoint, error) {
	e, err := c.find(ref)
	if err != nil {
		return nil, err
	}
	v, _ := e.look()
	out := make([]Checkpoint, 0, len(v.checkpoints))
	for _, d := range slices.Backward(v.checkpoints) {
		out = append(out, d.Checkpoint)
	}
	return out, nil
}

// GetCheckpoint gives all about a checkpoint; id 0 is the newest completed one.
func (c *Coordinator) GetCheckpoint(ctx context.Context, ref string, id job.CheckpointID) (CheckpointDetail, error) {
	e, err := c.find(ref)
	if err != nil {
		return CheckpointDetail{}, err
	}
	v, _ := e.look()
	var found *CheckpointDetail
	for _, d := range v.checkpoints {
		if d.Checkpoint.ID == id || id == 0 && d.Checkpoint.State == CheckpointCompleted {
			found = d
		}
	}
	switch {
	case found == nil && id == 0:
		return CheckpointDetail{}, errorf(ErrNotFound, "job %q has no completed checkpoint", v.detail.Job.Name)
	case found == nil:
		return CheckpointDetail{}, errorf(ErrNotFound, "job %q has no checkpoint %d", v.detail.Job.Name, id)
	}
	out := *found
	if out.Checkpoint.State != CheckpointCompleted {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.BlobTimeout)
	defer cancel()
	m, err := c.opt.Manifests.LoadManifest(ctx, out.Checkpoint.Manifest)
	if err != nil {
		kind := ErrFailed
		if blob.IsTransient(err) {
			kind = ErrUnavailable
		}
		return out, errorf(kind, "read checkpoint %d of job %q: %w", out.Checkpoint.ID, v.detail.Job.Name, err)
	}
	out.Operators = sizesOf(v.plan, m)
	return out, nil
}

// Nodes lists the TaskManagers.
func (c *Coordinator) Nodes(context.Context) ([]Node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tasks := map[job.WorkerID]int{}
	for _, e := range c.mu.jobs {
		v, _ := e.look()
		for _, vx := range v.detail.Vertices {
			for _, t := range vx.Tasks {
				if t.Worker != "" && !t.State.Terminal() {
					tasks[t.Worker]++
				}
			}
		}
	}
	out := make([]Node, 0, len(c.mu.workers))
	for _, s := range c.slots(nil).Workers {
		w := c.mu.workers[s.ID]
		out = append(out, Node{Worker: w.info, FreeSlots: s.Free, Tasks: tasks[s.ID], Connected: w.connected, Heartbeat: w.heard})
	}
	return out, nil
}
