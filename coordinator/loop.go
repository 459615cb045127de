package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/coordinator/checkpoint"
	"github.com/cairnstream/cairn/coordinator/lifecycle"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
)

// Mail of a job's loop.
type (
	reported struct {
		worker job.WorkerID
		report job.Report
	}
	workerLost struct {
		worker  job.WorkerID
		session uint64
		reason  string
		enough  bool
	}
	slotsChanged struct{}
	cancelAsked  struct{} // It is on record.
	triggerAsked struct {
		full  bool
		reply chan<- checkpoint.Reply
	}
	savepointAsked struct {
		record savepointRecord // Its folder is reserved.
		reply  chan<- checkpoint.Reply
	}
	persisted struct {
		attempt  job.Attempt
		durable  bool
		manifest *snapshot.Manifest
		key      string
		from     *source // Where that is from, if it is no checkpoint of the job.
		err      error
		refused  bool // The manifest cannot be loaded, ever.
	}
	reserved struct {
		limit job.CheckpointID
		err   error
	}
	published struct {
		id      job.CheckpointID
		outcome checkpoint.Outcome
		err     error
		write   time.Duration
		commit  time.Duration
	}
	concluded struct{}
	deleted   struct{ id job.CheckpointID }
	swept     struct{}
	pinAsked  struct {
		by    job.ID
		id    job.CheckpointID
		reply chan<- bool // Whether there is such a checkpoint.
	}
	pinEnded struct{ by job.ID }
)

// jobLoop is one job. Its goroutine owns everything in it but e, deletions and c.
type jobLoop struct {
	c           *Coordinator
	e           *entry
	log         *zap.Logger
	rec         *jobRecord
	plan        *job.Plan
	fingerprint string
	deletions   *deletions

	life *lifecycle.Machine
	cp   *checkpoint.Machine
	todo []func() // Events that wait until the actions of the running step are carried out.

	pointers     map[job.CheckpointID]pointer // Of committed checkpoints that are kept.
	publications map[job.CheckpointID]pointer // Whose outcome is open.
	onRecord     []job.Attempt                // That may be on record, to be replaced by the next.
	ids          job.CheckpointID             // The newest reservation on record.
	held         *lifecycle.Persist           // Waits until no publication is open.
	restore      *snapshot.Manifest           // What the present attempt starts from.
	restoreKey   string
	restoreFrom  *source
	sessions     map[job.WorkerID]uint64 // Of the placement.
	tokens       map[checkpoint.Token]chan<- checkpoint.Reply
	lastToken    checkpoint.Token
	saved        map[job.CheckpointID]*savepointRecord // Those whose publication is open.
	saving       map[string]savepointRecord            // Savepoints that are on their way, by id.
	stopped      bool                                  // The job ends with a savepoint that was taken.
	terminal     *terminal                             // The record of the end; it is durable when ended is set.
	ended        bool
	sweeping     bool
	begunDone    bool                 // What the job began with was let go.
	told         map[string]time.Time // When a worker was last told to end a stale attempt.

	dirty bool // The view is out of date.
	progressState
}

// newJob makes what is needed for a job on record. The loop is nil when nothing is left to do for it.
func (c *Coordinator) newJob(r *jobRecord, found bool) (*entry, *jobLoop, error) {
	plan, err := job.NewPlan(r.spec.Graph, r.spec.Settings)
	if err != nil {
		return nil, nil, err
	}
	e := newEntry(r.id)
	l := &jobLoop{
		c: c, e: e, rec: r, plan: plan, fingerprint: r.spec.Graph.Fingerprint(),
		log:      c.log.With(zap.String("job", string(r.id)), zap.String("name", r.spec.Name)),
		pointers: maps.Clone(r.checkpoints), publications: map[job.CheckpointID]pointer{},
		ids: r.nextID, tokens: map[checkpoint.Token]chan<- checkpoint.Reply{}, saving: map[string]savepointRecord{}, saved: map[job.CheckpointID]*savepointRecord{}, told: map[string]time.Time{},
		terminal: r.terminal, ended: r.terminal != nil,
	}
	if r.attempt.Attempt > 0 {
		l.onRecord = []job.Attempt{r.attempt.Attempt}
	}
	cfg := lifecycle.ConfigOf(plan, r.spec.Settings)
	cfg.Jitter = c.opt.Jitter
	var failedAt time.Time
	if found && r.attempt.Attempt > 0 {
		failedAt = time.Now()
	}
	l.life = lifecycle.New(cfg, r.attempt.Attempt, failedAt)
	l.initProgress(found)
	if l.ended && len(r.discarding) == 0 && (!l.unwanted() || len(r.checkpoints) == 0) {
		e.publish(l.view())
		l.c.metrics.jobEnded(r.spec.Name, r.terminal.State)
		return e, nil, nil
	}
	e.mail = newMailbox()
	l.deletions = &deletions{
		id: r.id, records: c.records, objects: c.opt.Blob, mail: e.mail, log: l.log,
		timeout: c.opt.BlobTimeout + c.opt.StoreTimeout, wake: make(chan struct{}, 1),
	}
	e.publish(l.view())
	return e, l, nil
}

// unwanted tells whether the checkpoints of a job that is over are to be deleted.
func (l *jobLoop) unwanted() bool {
	return l.terminal != nil && l.terminal.State == JobCancelled && l.rec.spec.Settings.OnCancel == "delete"
}

// run is the job's goroutine.
func (l *jobLoop) run(ctx context.Context) error {
	defer l.abandon()
	history, err := l.found(ctx)
	if err != nil {
		return err
	}
	l.cp = checkpoint.New(checkpoint.ConfigOf(l.rec.spec.Settings), history)
	if l.cp.Newest() > 0 {
		l.begun() // Again, should the leader before have died on it.
	}
	l.stepCheckpoint(checkpoint.Due{})
	switch {
	case l.ended && l.unwanted():
		l.stepCheckpoint(checkpoint.Forget{})
	case l.ended:
	default:
		if l.rec.cancel {
			l.stepLife(lifecycle.Cancel{})
		}
		l.stepLife(lifecycle.Begin{})
	}
	l.pump()
	l.sweep()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	sweep := time.NewTicker(l.c.opt.SweepInterval)
	defer sweep.Stop()
	for !l.over() {
		l.arm(timer)
		if l.dirty {
			l.dirty = false
			l.e.publish(l.view())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.e.mail.ready:
			for _, m := range l.e.mail.take() {
				l.handle(m)
				l.pump()
			}
		case <-timer.C:
			l.stepLife(lifecycle.Due{})
			l.stepCheckpoint(checkpoint.Due{})
			l.pump()
		case <-sweep.C:
			l.sweep()
		}
	}
	l.deletions.finish()
	l.e.publish(l.view())
	l.lastSweep()
	return nil
}

// over tells whether nothing is left to do.
func (l *jobLoop) over() bool {
	return l.ended && len(l.cp.Pending()) == 0 && !l.cp.Discarding() && !l.sweeping && !(l.unwanted() && l.cp.Pinned())
}

// abandon answers who still waits.
func (l *jobLoop) abandon() {
	for _, m := range l.e.mail.close() {
		switch ask := m.(type) {
		case triggerAsked:
			ask.reply <- checkpoint.Reply{Verdict: checkpoint.VerdictNotRunning}
		case savepointAsked:
			l.c.dropSavepoint(ask.record) // Nothing is started any more if everything stops: then the next leader does it.
			ask.reply <- checkpoint.Reply{Verdict: checkpoint.VerdictNotRunning}
		case pinAsked:
			_, kept := l.pointers[ask.id]
			ask.reply <- kept
		}
	}
	for _, reply := range l.tokens {
		reply <- checkpoint.Reply{Verdict: checkpoint.VerdictNotRunning}
	}
}

// arm sets the timer to what the machines want next.
func (l *jobLoop) arm(timer *time.Timer) {
	wait := time.Hour
	for _, due := range []func() (time.Time, bool){l.life.NextDue, l.cp.NextDue} {
		if at, ok := due(); ok {
			wait = min(wait, time.Until(at))
		}
	}
	timer.Reset(max(wait, 0))
}

// stepLife and stepCheckpoint feed a machine and carry its actions out. What an action leads to in the
// other machine waits in todo, so that the actions of one step stay together.
func (l *jobLoop) stepLife(ev lifecycle.Event) {
	for _, a := range l.life.Step(time.Now(), ev) {
		l.doLife(a)
		l.dirty = true
	}
}

func (l *jobLoop) stepCheckpoint(ev checkpoint.Event) {
	for _, a := range l.cp.Step(time.Now(), ev) {
		l.doCheckpoint(a)
		l.dirty = true
	}
	if l.held != nil && l.cp.Settled() {
		a := *l.held
		l.held = nil
		l.persist(a)
	}
}

func (l *jobLoop) later(f func()) { l.todo = append(l.todo, f) }

func (l *jobLoop) pump() {
	for len(l.todo) > 0 {
		f := l.todo[0]
		l.todo = l.todo[1:]
		f()
	}
}

// handle takes one piece of mail.
func (l *jobLoop) handle(m any) {
	switch m := m.(type) {
	case reported:
		l.reported(m)
	case workerLost:
		if l.sessions[m.worker] == m.session {
			l.stepLife(lifecycle.WorkerLost{Worker: m.worker, Reason: m.reason, Enough: m.enough})
		}
	case slotsChanged:
		l.stepLife(lifecycle.SlotsChanged{})
	case cancelAsked:
		l.note("note", "cancellation was asked for")
		l.stepLife(lifecycle.Cancel{})
	case triggerAsked:
		l.lastToken++
		l.tokens[l.lastToken] = m.reply
		l.stepCheckpoint(checkpoint.Requested{Token: l.lastToken, Full: m.full})
	case savepointAsked:
		l.savepointAsked(m)
	case persisted:
		l.persisted(m)
	case reserved:
		if m.err != nil {
			l.log.Warn("checkpoint ids cannot be reserved", zap.Error(m.err))
			l.stepCheckpoint(checkpoint.ReserveFailed{})
			break
		}
		l.ids = max(l.ids, m.limit)
		l.stepCheckpoint(checkpoint.Reserved{Limit: m.limit})
	case published:
		l.published(m)
	case concluded:
		l.concluded()
	case deleted:
		l.stepCheckpoint(checkpoint.Deleted{ID: m.id})
	case swept:
		l.sweeping = false
	case pinAsked:
		_, kept := l.pointers[m.id]
		if _, again := l.rec.pins[m.by]; kept && !again {
			l.rec.pins[m.by] = m.id
			l.stepCheckpoint(checkpoint.Pin{ID: m.id})
		}
		m.reply <- kept
	case pinEnded:
		if id, ok := l.rec.pins[m.by]; ok {
			delete(l.rec.pins, m.by)
			l.stepCheckpoint(checkpoint.Unpin{ID: id})
		}
	}
}

// reported takes what a worker says.
func (l *jobLoop) reported(m reported) {
	run, _ := runOf(m.report)
	if ack, ok := m.report.(job.Ack); ok {
		l.acked(m.worker, ack) // The machine knows what to do with stale ones.
	} else if run.Attempt != l.life.Attempt() {
		l.endStale(m.worker, m.report, run)
		return
	}
	switch r := m.report.(type) {
	case job.TaskChanged:
		l.taskChanged(m.worker, r)
	case job.Decline:
		f := r.Failure
		f.Task, f.Worker = r.Task.String(), m.worker
		l.stepCheckpoint(checkpoint.Declined{Attempt: r.Attempt, ID: r.Checkpoint, Task: r.Task, Failure: f})
	case job.Mail:
		if l.life.Live() {
			if to, ok := l.life.Task(r.To); ok {
				l.c.send(to.Worker, job.Deliver{Run: r.Run, To: r.To, From: r.From, Body: r.Body})
			}
		}
	case job.Counters:
		l.count(r)
	}
}

// endStale tells a worker, once in a while, to end tasks of an attempt that is over.
func (l *jobLoop) endStale(w job.WorkerID, r job.Report, run job.Run) {
	key := fmt.Sprintf("%s/%d", w, run.Attempt)
	if now := time.Now(); alive(r) && now.Sub(l.told[key]) > time.Second {
		if len(l.told) > 1000 {
			clear(l.told)
		}
		l.told[key] = now
		l.c.send(w, job.Cancel{Run: run})
	}
}

func (l *jobLoop) taskChanged(w job.WorkerID, r job.TaskChanged) {
	if r.Failure != nil {
		l.log.Warn("task failed", zap.Uint64("attempt", uint64(r.Attempt)), zap.Stringer("task", r.Task),
			zap.String("worker", string(w)), zap.Stringer("failure", r.Failure), zap.String("stack", r.Failure.Stack))
	}
	running := l.life.State() == lifecycle.Running || l.life.State() == lifecycle.Finishing
	l.stepLife(lifecycle.TaskChanged{Attempt: r.Attempt, Task: r.Task, State: r.State, Failure: r.Failure})
	l.dirty = true
	if !running {
		return // The checkpoint machine is told by AllRunning.
	}
	switch r.State {
	case job.TaskEndOfData:
		l.later(func() { l.stepCheckpoint(checkpoint.EndOfData{Attempt: r.Attempt, Task: r.Task}) })
	case job.TaskFinished:
		l.later(func() { l.stepCheckpoint(checkpoint.Finished{Attempt: r.Attempt, Task: r.Task}) })
	}
}

// async does I/O on a goroutine of its own, which mails the answer. An error ends everything: it is
// only used for a lost leadership.
func (l *jobLoop) async(what string, f func(ctx context.Context) (any, error)) {
	l.c.g.Go("job "+string(l.rec.id)+": "+what, func(ctx context.Context) error {
		answer, err := f(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errNotLeader) {
			return err
		}
		l.e.mail.put(answer)
		return nil
	})
}

// workers lists those that have tasks of the present attempt, sorted.
func (l *jobLoop) workers() []job.WorkerID {
	var out []job.WorkerID
	for _, t := range l.life.Tasks() {
		if !t.State.Terminal() {
			out = append(out, t.Worker)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (l *jobLoop) runOf(a job.Attempt) job.Run { return job.Run{Job: l.rec.id, Attempt: a} }
