package watermark

// Merge joins the watermarks of n inputs: the merged one is the lowest of those that are active.
//
// An idle input constrains nothing until it is active again; it may come back with a watermark
// behind the merged one, which then stands until the input has caught up, so that as few of its
// records as possible are late. When the last active input becomes idle, the merged watermark
// rises to the highest of the idle ones: to what it would be if they had become idle in another
// order.
//
// An input that has ended, by Close or by the watermark Max, constrains nothing for good. When all
// have, the merged watermark is Max. It is not Max while an idle input may come back.
//
// The merged watermark never goes back. A step costs O(log n). One goroutine uses a Merge.
type Merge struct {
	merged int64
	inputs []input
	active heap // Lowest watermark first.
	idle   heap // Highest watermark first.
}

type input struct {
	time  int64
	state inputState
	pos   int // In the heap of its state.
}

type inputState uint8

const (
	inputActive inputState = iota
	inputIdle
	inputEnded
)

// NewMerge returns the merge of n inputs, all active, none of which has a watermark yet. The merged
// watermark starts at floor: that of the checkpoint that was restored, or Min.
func NewMerge(n int, floor int64) *Merge {
	m := &Merge{merged: floor, inputs: make([]input, n)}
	m.active = heap{inputs: m.inputs}
	m.idle = heap{inputs: m.inputs, highest: true}
	m.active.order = make([]int32, 0, n)
	for i := range m.inputs {
		m.inputs[i].time = Min
		m.active.push(i)
	}
	return m
}

// Current is the merged watermark.
func (m *Merge) Current() int64 { return m.merged }

// Behind is the active input with the lowest watermark: the one that holds the merged one back. It is -1 when that does
// not tell one input from others, as before the first watermark.
func (m *Merge) Behind() int {
	order := m.active.order
	if len(order) < 2 {
		return -1
	}
	low := m.inputs[order[0]].time
	if low == Min {
		return -1
	}
	for _, i := range order[1:min(3, len(order))] { // The next ones in the heap.
		if m.inputs[i].time > low {
			return int(order[0])
		}
	}
	return -1
}

// AllIdle tells whether the merged stream is idle: no input is active and not all have ended.
func (m *Merge) AllIdle() bool { return len(m.active.order) == 0 && len(m.idle.order) > 0 }

// Update takes a watermark of input i, which becomes active if it was idle. It returns the merged
// watermark and whether that advanced. A watermark behind an earlier one of the same input is
// taken for the earlier.
func (m *Merge) Update(i int, time int64) (merged int64, advanced bool) {
	in := &m.inputs[i]
	if time == Max {
		return m.Close(i)
	}
	switch in.state {
	case inputActive:
		if time > in.time {
			in.time = time
			m.active.down(in.pos)
		}
	case inputIdle:
		m.idle.remove(in.pos)
		in.time, in.state = max(in.time, time), inputActive
		m.active.push(i)
	case inputEnded:
		return m.merged, false
	}
	return m.settle()
}

// Idle says that input i is idle.
func (m *Merge) Idle(i int) (merged int64, advanced bool) {
	in := &m.inputs[i]
	if in.state != inputActive {
		return m.merged, false
	}
	m.active.remove(in.pos)
	in.state = inputIdle
	m.idle.push(i)
	return m.settle()
}

// Active says that input i is no longer idle. Its last watermark counts again.
func (m *Merge) Active(i int) (merged int64, advanced bool) {
	if m.inputs[i].state != inputIdle {
		return m.merged, false
	}
	return m.Update(i, m.inputs[i].time)
}

// Close says that input i has ended.
func (m *Merge) Close(i int) (merged int64, advanced bool) {
	in := &m.inputs[i]
	switch in.state {
	case inputActive:
		m.active.remove(in.pos)
	case inputIdle:
		m.idle.remove(in.pos)
	case inputEnded:
		return m.merged, false
	}
	in.state = inputEnded
	return m.settle()
}

// settle advances the merged watermark to what the inputs allow.
func (m *Merge) settle() (int64, bool) {
	allowed := Max
	switch {
	case len(m.active.order) > 0:
		allowed = m.inputs[m.active.order[0]].time
	case len(m.idle.order) > 0:
		allowed = m.inputs[m.idle.order[0]].time
	}
	if allowed <= m.merged {
		return m.merged, false
	}
	m.merged = allowed
	return allowed, true
}

// heap is a binary heap of inputs by time. Inputs know their place in it.
type heap struct {
	inputs  []input
	order   []int32
	highest bool // First, else the lowest.
}

func (h *heap) push(i int) {
	h.order = append(h.order, int32(i))
	h.inputs[i].pos = len(h.order) - 1
	h.up(len(h.order) - 1)
}

func (h *heap) remove(pos int) {
	last := len(h.order) - 1
	h.swap(pos, last)
	h.order = h.order[:last]
	if pos < last {
		h.down(pos)
		h.up(pos)
	}
}

func (h *heap) less(a, b int) bool {
	x, y := h.inputs[h.order[a]].time, h.inputs[h.order[b]].time
	if h.highest {
		return x > y
	}
	return x < y
}

func (h *heap) swap(a, b int) {
	h.order[a], h.order[b] = h.order[b], h.order[a]
	h.inputs[h.order[a]].pos = a
	h.inputs[h.order[b]].pos = b
}

func (h *heap) up(pos int) {
	for pos > 0 {
		parent := (pos - 1) / 2
		if !h.less(pos, parent) {
			return
		}
		h.swap(pos, parent)
		pos = parent
	}
}

func (h *heap) down(pos int) {
	for {
		child := 2*pos + 1
		if child >= len(h.order) {
			return
		}
		if child+1 < len(h.order) && h.less(child+1, child) {
			child++
		}
		if !h.less(child, pos) {
			return
		}
		h.swap(pos, child)
		pos = child
	}
}
