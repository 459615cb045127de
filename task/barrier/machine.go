package barrier

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// Action is what the loop has to do.
type Action interface{ String() string }

type (
	// Block says to take nothing more from a channel until Unblock.
	Block struct{ Channel int }
	// Unblock undoes Block.
	Unblock struct{ Channel int }
	// Capture says that the barrier has come on every channel: flush, forward it, and take the
	// snapshot. The Unblocks behind it wait for the synchronous part.
	Capture struct{ Barrier record.Control }
	// GiveUp says that the snapshot of a checkpoint will not be taken here, and downstream is to
	// be told so by a cancel-barrier.
	GiveUp struct {
		Checkpoint job.CheckpointID
		Reason     string
	}
)

// ByCoordinator is the reason of a GiveUp that the coordinator asked for.
const ByCoordinator = "aborted by the coordinator"

func (a Block) String() string   { return fmt.Sprintf("block %d", a.Channel) }
func (a Unblock) String() string { return fmt.Sprintf("unblock %d", a.Channel) }
func (a Capture) String() string { return fmt.Sprintf("capture %v", a.Barrier.Checkpoint) }
func (a GiveUp) String() string  { return fmt.Sprintf("give up %v: %s", a.Checkpoint, a.Reason) }

// maxAborted bounds how many aborted checkpoints are remembered. More cannot be on their way: the
// coordinator has a few in flight, and their ids only grow.
const maxAborted = 128

const (
	abortedReason   = ByCoordinator
	cancelledReason = "cancelled upstream"
)

// Machine is the barrier state of one subtask. The subtask's goroutine owns it.
//
// In exactly-once mode a channel that delivered the barrier is blocked until the others have too.
// In at-least-once mode nothing is blocked: the records behind the barrier on a fast channel are
// in the snapshot as well. The mode comes with the barrier.
//
// A channel delivers barriers and cancel-barriers in ascending order of their ids, so one that has
// delivered an id will not deliver a lower one. Capture and GiveUp keep that order, at most one of
// them for each id, because they become the barriers and cancel-barriers of the outputs: while an
// older checkpoint is still coming, in at-least-once mode, a newer one waits for its end.
type Machine struct {
	channels []channel
	open     int                // Channels that are not closed.
	pending  []*pending         // Ascending, all above done.
	done     job.CheckpointID   // Newest that was captured or given up. Older barriers are late.
	aborted  []job.CheckpointID // Aborted before their barrier came, ascending, all above done.
}

type channel struct {
	closed  bool
	blocked bool
	newest  job.CheckpointID // Newest barrier or cancel-barrier that came.
}

// pending is a checkpoint that is known from some channels. There is at most one in exactly-once
// mode, since they are blocked.
type pending struct {
	barrier record.Control
	arrived []bool
	missing int    // Open channels that have not delivered it.
	lost    string // Why it will be given up, as soon as no older one waits; empty if it will not.
	freed   bool   // It is lost, and the channels that it held were freed.
}

// New makes the machine of a subtask with n input channels.
func New(n int) *Machine {
	return &Machine{channels: make([]channel, n), open: n}
}

// Barrier takes a barrier that came on channel ch.
func (m *Machine) Barrier(ch int, c record.Control) []Action {
	id := c.Checkpoint
	if !m.advance(ch, id) {
		return nil
	}
	p := m.find(id)
	if p == nil {
		p = m.at(c)
		for i := range m.channels { // From now on advance sees to it.
			if newest := m.channels[i].newest; newest > id { // It will not come there any more.
				p.lose(fmt.Sprintf("overtaken by %v", newest))
			}
		}
	}
	if m.takeAborted(id) {
		p.lose(abortedReason)
	}
	p.arrived[ch] = true
	p.missing--
	out := m.settle()
	if p.lost == "" && p.missing > 0 && c.Mode != job.AtLeastOnce {
		m.channels[ch].blocked = true
		out = append(out, Block{ch})
	}
	return out
}

// Cancel takes a cancel-barrier that came on channel ch.
func (m *Machine) Cancel(ch int, id job.CheckpointID) []Action {
	if !m.advance(ch, id) {
		return nil
	}
	m.takeAborted(id)
	m.at(record.Control{Kind: record.Barrier, Checkpoint: id}).lose(cancelledReason)
	return m.settle()
}

// Abort takes the coordinator's word that a checkpoint will never complete. If its barrier has not
// come yet it is remembered.
func (m *Machine) Abort(id job.CheckpointID) []Action {
	if id <= m.done {
		return nil
	}
	if p := m.find(id); p != nil {
		p.lose(abortedReason)
		return m.settle()
	}
	i, found := slices.BinarySearch(m.aborted, id)
	if found {
		return nil
	}
	m.aborted = slices.Insert(m.aborted, i, id)
	if len(m.aborted) > maxAborted {
		m.aborted = slices.Delete(m.aborted, 0, 1)
	}
	return nil
}

// Close says that channel ch is closed: it has delivered all its barriers.
func (m *Machine) Close(ch int) []Action {
	k := &m.channels[ch]
	if k.closed {
		return nil
	}
	k.closed = true
	m.open--
	for _, p := range m.pending {
		if !p.arrived[ch] {
			p.missing--
		}
	}
	return m.settle()
}

// Trigger takes a barrier that enters here: a subtask without input channels captures at once.
func (m *Machine) Trigger(c record.Control) []Action {
	if c.Checkpoint <= m.done {
		return nil
	}
	p := m.at(c)
	if m.takeAborted(c.Checkpoint) {
		p.lose(abortedReason)
	}
	return m.settle()
}

// advance notes that channel ch delivered something of checkpoint id; older ones that it has not
// delivered are lost. It tells whether that is news: id is neither repeated nor late.
func (m *Machine) advance(ch int, id job.CheckpointID) bool {
	k := &m.channels[ch]
	if k.closed || id <= k.newest {
		return false
	}
	k.newest = id
	for _, p := range m.pending {
		if p.barrier.Checkpoint < id && !p.arrived[ch] {
			p.lose(fmt.Sprintf("overtaken by %v", id))
		}
	}
	return id > m.done
}

// at returns the pending checkpoint of c, a new one if there is none.
func (m *Machine) at(c record.Control) *pending {
	if p := m.find(c.Checkpoint); p != nil {
		return p
	}
	p := &pending{barrier: c, arrived: make([]bool, len(m.channels)), missing: m.open}
	i := len(m.pending)
	for i > 0 && m.pending[i-1].barrier.Checkpoint > c.Checkpoint {
		i--
	}
	m.pending = slices.Insert(m.pending, i, p)
	return p
}

func (m *Machine) find(id job.CheckpointID) *pending {
	for _, p := range m.pending {
		if p.barrier.Checkpoint == id {
			return p
		}
	}
	return nil
}

// lose decides that p is given up. The first reason stays.
func (p *pending) lose(reason string) {
	if p.lost == "" {
		p.lost = reason
	}
}

// settle ends the pending checkpoints that can be ended, oldest first, and frees the channels that
// they held.
func (m *Machine) settle() []Action {
	var out []Action
	changed := false // A barrier alone frees nothing: with many channels that need not be looked at each time.
	for _, p := range m.pending {
		if p.lost != "" && !p.freed {
			p.freed, changed = true, true
		}
	}
	for len(m.pending) > 0 {
		p := m.pending[0]
		switch {
		case p.lost != "":
			out = append(out, GiveUp{p.barrier.Checkpoint, p.lost})
		case p.missing == 0:
			out = append(out, Capture{p.barrier})
		default:
			return m.unblock(out, changed)
		}
		changed = true
		m.done = p.barrier.Checkpoint
		m.pending = slices.Delete(m.pending, 0, 1)
		m.forgetAborted()
	}
	return m.unblock(out, changed)
}

// unblock frees the channels that no pending exactly-once checkpoint holds, if there can be any.
func (m *Machine) unblock(out []Action, changed bool) []Action {
	if !changed {
		return out
	}
	for i := range m.channels {
		if !m.channels[i].blocked || m.holds(i) {
			continue
		}
		m.channels[i].blocked = false
		out = append(out, Unblock{i})
	}
	return out
}

func (m *Machine) holds(ch int) bool {
	for _, p := range m.pending {
		if p.lost == "" && p.barrier.Mode != job.AtLeastOnce && p.arrived[ch] {
			return true
		}
	}
	return false
}

func (m *Machine) takeAborted(id job.CheckpointID) bool {
	i, found := slices.BinarySearch(m.aborted, id)
	if found {
		m.aborted = slices.Delete(m.aborted, i, i+1)
	}
	return found
}

func (m *Machine) forgetAborted() {
	i, _ := slices.BinarySearch(m.aborted, m.done+1)
	m.aborted = slices.Delete(m.aborted, 0, i)
}

// String shows the whole state.
func (m *Machine) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "done=%v", m.done)
	for _, p := range m.pending {
		if p.lost != "" {
			fmt.Fprintf(&b, " %v(lost)", p.barrier.Checkpoint)
			continue
		}
		fmt.Fprintf(&b, " %v(%s missing=%d)", p.barrier.Checkpoint, p.barrier.Mode, p.missing)
	}
	var blocked, closed []int
	for i, c := range m.channels {
		if c.blocked {
			blocked = append(blocked, i)
		}
		if c.closed {
			closed = append(closed, i)
		}
	}
	if len(blocked) > 0 {
		fmt.Fprintf(&b, " blocked=%v", blocked)
	}
	if len(closed) > 0 {
		fmt.Fprintf(&b, " closed=%v", closed)
	}
	if len(m.aborted) > 0 {
		fmt.Fprintf(&b, " aborted=%v", m.aborted)
	}
	return b.String()
}
