package coordinator

import "sync"

// mailbox is an unbounded queue into a job's loop. Putting never blocks: what comes in is bounded by
// the number of tasks and of callers.
type mailbox struct {
	ready chan struct{} // Holds one token while something is in.
	mu    struct {
		sync.Mutex
		items  []any
		closed bool
	}
}

func newMailbox() *mailbox { return &mailbox{ready: make(chan struct{}, 1)} }

func (m *mailbox) put(item any) {
	m.mu.Lock()
	if !m.mu.closed {
		m.mu.items = append(m.mu.items, item)
	}
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

func (m *mailbox) take() []any {
	m.mu.Lock()
	defer m.mu.Unlock()
	items := m.mu.items
	m.mu.items = nil
	return items
}

// close drops what is in and what still comes; it returns what was in.
func (m *mailbox) close() []any {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.closed = true
	items := m.mu.items
	m.mu.items = nil
	return items
}

func (m *mailbox) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.closed
}
