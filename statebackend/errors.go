package statebackend

import (
	"errors"
	"fmt"
)

// Errors that a caller tells apart.
var (
	// ErrTooManySnapshots is what Freeze returns when MaxConcurrent + 1 snapshots are alive.
	ErrTooManySnapshots = errors.New("too many snapshots alive")
	// ErrCorrupt marks bytes that are not what was written: damaged, cut short, or of another state. It is
	// permanent for the object.
	ErrCorrupt = errors.New("damaged")
)

// SchemaError says that a state in a checkpoint was written in another encoding than the program has now.
type SchemaError struct {
	Operator, State string
	Part            string // key or value
	Old, New        string // Schemas.
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("operator %q, state %q: the %s's schema has changed: the checkpoint has %s, the program has %s: "+
		"run the program version that wrote the checkpoint, give the new state another name, or start with --fresh",
		e.Operator, e.State, e.Part, e.Old, e.New)
}

// LimitError says that a state is too large to be kept inline in a checkpoint's metadata.
type LimitError struct {
	Operator, State string
	Size, Limit     int64 // Bytes.
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("operator %q, state %q: its snapshot has at least %d bytes, limit of state.backend=memory is %d: set state.backend=fs",
		e.Operator, e.State, e.Size, e.Limit)
}
