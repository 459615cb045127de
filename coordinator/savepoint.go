package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/coordinator/checkpoint"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
)

// Savepoint is one that was taken.
type Savepoint struct {
	ID         string
	URL        string // Of its folder.
	Job        job.ID
	Name       string           // Of the job.
	Checkpoint job.CheckpointID // That was taken with it.
	Taken      time.Time
	Bytes      int64
	Stopped    bool // The job ended with it.
}

// SavepointOptions say how a savepoint is taken.
type SavepointOptions struct {
	To   string // URL of the folder; empty: the cluster's place for savepoints.
	Stop bool   // The job ends with it.
}

// savepointRecord is a savepoint on record, or one that is on its way.
type savepointRecord struct {
	Savepoint
	Epoch  job.Epoch
	Target job.SavepointTarget
}

// marker is the object that reserves the folder of a savepoint until its manifest is there.
const marker = "_incomplete"

// The prefix of ids of savepoints tells them from names and ids of jobs.
const savepointPrefix = "sp-"

// TakeSavepoint takes a savepoint and waits for it; with Stop it waits for the end of the job too. It is ErrRefused if the job cannot
// take one as it stands or there is something at its place, ErrFailed if it failed: then nothing of it is left, and the job goes on.
// When ctx is done it goes on, and is on record once it is there.
func (c *Coordinator) TakeSavepoint(ctx context.Context, ref string, o SavepointOptions) (Savepoint, error) {
	e, err := c.find(ref)
	if err != nil {
		return Savepoint{}, err
	}
	v, _ := e.look()
	name := v.detail.Job.Name
	if e.mail == nil || v.detail.Job.State.Ended() {
		return Savepoint{}, errorf(ErrRefused, "job %q is %s: it takes no savepoints", name, v.detail.Job.State)
	}
	r := savepointRecord{Epoch: c.Epoch(), Savepoint: Savepoint{ID: savepointPrefix + string(randomID())[:12], Job: e.id, Name: name, Stopped: o.Stop}}
	if r.Target, r.URL, err = c.targetOf(o.To, r.Savepoint); err != nil {
		return Savepoint{}, err
	}
	if err := c.reserveFolder(ctx, r); err != nil {
		return Savepoint{}, err
	}
	reply := make(chan checkpoint.Reply, 1)
	e.mail.put(savepointAsked{r, reply})
	answer, err := c.await(ctx, reply)
	if err != nil {
		return Savepoint{}, err
	}
	switch answer.Verdict {
	case checkpoint.VerdictCompleted:
	case checkpoint.VerdictOff:
		return Savepoint{}, errorf(ErrRefused, "job %q runs without checkpoints: its checkpoint.mode is off", name)
	case checkpoint.VerdictTooMany:
		return Savepoint{}, errorf(ErrRefused, "%d savepoints of job %q wait already, which is the limit: try again when one is done", checkpoint.MaxSaves, name)
	case checkpoint.VerdictEnding:
		return Savepoint{}, errorf(ErrRefused, "job %q is about to end: its last checkpoint is JOB/latest", name)
	case checkpoint.VerdictFailed:
		why := string(answer.Reason)
		v, _ := e.look()
		if i := slices.IndexFunc(v.checkpoints, func(d *CheckpointDetail) bool { return d.Checkpoint.ID == answer.ID }); i >= 0 && v.checkpoints[i].Checkpoint.Reason != "" {
			why = v.checkpoints[i].Checkpoint.Reason
		}
		return Savepoint{}, errorf(ErrFailed, "the savepoint failed with checkpoint %d: %s; nothing is left of it, and the job goes on", answer.ID, why)
	default:
		v, _ = e.look()
		return Savepoint{}, errorf(ErrRefused, "job %q is %s: only a running job takes savepoints", name, v.detail.Job.State)
	}
	sctx, cancel := context.WithTimeout(ctx, c.opt.StoreTimeout)
	defer cancel()
	taken, err := c.records.savepoint(sctx, r.ID)
	if err != nil {
		return r.Savepoint, c.storeError("read the savepoint "+r.URL+", which was taken", err)
	}
	if o.Stop {
		return taken.Savepoint, c.awaitStop(ctx, e, taken.Savepoint)
	}
	return taken.Savepoint, nil
}

// awaitStop waits until a job has ended that was stopped with a savepoint.
func (c *Coordinator) awaitStop(ctx context.Context, e *entry, s Savepoint) error {
	first := job.Attempt(0)
	for {
		v, changed := e.look()
		j := v.detail.Job
		if first == 0 {
			first = j.Attempt
		}
		switch {
		case j.State == JobFinished:
			c.cleanedUp(ctx, e)
			return nil
		case j.State.Ended(), j.State == JobRestarting, j.State == JobFailing, j.Attempt > first:
			why := j.Reason
			if j.Failure != nil {
				why = j.Failure.String()
			}
			return errorf(ErrFailed, "savepoint %s was taken, but job %q failed while it ended and is %s: stop it again: %s", s.URL, j.Name, j.State, why)
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

// cleanedUp waits a little for what a job that has ended still deletes: until then its name cannot be submitted again.
func (c *Coordinator) cleanedUp(ctx context.Context, e *entry) {
	const patience, step = 10 * time.Second, 10 * time.Millisecond
	for waited := time.Duration(0); waited < patience && !e.mail.isClosed(); waited += step {
		select {
		case <-ctx.Done():
			return // It has ended, all the same.
		case <-c.done:
			return
		case <-time.After(step):
		}
	}
}

// targetOf is where a savepoint goes.
func (c *Coordinator) targetOf(to string, s Savepoint) (job.SavepointTarget, string, error) {
	own, ownErr := blob.ParseLocation(c.opt.BlobURL)
	if to == "" {
		t := job.SavepointTarget{Folder: fmt.Sprintf("%s/savepoints/%s/%s", c.opt.Cluster, s.Job, s.ID)}
		if ownErr != nil {
			return t, t.Folder, nil
		}
		at, err := own.Join(t.Folder)
		return t, at.String(), err
	}
	loc, err := blob.ParseLocation(to)
	var p snapshot.Folder
	if err == nil {
		p, err = snapshot.ParseFolder(loc)
	}
	switch {
	case err != nil:
		return job.SavepointTarget{}, "", errorf(ErrInvalid, "the URL of the savepoint's folder: %w", err)
	case p.Job != "":
		return job.SavepointTarget{}, "", errorf(ErrInvalid, "%s: checkpoints of jobs lie in such a folder: choose another one for a savepoint", to)
	}
	if folder, ok := c.within(loc); ok {
		return job.SavepointTarget{Folder: folder}, loc.String(), nil
	}
	return job.SavepointTarget{Store: p.Root.String(), Folder: p.Dir}, loc.String(), nil
}

// within gives the key in the cluster's store of a folder that lies there.
func (c *Coordinator) within(loc blob.Location) (string, bool) {
	own, err := blob.ParseLocation(c.opt.BlobURL)
	if err != nil {
		return "", false
	}
	root, at := strings.Trim(own.Path, "/"), strings.Trim(loc.Path, "/")
	own.Path, loc.Path = "", ""
	if root != "" {
		root += "/"
	}
	key, ok := strings.CutPrefix(at, root)
	return key, ok && own == loc && blob.CheckKey(key) == nil
}

// reserveFolder makes sure that nothing is where a savepoint goes, and that nothing else comes there. A note of it is durable
// before, so that a leader that dies leaves nothing behind.
func (c *Coordinator) reserveFolder(ctx context.Context, r savepointRecord) error {
	ctx, cancel := context.WithTimeout(ctx, c.opt.BlobTimeout)
	defer cancel()
	fail := func(err error) error {
		kind := ErrFailed
		if blob.IsTransient(err) || errors.Is(err, context.DeadlineExceeded) {
			kind = ErrUnavailable
		}
		return errorf(kind, "savepoint to %s: %w", r.URL, err)
	}
	store, done, err := c.other(ctx, r.Target.Store, false)
	if err != nil {
		return fail(err)
	}
	defer done()
	there := func(key string) error {
		return errorf(ErrRefused, "savepoint to %s: there is something already (%s), and nothing is overwritten: choose another folder", r.URL, key)
	}
	for info, err := range store.List(ctx, r.Target.Folder+"/") {
		if err != nil {
			return fail(err)
		}
		return there(info.Key)
	}
	switch err := store.PutIfAbsent(ctx, r.Target.Folder+"/"+marker, []byte(fmt.Sprintf("savepoint %s of job %s is on its way here\n", r.ID, r.Job))); {
	case errors.Is(err, blob.ErrExists):
		return there(marker)
	case err != nil:
		return fail(err)
	}
	if err := c.records.putSaving(ctx, r); err != nil {
		_ = store.Delete(ctx, r.Target.Folder+"/"+marker)
		return c.storeError("savepoint to "+r.URL, err)
	}
	return nil
}

// other opens the store with that URL, or the cluster's.
func (c *Coordinator) other(ctx context.Context, url string, readOnly bool) (blob.Store, func(), error) {
	if url == "" {
		return c.opt.Blob, func() {}, nil
	}
	return c.opt.OpenBlob(ctx, url, readOnly)
}

// dropSavepoint deletes what there is of a savepoint, and then the note of it. It does not give up.
func (c *Coordinator) dropSavepoint(r savepointRecord) {
	c.keepTrying(c.log, "delete savepoint "+r.ID, func(ctx context.Context) error {
		if err := c.deleteFolder(ctx, r.Target.Store, r.Target.Folder); err != nil {
			return err
		}
		return c.records.dropSaving(ctx, r.ID)
	})
}

// ListSavepoints lists the savepoints that were taken of a job, or of all jobs when ref is empty, newest first.
func (c *Coordinator) ListSavepoints(ctx context.Context, ref string) ([]Savepoint, error) {
	var of job.ID
	if ref != "" {
		e, err := c.find(ref)
		if err != nil {
			return nil, err
		}
		of = e.id
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.StoreTimeout)
	defer cancel()
	all, err := c.records.savepoints(ctx, c.records.taken(""))
	if err != nil {
		return nil, c.storeError("list savepoints", err)
	}
	var out []Savepoint
	for _, r := range all {
		if of == "" || r.Job == of {
			out = append(out, r.Savepoint)
		}
	}
	slices.SortFunc(out, func(a, b Savepoint) int { return cmp.Or(b.Taken.Compare(a.Taken), cmp.Compare(a.ID, b.ID)) })
	return out, nil
}

// DeleteSavepoint deletes a savepoint, objects and all. One that a job begins with, which has no checkpoint of its own yet, is refused.
func (c *Coordinator) DeleteSavepoint(ctx context.Context, id string) (Savepoint, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.StoreTimeout+c.opt.BlobTimeout)
	defer cancel()
	r, err := c.records.savepoint(ctx, id)
	if err != nil {
		return Savepoint{}, c.storeError("delete savepoint "+id, err)
	}
	c.mu.Lock()
	for _, e := range c.mu.jobs {
		v, _ := e.look()
		if j := v.detail.Job; j.Checkpoint == 0 && (j.From == r.ID || strings.TrimRight(j.From, "/") == r.URL) {
			err = errorf(ErrRefused, "savepoint %s: job %q (%s) begins with it and has no checkpoint of its own yet", id, j.Name, j.ID)
		}
	}
	c.mu.Unlock()
	if err != nil {
		return Savepoint{}, err
	}
	if err := c.records.beginDrop(ctx, r); err != nil {
		return Savepoint{}, c.storeError("delete savepoint "+id, err)
	}
	if err := c.deleteFolder(ctx, r.Target.Store, r.Target.Folder); err != nil {
		c.dropSavepoint(r)
		return Savepoint{}, errorf(ErrUnavailable, "savepoint %s is not on record any more, and its folder cannot be deleted now, which is tried again: %w", id, err)
	}
	return r.Savepoint, c.storeError("delete savepoint "+id, c.records.dropSaving(ctx, r.ID))
}

// writeSavepoint stores the manifest of a savepoint behind its objects, and gives up the marker. Tasks that had closed wrote
// nothing: what they have in earlier checkpoints is copied.
func (l *jobLoop) writeSavepoint(ctx context.Context, r *savepointRecord, m snapshot.Manifest, snapshots map[job.Task]checkpoint.Snapshot) error {
	store, done, err := l.c.other(ctx, r.Target.Store, false)
	if err != nil {
		return err
	}
	defer done()
	all := make(map[job.Task]checkpoint.Snapshot, len(snapshots))
	for t, s := range snapshots {
		if s.Savepoint != nil {
			s.Operators = s.Savepoint
		}
		all[t] = s
	}
	m.Operators = manifestOf(l.plan, all)
	moved := map[string]string{}
	for _, o := range snapshot.ObjectsOf(&m) {
		if strings.HasPrefix(o, r.Target.Folder+"/") {
			moved[o] = o
			continue
		}
		moved[o] = fmt.Sprintf("%s/copied.%d.%s", r.Target.Folder, len(moved), path.Base(o))
		if err := copyObject(ctx, l.c.opt.Blob, o, store, moved[o]); err != nil {
			return fmt.Errorf("copy %s: %w", o, err)
		}
	}
	m.Rename(func(o string) string { return moved[o] })
	if err := allThere(ctx, store, r, &m); err != nil {
		return err
	}
	if _, err := snapshot.WriteSavepoint(ctx, store, r.Target.Folder, &m); err != nil {
		return err
	}
	r.Bytes = 0
	for _, op := range m.Operators {
		for _, sub := range op.Subtasks {
			for _, h := range sub.States {
				r.Bytes += h.Length
			}
		}
	}
	return store.Delete(ctx, r.Target.Folder+"/"+marker)
}

// allThere makes sure that tasks wrote to where this JobManager looks: file:///DIR is another folder on another machine.
func allThere(ctx context.Context, store blob.Store, r *savepointRecord, m *snapshot.Manifest) error {
	there := map[string]bool{}
	for info, err := range store.List(ctx, r.Target.Folder+"/") {
		if err != nil {
			return err
		}
		there[info.Key] = true
	}
	for _, o := range snapshot.ObjectsOf(m) {
		if !there[o] {
			return fmt.Errorf("object %s was written and is not there: the JobManager and every TaskManager have to reach the same %s", path.Base(o), r.URL)
		}
	}
	return nil
}

// copyObject copies an object from one store to another.
func copyObject(ctx context.Context, from blob.Store, key string, to blob.Store, as string) error {
	body, info, err := from.Get(ctx, key)
	if err != nil {
		return err
	}
	defer body.Close()
	return to.Put(ctx, as, io.Reader(body), info.Size)
}

// savepointAsked takes a request.
func (l *jobLoop) savepointAsked(m savepointAsked) {
	l.lastToken++
	l.tokens[l.lastToken] = m.reply
	l.saving[m.record.ID] = m.record
	l.stepCheckpoint(checkpoint.Requested{
		Token: l.lastToken, Savepoint: &checkpoint.Savepoint{ID: m.record.ID, Target: m.record.Target, Stop: m.record.Stopped},
	})
}

// dropped deletes what there is of a savepoint that will not be.
func (l *jobLoop) dropped(a checkpoint.DropSavepoint) {
	r := l.saving[a.Savepoint.ID]
	delete(l.saving, a.Savepoint.ID)
	l.log.Info("savepoint dropped", zap.String("savepoint", r.ID), zap.String("url", r.URL))
	l.c.dropSavepoint(r)
}
