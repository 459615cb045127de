package streamtest

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
)

// Event is a record with its event time in milliseconds since 1970 UTC, record.MinTime when it has
// none.
type Event[T any] struct {
	Row  T
	Time int64
}

// Output is a sink that shows at once what the job wrote. When the job goes back to a checkpoint,
// what was written behind it is forgotten.
type Output[T any] struct {
	settle func()
	mu     struct {
		sync.Mutex
		run  job.Run // The newest that wrote.
		rows []written[T]
	}
}

type written[T any] struct {
	Event[T]
	by int              // Subtask.
	in job.CheckpointID // The checkpoint that it is part of; 0 before there is one.
}

// Rows settles the job and gives what it has written, in the order of writing. Rows of several
// subtasks are in no particular order.
func (o *Output[T]) Rows() []T {
	var list []T
	for _, e := range o.Events() {
		list = append(list, e.Row)
	}
	return list
}

// Events is Rows with event times.
func (o *Output[T]) Events() []Event[T] {
	o.settle()
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []Event[T]
	for _, w := range o.mu.rows {
		list = append(list, w.Event)
	}
	return list
}

// Writer implements operator.Sink.
func (o *Output[T]) Writer(_ context.Context, c operator.SinkContext) (operator.Writer[T], error) {
	last := job.CheckpointID(0)
	for _, s := range c.States {
		id, _ := binary.Uvarint(s)
		last = max(last, job.CheckpointID(id))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.run != c.Run {
		o.mu.run = c.Run
		o.mu.rows = slices.DeleteFunc(o.mu.rows, func(w written[T]) bool { return w.in == 0 || w.in > last })
	}
	return &writer[T]{o: o, subtask: c.Subtask}, nil
}

// Committer implements operator.Sink.
func (o *Output[T]) Committer(context.Context, operator.SinkContext) (operator.Committer, error) {
	return nil, nil
}

// TwoPhase implements operator.Sink.
func (o *Output[T]) TwoPhase() bool { return false }

// Validate implements operator.Sink.
func (o *Output[T]) Validate() error {
	if o == nil || o.settle == nil {
		return errors.New("an empty streamtest.Output; make it with Harness.Output")
	}
	return nil
}

type writer[T any] struct {
	o       *Output[T]
	subtask int
	last    job.CheckpointID
}

// Write implements operator.Writer.
func (w *writer[T]) Write(b *record.Batch[T]) error {
	w.o.mu.Lock()
	defer w.o.mu.Unlock()
	for n := range b.Len() {
		i := n
		if b.Sel != nil {
			i = int(b.Sel[n])
		}
		w.o.mu.rows = append(w.o.mu.rows, written[T]{Event: Event[T]{b.Rows[i], b.Time(i)}, by: w.subtask})
	}
	return nil
}

// Prepare implements operator.Writer: what was written until now is part of the checkpoint.
func (w *writer[T]) Prepare(id job.CheckpointID) ([][]byte, error) {
	w.o.mu.Lock()
	defer w.o.mu.Unlock()
	w.last = id
	for i := range w.o.mu.rows {
		if r := &w.o.mu.rows[i]; r.by == w.subtask && r.in == 0 {
			r.in = id
		}
	}
	return nil, nil
}

// State implements operator.Writer.
func (w *writer[T]) State() ([]byte, error) { return binary.AppendUvarint(nil, uint64(w.last)), nil }

// Close implements operator.Writer.
func (w *writer[T]) Close() error { return nil }
