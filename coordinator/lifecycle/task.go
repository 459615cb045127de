package lifecycle

import (
	"fmt"
	"slices"
	"time"

	"github.com/cairnstream/cairn/job"
)

// persisted deploys: the attempt's number is safe.
func (m *Machine) persisted(ev Persisted) {
	if !m.wanted || ev.Attempt != m.attempt || m.state != Deploying {
		return
	}
	m.wanted = false
	m.deployed, m.live = true, true
	m.deadline = m.now.Add(m.cfg.DeployTimeout)
	m.emit(Deploy{m.attempt, m.places})
}

func (m *Machine) taskChanged(ev TaskChanged) {
	t := m.tasks[ev.Task]
	if t == nil || !m.deployed || ev.Attempt != m.attempt || t.state.Terminal() {
		return // Of another attempt, or said before.
	}
	t.state = ev.State
	if m.live {
		m.follow(ev)
	} else {
		m.settle()
	}
}

// follow reacts to a task of an attempt that is wanted.
func (m *Machine) follow(ev TaskChanged) {
	switch ev.State {
	case job.TaskFailed:
		f := job.Failure{Class: job.ClassInternal, Message: "it failed without a reason"}
		if ev.Failure != nil {
			f = *ev.Failure
		}
		f.Task, f.Worker = ev.Task.String(), m.tasks[ev.Task].worker
		m.fail(CauseTask, f, false)
		return
	case job.TaskCancelled:
		m.fail(CauseTask, job.Failure{Class: job.ClassInfrastructure, Task: ev.Task.String(), Worker: m.tasks[ev.Task].worker, Message: "its worker cancelled it"}, false)
		return
	case job.TaskFinished:
		if en, done := m.cfg.Topology.ReadersDone(ev.Task, func(t job.Task) bool { return finished(m.tasks[t].state) }); done {
			m.emit(ReadersDone{m.attempt, en, m.tasks[en].worker})
		}
	}
	if m.state == Deploying {
		m.deploying()
	}
	if m.state == Running && m.all(atEnd) {
		m.enter(Finishing, "")
		if !m.cfg.Checkpoints && !m.all(finished) {
			m.emit(Finish{m.attempt, m.workers()})
		}
	}
	if m.state == Finishing && m.all(finished) {
		m.live = false
		m.emit(Halted{m.attempt})
		m.emit(Freed{m.attempt})
		m.conclude(Finished, "")
	}
}

// deploying starts the tasks when all are ready, and says when all run.
func (m *Machine) deploying() {
	if !m.started && m.all(func(s job.TaskState) bool { return s != "" }) {
		m.started = true
		m.emit(Start{m.attempt, m.workers()})
	}
	if !m.started || !m.all(func(s job.TaskState) bool { return s != "" && s != job.TaskReady }) {
		return
	}
	m.enter(Running, "")
	m.since = m.now
	a := AllRunning{Attempt: m.attempt}
	for _, t := range m.cfg.Topology.Tasks {
		if atEnd(m.tasks[t].state) {
			a.AtEnd = append(a.AtEnd, t)
		}
	}
	if !m.failedAt.IsZero() {
		last := &m.history[len(m.history)-1]
		last.Recovery = m.now.Sub(m.failedAt)
		a.Recovery, a.Cause = last.Recovery, last.Cause
		m.failedAt = time.Time{}
	}
	m.emit(a)
}

func (m *Machine) workerLost(ev WorkerLost) {
	mine := false
	for _, t := range m.tasks {
		if t.worker == ev.Worker && !t.state.Terminal() {
			mine = true
		}
	}
	if !mine {
		return
	}
	if m.state == Deploying && !m.deployed {
		// Nothing was sent: choose again. The attempt's number is passed over.
		m.wanted = false
		m.emit(Freed{m.attempt})
		m.wait(fmt.Sprintf("%s was lost", ev.Worker))
		return
	}
	for _, t := range m.cfg.Topology.Tasks {
		if s := m.tasks[t]; s.worker == ev.Worker && !s.state.Terminal() {
			s.state = job.TaskCancelled
		}
	}
	if m.live {
		m.fail(CauseWorker, job.Failure{Class: job.ClassInfrastructure, Worker: ev.Worker, Message: fmt.Sprintf("TaskManager %s is lost: %s", ev.Worker, ev.Reason)}, ev.Enough)
		return
	}
	m.settle()
}

// workers lists those that have a task that is not gone, sorted.
func (m *Machine) workers() []job.WorkerID {
	var out []job.WorkerID
	for _, t := range m.tasks {
		if !t.state.Terminal() {
			out = append(out, t.worker)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (m *Machine) all(f func(job.TaskState) bool) bool {
	for _, t := range m.tasks {
		if !f(t.state) {
			return false
		}
	}
	return true
}

// ended tells whether no task of the attempt is left.
func (m *Machine) ended() bool { return !m.deployed || m.all(job.TaskState.Terminal) }

func finished(s job.TaskState) bool { return s == job.TaskFinished }
func atEnd(s job.TaskState) bool    { return s == job.TaskEndOfData || s == job.TaskFinished }
