package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/coordinator/checkpoint"
	"github.com/cairnstream/cairn/coordinator/lifecycle"
	"github.com/cairnstream/cairn/job"
)

const (
	eventsKept      = 100
	checkpointsKept = 50 // Besides those that are retained.
)

// progressState is what a job's loop keeps for people. What is in views is never changed, only
// replaced.
type progressState struct {
	reason   string
	started  time.Time
	restored job.CheckpointID

	events []JobEvent
	first  int // Number of events[0].

	history []*CheckpointDetail // By id.
	acks    map[job.CheckpointID][]TaskCheckpoint

	completes, fails, skipped int64
	last                      *Checkpoint

	counters map[job.Task]map[string]int64 // Of the present attempt.
	hot      map[job.Task][]job.HotKeys    // Of the present attempt.
	base     map[string]int64              // Of the attempts before.
	reader   map[string]bool               // Vertices.
	sink     map[string]bool
	earlier  int // Restarts under former leaders.
}

func (l *jobLoop) initProgress(found bool) {
	l.counters, l.base = map[job.Task]map[string]int64{}, map[string]int64{}
	l.hot = map[job.Task][]job.HotKeys{}
	l.acks = map[job.CheckpointID][]TaskCheckpoint{}
	l.reader, l.sink = map[string]bool{}, map[string]bool{}
	for _, v := range l.plan.Vertices {
		l.reader[v.Name] = v.Reader
		l.sink[v.Name] = len(v.Out) == 0
	}
	l.started, l.earlier = l.rec.attempt.Started, l.rec.attempt.Restarts
	for _, n := range slices.Sorted(maps.Keys(l.rec.checkpoints)) {
		p := l.rec.checkpoints[n]
		l.history = append(l.history, &CheckpointDetail{Checkpoint: Checkpoint{
			ID: n, State: CheckpointCompleted, Mode: p.Mode, Attempt: p.Attempt, Triggered: p.Triggered, Duration: p.Duration,
			Bytes: p.Bytes, Acknowledged: p.Tasks, Tasks: p.Tasks, Final: p.Final, Manifest: p.Manifest,
		}})
	}
	if n := len(l.history); n > 0 {
		last := l.history[n-1].Checkpoint
		l.last = &last
	}
	if t := l.rec.terminal; t != nil {
		l.started = t.Started
		if t.Failure != nil {
			l.reason = t.Failure.String()
		}
		maps.Copy(l.base, t.Counters)
		l.note("state", string(t.State))
		return
	}
	switch {
	case found:
		l.note("note", "taken over by this JobManager")
	case l.rec.submission.From != nil:
		l.note("note", "begins with "+l.rec.submission.From.Snapshot)
	case l.rec.submission.Resumed > 0:
		l.note("note", fmt.Sprintf("goes on from checkpoint %d", l.rec.submission.Resumed))
	default:
		l.note("state", string(JobCreated))
	}
}

func (l *jobLoop) note(kind, message string) {
	if n := len(l.events); n > 0 && l.events[n-1].Kind == kind && l.events[n-1].Message == message {
		return
	}
	// A view may share the slice: appending and cutting leave what it sees alone.
	l.events = append(l.events, JobEvent{time.Now(), kind, message})
	if cut := len(l.events) - eventsKept; cut > 0 {
		l.events = slices.Clone(l.events[cut:])
		l.first += cut
	}
	l.dirty = true
}

func (l *jobLoop) restarts() int { return l.earlier + l.life.Restarts() }

// count takes a task's sums.
func (l *jobLoop) count(r job.Counters) {
	l.counters[r.Task] = r.Values
	if r.Hot != nil {
		l.hot[r.Task] = r.Hot
	}
	l.dirty = true
}

// nextAttempt adds the sums of the attempt before to those of all before it. Its tasks may report until
// then.
func (l *jobLoop) nextAttempt() {
	l.base = l.totals()
	clear(l.counters)
	clear(l.hot)
}

func (l *jobLoop) totals() map[string]int64 {
	out := maps.Clone(l.base)
	for t, values := range l.counters {
		for k, n := range values {
			if k == "records_in" && !l.reader[t.Vertex] || k == "records_out" && !l.sink[t.Vertex] {
				continue
			}
			out[k] += n
		}
	}
	return out
}

func (l *jobLoop) triggered(a checkpoint.Trigger) {
	tasks := lifecycle.TopologyOf(l.plan).Tasks
	l.history = append(slices.Clip(l.history), &CheckpointDetail{Checkpoint: Checkpoint{
		ID: a.ID, State: CheckpointInProgress, Mode: l.rec.spec.Settings.CheckpointMode, Attempt: a.Attempt,
		Triggered: time.Now(), Tasks: len(tasks), Final: a.Final,
	}})
	old := 0
	for _, d := range l.history {
		if d.Checkpoint.State != CheckpointCompleted {
			old++
		}
	}
	l.history = slices.DeleteFunc(slices.Clone(l.history), func(d *CheckpointDetail) bool {
		over := old > checkpointsKept && d.Checkpoint.State != CheckpointCompleted && d.Checkpoint.State != CheckpointInProgress
		if over {
			old--
		}
		return over
	})
}

// change replaces one checkpoint of the history.
func (l *jobLoop) change(id job.CheckpointID, f func(*CheckpointDetail)) {
	for i, d := range l.history {
		if d.Checkpoint.ID == id {
			changed := *d
			f(&changed)
			l.history = slices.Clone(l.history)
			l.history[i] = &changed
			return
		}
	}
}

func (l *jobLoop) acknowledged(id job.CheckpointID, t TaskCheckpoint) {
	l.acks[id] = append(l.acks[id], t)
	l.change(id, func(d *CheckpointDetail) { d.Checkpoint.Acknowledged++ })
}

func (l *jobLoop) completed(a checkpoint.Complete) {
	l.completes++
	name := l.rec.spec.Name
	l.change(a.ID, func(d *CheckpointDetail) {
		c := &d.Checkpoint
		c.State, c.Duration, c.Bytes, c.Final, c.Acknowledged = CheckpointCompleted, a.Duration, a.Bytes, a.Final, c.Tasks
		c.Manifest = l.pointers[a.ID].Manifest
		d.Tasks = l.acks[a.ID]
		last := *c
		l.last = &last
		var worst job.CheckpointStats
		for _, t := range d.Tasks {
			worst.Start, worst.Align = max(worst.Start, t.Stats.Start), max(worst.Align, t.Stats.Align)
			worst.Sync, worst.Async = max(worst.Sync, t.Stats.Sync), max(worst.Async, t.Stats.Async)
			worst.Upload = max(worst.Upload, t.Stats.Upload)
		}
		for phase, took := range map[string]time.Duration{
			"trigger": worst.Start, "align": worst.Align, "sync": worst.Sync, "async": worst.Async, "upload": worst.Upload,
		} {
			l.c.metrics.phase(name, phase, took)
		}
	})
	delete(l.acks, a.ID)
	l.c.metrics.checkpointCompleted(name, l.rec.spec.Settings.Incremental, a.Bytes, time.Now())
	text := fmt.Sprintf("checkpoint %d completed in %v, %d bytes", a.ID, a.Duration.Round(time.Millisecond), a.Bytes)
	if a.Final {
		text += ", the final one"
	}
	l.note("checkpoint", text)
}

func (l *jobLoop) aborted(a checkpoint.AbortCheckpoint) {
	reason := string(a.Reason)
	if a.Failure != nil {
		reason += ": " + a.Failure.String()
	}
	if len(a.Waiting) > 0 && a.Reason == checkpoint.ReasonExpired {
		var names []string
		for _, t := range a.Waiting {
			names = append(names, t.String())
		}
		reason += ": no answer from " + strings.Join(names, ", ")
	}
	l.change(a.ID, func(d *CheckpointDetail) {
		d.Checkpoint.State, d.Checkpoint.Reason, d.Checkpoint.Duration = CheckpointFailed, reason, time.Since(d.Checkpoint.Triggered)
		if a.Reason == checkpoint.ReasonSubsumed {
			d.Checkpoint.State = CheckpointSubsumed
		}
		d.Tasks = l.acks[a.ID]
	})
	delete(l.acks, a.ID)
	if a.Reason != checkpoint.ReasonSubsumed {
		l.note("checkpoint", fmt.Sprintf("checkpoint %d aborted: %s", a.ID, reason))
	}
	l.log.Warn("checkpoint aborted", zap.Uint64("attempt", uint64(a.Attempt)), zap.Uint64("checkpoint", uint64(a.ID)), zap.String("reason", reason))
	if a.Reason.Failed() {
		l.fails++
		l.c.metrics.failed.WithLabelValues(l.rec.spec.Name, string(a.Reason)).Inc()
	}
}

func (l *jobLoop) discarded(id job.CheckpointID) {
	l.change(id, func(d *CheckpointDetail) { d.Checkpoint.State = CheckpointSubsumed })
}

// view is what everybody may see now.
func (l *jobLoop) view() view {
	s := l.rec.spec
	j := Job{
		ID: l.rec.id, Name: s.Name, Program: s.Program, Version: s.Version, State: JobState(l.life.State()), Reason: l.reason,
		Attempt: l.life.Attempt(), Restarts: int64(l.restarts()), Parallelism: s.Settings.Parallelism, Slots: l.plan.Slots(),
		Submitted: l.rec.submission.Submitted, Started: l.started, Counters: l.totals(),
	}
	if f := l.rec.submission.From; f != nil {
		j.From = f.Snapshot
	}
	p := Progress{
		Incidents: l.life.History(), CheckpointsCompleted: l.completes, CheckpointsFailed: l.fails, CheckpointsSkipped: l.skipped,
		LastCheckpoint: l.last, RunningSince: l.life.RunningSince(),
	}
	if n := len(p.Incidents); n > 0 {
		f := p.Incidents[n-1].Failure
		j.Failure = &f
	}
	for n, at := range l.pointers {
		if n > j.Checkpoint {
			j.Checkpoint, j.Checkpointed = n, at.Triggered.Add(at.Duration)
		}
	}
	switch {
	case l.ended:
		t := l.terminal
		j.State, j.Ended, j.Restarts, j.Attempt = t.State, t.Ended, t.Restarts, t.Attempt
		p.Incidents = t.Incidents
		if t.Failure != nil {
			j.Failure = t.Failure
		}
	case l.life.State() == lifecycle.Finished: // Not on record yet.
		j.State = JobFinishing
	case l.life.State() == lifecycle.Cancelled:
		j.State = JobCancelling
	case l.life.State() == lifecycle.Failed:
		j.State = JobFailing
	case l.life.State() == lifecycle.WaitingForSlots && l.life.Shortfall() != "":
		j.Reason = l.life.Shortfall()
	}
	d := JobDetail{Job: j, Spec: s, Fingerprint: l.fingerprint, Events: slices.Clip(l.events), Restored: l.restored, Progress: p}
	tasks := l.life.Tasks()
	for _, v := range l.plan.Vertices {
		vx := Vertex{Name: v.Name, Parallelism: v.Parallelism}
		for _, i := range v.Operators {
			vx.Operators = append(vx.Operators, s.Graph.Operators[i].Name)
		}
		for i := range v.Parallelism {
			t := job.Task{Vertex: v.Name, Subtask: i}
			vx.Tasks = append(vx.Tasks, TaskStatus{Task: t, State: tasks[t].State, Worker: tasks[t].Worker, Counters: l.counters[t]})
		}
		d.Vertices = append(d.Vertices, vx)
	}
	v := view{detail: d, events: l.first, checkpoints: l.history, plan: l.plan, submission: l.rec.submission.N}
	for _, h := range l.hot {
		v.hot = append(v.hot, h)
	}
	if !l.ended {
		v.live = l.life.Attempt()
	}
	return v
}
