package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/coordinator/checkpoint"
	"github.com/cairnstream/cairn/coordinator/lifecycle"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/metastore"
	"github.com/cairnstream/cairn/snapshot"
)

// doCheckpoint carries out what the checkpoints' machine says.
func (l *jobLoop) doCheckpoint(a checkpoint.Action) {
	name := l.rec.spec.Name
	switch a := a.(type) {
	case checkpoint.Reserve:
		former := l.ids
		l.async("reserve", func(ctx context.Context) (any, error) {
			ctx, cancel := context.WithTimeout(ctx, l.c.opt.StoreTimeout)
			defer cancel()
			err := l.c.records.reserve(ctx, l.rec.id, a.Limit, former)
			return reserved{a.Limit, err}, err
		})
	case checkpoint.Trigger:
		l.trigger(a)
	case checkpoint.Publish:
		l.publish(a)
	case checkpoint.Resolve:
		p, saved := l.publications[a.ID], l.saved[a.ID]
		l.async("resolve", func(ctx context.Context) (any, error) { return l.commit(ctx, published{id: a.ID}, p, saved, true) })
	case checkpoint.Complete:
		l.complete(a)
	case checkpoint.AbortCheckpoint:
		for _, w := range l.workers() {
			l.c.send(w, job.Abort{Run: l.runOf(a.Attempt), Checkpoint: a.ID, Reason: string(a.Reason)})
		}
		l.aborted(a)
	case checkpoint.DropSavepoint:
		l.dropped(a)
	case checkpoint.Skipped:
		l.skipped++
		l.c.metrics.skipped.WithLabelValues(name, string(a.Reason)).Inc()
		l.log.Debug("checkpoint skipped", zap.String("reason", string(a.Reason)))
	case checkpoint.Answer:
		if a.Result != checkpoint.Accepted {
			l.log.Info("acknowledgement dropped", zap.Uint64("attempt", uint64(a.Attempt)), zap.Uint64("checkpoint", uint64(a.ID)),
				zap.Stringer("task", a.Task), zap.String("result", string(a.Result)))
		}
	case checkpoint.Release:
		objects := a.Objects
		if a.Manifest {
			objects = append(objects, snapshot.ManifestKey(l.c.opt.Cluster, l.rec.id, a.ID))
		}
		l.deletions.add(&deletion{objects: objects})
	case checkpoint.Discard:
		p, found := l.pointers[a.ID]
		if !found {
			p = l.rec.discarding[a.ID]
		}
		delete(l.pointers, a.ID)
		l.discarded(a.ID)
		l.deletions.add(&deletion{objects: a.Objects, checkpoint: a.ID, pointer: p, noted: !found})
	case checkpoint.FailJob:
		attempt := l.life.Attempt()
		l.later(func() { l.stepLife(lifecycle.CheckpointsFailed{Attempt: attempt, Failure: a.Failure}) })
	case checkpoint.Reply:
		if reply := l.tokens[a.Token]; reply != nil {
			delete(l.tokens, a.Token)
			reply <- a
		}
	}
}

func (l *jobLoop) trigger(a checkpoint.Trigger) {
	l.log.Info("checkpoint triggered", zap.Uint64("attempt", uint64(a.Attempt)), zap.Uint64("checkpoint", uint64(a.ID)), zap.Bool("final", a.Final))
	l.triggered(a)
	byWorker := map[job.WorkerID][]job.Task{}
	for _, t := range a.To {
		at, _ := l.life.Task(t)
		byWorker[at.Worker] = append(byWorker[at.Worker], t)
	}
	command := job.Trigger{
		Run: l.runOf(a.Attempt), Checkpoint: a.ID, Final: a.Final, Committed: a.Committed, Mode: l.rec.spec.Settings.CheckpointMode, Full: a.Full,
	}
	if s := a.Savepoint; s != nil {
		command.Savepoint, command.Stop = &s.Target, s.Stop
		for _, w := range l.workers() { // All are told where it goes; most of those with an enumerator get to know last.
			if byWorker[w] == nil {
				l.c.send(w, command)
			}
		}
	}
	for w, to := range byWorker {
		command.To = to
		l.c.send(w, command)
	}
}

func (l *jobLoop) acked(w job.WorkerID, r job.Ack) {
	now := time.Now()
	ev := checkpoint.Acked{Attempt: r.Attempt, ID: r.Checkpoint, Task: r.Task, Snapshot: checkpoint.Snapshot{Operators: r.Operators, Savepoint: r.Savepoint, Stats: r.Stats}}
	accepted := false
	actions := l.cp.Step(now, ev)
	for _, a := range actions {
		if answer, ok := a.(checkpoint.Answer); ok && answer.Result == checkpoint.Accepted {
			accepted = true
		}
	}
	if accepted {
		l.acknowledged(r.Checkpoint, TaskCheckpoint{Task: r.Task, Worker: w, Stats: r.Stats})
	}
	for _, a := range actions {
		l.doCheckpoint(a)
		l.dirty = true
	}
}

// publish writes the manifest and then commits. The two are one I/O, in this order: the transaction is
// sent only when the manifest is durable.
func (l *jobLoop) publish(a checkpoint.Publish) {
	s := l.rec.spec
	m := &snapshot.Manifest{
		Job: l.rec.id, JobName: s.Name, Program: s.Program, Version: s.Version, Checkpoint: a.ID, Attempt: a.Attempt,
		Epoch: l.c.Epoch(), Mode: s.Settings.CheckpointMode, Final: a.Final, Created: a.Triggered,
		K: s.Settings.MaxParallelism, Hash: snapshot.HashName, Fingerprint: l.fingerprint, Graph: s.Graph,
	}
	p := pointer{
		Epoch: l.c.Epoch(), Attempt: a.Attempt, Manifest: snapshot.ManifestKey(l.c.opt.Cluster, l.rec.id, a.ID), Mode: m.Mode,
		Triggered: a.Triggered, Duration: time.Since(a.Triggered), Tasks: len(a.Snapshots), Final: a.Final,
	}
	for _, snap := range a.Snapshots {
		p.Bytes += snap.Stats.Bytes
	}
	l.publications[a.ID] = p
	var saved *savepointRecord
	if a.Savepoint != nil {
		r := l.saving[a.Savepoint.ID]
		r.Checkpoint, r.Taken = a.ID, a.Triggered
		saved = &r
		l.saved[a.ID] = saved
	}
	l.async("publish", func(ctx context.Context) (any, error) {
		answer := published{id: a.ID}
		m.Operators = manifestOf(l.plan, a.Snapshots)
		began := time.Now()
		wctx, cancel := context.WithTimeout(ctx, l.c.opt.BlobTimeout)
		var err error
		if saved != nil {
			if err = l.writeSavepoint(wctx, saved, *m, a.Snapshots); err != nil {
				err = fmt.Errorf("savepoint: %w", err)
			}
		}
		if err == nil {
			_, err = l.c.opt.Manifests.WriteManifest(wctx, m)
		}
		cancel()
		answer.write = time.Since(began)
		if err != nil {
			answer.outcome, answer.err = checkpoint.PublishFailed, fmt.Errorf("write the manifest: %w", err)
			return answer, nil
		}
		return l.commit(ctx, answer, p, saved, false)
	})
}

// commit is the commit point. It is called again as long as the outcome is unknown: then an error of this
// call says nothing about the earlier ones.
func (l *jobLoop) commit(ctx context.Context, answer published, p pointer, saved *savepointRecord, again bool) (any, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, l.c.opt.StoreTimeout)
	defer cancel()
	ok, err := l.c.records.publish(ctx, l.rec.id, answer.id, p, saved)
	answer.commit = time.Since(began)
	switch {
	case errors.Is(err, errNotLeader):
		return nil, errNotLeader
	case err != nil && again, errors.Is(err, metastore.ErrOutcomeUnknown):
		answer.outcome, answer.err = checkpoint.PublishUnknown, err
	case err != nil:
		answer.outcome, answer.err = checkpoint.PublishFailed, fmt.Errorf("commit: %w", err)
	case !ok:
		answer.outcome, answer.err = checkpoint.PublishFailed, fmt.Errorf("another checkpoint %d is on record", answer.id)
	default:
		answer.outcome = checkpoint.PublishCommitted
	}
	return answer, nil
}

func (l *jobLoop) published(m published) {
	ev := checkpoint.Published{ID: m.id, Outcome: m.outcome}
	if m.err != nil {
		l.log.Warn("publication", zap.Uint64("checkpoint", uint64(m.id)), zap.String("outcome", string(m.outcome)), zap.Error(m.err))
		ev.Failure = &job.Failure{Class: job.ClassExternal, Message: m.err.Error()}
		if e := new(job.Error); errors.As(m.err, &e) {
			ev.Failure.Class = e.Class // Not the stores' fault: it may be the job's.
		}
	}
	if m.outcome != checkpoint.PublishUnknown {
		if m.outcome == checkpoint.PublishCommitted {
			l.pointers[m.id] = l.publications[m.id]
			if s := l.saved[m.id]; s != nil {
				delete(l.saving, s.ID)
				l.stopped = s.Stopped
				l.note("note", fmt.Sprintf("savepoint %s was taken: %s", s.ID, s.URL))
			}
			l.c.metrics.phase(l.rec.spec.Name, "publish", m.write)
			l.c.metrics.phase(l.rec.spec.Name, "commit", m.commit)
		}
		delete(l.publications, m.id)
		delete(l.saved, m.id)
	}
	l.stepCheckpoint(ev)
}

func (l *jobLoop) complete(a checkpoint.Complete) {
	l.log.Info("checkpoint completed", zap.Uint64("attempt", uint64(a.Attempt)), zap.Uint64("checkpoint", uint64(a.ID)),
		zap.Bool("final", a.Final), zap.Duration("duration", a.Duration), zap.Int64("bytes", a.Bytes))
	if l.life.Live() && l.life.Attempt() == a.Attempt {
		for _, w := range l.workers() {
			l.c.send(w, job.Complete{Run: l.runOf(a.Attempt), UpTo: a.ID})
		}
	}
	l.begun()
	l.completed(a)
	l.later(func() { l.stepLife(lifecycle.CheckpointCompleted{Attempt: a.Attempt}) })
}
