package lifecycle

import (
	"fmt"
	"time"

	"github.com/cairnstream/cairn/job"
)

// fail gives the attempt up and decides what follows: another one after a pause, or the end. enough
// tells of a lost worker that the others have the slots; then the pause does not grow.
func (m *Machine) fail(cause Cause, f job.Failure, enough bool) {
	m.record(cause, f)
	healthy := m.state == Running || m.state == Finishing
	if healthy && (m.checkpointed || m.now.Sub(m.since) >= m.cfg.Healthy) {
		m.level = 0
	}
	if !f.Retriable() || m.cfg.Strategy == "none" {
		m.enter(Failing, f.String())
		m.halt()
		m.settle()
		return
	}
	delay := m.delay(cause == CauseWorker && enough)
	m.restarts++
	if m.failedAt.IsZero() {
		m.failedAt = m.now
	}
	m.pauseTo = m.now.Add(delay)
	m.enter(Restarting, f.String())
	m.emit(Restart{cause, f, delay})
	m.halt()
	m.settle()
}

func (m *Machine) record(cause Cause, f job.Failure) {
	m.history = append(m.history, Incident{Time: m.now, Attempt: m.attempt, Cause: cause, Failure: f})
	if n := len(m.history); n > historyLen {
		m.history = m.history[n-historyLen:]
	}
	m.failure = &f
}

// refuse ends a job whose checkpoint cannot be restored.
func (m *Machine) refuse(f job.Failure) {
	m.record(CauseRestore, f)
	m.emit(Freed{m.attempt})
	m.enter(Failing, f.String())
	m.conclude(Failed, f.String())
}

// delay is the pause before the next attempt, by the job's strategy.
func (m *Machine) delay(spared bool) time.Duration {
	if m.cfg.Strategy == "fixed-delay" {
		return m.cfg.Initial
	}
	if spared {
		return 0
	}
	level := m.level
	m.level++
	if level == 0 {
		return 0
	}
	d := m.cfg.Initial
	for range level - 1 {
		if d *= 2; d >= m.cfg.Max {
			break
		}
	}
	d = min(d, m.cfg.Max)
	return d + time.Duration(float64(d)*0.2*(m.cfg.Jitter()-0.5))
}

// halt cancels the tasks that are left.
func (m *Machine) halt() {
	m.live = false
	m.emit(Halted{m.attempt})
	m.deadline = m.now.Add(m.cfg.CancelTimeout)
	if on := m.workers(); len(on) > 0 {
		m.emit(CancelTasks{m.attempt, on})
	}
}

// expel gives up the workers that do not end their tasks.
func (m *Machine) expel() {
	m.emit(Expel{m.workers(), fmt.Sprintf("tasks of attempt %d did not end within %v", m.attempt, m.cfg.CancelTimeout)})
	for _, t := range m.tasks {
		if !t.state.Terminal() {
			t.state = job.TaskCancelled
		}
	}
}

// settle goes on when the tasks of an attempt that was given up are gone.
func (m *Machine) settle() {
	if m.live || !m.ended() {
		return
	}
	if m.deployed && !m.freed {
		m.freed = true
		m.emit(Freed{m.attempt})
	}
	switch m.state {
	case Restarting:
		if !m.now.Before(m.pauseTo) {
			m.wait("")
		}
	case Cancelling:
		if m.all(finished) {
			m.conclude(Finished, "every task had finished when it was cancelled")
			return
		}
		m.conclude(Cancelled, "")
	case Failing:
		m.conclude(Failed, m.failure.String())
	}
}
