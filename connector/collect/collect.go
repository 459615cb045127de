// Package collect has sinks that end in the process's own memory: [Sink] keeps what was committed, for tests of jobs,
// and [Discard] counts, for measurements. They work where all of a job runs in the process that made them.
//
// The package starts no goroutines.
package collect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
)

// Sink is an exactly-once sink: rows are visible once their checkpoint has committed. It outlives the tasks of a job
// and so stands for a system outside. The zero value is ready for use; pass a pointer.
type Sink[T any] struct {
	mu struct {
		sync.Mutex
		rows     []T            // Committed.
		prepared map[string][]T // By committable, not committed yet.
		done     map[string]bool
		commits  int
	}
}

// New makes a sink.
func New[T any]() *Sink[T] { return &Sink[T]{} }

// Rows are the committed records, commit by commit; those of one subtask are in the order of writing.
func (s *Sink[T]) Rows() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mu.rows)
}

// Len is the number of committed records.
func (s *Sink[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.rows)
}

// Prepared is the number of records that were prepared and not committed; those of attempts that failed stay.
func (s *Sink[T]) Prepared() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rows := range s.mu.prepared {
		n += len(rows)
	}
	return n
}

// Commits is the number of committables that were committed, repetitions aside.
func (s *Sink[T]) Commits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.commits
}

// Writer implements operator.Sink.
func (s *Sink[T]) Writer(_ context.Context, c operator.SinkContext) (operator.Writer[T], error) {
	return &writer[T]{sink: s, c: c}, nil
}

// Committer implements operator.Sink.
func (s *Sink[T]) Committer(context.Context, operator.SinkContext) (operator.Committer, error) {
	return committer[T]{s}, nil
}

// TwoPhase implements operator.Sink.
func (s *Sink[T]) TwoPhase() bool { return true }

// Validate implements operator.Sink.
func (s *Sink[T]) Validate() error {
	if s == nil {
		return errors.New("a nil *collect.Sink; make it with collect.New")
	}
	return nil
}

// committable names rows that the sink holds.
type committable struct {
	V    int    `json:"v"`
	Rows string `json:"rows"`
}

const version = 1

type writer[T any] struct {
	sink *Sink[T]
	c    operator.SinkContext
	rows []T
	next int
}

// Write implements operator.Writer.
func (w *writer[T]) Write(b *record.Batch[T]) error {
	if b.Sel == nil {
		w.rows = append(w.rows, b.Rows...)
		return nil
	}
	for _, i := range b.Sel {
		w.rows = append(w.rows, b.Rows[i])
	}
	return nil
}

// Prepare implements operator.Writer.
func (w *writer[T]) Prepare(id job.CheckpointID) ([][]byte, error) {
	if len(w.rows) == 0 {
		return nil, nil
	}
	name := fmt.Sprintf("%s/%d/%s/%d/%d/%v", w.c.Run.Job, w.c.Run.Attempt, w.c.Name, w.c.Subtask, w.next, id)
	w.next++
	raw, err := json.Marshal(committable{V: version, Rows: name})
	if err != nil {
		return nil, err
	}
	w.sink.mu.Lock()
	defer w.sink.mu.Unlock()
	if w.sink.mu.prepared == nil {
		w.sink.mu.prepared = map[string][]T{}
	}
	w.sink.mu.prepared[name] = w.rows
	w.rows = nil
	return [][]byte{raw}, nil
}

// State implements operator.Writer.
func (w *writer[T]) State() ([]byte, error) { return nil, nil }

// Close implements operator.Writer.
func (w *writer[T]) Close() error {
	w.rows = nil
	return nil
}

type committer[T any] struct{ sink *Sink[T] }

// Commit implements operator.Committer.
func (c committer[T]) Commit(_ context.Context, committables [][]byte) error {
	for _, raw := range committables {
		var m committable
		if err := json.Unmarshal(raw, &m); err != nil || m.V != version {
			return job.Errorf(job.ClassRefused, "committable %q is not one of this sink", raw)
		}
		if err := c.sink.commit(m.Rows); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sink[T]) commit(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.done[name] {
		return nil
	}
	rows, ok := s.mu.prepared[name]
	if !ok {
		return job.Errorf(job.ClassRefused, "rows %s are not here: collect.Sink works within one process and one value only", name)
	}
	if s.mu.done == nil {
		s.mu.done = map[string]bool{}
	}
	s.mu.done[name] = true
	s.mu.commits++
	s.mu.rows = append(s.mu.rows, rows...)
	delete(s.mu.prepared, name)
	return nil
}

// Close implements operator.Committer.
func (c committer[T]) Close() error { return nil }
