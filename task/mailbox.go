package task

import (
	"sync"
	"sync/atomic"
)

// mailbox holds what other goroutines ask a subtask to do. Posting never blocks.
type mailbox struct {
	has    atomic.Bool
	signal chan struct{}
	mu     struct {
		sync.Mutex
		items  []func() error
		closed bool
	}
}

func newMailbox() *mailbox { return &mailbox{signal: make(chan struct{}, 1)} }

// post adds f. After close it is dropped.
func (m *mailbox) post(f func() error) {
	m.mu.Lock()
	if m.mu.closed {
		m.mu.Unlock()
		return
	}
	m.mu.items = append(m.mu.items, f)
	m.has.Store(true)
	m.mu.Unlock()
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// take returns what was posted since the last call, in order.
func (m *mailbox) take() []func() error {
	if !m.has.Load() {
		return nil
	}
	m.mu.Lock()
	items := m.mu.items
	m.mu.items = nil
	m.has.Store(false)
	m.mu.Unlock()
	return items
}

func (m *mailbox) close() {
	m.mu.Lock()
	m.mu.closed, m.mu.items = true, nil
	m.mu.Unlock()
}
