package operator

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/statebackend"
)

// Output takes the batches that an operator emits.
type Output interface {
	// Emit moves b to whoever comes next. It may block while the way is full; an error ends the
	// task and is returned as it is.
	Emit(b record.Any) error
}

// Operator is one operator of one subtask. A value is used for one attempt.
type Operator interface {
	// Open is called once, before anything else, with the operator's restored state in c.
	Open(c *Context) error
	// Push takes a batch from input number input, with its marks.
	Push(input int, b record.Any) error
	// EndOfData is called once, after the last batch of every input: the operator treats it as the
	// final watermark and emits what it holds. It is not called again after a restore from a
	// checkpoint that was taken behind it.
	EndOfData() error
	// Close gives up what Open took. It is called once if Open was, also after an error.
	Close() error
}

// Restorable is implemented by operators that have something to do once their keyed state was
// restored: Ready is called behind Open and the restore, before anything else.
type Restorable interface{ Ready() error }

// Starter is implemented by operators that act without input. Start is called when every task of
// the attempt is deployed and the way downstream is open.
type Starter interface{ Start() error }

// Poller is implemented by readers: the loop calls Poll whenever there is nothing else to do.
type Poller interface {
	// Poll reads and emits about one batch. It tells whether to poll again at once.
	Poll() (again bool, err error)
	// Deadline is when Poll wants to be called though nothing woke it; ok is false for never.
	Deadline() (at time.Time, ok bool)
	// Exhausted tells that there is nothing left to read, ever.
	Exhausted() bool
}

// Yielder is implemented by operators that hold unfinished work, such as timers that are due, when
// Push returns. Only the first operator of a chain may be one. While Pending is true the loop
// calls Resume, with mail in between, before it pushes anything else.
type Yielder interface {
	// Pending tells whether Resume has work to do.
	Pending() bool
	// Resume does a bounded part of it, of about a millisecond.
	Resume() error
	// Interruptible tells whether what is left of the work follows from the operator's state alone,
	// so that a barrier may be taken before it is done.
	Interruptible() bool
}

// Checkpointed is implemented by operators with a part in checkpoints beyond keyed state.
type Checkpointed interface {
	// Prepare is called at a barrier before it is sent on: the operator flushes what belongs
	// before it.
	Prepare(id job.CheckpointID) error
	// Snapshot returns the operator's list state, by name, after the barrier was sent on. The items
	// are the caller's from then on.
	Snapshot(id job.CheckpointID) (map[string][][]byte, error)
	// Committed says that the checkpoints up to id, aborted ones aside, are durable. It must not
	// block: what takes time goes on elsewhere and reports by Context.Post.
	Committed(id job.CheckpointID) error
}

// Committing is implemented by operators that have work to do after a checkpoint committed.
type Committing interface {
	// Uncommitted is the number of things yet to be committed. The task closes when it is 0.
	Uncommitted() int
	// CommitAll is called instead of Committed when a job without checkpoints ends.
	CommitAll() error
}

// Mailed is implemented by enumerators and readers, which write to each other.
type Mailed interface {
	// Receive takes mail. It may have been lost or repeated on its way.
	Receive(from job.Task, body []byte) error
}

// Context is what an operator knows of its surroundings.
type Context struct {
	Context context.Context // Done when the task is cancelled.
	Run     job.Run
	Task    job.Task
	Name    string // The operator's.
	Subtask int
	// Parallelism of the operator.
	Parallelism int
	K           int            // Number of key groups.
	Groups      job.GroupRange // Those that this subtask owns.
	Settings    job.Settings

	// State is the operator's keyed state backend; nil for an operator without keyed state.
	State statebackend.Backend
	// Restored tells whether the operator starts from a checkpoint that knows it; RestoredID which.
	Restored   bool
	RestoredID job.CheckpointID
	// List is the restored list state by name: this subtask's share. Union is the same of all
	// subtasks.
	List  map[string][][]byte
	Union map[string][][]byte
	// Items is what ItemSchema said of the restored lists, for those of which it said something.
	Items map[string]string
	// Watermark is the restored watermark, record.MinTime when there is none.
	Watermark int64
	// Ended tells that the restored state was taken behind the end of data.
	Ended bool

	Out Output
	// Side gives the side output with that name. What nobody reads is dropped.
	Side func(name string) Output
	Log  *zap.Logger
	// Now is the clock: wall time with a monotonic part.
	Now func() time.Time
	// Post runs f on the subtask's goroutine, soon. Any goroutine may call it; it never blocks. An
	// error of f fails the task.
	Post func(f func() error)
	// Enumerator is the vertex that gives a reader its splits.
	Enumerator string
	// Mail sends body to another task of the job: advice, which may be lost or repeated.
	Mail func(to job.Task, body []byte)
	// Overwrite is set when the user allowed sinks to overwrite output they do not know of.
	Overwrite bool
	// NoCheckpoints is set when the job runs without checkpoints.
	NoCheckpoints bool
	// Counters are the operator's.
	Counters *Counters
	Metrics  prometheus.Registerer
}

// Factory makes the operator of one subtask.
type Factory func() (Operator, error)

// Clocked is implemented by operators with processing-time timers. Only the first operator of a
// chain may be one.
type Clocked interface {
	// Deadline is when the next timer is due; ok is false for never.
	Deadline() (at time.Time, ok bool)
	// Tick fires what is due at now, in bounded runs: while Deadline has passed it is called again.
	// It is not called while a Yielder is Pending.
	Tick(now time.Time) error
}
