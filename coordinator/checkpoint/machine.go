package checkpoint

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cairnstream/cairn/job"
)

// Machine is the state of a job's checkpoints under one leader. It is not safe for concurrent use:
// the goroutine of the job owns it.
type Machine struct {
	cfg Config

	next, limit job.CheckpointID // Ids in [next, limit) are reserved and unused.
	reserving   bool
	reserveAt   time.Time

	run       *run       // The running attempt, or nil.
	pending   []*pending // Ascending.
	committed []Committed
	discarded map[job.CheckpointID]bool // Discard emitted, Deleted not yet come.
	pins      map[job.CheckpointID]int  // How often each is pinned; none is 0.

	dueAt     time.Time // The next periodic trigger.
	finalAt   time.Time // Before this a final checkpoint is not repeated.
	completed time.Time // The last completion under this leader.
	failures  int       // In a row, of those that count.
	requests  []Token   // Not yet joined to a checkpoint.
	full      bool      // One of them asks for a full one.
	saves     []save    // Requests of savepoints, not yet begun; at most maxSaves.
	unwanted  bool      // Forget came: everything committed is discarded once nothing is on its way.

	now time.Time
	out []Action
}

// run is what the machine knows of the running attempt.
type run struct {
	attempt     job.Attempt
	tasks       []job.Task
	enumerators []job.Task
	state       map[job.Task]*taskState
	ended       bool // A checkpoint with every task at the end of its data has committed.
	failing     bool // FailJob was emitted.
}

type taskState struct {
	endOfData bool
	finished  bool
	last      *Snapshot // In the newest committed checkpoint of this attempt.
}

// New makes the machine of a job from what the metadata store holds.
func New(cfg Config, h History) *Machine {
	m := &Machine{cfg: cfg, next: max(h.Next, 1), discarded: map[job.CheckpointID]bool{}, pins: map[job.CheckpointID]int{}}
	for _, id := range h.Pinned {
		m.pins[id]++
	}
	m.limit = m.next
	m.committed = append(m.committed, h.Committed...)
	for _, c := range h.Discarding {
		// Begun by a former leader: again from the start, each step may be done already.
		m.discard(c)
	}
	return m
}

// Step applies ev at time now and returns the actions to carry out, in order.
func (m *Machine) Step(now time.Time, ev Event) []Action {
	m.now = now
	m.expire()
	switch ev := ev.(type) {
	case Due:
	case Started:
		m.start(ev)
	case Stopped:
		m.stop(ev)
	case Acked:
		m.ack(ev)
	case Declined:
		if p := m.find(ev.ID); p != nil && p.attempt == ev.Attempt && p.phase == collecting {
			f := ev.Failure
			m.abort(p, ReasonDeclined, &f)
		}
	case EndOfData:
		if t := m.task(ev.Attempt, ev.Task); t != nil {
			t.endOfData = true
		}
	case Finished:
		m.finished(ev)
	case Published:
		m.published(ev)
	case Reserved:
		m.reserving = false
		m.limit = max(m.limit, ev.Limit)
	case ReserveFailed:
		m.reserving = false
		m.reserveAt = now.Add(retryPause)
	case Requested:
		m.request(ev)
	case Deleted:
		delete(m.discarded, ev.ID)
	case Forget:
		m.unwanted = true
	case Pin:
		m.pins[ev.ID]++
	case Unpin:
		if m.pins[ev.ID]--; m.pins[ev.ID] <= 0 {
			delete(m.pins, ev.ID)
		}
	default:
		panic(fmt.Sprintf("checkpoint: unknown event %T", ev)) // A new event without a case.
	}
	m.publishNext()
	m.resolve()
	m.reserve()
	m.decide()
	m.trim()
	m.forget()
	out := m.out
	m.out = nil
	return out
}

// Settled tells whether no publication is open. While one is, it is not known which checkpoint is
// the newest, so nothing may be restored.
func (m *Machine) Settled() bool {
	return !slices.ContainsFunc(m.pending, func(p *pending) bool { return p.phase != collecting })
}

// Newest is the newest committed checkpoint, or 0.
func (m *Machine) Newest() job.CheckpointID {
	if len(m.committed) == 0 {
		return 0
	}
	return m.committed[len(m.committed)-1].ID
}

// Retained lists the committed checkpoints that are kept, ascending.
func (m *Machine) Retained() []job.CheckpointID {
	out := make([]job.CheckpointID, len(m.committed))
	for i, c := range m.committed {
		out[i] = c.ID
	}
	return out
}

// Pending lists the checkpoints on their way, ascending.
func (m *Machine) Pending() []job.CheckpointID {
	out := make([]job.CheckpointID, len(m.pending))
	for i, p := range m.pending {
		out[i] = p.id
	}
	return out
}

// Pinned tells whether a committed checkpoint is pinned.
func (m *Machine) Pinned() bool {
	return slices.ContainsFunc(m.committed, func(c Committed) bool { return m.pins[c.ID] > 0 })
}

// Discarding tells whether a discarded checkpoint is not yet gone.
func (m *Machine) Discarding() bool { return len(m.discarded) > 0 }

func (m *Machine) emit(a Action) { m.out = append(m.out, a) }

func (m *Machine) start(ev Started) {
	if m.run != nil {
		m.stop(Stopped{m.run.attempt})
	}
	r := &run{attempt: ev.Attempt, tasks: ev.Tasks, enumerators: ev.Enumerators, state: map[job.Task]*taskState{}}
	for _, t := range ev.Tasks {
		r.state[t] = &taskState{}
	}
	m.run = r
	m.failures = 0
	m.dueAt = m.now.Add(m.cfg.Interval)
	m.finalAt = time.Time{}
	if !m.Settled() {
		// The attempt may have been restored from what is not the newest checkpoint: committing
		// either line would lose the other. The shell waits for Settled, so this is its fault.
		m.failJob(job.Failure{Class: job.ClassInternal, Message: fmt.Sprintf("attempt %d started while the outcome of %v was open", ev.Attempt, m.pending[0].id)})
	}
}

// stop aborts what some task has not acknowledged. What all have is good, and is published.
func (m *Machine) stop(ev Stopped) {
	if m.run == nil || m.run.attempt != ev.Attempt {
		return
	}
	for _, p := range slices.Clone(m.pending) {
		if p.phase == collecting {
			m.abort(p, ReasonStopped, nil)
		}
	}
	m.run = nil
	for _, t := range m.requests {
		m.emit(Reply{Token: t, Verdict: VerdictNotRunning})
	}
	m.requests, m.full = nil, false
	for _, s := range m.saves {
		m.refuse(s, VerdictNotRunning)
	}
	m.saves = nil
}

func (m *Machine) ack(ev Acked) {
	p := m.find(ev.ID)
	result := Accepted
	switch {
	case p != nil && p.attempt != ev.Attempt:
		result = WrongAttempt
	case p == nil && (m.run == nil || m.run.attempt != ev.Attempt):
		result = WrongAttempt
	case p == nil && (ev.ID == 0 || ev.ID >= m.next):
		result = UnknownCheckpoint
	case p == nil:
		result = Late
	case !slices.Contains(p.tasks, ev.Task):
		result = UnknownTask
	default:
		if _, ok := p.acks[ev.Task]; ok {
			result = Duplicate
		}
	}
	m.emit(Answer{ev.Attempt, ev.ID, ev.Task, result})
	switch {
	case result == Accepted:
		p.acks[ev.Task] = ev.Snapshot
		m.checkAcked(p)
	case p != nil:
		p.spare = append(p.spare, ev.Snapshot.Objects()...)
	default:
		m.release(ev.ID, ev.Snapshot.Objects(), false)
	}
}

// finished counts a closed task as acknowledged, with its last committed snapshot.
func (m *Machine) finished(ev Finished) {
	t := m.task(ev.Attempt, ev.Task)
	if t == nil || t.finished {
		return
	}
	t.finished, t.endOfData = true, true
	if t.last == nil && m.cfg.Mode != job.Off {
		m.failJob(job.Failure{Class: job.ClassInternal, Task: ev.Task.String(), Message: "the task finished although no checkpoint with its last snapshot has committed"})
	}
	for _, p := range slices.Clone(m.pending) {
		if _, ok := p.acks[ev.Task]; ok || p.phase != collecting || p.attempt != ev.Attempt {
			continue
		}
		if t.last == nil {
			m.abort(p, ReasonUnfinished, nil)
			continue
		}
		p.acks[ev.Task] = *t.last
		m.checkAcked(p)
	}
}

// checkAcked moves p on when every task has acknowledged.
func (m *Machine) checkAcked(p *pending) {
	if p.phase == collecting && len(p.acks) == len(p.tasks) {
		p.phase = acked
	}
}

// expire aborts what has not been acknowledged in time. The publication has limits of its own.
func (m *Machine) expire() {
	for _, p := range slices.Clone(m.pending) {
		if p.phase == collecting && !m.now.Before(p.triggered.Add(m.cfg.Timeout)) {
			m.abort(p, ReasonExpired, nil)
		}
	}
}

// abort ends p without a commit.
func (m *Machine) abort(p *pending, why Reason, f *job.Failure) {
	m.remove(p)
	m.emit(AbortCheckpoint{Attempt: p.attempt, ID: p.id, Reason: why, Waiting: p.waiting(), Failure: f})
	if p.savepoint != nil {
		m.emit(DropSavepoint{*p.savepoint})
	}
	for _, t := range p.waiters {
		m.emit(Reply{Token: t, Verdict: VerdictFailed, ID: p.id, Reason: why})
	}
	m.release(p.id, append(p.objects(), p.spare...), why == ReasonPublish)
	if !why.Failed() {
		return
	}
	if p.final {
		m.finalAt = m.now.Add(min(retryPause, m.cfg.Interval))
	}
	if !why.tolerated(f) {
		return
	}
	if m.failures++; m.failures > m.cfg.Tolerable {
		cause := fmt.Sprintf("%d checkpoints failed in a row, %d are tolerable; the last, %v: %s", m.failures, m.cfg.Tolerable, p.id, why)
		if w := p.waiting(); why == ReasonExpired {
			cause += fmt.Sprintf(" after %v, without an answer from %v", m.cfg.Timeout, w)
		}
		class, task := job.ClassInternal, ""
		if f != nil {
			cause += ": " + f.Message
			class, task = f.Class, f.Task
		}
		m.failJob(job.Failure{Class: class, Task: task, Message: cause})
	}
}

func (m *Machine) failJob(f job.Failure) {
	if m.run == nil || m.run.failing {
		return
	}
	m.run.failing = true
	m.emit(FailJob{f})
}

func (m *Machine) find(id job.CheckpointID) *pending {
	for _, p := range m.pending {
		if p.id == id {
			return p
		}
	}
	return nil
}

func (m *Machine) remove(p *pending) {
	m.pending = slices.DeleteFunc(m.pending, func(q *pending) bool { return q == p })
}

// task finds a task of the running attempt.
func (m *Machine) task(a job.Attempt, t job.Task) *taskState {
	if m.run == nil || m.run.attempt != a {
		return nil
	}
	return m.run.state[t]
}

func (m *Machine) String() string {
	var b strings.Builder
	if m.run == nil {
		b.WriteString("stopped")
	} else {
		fmt.Fprintf(&b, "running a%d", m.run.attempt)
	}
	fmt.Fprintf(&b, " next=%v", m.next)
	for _, p := range m.pending {
		fmt.Fprintf(&b, " [%v]", p)
	}
	fmt.Fprintf(&b, " retained=%v", m.Retained())
	if m.failures > 0 {
		fmt.Fprintf(&b, " failures=%d", m.failures)
	}
	return b.String()
}
