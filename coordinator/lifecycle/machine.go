package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cairnstream/cairn/job"
)

// Machine is the life of one job under one leader. It is not safe for concurrent use: the goroutine
// of the job owns it.
type Machine struct {
	cfg   Config
	state State

	attempt  job.Attempt // The newest that was or may have been used.
	deployed bool        // Deploy was emitted, so there may be tasks.
	started  bool
	live     bool // Between Deploy and Halted.
	freed    bool // Freed was emitted.
	tasks    map[job.Task]*task
	places   []job.Placement
	deadline time.Time // Of Deploying once deployed, and of the tasks' end.
	pauseTo  time.Time // When a restart or a retry may go on.
	wanted   bool      // Persist was emitted and not answered.

	since        time.Time // When the attempt began to run.
	checkpointed bool      // Since then.
	level        int       // Failures since the last healthy attempt.
	restarts     int
	failedAt     time.Time // When the failure that is being recovered from was noticed; zero: none.
	failure      *job.Failure
	history      []Incident
	shortfall    string

	now time.Time
	out []Action
}

type task struct {
	worker job.WorkerID
	state  job.TaskState // Empty until it reports.
}

// New makes the machine of a job. attempt is the newest one that is on record, 0 for none. A job that
// ran under a former leader is recovering: the time until it runs again counts from failedAt.
func New(cfg Config, attempt job.Attempt, failedAt time.Time) *Machine {
	m := &Machine{cfg: cfg.withDefaults(), state: Created, attempt: attempt}
	if attempt > 0 && !failedAt.IsZero() {
		m.failedAt = failedAt
		f := job.Failure{Class: job.ClassInfrastructure, Message: "the JobManager was replaced"}
		m.history = append(m.history, Incident{Time: failedAt, Attempt: attempt, Cause: CauseFailover, Failure: f})
		m.restarts++
	}
	return m
}

// Step applies ev at time now and returns the actions to carry out, in order.
func (m *Machine) Step(now time.Time, ev Event) []Action {
	m.now = now
	switch ev := ev.(type) {
	case Begin:
		if m.state == Created {
			m.wait("")
		}
	case Due:
	case SlotsChanged:
		if m.state == WaitingForSlots && !now.Before(m.pauseTo) {
			m.emit(Place{})
		}
	case Placed:
		m.placed(ev)
	case Persisted:
		m.persisted(ev)
	case PersistFailed:
		if m.wanted && ev.Attempt == m.attempt && m.state == Deploying {
			m.wanted = false
			m.pauseTo = now.Add(persistPause)
			m.emit(Freed{m.attempt})
			m.enter(WaitingForSlots, ev.Reason)
			m.lack("the attempt cannot begin: " + ev.Reason)
		}
	case RestoreRefused:
		if m.wanted && ev.Attempt == m.attempt && m.state == Deploying {
			m.wanted = false
			m.refuse(ev.Failure)
		}
	case TaskChanged:
		m.taskChanged(ev)
	case WorkerLost:
		m.workerLost(ev)
	case Cancel:
		m.cancel()
	case CheckpointCompleted:
		m.checkpointed = m.checkpointed || ev.Attempt == m.attempt
	case CheckpointsFailed:
		if m.live && ev.Attempt == m.attempt {
			m.fail(CauseCheckpoint, ev.Failure, false)
		}
	default:
		panic(fmt.Sprintf("lifecycle: unknown event %T", ev)) // A new event without a case.
	}
	m.timers()
	out := m.out
	m.out = nil
	return out
}

// State is where the job is.
func (m *Machine) State() State { return m.state }

// Attempt is the newest attempt; it may not be durable yet.
func (m *Machine) Attempt() job.Attempt { return m.attempt }

// Live tells whether an attempt is deployed and not given up.
func (m *Machine) Live() bool { return m.live }

// Restarts counts the failures that led to a restart.
func (m *Machine) Restarts() int { return m.restarts }

// History lists the newest failures, oldest first.
func (m *Machine) History() []Incident { return slices.Clone(m.history) }

// Shortfall says what a waiting job lacks.
func (m *Machine) Shortfall() string { return m.shortfall }

// RunningSince is when the present attempt began to run, or zero.
func (m *Machine) RunningSince() time.Time {
	if m.state == Running || m.state == Finishing {
		return m.since
	}
	return time.Time{}
}

// Tasks gives every task of the present attempt with its worker and state.
func (m *Machine) Tasks() map[job.Task]TaskInfo {
	out := make(map[job.Task]TaskInfo, len(m.tasks))
	for t, s := range m.tasks {
		out[t] = TaskInfo{s.worker, s.state}
	}
	return out
}

// Task is one of them.
func (m *Machine) Task(t job.Task) (TaskInfo, bool) {
	s := m.tasks[t]
	if s == nil {
		return TaskInfo{}, false
	}
	return TaskInfo{s.worker, s.state}, true
}

// TaskInfo is where one task is and how it stands.
type TaskInfo struct {
	Worker job.WorkerID
	State  job.TaskState
}

// NextDue is when the machine wants its next Due, and whether it wants one.
func (m *Machine) NextDue() (time.Time, bool) {
	switch m.state {
	case WaitingForSlots:
		return m.pauseTo, m.now.Before(m.pauseTo)
	case Deploying:
		return m.deadline, m.deployed
	case Restarting:
		if m.ended() {
			return m.pauseTo, true
		}
		return m.deadline, true
	case Cancelling, Failing:
		return m.deadline, true
	}
	return time.Time{}, false
}

// timers does what is due.
func (m *Machine) timers() {
	switch m.state {
	case WaitingForSlots:
		if !m.pauseTo.IsZero() && !m.now.Before(m.pauseTo) {
			m.pauseTo = time.Time{}
			m.emit(Place{})
		}
	case Deploying:
		if m.deployed && !m.now.Before(m.deadline) {
			var slow []string
			for _, t := range m.cfg.Topology.Tasks {
				if s := m.tasks[t].state; s == "" || !m.started && s != job.TaskReady {
					slow = append(slow, t.String())
				}
			}
			m.fail(CauseDeploy, job.Failure{
				Class:   job.ClassInfrastructure,
				Message: fmt.Sprintf("not every task runs after %v; missing: %s", m.cfg.DeployTimeout, strings.Join(slow, ", ")),
			}, false)
		}
	case Restarting, Cancelling, Failing:
		if !m.ended() && !m.now.Before(m.deadline) {
			m.expel()
		}
		m.settle()
	}
}

// enter moves to another state; the only place where one changes.
func (m *Machine) enter(to State, reason string) {
	if !allowed(m.state, to) {
		panic(fmt.Sprintf("lifecycle: no transition from %s to %s", m.state, to)) // The table is complete.
	}
	m.emit(Entered{m.state, to, reason})
	m.state = to
}

func (m *Machine) emit(a Action) { m.out = append(m.out, a) }

// wait asks for slots.
func (m *Machine) wait(reason string) {
	m.enter(WaitingForSlots, reason)
	m.deployed, m.started, m.tasks = false, false, nil
	m.pauseTo = time.Time{}
	m.emit(Place{})
}

func (m *Machine) placed(ev Placed) {
	if m.state != WaitingForSlots {
		return
	}
	if ev.Shortfall != "" {
		m.lack(ev.Shortfall)
		return
	}
	m.shortfall = ""
	m.pauseTo = time.Time{}
	m.places = ev.Placements
	m.tasks = map[job.Task]*task{}
	for _, p := range ev.Placements {
		m.tasks[p.Task] = &task{worker: p.Worker}
	}
	m.deployed, m.started, m.freed, m.checkpointed = false, false, false, false
	m.attempt++
	m.wanted = true
	m.enter(Deploying, "")
	m.emit(Persist{m.attempt})
}

func (m *Machine) lack(what string) {
	if m.shortfall != what {
		m.shortfall = what
		m.emit(Lacking{what})
	}
}

func (m *Machine) cancel() {
	switch m.state {
	case Created, WaitingForSlots:
		m.conclude(Cancelled, "")
	case Deploying, Running, Finishing:
		if !m.deployed {
			m.wanted = false
			m.emit(Freed{m.attempt})
			m.conclude(Cancelled, "")
			return
		}
		m.enter(Cancelling, "")
		m.halt()
		m.settle()
	case Restarting:
		if m.ended() {
			m.conclude(Cancelled, "")
			return
		}
		m.enter(Cancelling, "")
	}
}

// conclude ends the life.
func (m *Machine) conclude(s State, reason string) {
	m.enter(s, reason)
	c := Conclude{State: s}
	if s == Failed {
		c.Failure = m.failure
	}
	m.emit(c)
}

func (m *Machine) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s a%d", m.state, m.attempt)
	for _, t := range m.cfg.Topology.Tasks {
		if s := m.tasks[t]; s != nil {
			state := string(s.state)
			if state == "" {
				state = "-"
			}
			fmt.Fprintf(&b, " %v@%s=%s", t, s.worker, state)
		}
	}
	if m.level > 0 {
		fmt.Fprintf(&b, " level=%d", m.level)
	}
	return b.String()
}
