package statebackend

import (
	"context"

	"github.com/cairnstream/cairn/job"
)

// OpenTrees reads the states that an operator had in LSM trees in a checkpoint, for backends that keep theirs otherwise. handles
// are those of KindTree and KindFile of all subtasks; others are passed over. It reads the descriptions of the states, and of
// their entries those in p.Groups when they are asked for: then files are fetched into a folder in p.Dir, or the system's for
// temporary files. ctx governs all reads.
type OpenTrees func(ctx context.Context, r Reader, p Params, handles []job.StateHandle) (TreeStates, error)

// TreeStates are states in LSM trees. One goroutine at a time uses them.
type TreeStates interface {
	// Names are those of the states that have entries, be they of other key groups.
	Names() []string
	// Check compares the schemas of a state with the program's. Those of all subtasks count, so that all agree. An error is
	// that of Evolve.
	Check(t Type) error
	// Each visits the entries of a state in the key groups of Params, group by group within a tree. schema is the text of that
	// under which the value is encoded. key and value are valid during the call. An error of visit ends it and is returned.
	// What is visited has been verified by its hash.
	Each(state string, visit func(group int, schema string, key, value []byte) error) error
	// Close removes what was fetched. It may be called again, and Check after it.
	Close() error
}
