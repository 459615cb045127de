package checkpoint

import (
	"slices"
	"time"

	"github.com/cairnstream/cairn/job"
)

// MaxSaves is how many savepoints may wait for one that is on its way. Each reads and writes the whole state.
const MaxSaves = 4

// save is a savepoint that somebody waits for.
type save struct {
	token     Token
	savepoint Savepoint
}

// request queues a manual trigger, or refuses it.
func (m *Machine) request(ev Requested) {
	verdict := Verdict("")
	switch {
	case m.cfg.Mode == job.Off:
		verdict = VerdictOff
	case m.run == nil:
		verdict = VerdictNotRunning
	case ev.Savepoint != nil && m.ending():
		verdict = VerdictEnding
	case ev.Savepoint != nil && len(m.saves) >= MaxSaves:
		verdict = VerdictTooMany
	}
	switch {
	case ev.Savepoint != nil && verdict != "":
		m.refuse(save{ev.Token, *ev.Savepoint}, verdict)
	case ev.Savepoint != nil:
		m.saves = append(m.saves, save{ev.Token, *ev.Savepoint})
	case verdict != "":
		m.emit(Reply{Token: ev.Token, Verdict: verdict})
	default:
		m.requests = append(m.requests, ev.Token)
		m.full = m.full || ev.Full
	}
}

// refuse answers for a savepoint that is not begun.
func (m *Machine) refuse(s save, v Verdict) {
	m.emit(DropSavepoint{s.savepoint})
	m.emit(Reply{Token: s.token, Verdict: v})
}

// ending tells whether the job ends with a checkpoint that is on its way or has committed, if that does not fail.
func (m *Machine) ending() bool {
	return m.run.ended || slices.ContainsFunc(m.pending, func(p *pending) bool {
		return p.attempt == m.run.attempt && (p.final || p.savepoint != nil && p.savepoint.Stop)
	})
}

// decide triggers a checkpoint if there is a reason to, and room.
//
// A periodic one keeps to the interval and to the pause after the last completion. A manual one, and
// the final one when every task is at the end of its data, wait for neither, only for room. Savepoints
// come first, and while one is on its way nothing else begins, since what commits would end it.
func (m *Machine) decide() {
	if !m.active() {
		return
	}
	if m.run.ended {
		// The tasks close: the last checkpoint is also the answer to who asked meanwhile.
		for _, t := range m.requests {
			m.emit(Reply{Token: t, Verdict: VerdictCompleted, ID: m.Newest()})
		}
		m.requests, m.full = nil, false
		for _, s := range m.saves {
			m.refuse(s, VerdictEnding)
		}
		m.saves = nil
		return
	}
	due := !m.now.Before(m.dueAt)
	final := m.allAtEnd()
	if final && slices.ContainsFunc(m.pending, func(p *pending) bool { return p.final && p.attempt == m.run.attempt }) {
		if due {
			m.passTick()
		}
		return
	}
	forced := len(m.requests)+len(m.saves) > 0 || final && !m.now.Before(m.finalAt)
	if !due && !forced {
		return
	}
	if len(m.pending) >= m.cfg.MaxConcurrent || m.saving() {
		if due {
			m.emit(Skipped{SkipRunning})
			m.passTick()
		}
		return
	}
	if pause := m.completed.Add(m.cfg.MinPause); !forced && !m.completed.IsZero() && m.now.Before(pause) {
		m.dueAt = pause
		return
	}
	if m.next >= m.limit {
		if due {
			m.emit(Skipped{SkipNoID})
			m.passTick()
		}
		return
	}
	m.trigger(final)
}

func (m *Machine) trigger(final bool) {
	r := m.run
	p := &pending{
		id: m.next, attempt: r.attempt, base: m.Newest(), triggered: m.now, final: final, phase: collecting,
		tasks: r.tasks, acks: map[job.Task]Snapshot{}, waiters: m.requests,
	}
	full := m.full
	m.next++
	m.requests, m.full = nil, false
	if len(m.saves) > 0 {
		p.savepoint = &m.saves[0].savepoint
		p.waiters = append(p.waiters, m.saves[0].token)
		m.saves = m.saves[1:]
	}
	m.dueAt = m.now.Add(m.cfg.Interval)
	for _, t := range r.tasks {
		if s := r.state[t]; s.finished {
			p.acks[t] = *s.last
		}
	}
	m.pending = append(m.pending, p)
	m.emit(Trigger{Attempt: r.attempt, ID: p.id, Final: final, To: m.liveEnumerators(), Committed: p.base, Full: full, Savepoint: p.savepoint})
	m.reserve()
}

// saving tells whether a savepoint is on its way.
func (m *Machine) saving() bool {
	return slices.ContainsFunc(m.pending, func(p *pending) bool { return p.savepoint != nil })
}

// active tells whether checkpoints can be triggered at all. Without an enumerator there is nowhere
// for a barrier to enter: the tasks that are left are about to close.
func (m *Machine) active() bool {
	return m.run != nil && !m.run.failing && m.cfg.Mode != job.Off && len(m.liveEnumerators()) > 0
}

func (m *Machine) liveEnumerators() []job.Task {
	var out []job.Task
	for _, t := range m.run.enumerators {
		if !m.run.state[t].finished {
			out = append(out, t)
		}
	}
	return out
}

// allAtEnd tells whether no task will emit anything more.
func (m *Machine) allAtEnd() bool {
	for _, s := range m.run.state {
		if !s.endOfData {
			return false
		}
	}
	return true
}

// passTick moves the next periodic trigger to the next point of the interval's grid.
func (m *Machine) passTick() {
	missed := int64(m.now.Sub(m.dueAt)/m.cfg.Interval) + 1
	m.dueAt = m.dueAt.Add(time.Duration(missed * int64(m.cfg.Interval)))
}

// reserve asks for more ids before they run out.
func (m *Machine) reserve() {
	if !m.active() || m.reserving || m.now.Before(m.reserveAt) || m.limit-m.next > Block/2 {
		return
	}
	m.reserving = true
	m.emit(Reserve{Limit: m.limit + Block})
}

// NextDue is when the machine wants its next Due, and whether it wants one. It is valid until the
// next Step; the shell arms one timer with it.
func (m *Machine) NextDue() (time.Time, bool) {
	var at time.Time
	want := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	for _, p := range m.pending {
		switch p.phase {
		case collecting:
			want(p.triggered.Add(m.cfg.Timeout))
		case unknown:
			want(p.retryAt)
		}
	}
	if m.active() && !m.run.ended {
		want(m.dueAt)
		if m.finalAt.After(m.now) && m.allAtEnd() {
			want(m.finalAt)
		}
		if !m.reserving && m.limit-m.next <= Block/2 {
			want(m.reserveAt)
		}
	}
	return at, !at.IsZero()
}
