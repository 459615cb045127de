package statebackend

import (
	"fmt"

	"github.com/cairnstream/cairn/job"
)

// What a checkpoint keeps inline passes whole through the JobManager's memory, and through one message to each
// TaskManager at a restore. So it is limited, whatever backend it is of.
const (
	// MaxInlineTask is the most bytes of all states of a task.
	MaxInlineTask = 16 << 20
	// MaxInlineCheckpoint is the most bytes of all states of a checkpoint: three quarters of the largest message.
	MaxInlineCheckpoint = 48 << 20
)

// Inline adds up what is kept inline. Its zero value is empty.
type Inline struct {
	total int64
	of    map[inlineState]int64
}

type inlineState struct{ operator, state string }

// Add adds what one subtask of an operator has.
func (i *Inline) Add(operator string, s job.SubtaskSnapshot) {
	for _, h := range s.States {
		if len(h.Inline) == 0 {
			continue
		}
		if i.of == nil {
			i.of = map[inlineState]int64{}
		}
		i.of[inlineState{operator, h.Name}] += int64(len(h.Inline))
		i.total += int64(len(h.Inline))
	}
}

// Check fails with an *InlineError when there is more than limit. what is whose states they are.
func (i *Inline) Check(what string, limit int64) error {
	if i.total <= limit {
		return nil
	}
	e := &InlineError{What: what, Size: i.total, Limit: limit}
	for s, n := range i.of {
		if n > e.Largest || n == e.Largest && (s.operator+"\x00"+s.state) < (e.Operator+"\x00"+e.State) {
			e.Operator, e.State, e.Largest = s.operator, s.state, n
		}
	}
	return &job.Error{Class: job.ClassUser, Err: e}
}

// InlineError says that the states of a task, or of a checkpoint, are together too large to be kept inline.
type InlineError struct {
	What            string // The task, or the checkpoint.
	Size, Limit     int64  // Bytes.
	Operator, State string // The largest of them, over all subtasks, and
	Largest         int64  // its bytes.
}

func (e *InlineError) Error() string {
	return fmt.Sprintf("%s has %d bytes of state inline in the checkpoint's metadata, limit is %d; the largest is operator %q, state %q, with %d bytes: set state.backend=fs, or state.backend.%s=fs for that one",
		e.What, e.Size, e.Limit, e.Operator, e.State, e.Largest, e.Operator)
}
