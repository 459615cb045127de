package statebackend

import (
	"context"
	"time"

	"github.com/cairnstream/cairn/job"
)

// Table is a typed state as a backend sees it. OpenValue makes it of a ValueDesc.
type Table any // Shaped by the implementation: see OpenValue.

// Backend holds the keyed state of one operator of one subtask.
type Backend interface {
	// Freeze fixes the content of all states as of now and returns it. It is the synchronous part
	// of a snapshot: its time depends on the number of key groups, not of keys. At most
	// max-concurrent + 1 snapshots are alive at a time.
	Freeze(id job.CheckpointID) (Snapshot, error)
	// Merge folds released snapshots' layers together for at most about budget; it tells whether
	// work is left. The owner calls it between batches.
	Merge(budget time.Duration) bool
	// Committed says that the snapshots up to id, those aborted aside, are durable.
	Committed(id job.CheckpointID)
	// Close drops everything.
	Close() error
}

// Snapshot is the frozen content of a backend. It is used by one goroutine, which need not be the
// owner's, while the owner goes on.
type Snapshot interface {
	// Write encodes the states and stores them through w, and returns a handle for each state.
	Write(ctx context.Context, w Writer) ([]job.StateHandle, error)
	// Release lets the backend drop the frozen layer. It is called once, after Write or instead,
	// from any goroutine.
	Release()
}

// Writer stores what a Snapshot writes. snapshot.Writer implements it.
type Writer interface {
	// Segment stores data, the encoded entries of one state, and returns where; small data is kept
	// inline. The bytes are the writer's during the call only.
	Segment(ctx context.Context, state string, data []byte) (job.StateHandle, error)
}
