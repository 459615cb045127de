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
//   - A name whose job failed, or was cancelled and kept its checkpoints, goes on from the newest one,
//     under the same id, unless Fresh.
//   - Otherwise a new job begins, from nothing.
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
		return Submitted{}, err
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
	return Submitted{Job: v.detail.Job, ResumedFrom: r.submission.Resumed, Notes: notes}, nil
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
}

// prepare decides whether the job goes on or begins.
func (c *Coordinator) prepare(ctx context.Context, s Submission) (*jobRecord, *former, []string, error) {
	c.mu.Lock()
	entry := c.mu.jobs[c.mu.names[s.Spec.Name]]
	c.mu.Unlock()
	r := &jobRecord{id: c.opt.NewID(), nextID: 1, checkpoints: map[job.CheckpointID]pointer{}, discarding: map[job.CheckpointID]pointer{}}
	var notes []string
	var f *former
	if entry != nil {
		ctx, cancel := context.WithTimeout(ctx, c.opt.StoreTimeout)
		defer cancel()
		old, err := c.records.loadOne(ctx, entry.id)
		if err != nil {
			return nil, nil, nil, err
		}
		f = &former{old.id, old.submission.Request}
		newest := old.newest()
		what := fmt.Sprintf("job %s of this name, which has %s", old.id, endText(old.terminal))
		switch {
		case old.terminal == nil:
			return nil, nil, nil, errorf(ErrRefused, "job %q has not ended", s.Spec.Name)
		case old.terminal.State == JobFinished:
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
			notes = append(notes, fmt.Sprintf("goes on from checkpoint %d of %s", newest, what))
		}
	}
	r.submission = submission{N: r.submission.N + 1, Name: s.Spec.Name, Request: s.RequestID, Submitted: time.Now(), Resumed: r.newest()}
	r.spec = s.Spec
	return r, f, notes, nil
}

func endText(t *terminal) string {
	switch {
	case t == nil:
		return "not ended"
	case t.State == JobCancelled:
		return "been cancelled"
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
