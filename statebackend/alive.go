package statebackend

import "sync"

// Alive counts the snapshots of a backend that are not released, which happens on other goroutines.
type Alive struct {
	mu struct {
		sync.Mutex
		n int
	}
}

// Add counts one more, unless there are limit of them already; it tells which.
func (a *Alive) Add(limit int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.n >= limit {
		return false
	}
	a.mu.n++
	return true
}

// Done counts one less.
func (a *Alive) Done() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.n--
}
