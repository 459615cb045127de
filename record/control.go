package record

import (
	"fmt"

	"github.com/cairnstream/cairn/job"
)

// ControlKind says what a Control is.
type ControlKind uint8

// The kinds of control events.
const (
	// Barrier separates the records of a checkpoint from those after it.
	Barrier ControlKind = iota + 1
	// CancelBarrier says that the barrier of a checkpoint will not come on this channel.
	CancelBarrier
	// EndOfData says that no record follows; barriers still do.
	EndOfData
	// Close says that nothing follows.
	Close
)

func (k ControlKind) String() string {
	switch k {
	case Barrier:
		return "barrier"
	case CancelBarrier:
		return "cancel-barrier"
	case EndOfData:
		return "end-of-data"
	case Close:
		return "close"
	}
	return fmt.Sprintf("control(%d)", uint8(k))
}

// Control is an event between batches on a channel. It keeps its place among them but needs no
// flow control: its size is bounded and so is the number in flight.
type Control struct {
	Kind       ControlKind
	Checkpoint job.CheckpointID // Of Barrier and CancelBarrier.
	Final      bool             // Of Barrier: every task had reached the end of its data.
	Mode       job.Mode         // Of Barrier.
	Committed  job.CheckpointID // Of Barrier: newest checkpoint known to be committed.
	Full       bool             // Of Barrier: the checkpoint builds on nothing.
	Savepoint  bool             // Of Barrier: a savepoint is taken with it.
	Stop       bool             // Of Barrier: nothing is done behind it.
	Started    int64            // Of Barrier: when it was triggered, nanoseconds since 1970 UTC.
}

func (c Control) String() string {
	switch c.Kind {
	case Barrier, CancelBarrier:
		return fmt.Sprintf("%v %v", c.Kind, c.Checkpoint)
	default:
		return c.Kind.String()
	}
}
