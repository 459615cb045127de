package task

import (
	"context"
	"fmt"
	"sync"

	"github.com/cairnstream/cairn/job"
)

// savepoints are where the savepoints of a run go that are on their way. A barrier says that a savepoint is taken; where it goes, the
// coordinator tells every worker, and a barrier may be faster than it.
type savepoints struct {
	mu      sync.Mutex
	known   map[job.CheckpointID]job.SavepointTarget
	over    job.CheckpointID // Up to here nothing is on its way any more.
	changed chan struct{}    // Closed with each news; nil while nobody waits.
}

// announce takes what a Trigger says.
func (s *savepoints) announce(t job.Trigger) {
	if t.Savepoint == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[job.CheckpointID]job.SavepointTarget{}
	}
	s.known[t.Checkpoint] = *t.Savepoint
	s.tell()
}

// forget drops what is known up to a checkpoint that has ended. Ids are used in ascending order, and while a savepoint is on its way
// no later checkpoint is.
func (s *savepoints) forget(id job.CheckpointID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = max(s.over, id)
	for k := range s.known {
		if k <= id {
			delete(s.known, k)
		}
	}
	s.tell()
}

func (s *savepoints) tell() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// target waits until it is known where the savepoint of a checkpoint goes.
func (s *savepoints) target(ctx context.Context, id job.CheckpointID) (job.SavepointTarget, error) {
	for {
		s.mu.Lock()
		t, ok := s.known[id]
		over := id <= s.over
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		switch {
		case ok:
			return t, nil
		case over:
			return t, fmt.Errorf("savepoint of %v: it has ended", id)
		}
		select {
		case <-ctx.Done():
			return t, ctx.Err()
		case <-changed:
		}
	}
}
