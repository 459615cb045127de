package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/metastore"
	"github.com/cairnstream/cairn/snapshot"
)

// maxRequestID bounds the length of a request id in bytes.
const maxRequestID = 200

func randomID() job.ID {
	var b [8]byte
	_, _ = rand.Read(b[:]) // Never fails.
	return job.ID(hex.EncodeToString(b[:]))
}

// Submit starts a job, or goes on with one; see the package comment about ids.
//
//   - A request id that was seen before gives the job that it made, whatever has become of it.
//   - A name that is in use by a job that is not over is refused.
//   - A name whose job failed, was stopped, or was cancelled and kept its checkpoints, goes on from the newest one,
//     under the same id, unless Fresh.
//   - Otherwise a new job begins, from nothing.
//   - With a snapshot to begin with, a new job begins, whatever there is of that name. It only reads the
//     snapshot; its own first checkpoint refers to nothing of it. Until then every start of it, also
//     by a later submission of its name, begins with the snapshot again.
//
// The job is durable when Submit returns.
func (c *Coordinator) Submit(ctx context.Context, s Submission) (Submitted, error) {
	s.Spec.Overwrite = s.Overwrite
	if err := s.Spec.Validate(); err != nil {
		return Submitted{}, errorf(ErrInvalid, "%w", err)
	}
	if _, err := job.NewPlan(s.Spec.Graph, s.Spec.Settings); err != nil {
		return Submitted{}, errorf(ErrInvalid, "%w", err)
	}
	if err := s.validate(); err != nil {
		return Submitted{}, err
	}
	if len(s.RequestID) > maxRequestID {
		return Submitted{}, errorf(ErrInvalid, "the request id has %d bytes: the limit is %d", len(s.RequestID), maxRequestID)
	}
	existing, err := c.claim(ctx, s)
	if err != nil {
		return Submitted{}, err
	}
	if existing != nil {
		v, _ := existing.look()
		return Submitted{Job: v.detail.Job, Existed: true, Notes: []string{fmt.Sprintf("job %s was started by an earlier request with this id", existing.id)}}, nil
	}
	// The rest is not the caller's to interrupt: once a record may have been written it must be known
	// whether it was, and only then may the name be submitted again.
	type answer struct {
		Submitted
		err error
	}
	answers := make(chan answer, 2)
	started := c.start("submit "+s.Spec.Name, func(ctx context.Context) error {
		defer c.release(s)
		got, err := c.record(ctx, s, func(err error) { answers <- answer{err: c.storeError("submit", err)} })
		answers <- answer{got, c.storeError("submit", err)}
		if errors.Is(err, errNotLeader) {
			return errNotLeader
		}
		return nil
	})
	if !started {
		c.release(s)
		return Submitted{}, errStopped()
	}
	select {
	case <-ctx.Done():
		return Submitted{}, ctx.Err()
	case a := <-answers:
		return a.Submitted, a.err
	}
}

// record puts a submission on record and starts its job. told hears, once, that the outcome is unknown.
func (c *Coordinator) record(ctx context.Context, s Submission, told func(error)) (Submitted, error) {
	r, former, notes, err := c.prepare(ctx, s)
	if err != nil {
		return Submitted{}, err
	}
	goesOn, forget := former != nil && former.id == r.id, ""
	if former != nil {
		forget = former.request
	}
	from := r.submission.From
	undo := func() {
		if !goesOn {
			c.unpinned(from, r.id)
		}
	}
	ok, err := c.records.insist(ctx, c.opt.StoreTimeout, func(ctx context.Context) (bool, error) {
		return c.records.putSubmission(ctx, r.id, r.submission, r.spec, goesOn, forget)
	}, func(err error) {
		c.log.Warn("it is not known whether a submission is on record", zap.String("name", s.Spec.Name), zap.Error(err))
		if told != nil {
			told(err)
			told = nil
		}
	})
	if err == nil && !ok {
		err = errorf(ErrFailed, "submission %d of job %s is on record already", r.submission.N, r.id)
	}
	if err != nil {
		undo()
		return Submitted{}, err
	}
	if from != nil && from.Pinned && !goesOn {
		// Again: the job that has it may have ended and begun anew meanwhile, without knowing of this one.
		if err := c.pin(ctx, from, r.id); err != nil {
			c.log.Warn("the checkpoint that a job begins with may not be kept", zap.String("job", string(r.id)), zap.Error(err))
		}
	}
	if former != nil && former.from != nil && former.from.Pinned && former.from != from {
		// The job that had the name does not begin with it any more.
		if err := c.records.unpin(ctx, former.from, former.id); err != nil {
			c.log.Warn("a checkpoint stays pinned", zap.String("job", string(former.id)), zap.Error(err))
		}
		c.unpinned(former.from, former.id)
	}
	if err := c.adopt(r, false); err != nil {
		return Submitted{}, err
	}
	c.mu.Lock()
	c.mu.names[s.Spec.Name] = r.id
	if forget != s.RequestID {
		delete(c.mu.requests, forget)
	}
	e := c.mu.jobs[r.id]
	c.mu.Unlock()
	c.log.Info("job submitted", zap.String("job", string(r.id)), zap.String("name", s.Spec.Name), zap.String("program", s.Spec.Program),
		zap.String("version", s.Spec.Version), zap.Uint64("checkpoint", uint64(r.submission.Resumed)))
	v, _ := e.look()
	resumed := r.submission.Resumed
	if resumed == 0 && from != nil {
		resumed = from.Checkpoint
	}
	return Submitted{Job: v.detail.Job, ResumedFrom: resumed, Notes: notes}, nil
}

// claim makes this the only submission of its name and request, or finds the job that the request
// made. It waits for another submission with the same request id.
func (c *Coordinator) claim(ctx context.Context, s Submission) (*entry, error) {
	for {
		c.mu.Lock()
		if c.mu.stopped {
			c.mu.Unlock()
			return nil, errStopped()
		}
		if id, ok := c.mu.requests[s.RequestID]; ok && s.RequestID != "" {
			e := c.mu.jobs[id]
			c.mu.Unlock()
			return e, nil
		}
		other := c.mu.asking[s.RequestID]
		if other == nil || s.RequestID == "" {
			break // With c.mu held.
		}
		c.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-other:
		}
	}
	defer c.mu.Unlock()
	if c.mu.submitting[s.Spec.Name] {
		return nil, errorf(ErrRefused, "another submission of job %q is under way", s.Spec.Name)
	}
	if e := c.mu.jobs[c.mu.names[s.Spec.Name]]; e != nil {
		if v, _ := e.look(); !v.detail.Job.State.Ended() {
			return nil, errorf(ErrRefused, "job %q is %s already, with id %s: cancel it first, or choose another name", s.Spec.Name, v.detail.Job.State, e.id)
		}
		if e.mail != nil && !e.mail.isClosed() {
			return nil, errorf(ErrRefused, "job %q (%s) has ended and its objects are still being deleted: try again soon", s.Spec.Name, e.id)
		}
	}
	c.mu.submitting[s.Spec.Name] = true
	if s.RequestID != "" {
		c.mu.asking[s.RequestID] = make(chan struct{})
	}
	return nil, nil
}

func (c *Coordinator) release(s Submission) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.submitting, s.Spec.Name)
	if done := c.mu.asking[s.RequestID]; done != nil {
		delete(c.mu.asking, s.RequestID)
		close(done)
	}
}

// former is the job that had the name.
type former struct {
	id      job.ID
	request string
	from    *source // That it began with.
}

// prepare decides whether the job goes on or begins, and with what. What it begins with is pinned.
func (c *Coordinator) prepare(ctx context.Context, s Submission) (*jobRecord, *former, []string, error) {
	c.mu.Lock()
	entry := c.mu.jobs[c.mu.names[s.Spec.Name]]
	c.mu.Unlock()
	r := &jobRecord{id: c.opt.NewID(), nextID: 1, checkpoints: map[job.CheckpointID]pointer{}, discarding: map[job.CheckpointID]pointer{}, pins: map[job.ID]job.CheckpointID{}}
	var notes []string
	var f *former
	var from *source
	adapt := s.Adapt
	if entry != nil {
		ctx, cancel := context.WithTimeout(ctx, c.opt.StoreTimeout)
		defer cancel()
		old, err := c.records.loadOne(ctx, entry.id)
		if err != nil {
			return nil, nil, nil, err
		}
		f = &former{id: old.id, request: old.submission.Request}
		newest := old.newest()
		f.from = old.submission.From
		what := fmt.Sprintf("job %s of this name, which has %s", old.id, endText(old.terminal))
		switch {
		case old.terminal == nil:
			return nil, nil, nil, errorf(ErrRefused, "job %q has not ended", s.Spec.Name)
		case s.From != "":
			if newest > 0 && (old.terminal.State != JobFinished || old.terminal.Stopped) {
				notes = append(notes, fmt.Sprintf("checkpoint %d of %s is left aside", newest, what))
			}
		case old.terminal.State == JobFinished && !old.terminal.Stopped:
		case newest == 0 && f.from != nil && !s.Fresh:
			r, from, adapt = old, f.from, old.submission.Adapt.merge(s.Adapt)
			r.terminal, r.cancel = nil, false
			notes = append(notes, fmt.Sprintf("begins again with %s, as %s, and left no checkpoint", from.Snapshot, what))
		case newest == 0:
			notes = append(notes, "starts from nothing: "+what+" and left no checkpoint")
		case s.Fresh:
			notes = append(notes, fmt.Sprintf("starts from nothing, as asked: checkpoint %d of %s is left aside", newest, what))
		case old.spec.Settings.MaxParallelism != s.Spec.Settings.MaxParallelism:
			return nil, nil, nil, errorf(ErrRefused, "max-parallelism is %d, and the state of %s is in %d key groups: keep that, or start with --fresh",
				s.Spec.Settings.MaxParallelism, what, old.spec.Settings.MaxParallelism)
		default:
			r = old
			r.terminal, r.cancel = nil, false
			if old.checkpoints[newest].Attempt < old.submission.First { // It is from before that was adapted.
				adapt = old.submission.Adapt.merge(s.Adapt)
			}
			notes = append(notes, fmt.Sprintf("goes on from checkpoint %d of %s", newest, what))
		}
	}
	r.submission = submission{
		N: r.submission.N + 1, Name: s.Spec.Name, Request: s.RequestID, Submitted: time.Now(), Resumed: r.newest(), Adapt: adapt,
		First: r.attempt.Attempt + 1,
	}
	r.spec, r.claimed = s.Spec, false
	more, err := c.begin(ctx, s, r, from)
	return r, f, append(notes, more...), err
}

// begin reads what the job of a record begins or goes on with, and refuses what cannot be restored.
func (c *Coordinator) begin(ctx context.Context, s Submission, r *jobRecord, from *source) (notes []string, err error) {
	var m *snapshot.Manifest
	switch {
	case s.From != "":
		if from, m, err = c.resolve(ctx, s, r.id); err == nil {
			notes = append(notes, fmt.Sprintf("begins with checkpoint %d of job %s (%s)", m.Checkpoint, m.Job, m.JobName))
			r.nextID = max(r.nextID, m.Checkpoint+1)
		}
	case from != nil:
		if m, err = c.loadSource(ctx, from); err != nil {
			err = sourceError(err)
		}
	case r.newest() > 0:
		ctx, cancel := context.WithTimeout(ctx, c.opt.BlobTimeout)
		defer cancel()
		if m, err = c.opt.Manifests.LoadManifest(ctx, r.checkpoints[r.newest()].Manifest); err != nil {
			return nil, nil // It is read again by the job, which waits for the store, and says what is wrong.
		}
	}
	r.submission.From = from
	if err != nil || m == nil {
		return nil, err
	}
	more, err := r.submission.Adapt.apply(m, s.Spec, m.Job == r.id)
	if err != nil && s.From != "" {
		c.unpinned(from, r.id)
	}
	return append(notes, more...), err
}

func endText(t *terminal) string {
	switch {
	case t == nil:
		return "not ended"
	case t.State == JobCancelled:
		return "been cancelled"
	case t.Stopped:
		return "been stopped with a savepoint"
	}
	return string(t.State)
}

func (j *jobRecord) newest() job.CheckpointID {
	var newest job.CheckpointID
	for n := range j.checkpoints {
		newest = max(newest, n)
	}
	return newest
}

// storeError says what an error of the metadata store means to a caller.
func (c *Coordinator) storeError(what string, err error) error {
	var k *kindError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &k):
		return err
	case errors.Is(err, metastore.ErrOutcomeUnknown):
		return errorf(ErrUnavailable, "%s: the metadata store did not answer, so it is not known whether it was carried out; repeat it with the same request id: %w", what, err)
	case errors.Is(err, errNotLeader):
		return errorf(ErrUnavailable, "%s: this JobManager has stopped leading", what)
	case errors.Is(err, context.Canceled):
		return errStopped()
	case errors.Is(err, metastore.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return errorf(ErrUnavailable, "%s: the metadata store is away: %w", what, err)
	}
	return errorf(ErrFailed, "%s: %w", what, err)
}
