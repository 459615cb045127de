package statebackend

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
)

// Errors that a caller tells apart.
var (
	// ErrTooManySnapshots is what Freeze returns when MaxConcurrent + 1 snapshots are alive.
	ErrTooManySnapshots = errors.New("too many snapshots alive")
	// ErrCorrupt marks bytes that are not what was written: damaged, cut short, or of another state. It is
	// permanent for the object.
	ErrCorrupt = errors.New("damaged")
)

// SchemaError says that a state in a checkpoint was written in another encoding than the program has now, which the
// program's codec cannot read.
type SchemaError struct {
	Operator, State string
	Part            string // key or value
	Old, New        string // Schemas.
	Err             error  // Why, and what can be done: of values an *codec.IncompatibleError.
}

// errKey is why a key's schema may not change at all.
var errKey = errors.New("keys are placed by their bytes, so that their encoding may not change: keep the key's type, " +
	"and the names of its fields by the tag `cairn:\"name\"`")

func (e *SchemaError) Error() string {
	text := fmt.Sprintf("operator %q, state %q: the %s's schema has changed: ", e.Operator, e.State, e.Part)
	if incompatible := (*codec.IncompatibleError)(nil); !errors.As(e.Err, &incompatible) { // Which says it better.
		text += fmt.Sprintf("the checkpoint has %s, the program has %s: ", short(e.Old), short(e.New))
	}
	if e.Err != nil {
		text += e.Err.Error() + ": "
	}
	return text + "or run the program version that wrote the checkpoint, give the new state another name, or start with --fresh"
}

func (e *SchemaError) Unwrap() error { return e.Err }

// short cuts a schema down to what a message has room for.
func short(schema string) string {
	const room = 300
	if len(schema) > room {
		return strings.ToValidUTF8(schema[:room], "") + "..."
	}
	return schema
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

// ValueError says that a value of a state is too large.
type ValueError struct {
	Operator, State string
	Key             string // For people; empty if it is not known.
	Size, Limit     int64  // Bytes of its encoding. Size is 0 when it is too large to be encoded at all.
}

func (e *ValueError) Error() string {
	size := fmt.Sprintf("%d bytes", e.Size)
	if e.Size <= e.Limit {
		size = "too many bytes to be encoded"
	}
	return fmt.Sprintf("operator %q, state %q: the value of key %q has %s, the limit is %d (%v): keep what grows in a List or Map state, "+
		"which stores each element by itself, give the state a TTL, or raise state.max-value", e.Operator, e.State, e.Key, size, e.Limit, job.Bytes(e.Limit))
}
