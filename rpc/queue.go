package rpc

import "sync"

// queue holds what is to be sent on a stream. Any goroutine may put; one takes. Putting never blocks.
type queue[T any] struct {
	limit int
	ready chan struct{} // Signalled when there is something to take.

	mu struct {
		sync.Mutex
		items  []T
		closed bool
	}
}

// newQueue makes a queue that holds at most limit items.
func newQueue[T any](limit int) *queue[T] {
	return &queue[T]{limit: limit, ready: make(chan struct{}, 1)}
}

// put appends v. It returns false when the queue is full: then the other side does not take what it is sent, and the
// session is over. What is put after close is dropped.
func (q *queue[T]) put(v T) bool {
	q.mu.Lock()
	if q.mu.closed {
		q.mu.Unlock()
		return true
	}
	if len(q.mu.items) >= q.limit {
		q.mu.Unlock()
		return false
	}
	q.mu.items = append(q.mu.items, v)
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
	return true
}

// take removes and returns everything, oldest first.
func (q *queue[T]) take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.mu.items
	q.mu.items = nil
	return items
}

func (q *queue[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.closed, q.mu.items = true, nil
}
