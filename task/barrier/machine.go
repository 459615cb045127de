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

func (a Block) String() string   { return fmt.Sprintf("block %d", a.Channel) }
func (a Unblock) String() string { return fmt.Sprintf("unblock %d", a.Channel) }
func (a Capture) String() string { return fmt.Sprintf("capture %v", a.Barrier.Checkpoint) }
func (a GiveUp) String() string  { return fmt.Sprintf("give up %v: %s", a.Checkpoint, a.Reason) }

// maxAborted bounds how many aborted checkpoints are remembered. More cannot be on their way: the
// coordinator has a few in flight, and their ids only grow.
const maxAborted = 128

// Machine is the barrier state of one subtask. The subtask's goroutine owns it.
//
// In exactly-once mode a channel that delivered the barrier is blocked until the others have too.
// In at-least-once mode nothing is blocked: the records behind the barrier on a fast channel are
// in the snapshot as well. The mode comes with the barrier.
type Machine struct {
	channels []channel
	open     int // Channels that are not closed.
	pending  []*pending
	done     job.CheckpointID   // Newest that was captured or given up. Older barriers are late.
	aborted  []job.CheckpointID // Aborted before their barrier came, ascending, all above done.
}

type channel struct {
	closed  bool
	blocked bool
	newest  job.CheckpointID // Newest barrier or cancel-barrier that came.
}

// pending is a checkpoint whose barrier has come on some channels. There is at most one in
// exactly-once mode, since they are blocked.
type pending struct {
	barrier record.Control
	arrived []bool
	missing int // Open channels that have not delivered it.
}

// New makes the machine of a subtask with n input channels.
func New(n int) *Machine {
	return &Machine{channels: make([]channel, n), open: n}
}

// Barrier takes a barrier that came on channel ch.
func (m *Machine) Barrier(ch int, c record.Control) []Action {
	k := &m.channels[ch]
	if k.closed || c.Checkpoint <= k.newest {
		return nil // Repeated.
	}
	k.newest = c.Checkpoint
	if c.Checkpoint <= m.done {
		return nil // Late: it was given up, or overtaken.
	}
	if m.takeAborted(c.Checkpoint) {
		return m.giveUpTo(c.Checkpoint, "aborted by the coordinator")
	}
	p := m.find(c.Checkpoint)
	var out []Action
	if p == nil {
		// In exactly-once mode a newer barrier shows that the older one will not come on this
		// channel any more.
		if c.Mode != job.AtLeastOnce && len(m.pending) > 0 {
			if last := m.pending[len(m.pending)-1]; last.barrier.Checkpoint < c.Checkpoint {
				out = append(out, m.giveUpTo(last.barrier.Checkpoint, fmt.Sprintf("overtaken by %v", c.Checkpoint))...)
			}
		}
		p = m.insert(c)
	}
	p.arrived[ch] = true
	p.missing--
	if p.missing > 0 {
		if c.Mode != job.AtLeastOnce {
			k.blocked = true
			out = append(out, Block{ch})
		}
		return out
	}
	return append(out, m.capture(p)...)
}

// Cancel takes a cancel-barrier that came on channel ch.
func (m *Machine) Cancel(ch int, id job.CheckpointID) []Action {
	k := &m.channels[ch]
	if k.closed || id <= k.newest {
		return nil
	}
	k.newest = id
	if id <= m.done {
		return nil
	}
	m.takeAborted(id)
	return m.giveUpTo(id, "cancelled upstream")
}

// Abort takes the coordinator's word that a checkpoint will never complete. If its barrier has not
// come yet it is remembered.
func (m *Machine) Abort(id job.CheckpointID) []Action {
	if id <= m.done {
		return nil
	}
	if m.find(id) != nil {
		return m.giveUp(id, "aborted by the coordinator")
	}
	i, found := slices.BinarySearch(m.aborted, id)
	if found {
		return nil
	}
	m.aborted = slices.Insert(m.aborted, i, id)
	if len(m.aborted) > maxAborted {
		m.aborted = m.aborted[1:]
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
	var out []Action
	for _, p := range slices.Clone(m.pending) {
		if p.arrived[ch] {
			continue
		}
		if p.missing--; p.missing == 0 {
			out = append(out, m.capture(p)...)
		}
	}
	return out
}

// Trigger takes a barrier that enters here: a subtask without input channels captures at once.
func (m *Machine) Trigger(c record.Control) []Action {
	if c.Checkpoint <= m.done {
		return nil
	}
	m.done = c.Checkpoint
	if m.takeAborted(c.Checkpoint) {
		return []Action{GiveUp{c.Checkpoint, "aborted by the coordinator"}}
	}
	m.forgetAborted()
	return []Action{Capture{c}}
}

func (m *Machine) find(id job.CheckpointID) *pending {
	for _, p := range m.pending {
		if p.barrier.Checkpoint == id {
			return p
		}
	}
	return nil
}

func (m *Machine) insert(c record.Control) *pending {
	p := &pending{barrier: c, arrived: make([]bool, len(m.channels)), missing: m.open}
	i := len(m.pending)
	for i > 0 && m.pending[i-1].barrier.Checkpoint > c.Checkpoint {
		i--
	}
	m.pending = slices.Insert(m.pending, i, p)
	return p
}

// capture completes p. Older checkpoints that still wait are given up: their barriers will be late.
func (m *Machine) capture(p *pending) []Action {
	id := p.barrier.Checkpoint
	var out []Action
	for len(m.pending) > 0 && m.pending[0].barrier.Checkpoint < id {
		old := m.pending[0].barrier.Checkpoint
		out = append(out, GiveUp{old, fmt.Sprintf("overtaken by %v", id)})
		m.pending = m.pending[1:]
	}
	m.pending = slices.DeleteFunc(m.pending, func(q *pending) bool { return q == p })
	m.done = id
	m.forgetAborted()
	out = append(out, Capture{p.barrier})
	return append(out, m.unblock()...)
}

// giveUpTo gives up checkpoint id and all that are older.
func (m *Machine) giveUpTo(id job.CheckpointID, reason string) []Action {
	var out []Action
	for len(m.pending) > 0 && m.pending[0].barrier.Checkpoint < id {
		old := m.pending[0].barrier.Checkpoint
		out = append(out, GiveUp{old, fmt.Sprintf("overtaken by %v", id)})
		m.pending = m.pending[1:]
	}
	m.pending = slices.DeleteFunc(m.pending, func(q *pending) bool { return q.barrier.Checkpoint == id })
	m.done = max(m.done, id)
	m.forgetAborted()
	out = append(out, GiveUp{id, reason})
	return append(out, m.unblock()...)
}

// giveUp gives up checkpoint id alone. Older ones in at-least-once mode go on.
func (m *Machine) giveUp(id job.CheckpointID, reason string) []Action {
	if m.pending[0].barrier.Checkpoint == id {
		return m.giveUpTo(id, reason)
	}
	m.pending = slices.DeleteFunc(m.pending, func(q *pending) bool { return q.barrier.Checkpoint == id })
	i, found := slices.BinarySearch(m.aborted, id)
	if !found {
		m.aborted = slices.Insert(m.aborted, i, id) // Its barrier still comes on other channels.
	}
	return append([]Action{GiveUp{id, reason}}, m.unblock()...)
}

// unblock frees the channels that no pending exactly-once checkpoint holds.
func (m *Machine) unblock() []Action {
	var out []Action
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
		if p.barrier.Mode != job.AtLeastOnce && p.arrived[ch] {
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
	m.aborted = m.aborted[i:]
}

// String shows the whole state.
func (m *Machine) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "done=%v", m.done)
	for _, p := range m.pending {
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
