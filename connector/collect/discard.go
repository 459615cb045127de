package collect

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
)

// Discard is a sink that counts records and drops them, in every attempt anew: it does not commit. The zero value is
// ready for use; pass a pointer.
type Discard[T any] struct {
	// Each, when set, sees every record; it is called by several subtasks at once.
	Each  func(v *T)
	count atomic.Int64
}

// Count is the number of records that were written so far.
func (d *Discard[T]) Count() int64 { return d.count.Load() }

// Writer implements operator.Sink.
func (d *Discard[T]) Writer(context.Context, operator.SinkContext) (operator.Writer[T], error) {
	return discardWriter[T]{d}, nil
}

// Committer implements operator.Sink.
func (d *Discard[T]) Committer(context.Context, operator.SinkContext) (operator.Committer, error) {
	return nil, nil
}

// TwoPhase implements operator.Sink.
func (d *Discard[T]) TwoPhase() bool { return false }

// Validate implements operator.Sink.
func (d *Discard[T]) Validate() error {
	if d == nil {
		return errors.New("a nil *collect.Discard; use &collect.Discard[T]{}")
	}
	return nil
}

type discardWriter[T any] struct{ sink *Discard[T] }

// Write implements operator.Writer.
func (w discardWriter[T]) Write(b *record.Batch[T]) error {
	w.sink.count.Add(int64(b.Len()))
	if each := w.sink.Each; each != nil {
		if b.Sel == nil {
			for i := range b.Rows {
				each(&b.Rows[i])
			}
		} else {
			for _, i := range b.Sel {
				each(&b.Rows[i])
			}
		}
	}
	return nil
}

// Prepare implements operator.Writer.
func (w discardWriter[T]) Prepare(job.CheckpointID) ([][]byte, error) { return nil, nil }

// State implements operator.Writer.
func (w discardWriter[T]) State() ([]byte, error) { return nil, nil }

// Close implements operator.Writer.
func (w discardWriter[T]) Close() error { return nil }
