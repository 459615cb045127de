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
)

// doLife carries out what the life cycle's machine says.
func (l *jobLoop) doLife(a lifecycle.Action) {
	switch a := a.(type) {
	case lifecycle.Entered:
		l.entered(a)
	case lifecycle.Place:
		l.later(l.place)
	case lifecycle.Persist:
		if l.cp.Settled() {
			l.persist(a)
		} else {
			l.held = &a
		}
	case lifecycle.Deploy:
		l.deploy(a)
	case lifecycle.Start:
		for _, w := range a.Workers {
			l.c.send(w, job.Start{Run: l.runOf(a.Attempt)})
		}
	case lifecycle.AllRunning:
		l.allRunning(a)
	case lifecycle.Halted:
		l.later(func() { l.stepCheckpoint(checkpoint.Stopped{Attempt: a.Attempt}) })
	case lifecycle.CancelTasks:
		for _, w := range a.Workers {
			l.c.send(w, job.Cancel{Run: l.runOf(a.Attempt)})
		}
	case lifecycle.Freed:
		l.c.free(l.e)
	case lifecycle.Expel:
		for _, w := range a.Workers {
			l.c.lose(w, l.sessions[w], errors.New(a.Reason))
		}
	case lifecycle.ReadersDone:
		l.c.send(a.Worker, job.ReadersDone{Run: l.runOf(a.Attempt), Task: a.Task})
	case lifecycle.Finish:
		for _, w := range a.Workers {
			l.c.send(w, job.Finish{Run: l.runOf(a.Attempt)})
		}
	case lifecycle.Restart:
		l.c.metrics.restarts.WithLabelValues(l.rec.spec.Name, string(a.Cause)).Inc()
		l.log.Warn("job restarts", zap.Uint64("attempt", uint64(l.life.Attempt())), zap.String("cause", string(a.Cause)),
			zap.Stringer("failure", a.Failure), zap.Duration("pause", a.Delay))
		l.note("failure", fmt.Sprintf("attempt %d: %v; starting again %s", l.life.Attempt(), a.Failure, in(a.Delay)))
	case lifecycle.Lacking:
		l.log.Info("job waits", zap.String("lacks", a.Shortfall))
		l.note("note", a.Shortfall)
	case lifecycle.Conclude:
		l.conclude(a)
	}
}

func in(d time.Duration) string {
	if d == 0 {
		return "at once"
	}
	return "in " + d.Round(time.Millisecond).String()
}

func (l *jobLoop) entered(a lifecycle.Entered) {
	l.log.Info("job "+string(a.To), zap.Uint64("attempt", uint64(l.life.Attempt())), zap.String("from", string(a.From)), zap.String("reason", a.Reason))
	if a.To.Terminal() {
		return // Said when it is on record.
	}
	l.reason = a.Reason
	l.c.metrics.state(l.rec.spec.Name, JobState(a.To))
	text := string(a.To)
	if a.Reason != "" {
		text += ": " + a.Reason
	}
	l.note("state", text)
}

func (l *jobLoop) place() {
	plan, sessions, short := l.c.place(l.e, requestOf(l.rec.spec, l.rec.id, l.plan))
	if short != nil {
		l.stepLife(lifecycle.Placed{Shortfall: short.String()})
		return
	}
	l.sessions = sessions
	l.stepLife(lifecycle.Placed{Placements: plan.Placements})
	if s := l.life.State(); s != lifecycle.Deploying {
		l.c.free(l.e) // It did not want the slots any more.
	}
}

// persist makes an attempt durable and reads what it will be restored from. No publication is open, so
// the newest checkpoint is known.
func (l *jobLoop) persist(a lifecycle.Persist) {
	record := attemptRecord{Attempt: a.Attempt, Time: time.Now(), Started: l.started, Restarts: l.restarts()}
	former := l.onRecord
	l.onRecord = append(append([]job.Attempt(nil), former...), a.Attempt)
	newest := l.cp.Newest()
	key := l.pointers[newest].Manifest
	from := l.rec.submission.From
	l.async("attempt", func(ctx context.Context) (any, error) {
		answer := persisted{attempt: a.Attempt, key: key}
		sctx, cancel := context.WithTimeout(ctx, l.c.opt.StoreTimeout)
		defer cancel()
		if err := l.c.records.putAttempt(sctx, l.rec.id, record, former); err != nil {
			answer.err = err
			return answer, err
		}
		answer.durable = true
		var err error
		switch {
		case newest > 0:
			if answer.manifest, err = l.loadManifest(ctx, key); err != nil {
				err = fmt.Errorf("read checkpoint %d: %w", newest, err)
			}
		case from != nil:
			answer.key, answer.from = from.Manifest, from
			answer.manifest, err = l.c.loadSource(ctx, from)
		default:
			return answer, nil
		}
		if err == nil && l.rec.older(answer.manifest) {
			_, err = l.rec.submission.Adapt.apply(answer.manifest, l.rec.spec, answer.manifest.Job == l.rec.id)
		}
		if err != nil {
			answer.err, answer.refused = err, !passing(err)
		}
		return answer, nil
	})
}

func (l *jobLoop) persisted(m persisted) {
	if m.durable {
		l.onRecord = []job.Attempt{m.attempt}
	}
	switch {
	case m.err == nil:
		l.restore, l.restoreKey, l.restoreFrom = m.manifest, m.key, m.from
		l.stepLife(lifecycle.Persisted{Attempt: m.attempt})
	case m.refused:
		l.stepLife(lifecycle.RestoreRefused{Attempt: m.attempt, Failure: job.Failure{Class: job.ClassRefused, Message: m.err.Error()}})
	default:
		l.log.Warn("attempt cannot begin", zap.Uint64("attempt", uint64(m.attempt)), zap.Error(m.err))
		l.stepLife(lifecycle.PersistFailed{Attempt: m.attempt, Reason: m.err.Error()})
	}
}

func (l *jobLoop) deploy(a lifecycle.Deploy) {
	byWorker := map[job.WorkerID][]job.Task{}
	var order []job.WorkerID
	for _, p := range a.Placements {
		if byWorker[p.Worker] == nil {
			order = append(order, p.Worker)
		}
		byWorker[p.Worker] = append(byWorker[p.Worker], p.Task)
	}
	l.nextAttempt()
	l.stopped = false // What was to end it did not, and it runs on.
	l.restored = 0
	store := ""
	if l.restore != nil {
		l.restored = l.restore.Checkpoint
		text := fmt.Sprintf("attempt %d goes on from checkpoint %d", a.Attempt, l.restored)
		if f := l.restoreFrom; f != nil {
			text += fmt.Sprintf(" of job %s, %s", f.Job, f.Snapshot)
			store = f.Store
		}
		l.note("restore", text)
	}
	l.log.Info("deploy", zap.Uint64("attempt", uint64(a.Attempt)), zap.Int("tasks", len(a.Placements)),
		zap.Int("workers", len(order)), zap.Uint64("checkpoint", uint64(l.restored)))
	for _, w := range order {
		l.c.send(w, job.Deploy{
			Run: l.runOf(a.Attempt), Spec: l.rec.spec, Fingerprint: l.fingerprint, Placements: a.Placements,
			Tasks: byWorker[w], Restore: restoreFor(l.plan, l.restore, store, l.restoreKey, byWorker[w]),
		})
	}
	l.restore = nil // The tasks have it; a manifest may be large.
}

func (l *jobLoop) allRunning(a lifecycle.AllRunning) {
	if l.started.IsZero() {
		l.started = time.Now()
	}
	if a.Cause != "" {
		l.log.Info("job recovered", zap.Uint64("attempt", uint64(a.Attempt)), zap.String("cause", string(a.Cause)), zap.Duration("recovery", a.Recovery))
		l.note("note", fmt.Sprintf("recovered from %s in %v", a.Cause, a.Recovery.Round(time.Millisecond)))
	}
	topology := lifecycle.TopologyOf(l.plan)
	l.later(func() {
		l.stepCheckpoint(checkpoint.Started{Attempt: a.Attempt, Tasks: topology.Tasks, Enumerators: topology.Enumerators})
		for _, t := range a.AtEnd {
			l.stepCheckpoint(checkpoint.EndOfData{Attempt: a.Attempt, Task: t})
		}
	})
}

// conclude puts the end on record, and does not give up.
func (l *jobLoop) conclude(a lifecycle.Conclude) {
	t := terminal{
		Stopped: l.stopped && a.State == lifecycle.Finished, State: JobState(a.State), Failure: a.Failure, Ended: time.Now(), Started: l.started, Attempt: l.life.Attempt(),
		Restarts: int64(l.restarts()), Counters: l.totals(), Incidents: l.life.History(),
	}
	l.terminal = &t
	l.async("end", func(ctx context.Context) (any, error) {
		for {
			sctx, cancel := context.WithTimeout(ctx, l.c.opt.StoreTimeout)
			err := l.c.records.putTerminal(sctx, l.rec.id, l.rec.submission.N, t)
			cancel()
			if err == nil || errors.Is(err, errNotLeader) {
				return concluded{}, err
			}
			l.log.Warn("the end of the job cannot be put on record; it is tried again", zap.Error(err))
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(time.Second):
			}
		}
	})
}

// concluded tells everybody, and cleans up.
func (l *jobLoop) concluded() {
	l.ended = true
	l.reason = ""
	text := string(l.terminal.State)
	if f := l.terminal.Failure; f != nil {
		l.reason = f.String()
		text += ": " + l.reason
	}
	l.note("state", text)
	l.c.metrics.jobEnded(l.rec.spec.Name, l.terminal.State)
	if l.unwanted() {
		l.stepCheckpoint(checkpoint.Forget{})
	}
}
