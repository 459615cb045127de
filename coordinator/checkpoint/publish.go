package checkpoint

import (
	"maps"
	"slices"

	"github.com/cairnstream/cairn/job"
)

// publishNext publishes the newest checkpoint that every task acknowledged. One at a time, so that
// ids commit in ascending order; what the newest overtakes needs no publication of its own.
func (m *Machine) publishNext() {
	var newest *pending
	for _, p := range m.pending {
		switch p.phase {
		case publishing, unknown:
			return
		case acked:
			newest = p
		}
	}
	if newest == nil {
		return
	}
	newest.phase = publishing
	m.emit(Publish{
		Attempt: newest.attempt, ID: newest.id, Final: newest.final, Savepoint: newest.savepoint, Triggered: newest.triggered,
		Snapshots: maps.Clone(newest.acks),
	})
}

func (m *Machine) published(ev Published) {
	p := m.find(ev.ID)
	if p == nil || p.phase != publishing && p.phase != unknown {
		return // Answered already.
	}
	switch ev.Outcome {
	case PublishCommitted:
		m.commit(p)
	case PublishFailed:
		m.abort(p, ReasonPublish, ev.Failure)
	case PublishUnknown:
		p.phase = unknown
		p.retryAt = m.now.Add(retryPause)
	}
}

// resolve asks again how an unknown publication ended.
func (m *Machine) resolve() {
	for _, p := range m.pending {
		if p.phase == unknown && !m.now.Before(p.retryAt) {
			p.phase = publishing
			m.emit(Resolve{p.id})
		}
	}
}

// commit is past the commit point: all that follows must be carried out, again if need be.
func (m *Machine) commit(p *pending) {
	m.remove(p)
	m.committed = append(m.committed, Committed{p.id, p.objects()})
	m.completed = m.now
	m.failures = 0
	final := p.final || p.endOfData()
	if m.run != nil && m.run.attempt == p.attempt {
		m.run.ended = m.run.ended || final || p.savepoint != nil && p.savepoint.Stop
		for t, s := range p.acks {
			m.run.state[t].last = &s
		}
	}
	m.emit(Complete{Attempt: p.attempt, ID: p.id, Final: final, Duration: m.now.Sub(p.triggered), Bytes: p.bytes()})
	for _, q := range slices.Clone(m.pending) {
		if q.id < p.id {
			// Who waits for it has what he wants: a newer one.
			p.waiters = append(p.waiters, q.waiters...)
			q.waiters = nil
			m.abort(q, ReasonSubsumed, nil)
		}
	}
	for _, t := range p.waiters {
		m.emit(Reply{Token: t, Verdict: VerdictCompleted, ID: p.id})
	}
	m.release(p.id, p.spare, false)
}

// objectsOf is the union of the objects of a manifest's operators.
func objectsOf(ops map[string]job.OperatorSnapshot) []string {
	var out []string
	for _, op := range ops {
		for _, sub := range op.Subtasks {
			for _, h := range sub.States {
				if h.Object != "" {
					out = append(out, h.Object)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// CommittedOf describes a checkpoint by what its manifest holds.
func CommittedOf(id job.CheckpointID, ops map[string]job.OperatorSnapshot) Committed {
	return Committed{ID: id, Objects: objectsOf(ops)}
}
