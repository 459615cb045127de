package exchange

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/cairnstream/cairn/record"
)

// Item is one thing taken from a gate: a batch, or a control event when Batch is nil.
type Item struct {
	Port    int
	Batch   record.Any
	Control record.Control
}

// Frame is an encoded batch that a transport delivered. Free, if set, takes the bytes back after
// they were decoded.
type Frame struct {
	Bytes []byte
	Free  func()
}

// entry is one element of a port's queue: a batch, a frame, or a control event.
type entry struct {
	batch   record.Any
	frame   Frame
	control record.Control
}

func (e *entry) isData() bool { return e.batch != nil || e.frame.Bytes != nil }

// Gate is the receiving end of all channels into one subtask. Transports deliver from their own
// goroutines; the subtask's goroutine alone takes, blocks and unblocks.
type Gate struct {
	ports []*Port
	ready chan struct{}
	rows  atomic.Int64 // Of a batch that the subtask can deal with in good time.

	mu struct {
		sync.Mutex
		runnable ring
		lag      lag
		err      error
		closed   bool
	}
}

// ring holds the indices of the ports to serve, in that order: those with entries that were not
// blocked when they were put there. A port is in it once at most, so it never outgrows its slots.
type ring struct {
	slots []int32
	head  int
	n     int
}

func (r *ring) push(i int) {
	at := r.head + r.n
	if at >= len(r.slots) {
		at -= len(r.slots)
	}
	r.slots[at] = int32(i)
	r.n++
}

func (r *ring) first() int { return int(r.slots[r.head]) }

func (r *ring) pop() int {
	i := r.slots[r.head]
	if r.head++; r.head == len(r.slots) {
		r.head = 0
	}
	r.n--
	return int(i)
}

// Port is the receiving end of one channel.
type Port struct {
	gate   *Gate
	index  int
	frames record.Frames
	taken  func(n int) // Called after data was taken; see OnTaken.
	room   chan struct{}

	// Guarded by gate.mu.
	queue   []entry
	head    int
	data    int // Batches and frames in queue.
	blocked bool
	listed  bool // In gate.mu.runnable.
}

// keepEntries bounds the queue memory that an empty port keeps: a gate may have thousands of them,
// and a busy channel has few entries queued at a time.
const keepEntries = 8

// compactEntries is how many taken entries a queue that never runs empty collects at its front
// before the rest moves down.
const compactEntries = 64

// NewGate makes a gate with one port for each element of frames, which decode what transports
// deliver to that port as frames.
func NewGate(frames []record.Frames) *Gate {
	g := &Gate{ready: make(chan struct{}, 1), ports: make([]*Port, 0, len(frames))}
	g.rows.Store(math.MaxInt64)
	g.mu.runnable.slots = make([]int32, len(frames))
	g.mu.lag = newLag()
	for i, f := range frames {
		g.ports = append(g.ports, &Port{gate: g, index: i, frames: f, room: make(chan struct{}, 1)})
	}
	return g
}

// Port returns port i.
func (g *Gate) Port(i int) *Port { return g.ports[i] }

// Ready is signalled when Poll may have something after it had nothing.
func (g *Gate) Ready() <-chan struct{} { return g.ready }

// Poll takes the next item from the unblocked ports, in turn but for Prefer. It returns false when there is none.
// An error means that a channel broke; the gate is of no further use.
func (g *Gate) Poll() (Item, bool, error) {
	g.mu.Lock()
	if g.mu.err != nil {
		err := g.mu.err
		g.mu.Unlock()
		return Item{}, false, err
	}
	p := g.next()
	if p == nil {
		g.mu.Unlock()
		return Item{}, false, nil
	}
	e := p.pop()
	wasData := e.isData()
	if wasData {
		p.data--
	}
	p.list()
	g.mu.Unlock()

	if !wasData {
		return Item{Port: p.index, Control: e.control}, true, nil
	}
	item := Item{Port: p.index, Batch: e.batch}
	var err error
	if e.batch == nil {
		item.Batch, err = p.frames.Decode(e.frame.Bytes)
		if e.frame.Free != nil {
			e.frame.Free()
		}
	}
	select {
	case p.room <- struct{}{}:
	default:
	}
	if p.taken != nil {
		p.taken(1)
	}
	if err != nil {
		return Item{}, false, fmt.Errorf("input %d: %w", p.index, err)
	}
	return item, true, nil
}

// PollBarrier takes a barrier or cancel-barrier that is the next item of an unblocked port, and
// leaves everything else where it is. A subtask that still has to act on what it took before may
// take barriers in between.
func (g *Gate) PollBarrier() (Item, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.err != nil {
		return Item{}, false // Poll returns it.
	}
	for range g.mu.runnable.n {
		p := g.ports[g.mu.runnable.pop()]
		p.listed = false
		if p.blocked || p.len() == 0 {
			continue
		}
		if e := &p.queue[p.head]; !e.isData() && (e.control.Kind == record.Barrier || e.control.Kind == record.CancelBarrier) {
			c := p.pop().control
			p.list()
			return Item{Port: p.index, Control: c}, true
		}
		p.list()
	}
	return Item{}, false
}

// Block stops Poll from taking of port i until Unblock. What arrives meanwhile stays queued.
func (g *Gate) Block(i int) {
	g.mu.Lock()
	g.ports[i].blocked = true
	g.mu.Unlock()
}

// Unblock lets Poll take of port i again.
func (g *Gate) Unblock(i int) {
	g.mu.Lock()
	p := g.ports[i]
	p.blocked = false
	wake := p.list()
	g.mu.Unlock()
	if wake {
		g.signal()
	}
}

// Close drops everything queued; what is delivered later is dropped too.
func (g *Gate) Close() {
	g.mu.Lock()
	g.mu.closed = true
	var drop []entry
	for _, p := range g.ports {
		drop = append(drop, p.queue[p.head:]...)
		p.queue, p.head, p.data, p.listed = nil, 0, 0, false
	}
	g.mu.runnable.head, g.mu.runnable.n = 0, 0
	g.mu.Unlock()
	for i := range drop {
		drop[i].release()
	}
	for _, p := range g.ports {
		select {
		case p.room <- struct{}{}:
		default:
		}
	}
}

func (e *entry) release() {
	if e.batch != nil {
		e.batch.Release()
	}
	if e.frame.Free != nil {
		e.frame.Free()
	}
}

// Fail breaks the gate: the next Poll returns err. The first error stays.
func (g *Gate) Fail(err error) {
	g.mu.Lock()
	if g.mu.err == nil {
		g.mu.err = err
	}
	g.mu.Unlock()
	g.signal()
}

func (g *Gate) signal() {
	select {
	case g.ready <- struct{}{}:
	default:
	}
}

// OnTaken sets what the gate calls, on the subtask's goroutine and without a lock, each time it
// took data from p. A transport returns credit there; it must not block. Set before Start of the
// run.
func (p *Port) OnTaken(f func(n int)) { p.taken = f }

// Batch delivers a batch. The transport has made sure that there is room.
func (p *Port) Batch(b record.Any) error { return p.push(entry{batch: b}) }

// Frame delivers an encoded batch. The transport has made sure that there is room.
func (p *Port) Frame(f Frame) error { return p.push(entry{frame: f}) }

// Control delivers a control event, for which there is always room.
func (p *Port) Control(c record.Control) error { return p.push(entry{control: c}) }

// Fail breaks the whole gate of p. err names the channel and its peer.
func (p *Port) Fail(err error) { p.gate.Fail(err) }

// TryBatch delivers b if fewer than limit batches are queued on p. When it returns false without
// an error there was no room: the caller waits for Room and tries again.
func (p *Port) TryBatch(b record.Any, limit int) (bool, error) {
	g := p.gate
	g.mu.Lock()
	if g.mu.closed {
		g.mu.Unlock()
		return false, ErrClosed
	}
	if p.data >= limit {
		g.mu.Unlock()
		return false, nil
	}
	wake := p.append(entry{batch: b})
	g.mu.Unlock()
	if wake {
		g.signal()
	}
	return true, nil
}

// SetRows says how many rows a batch should have at most, so that what is queued keeps the subtask busy for a short time
// only: a barrier waits behind it.
func (g *Gate) SetRows(n int) { g.rows.Store(int64(n)) }

// Rows is what SetRows said. Any goroutine may call it.
func (p *Port) Rows() int { return int(p.gate.rows.Load()) }

// Room is signalled when data was taken from p or its gate closed.
func (p *Port) Room() <-chan struct{} { return p.room }

// Queued is the number of batches and frames waiting in p.
func (p *Port) Queued() int {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	return p.data
}

func (p *Port) push(e entry) error {
	g := p.gate
	g.mu.Lock()
	if g.mu.closed {
		g.mu.Unlock()
		e.release()
		return ErrClosed
	}
	wake := p.append(e)
	g.mu.Unlock()
	if wake {
		g.signal()
	}
	return nil
}

// append queues e; it tells whether the subtask may be waiting for it. gate.mu is held.
func (p *Port) append(e entry) bool {
	p.queue = append(p.queue, e)
	if e.isData() {
		p.data++
	}
	return p.list() || p.gate.mu.lag.awaits(p.index)
}

func (p *Port) pop() entry {
	e := p.queue[p.head]
	p.queue[p.head] = entry{}
	p.head++
	switch {
	case p.head == len(p.queue) && cap(p.queue) > keepEntries:
		p.queue, p.head = nil, 0
	case p.head == len(p.queue):
		p.queue, p.head = p.queue[:0], 0
	case p.head >= compactEntries && p.head*2 >= len(p.queue):
		n := copy(p.queue, p.queue[p.head:])
		clear(p.queue[n:])
		p.queue, p.head = p.queue[:n], 0
	}
	return e
}

func (p *Port) len() int { return len(p.queue) - p.head }

// list puts p among the runnable ports if it belongs there and is not yet; it tells whether the
// list was empty before. gate.mu is held.
func (p *Port) list() bool {
	if p.listed || p.blocked || p.len() == 0 {
		return false
	}
	p.listed = true
	p.gate.mu.runnable.push(p.index)
	return p.gate.mu.runnable.n == 1
}
