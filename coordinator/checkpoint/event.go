package checkpoint

import (
	"fmt"
	"slices"

	"github.com/cairnstream/cairn/job"
)

// Event is an input of the Machine.
type Event interface {
	event()
	String() string
}

// Token names a manual request; its owner chooses it.
type Token uint64

// Snapshot is what one task has in a checkpoint, and in the savepoint that is taken with it.
type Snapshot struct {
	Operators map[string]job.SubtaskSnapshot
	Savepoint map[string]job.SubtaskSnapshot
	Stats     job.CheckpointStats
}

// Savepoint is one that is taken with a checkpoint. Its objects are not those of the checkpoint: they are outside of what the
// machine keeps and deletes, and go with its folder.
type Savepoint struct {
	ID     string
	Target job.SavepointTarget
	Stop   bool // The job ends with it.
}

// Objects lists the objects that the checkpoint's part of s refers to, sorted, without duplicates.
func (s Snapshot) Objects() []string {
	var out []string
	for _, op := range s.Operators {
		for _, h := range op.States {
			if h.Object != "" {
				out = append(out, h.Object)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// endOfData tells whether every operator had reached the end of its data.
func (s Snapshot) endOfData() bool {
	for _, op := range s.Operators {
		if !op.EndOfData {
			return false
		}
	}
	return len(s.Operators) > 0
}

type (
	// Due says that the time NextDue named has come. It may be sent at any time.
	Due struct{}
	// Started says that every task of a new attempt runs. The former attempt is Stopped, and the
	// machine is Settled.
	Started struct {
		Attempt     job.Attempt
		Tasks       []job.Task // All of them.
		Enumerators []job.Task // Where barriers enter.
	}
	// Stopped says that an attempt ended. What is not fully acknowledged is aborted.
	Stopped struct{ Attempt job.Attempt }
	// Acked is a task's part of a checkpoint.
	Acked struct {
		Attempt  job.Attempt
		ID       job.CheckpointID
		Task     job.Task
		Snapshot Snapshot
	}
	// Declined says that a task cannot take part in a checkpoint.
	Declined struct {
		Attempt job.Attempt
		ID      job.CheckpointID
		Task    job.Task
		Failure job.Failure
	}
	// EndOfData says that a task will emit nothing more.
	EndOfData struct {
		Attempt job.Attempt
		Task    job.Task
	}
	// Finished says that a task closed, after a checkpoint with its last snapshot committed.
	Finished struct {
		Attempt job.Attempt
		Task    job.Task
	}
	// Published answers a Publish or a Resolve.
	Published struct {
		ID      job.CheckpointID
		Outcome Outcome
		Failure *job.Failure // Of PublishFailed and PublishUnknown.
	}
	// Reserved says that all ids below Limit are reserved, durably.
	Reserved struct{ Limit job.CheckpointID }
	// ReserveFailed says that they are not.
	ReserveFailed struct{}
	// Requested asks for a checkpoint now; a Reply with the same Token follows.
	Requested struct {
		Token     Token
		Full      bool       // It builds on nothing.
		Savepoint *Savepoint // That is taken with it, alone; nil for none.
	}
	// Deleted says that a discarded checkpoint is gone, objects and all.
	Deleted struct{ ID job.CheckpointID }
	// Forget says that the job has ended and that none of its checkpoints is wanted.
	Forget struct{}
	// Pin keeps a committed checkpoint beyond its time, for another job that begins with it; as many Unpins let it go. That
	// it is pinned is on record where it has to outlive the leader.
	Pin struct{ ID job.CheckpointID }
	// Unpin undoes one Pin.
	Unpin struct{ ID job.CheckpointID }
)

func (Due) event()           {}
func (Started) event()       {}
func (Stopped) event()       {}
func (Acked) event()         {}
func (Declined) event()      {}
func (EndOfData) event()     {}
func (Finished) event()      {}
func (Published) event()     {}
func (Reserved) event()      {}
func (ReserveFailed) event() {}
func (Requested) event()     {}
func (Deleted) event()       {}
func (Forget) event()        {}
func (Pin) event()           {}
func (Unpin) event()         {}

func (Due) String() string         { return "due" }
func (e Started) String() string   { return fmt.Sprintf("started a%d tasks=%v", e.Attempt, e.Tasks) }
func (e Stopped) String() string   { return fmt.Sprintf("stopped a%d", e.Attempt) }
func (e Acked) String() string     { return fmt.Sprintf("acked a%d %v %v", e.Attempt, e.ID, e.Task) }
func (e Declined) String() string  { return fmt.Sprintf("declined a%d %v %v", e.Attempt, e.ID, e.Task) }
func (e EndOfData) String() string { return fmt.Sprintf("end-of-data a%d %v", e.Attempt, e.Task) }
func (e Finished) String() string  { return fmt.Sprintf("finished a%d %v", e.Attempt, e.Task) }
func (e Published) String() string { return fmt.Sprintf("published %v %v", e.ID, e.Outcome) }
func (e Reserved) String() string  { return fmt.Sprintf("reserved below %v", e.Limit) }
func (ReserveFailed) String() string {
	return "reserve-failed"
}
func (e Requested) String() string {
	return fmt.Sprintf("requested #%d%s%s", e.Token, fullText(e.Full), e.Savepoint.text())
}
func (e Deleted) String() string { return fmt.Sprintf("deleted %v", e.ID) }
func (Forget) String() string    { return "forget" }
func (e Pin) String() string     { return fmt.Sprintf("pin %v", e.ID) }
func (e Unpin) String() string   { return fmt.Sprintf("unpin %v", e.ID) }
