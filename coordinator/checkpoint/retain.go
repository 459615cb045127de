package checkpoint

import (
	"maps"
	"slices"

	"github.com/cairnstream/cairn/job"
)

// trim discards the oldest committed checkpoints beyond retention. One that a checkpoint on its way
// has as its base stays meanwhile: new acknowledgements may refer to its objects. So does one that is
// pinned, in place of another one.
func (m *Machine) trim() {
	for i := 0; len(m.committed) > m.cfg.Retained && i < len(m.committed)-1; {
		if c := m.committed[i]; m.pinned(c.ID) {
			i++
		} else {
			m.committed = slices.Delete(m.committed, i, i+1)
			m.discard(c)
		}
	}
}

func (m *Machine) pinned(id job.CheckpointID) bool {
	return m.pins[id] > 0 || slices.ContainsFunc(m.pending, func(p *pending) bool { return p.base == id })
}

// forget discards everything that committed, if that was asked for and nothing is on its way; what is
// pinned, when it is not any more. What the later ones share is deleted with the last of them.
func (m *Machine) forget() {
	if !m.unwanted || m.run != nil || len(m.pending) > 0 {
		return
	}
	for i := 0; i < len(m.committed); {
		if c := m.committed[i]; m.pins[c.ID] > 0 {
			i++
		} else {
			m.committed = slices.Delete(m.committed, i, i+1)
			m.discard(c)
		}
	}
}

func (m *Machine) discard(c Committed) {
	m.discarded[c.ID] = true
	m.emit(Discard{ID: c.ID, Objects: m.unused(c.Objects)})
}

// release lets go of the objects of an ack or of a checkpoint that did not commit.
func (m *Machine) release(id job.CheckpointID, objects []string, manifest bool) {
	if free := m.unused(objects); len(free) > 0 || manifest {
		m.emit(Release{ID: id, Objects: free, Manifest: manifest})
	}
}

// unused leaves out the objects that something alive refers to: a committed checkpoint that is kept,
// an accepted ack of one on its way, the last snapshot of a finished task.
func (m *Machine) unused(objects []string) []string {
	if len(objects) == 0 {
		return nil
	}
	free := make(map[string]bool, len(objects))
	for _, o := range objects {
		free[o] = true
	}
	for _, c := range m.committed {
		for _, o := range c.Objects {
			delete(free, o)
		}
	}
	for _, p := range m.pending {
		for _, s := range p.acks {
			for _, o := range s.Objects() {
				delete(free, o)
			}
		}
	}
	if m.run != nil {
		for _, t := range m.run.state {
			if t.last != nil && t.finished {
				for _, o := range t.last.Objects() {
					delete(free, o)
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(free))
}

// Live lists every object that something alive refers to, and Ended is the id below which every
// checkpoint has ended: what a sweep needs to know. What a checkpoint from Ended on may come to refer
// to, besides its own objects, is in Live already.
func (m *Machine) Live() map[string]bool {
	live := map[string]bool{}
	for _, c := range m.committed {
		for _, o := range c.Objects {
			live[o] = true
		}
	}
	for _, p := range m.pending {
		for _, o := range p.objects() {
			live[o] = true
		}
	}
	return live
}

// Ended is the id below which every checkpoint has ended; see Live.
func (m *Machine) Ended() job.CheckpointID {
	if len(m.pending) > 0 {
		return m.pending[0].id
	}
	return m.next
}
