package coordinator

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend/stored"
)

// source is the snapshot that a job begins with and that is not a checkpoint of its own. It is on record with the job, and is
// only read, unless it is claimed.
type source struct {
	Snapshot   string // As it was asked for.
	Store      string `json:",omitempty"` // URL of the store that has it; empty for the cluster's.
	Manifest   string // Its key.
	Job        job.ID
	Checkpoint job.CheckpointID
	Pinned     bool `json:",omitempty"` // It is a checkpoint of a job of this cluster, which keeps it meanwhile.
	Claim      bool `json:",omitempty"`
}

// resolve finds the snapshot that a person names, and reads its manifest. by is the job that is to begin with it.
func (c *Coordinator) resolve(ctx context.Context, s Submission, by job.ID) (*source, *snapshot.Manifest, error) {
	f := &source{Snapshot: s.From, Claim: s.Claim}
	var err error
	if strings.Contains(s.From, "://") {
		err = c.placeOf(f)
	} else if strings.HasPrefix(s.From, savepointPrefix) && !strings.Contains(s.From, "/") {
		err = c.savepointOf(ctx, f)
	} else {
		err = c.checkpointOf(f)
	}
	if err != nil {
		return nil, nil, err
	}
	if f.Pinned {
		if f.Claim {
			return nil, nil, errorf(ErrRefused, "%s is a checkpoint of job %s, which deletes it itself: start without --claim, and it stays as it is", f.Snapshot, f.Job)
		}
		if err := c.pin(ctx, f, by); err != nil {
			return nil, nil, err
		}
	}
	m, err := c.loadSource(ctx, f)
	if err == nil {
		f.Job, f.Checkpoint = m.Job, m.Checkpoint
		if f.Claim {
			err = claimable(f, m)
		}
	}
	if err != nil {
		c.unpinned(f, by)
		return nil, nil, sourceError(err)
	}
	return f, m, nil
}

// sourceError says what an error of reading a snapshot means to a caller.
func sourceError(err error) error {
	var k *kindError
	switch {
	case errors.As(err, &k):
		return err
	case errors.Is(err, blob.ErrNotExist):
		return errorf(ErrNotFound, "%w: want the folder or URL of a checkpoint or savepoint, which has a _metadata, JOB/latest or JOB/checkpoint/N", err)
	case passing(err):
		return errorf(ErrUnavailable, "%w", err)
	}
	return errorf(ErrRefused, "%w", err)
}

// placeOf fills in where a URL is.
func (c *Coordinator) placeOf(f *source) error {
	loc, err := blob.ParseLocation(f.Snapshot)
	var p snapshot.Folder
	if err == nil {
		p, err = snapshot.ParseFolder(loc)
	}
	if err != nil {
		f.Snapshot = "" // It may have a secret in it.
		return errorf(ErrInvalid, "the URL of the snapshot to begin with: %w", err)
	}
	if p.Job != "" && p.Checkpoint == 0 {
		return errorf(ErrInvalid, "%s is the folder of a job: want one of its checkpoints, %s/checkpoints/N, or JOB/latest for the newest one of a job of this cluster", f.Snapshot, strings.TrimRight(f.Snapshot, "/"))
	}
	f.Manifest = p.Manifest()
	folder, own := c.within(loc)
	if !own {
		f.Store = p.Root.String()
		return nil
	}
	f.Manifest = strings.TrimSuffix(folder, "/_metadata") + "/_metadata"
	if p.Cluster != c.opt.Cluster || f.Manifest != p.Manifest() {
		return nil
	}
	c.mu.Lock()
	e := c.mu.jobs[p.Job]
	c.mu.Unlock()
	if e != nil { // Else the cluster has forgotten it, and deletes nothing of it either.
		f.Job, f.Checkpoint, f.Pinned = p.Job, p.Checkpoint, true
	}
	return nil
}

// savepointOf finds a savepoint by its id.
func (c *Coordinator) savepointOf(ctx context.Context, f *source) error {
	ctx, cancel := context.WithTimeout(ctx, c.opt.StoreTimeout)
	defer cancel()
	r, err := c.records.savepoint(ctx, f.Snapshot)
	if err != nil {
		return c.storeError("find the savepoint", err)
	}
	f.Store, f.Manifest = r.Target.Store, r.Target.Folder+"/_metadata"
	return nil
}

// checkpointOf finds JOB/latest and JOB/checkpoint/N.
func (c *Coordinator) checkpointOf(f *source) error {
	ref, number, numbered := strings.Cut(f.Snapshot, "/checkpoint/")
	var id job.CheckpointID
	if numbered {
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil || n == 0 {
			return errorf(ErrInvalid, "snapshot %q: %q is not the number of a checkpoint", f.Snapshot, number)
		}
		id = job.CheckpointID(n)
	} else if ref, numbered = strings.CutSuffix(f.Snapshot, "/latest"); !numbered {
		return errorf(ErrInvalid, "snapshot %q: want a URL, the id of a savepoint, JOB/latest or JOB/checkpoint/N", f.Snapshot)
	}
	e, err := c.find(ref)
	if err != nil {
		return err
	}
	v, _ := e.look()
	if id == 0 {
		if id = v.detail.Job.Checkpoint; id == 0 {
			return errorf(ErrNotFound, "snapshot %s: job %q has no completed checkpoint", f.Snapshot, v.detail.Job.Name)
		}
	}
	f.Job, f.Checkpoint, f.Pinned = e.id, id, true
	f.Manifest = snapshot.ManifestKey(c.opt.Cluster, e.id, id)
	return nil
}

// pin keeps the checkpoint that a job begins with. The record of it is written with the submission.
func (c *Coordinator) pin(ctx context.Context, f *source, by job.ID) error {
	c.mu.Lock()
	e := c.mu.jobs[f.Job]
	c.mu.Unlock()
	var kept bool
	if e != nil && e.mail != nil && !e.mail.isClosed() {
		reply := make(chan bool, 1)
		e.mail.put(pinAsked{by, f.Checkpoint, reply})
		select {
		case kept = <-reply:
		case <-ctx.Done():
			return ctx.Err()
		case <-c.done:
			return errStopped()
		case <-time.After(c.opt.BlobTimeout): // Its loop ended between the two lines above, or waits for the store.
			return errorf(ErrUnavailable, "snapshot %s: job %s does not answer", f.Snapshot, f.Job)
		}
	} else {
		ctx, cancel := context.WithTimeout(ctx, c.opt.StoreTimeout)
		defer cancel()
		r, err := c.records.loadOne(ctx, f.Job)
		if err != nil {
			return err
		}
		_, kept = r.checkpoints[f.Checkpoint]
	}
	if !kept {
		return errorf(ErrNotFound, "snapshot %s: job %s keeps no completed checkpoint %d", f.Snapshot, f.Job, f.Checkpoint)
	}
	return nil
}

// unpinned tells the job that its checkpoint is not needed any more.
func (c *Coordinator) unpinned(f *source, by job.ID) {
	if f == nil || !f.Pinned {
		return
	}
	c.mu.Lock()
	e := c.mu.jobs[f.Job]
	c.mu.Unlock()
	if e != nil && e.mail != nil {
		e.mail.put(pinEnded{by})
	}
}

// loadSource reads the manifest of a snapshot.
func (c *Coordinator) loadSource(ctx context.Context, f *source) (*snapshot.Manifest, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.BlobTimeout)
	defer cancel()
	store, done, err := c.other(ctx, f.Store, true)
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", f.Snapshot, err)
	}
	defer done()
	s, err := stored.Open(ctx, store, f.Manifest, stored.Options{})
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", f.Snapshot, err)
	}
	m := s.Manifest
	if f.Checkpoint > 0 && (m.Job != f.Job || m.Checkpoint != f.Checkpoint) {
		return nil, fmt.Errorf("snapshot %s is checkpoint %d of job %s, and was checkpoint %d of job %s", f.Snapshot, m.Checkpoint, m.Job, f.Checkpoint, f.Job)
	}
	return m, nil
}

// claimable tells whether nobody else can need a snapshot: all of it lies in its own folder, which is not one of checkpoints,
// to whose objects later checkpoints may refer.
func claimable(f *source, m *snapshot.Manifest) error {
	folder := path.Dir(f.Manifest)
	if strings.HasSuffix("/"+folder, fmt.Sprintf("/jobs/%s/checkpoints/%d", m.Job, uint64(m.Checkpoint))) {
		return errorf(ErrRefused, "%s is a checkpoint, and others may refer to its objects: only a savepoint can be claimed; start without --claim, and it stays as it is", f.Snapshot)
	}
	for _, o := range snapshot.ObjectsOf(m) {
		if !strings.HasPrefix(o, folder+"/") {
			return errorf(ErrRefused, "%s refers to %s, which is not in its folder: only a savepoint that has all of its objects can be claimed; start without --claim, and it stays as it is", f.Snapshot, o)
		}
	}
	return nil
}

// begun is called when the job has a checkpoint of its own: what it began with is not needed any more. It may be called again.
func (l *jobLoop) begun() {
	f := l.rec.submission.From
	if f == nil || l.begunDone {
		return
	}
	l.begunDone = true
	id, n := l.rec.id, l.rec.submission.N
	if f.Pinned {
		l.c.keepTrying(l.log, "let go of a checkpoint", func(ctx context.Context) error {
			if err := l.c.records.unpin(ctx, f, id); err != nil {
				return err
			}
			l.c.unpinned(f, id)
			return nil
		})
	}
	if f.Claim && !l.rec.claimed {
		l.c.keepTrying(l.log, "delete the claimed savepoint", func(ctx context.Context) error {
			if err := l.c.deleteFolder(ctx, f.Store, path.Dir(f.Manifest)); err != nil {
				return err
			}
			return l.c.records.putClaimed(ctx, id, n)
		})
	}
}

// keepTrying repeats f with pauses until it succeeds or everything stops.
func (c *Coordinator) keepTrying(log *zap.Logger, what string, f func(context.Context) error) {
	c.start(what, func(ctx context.Context) error {
		for pause := minPause; ; pause = min(2*pause, maxPause) {
			fctx, cancel := context.WithTimeout(ctx, c.opt.BlobTimeout+c.opt.StoreTimeout)
			err := f(fctx)
			cancel()
			if err == nil || ctx.Err() != nil || errors.Is(err, errNotLeader) {
				return err
			}
			log.Warn(what+": it is tried again", zap.Duration("pause", pause), zap.Error(err))
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pause):
			}
		}
	})
}

// deleteFolder deletes a savepoint: its manifest first, so that nobody begins with what is left of it.
func (c *Coordinator) deleteFolder(ctx context.Context, url, folder string) error {
	store, done, err := c.other(ctx, url, false)
	if err != nil {
		return err
	}
	defer done()
	if err := store.Delete(ctx, folder+"/_metadata"); err != nil {
		return err
	}
	var keys []string
	for info, err := range store.List(ctx, folder+"/") {
		if err != nil {
			return err
		}
		keys = append(keys, info.Key)
	}
	if len(keys) == 0 {
		return nil
	}
	return store.Delete(ctx, keys...)
}

// older tells whether a snapshot is from before the job's newest submission, so that its adaptation counts.
func (r *jobRecord) older(m *snapshot.Manifest) bool {
	return m.Job != r.id || m.Attempt < r.submission.First
}
