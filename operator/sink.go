package operator

import (
	"context"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// Sink is what a connector implements to be written to. Values are shared by all subtasks.
type Sink[T any] interface {
	// Writer makes the writer of one subtask. It is called while the job is being deployed, before
	// any task of the attempt runs. An error of class job.ClassRefused ends the job.
	Writer(ctx context.Context, c SinkContext) (Writer[T], error)
	// Committer makes what commits; nil for a sink that does not commit with checkpoints.
	Committer(ctx context.Context, c SinkContext) (Committer, error)
	// TwoPhase tells whether the sink commits with checkpoints.
	TwoPhase() bool
	// Validate lists what is wrong with the sink's own configuration, without touching the outside
	// world.
	Validate() error
}

// SinkContext is what a sink knows of its surroundings.
type SinkContext struct {
	Run         job.Run
	Name        string
	Subtask     int
	Parallelism int
	// Restored tells whether the job starts from a checkpoint that knows this sink; if not, output
	// that is already there is not the job's own.
	Restored bool
	// States are what State returned in the restored checkpoint, of all its subtasks.
	States [][]byte
	// Committables are all that the restored checkpoint lists, of all its subtasks. Those of this
	// subtask's share were committed before Writer is called; others may be on their way. What was
	// prepared by an earlier attempt and is not listed will never be committed.
	Committables [][]byte
	// Overwrite is set when the user allowed it.
	Overwrite bool
	Log       *zap.Logger
}

// Writer writes the records of one subtask. The subtask's goroutine calls it.
type Writer[T any] interface {
	// Write writes the selected rows of b, which stays the caller's.
	Write(b *record.Batch[T]) error
	// Prepare makes everything written so far durable but not visible and returns what Commit
	// needs to make it visible: committables, each handed to Commit at least once after the
	// checkpoint has committed. A sink that does not commit flushes and returns nil.
	Prepare(id job.CheckpointID) ([][]byte, error)
	// State returns what a restored writer must know beside committables, or nil.
	State() ([]byte, error)
	// Close drops what was written and not prepared.
	Close() error
}

// Committer commits. A goroutine of its own calls it, one call at a time, in the order of
// checkpoints.
type Committer interface {
	// Commit makes the committables visible. It is idempotent: a committable that was committed
	// before is a success. An error of class job.ClassExternal is retried with backoff.
	Commit(ctx context.Context, committables [][]byte) error
	Close() error
}
