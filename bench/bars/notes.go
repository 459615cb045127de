package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
)

// noteSink writes down, in a file for each subtask and attempt, what it sees of the records: this is
// how the processes of a cluster tell the measuring one.
type noteSink[T any] struct {
	dir string
	// see looks at a record when it comes; nil looks at none.
	see func(n *note, v *T)
	// early has the file written at the first record already, and not only at the end.
	early bool
}

// note is what a writer of a noteSink saw.
type note struct {
	Attempt job.Attempt
	Subtask int
	PID     int
	Records int64
	First   time.Time // When the first batch came,
	Last    time.Time // and the last one.
	Delays  []time.Duration
}

// Writer implements operator.Sink.
func (s noteSink[T]) Writer(_ context.Context, c operator.SinkContext) (operator.Writer[T], error) {
	return &noteWriter[T]{s, note{Attempt: c.Run.Attempt, Subtask: c.Subtask, PID: os.Getpid()}}, nil
}

// Committer implements operator.Sink.
func (noteSink[T]) Committer(context.Context, operator.SinkContext) (operator.Committer, error) {
	return nil, nil
}

// TwoPhase implements operator.Sink.
func (noteSink[T]) TwoPhase() bool { return false }

// Validate implements operator.Sink.
func (noteSink[T]) Validate() error { return nil }

type noteWriter[T any] struct {
	sink noteSink[T]
	note note
}

// Write implements operator.Writer.
func (w *noteWriter[T]) Write(b *record.Batch[T]) error {
	n := b.Len()
	if n == 0 {
		return nil
	}
	now := time.Now()
	first := w.note.Records == 0
	if first {
		w.note.First = now
	}
	w.note.Last = now
	w.note.Records += int64(n)
	if w.sink.see != nil {
		for i := range b.Rows {
			if b.Sel == nil {
				w.sink.see(&w.note, &b.Rows[i])
			}
		}
		for _, i := range b.Sel {
			w.sink.see(&w.note, &b.Rows[i])
		}
	}
	if first && w.sink.early {
		return w.save()
	}
	return nil
}

// save puts the note where readNotes finds it, whole or not at all.
func (w *noteWriter[T]) save() error {
	raw, err := json.Marshal(w.note)
	if err != nil {
		return err
	}
	name := filepath.Join(w.sink.dir, fmt.Sprintf("%d-%d", w.note.Attempt, w.note.Subtask))
	if err := os.WriteFile(name+".tmp", raw, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".tmp", name+".json")
}

// Prepare implements operator.Writer.
func (w *noteWriter[T]) Prepare(job.CheckpointID) ([][]byte, error) { return nil, nil }

// State implements operator.Writer.
func (w *noteWriter[T]) State() ([]byte, error) { return nil, nil }

// Close implements operator.Writer.
func (w *noteWriter[T]) Close() error { return w.save() }

// readNotes reads the notes of one attempt, or of all of them if attempt is 0.
func readNotes(dir string, attempt job.Attempt) (all []note, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var n note
		if err := json.Unmarshal(raw, &n); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if attempt == 0 || n.Attempt == attempt {
			all = append(all, n)
		}
	}
	return all, nil
}
