package lifecycle

import (
	"fmt"

	"github.com/cairnstream/cairn/job"
)

// Event is an input of the Machine.
type Event interface {
	event()
	String() string
}

type (
	// Begin starts the life of a new job, or of one that a new leader found.
	Begin struct{}
	// Due says that the time NextDue named has come. It may be sent at any time.
	Due struct{}
	// SlotsChanged says that a placement that failed may succeed now.
	SlotsChanged struct{}
	// Placed answers a Place: where every task may run, or what is lacking.
	Placed struct {
		Placements []job.Placement
		Shortfall  string // Not empty: there are no Placements.
	}
	// Persisted says that the attempt is durable.
	Persisted struct{ Attempt job.Attempt }
	// PersistFailed says that it is not. It is tried again.
	PersistFailed struct {
		Attempt job.Attempt
		Reason  string
	}
	// RestoreRefused says that the newest checkpoint cannot be restored, now or ever. Nothing was sent.
	RestoreRefused struct {
		Attempt job.Attempt
		Failure job.Failure
	}
	// TaskChanged is what a worker reports of a task.
	TaskChanged struct {
		Attempt job.Attempt
		Task    job.Task
		State   job.TaskState
		Failure *job.Failure // Of TaskFailed.
	}
	// WorkerLost says that a worker and all its tasks are gone.
	WorkerLost struct {
		Worker job.WorkerID
		Reason string
		// Enough tells whether the other workers have the slots that the job needs.
		Enough bool
	}
	// Cancel asks for the end. It is durable.
	Cancel struct{}
	// CheckpointCompleted says that a checkpoint of the attempt committed.
	CheckpointCompleted struct{ Attempt job.Attempt }
	// CheckpointsFailed says that the checkpoints of the attempt fail too often.
	CheckpointsFailed struct {
		Attempt job.Attempt
		Failure job.Failure
	}
)

func (Begin) event()               {}
func (Due) event()                 {}
func (SlotsChanged) event()        {}
func (Placed) event()              {}
func (Persisted) event()           {}
func (PersistFailed) event()       {}
func (RestoreRefused) event()      {}
func (TaskChanged) event()         {}
func (WorkerLost) event()          {}
func (Cancel) event()              {}
func (CheckpointCompleted) event() {}
func (CheckpointsFailed) event()   {}

func (Begin) String() string        { return "begin" }
func (Due) String() string          { return "due" }
func (SlotsChanged) String() string { return "slots-changed" }
func (e Placed) String() string {
	if e.Shortfall != "" {
		return "not placed: " + e.Shortfall
	}
	return fmt.Sprintf("placed %d tasks", len(e.Placements))
}
func (e Persisted) String() string { return fmt.Sprintf("persisted a%d", e.Attempt) }
func (e PersistFailed) String() string {
	return fmt.Sprintf("persist a%d failed: %s", e.Attempt, e.Reason)
}
func (e RestoreRefused) String() string {
	return fmt.Sprintf("restore refused a%d: %v", e.Attempt, e.Failure)
}
func (e TaskChanged) String() string {
	s := fmt.Sprintf("a%d %v %s", e.Attempt, e.Task, e.State)
	if e.Failure != nil {
		s += ": " + e.Failure.String()
	}
	return s
}
func (e WorkerLost) String() string {
	return fmt.Sprintf("worker %s lost: %s (enough=%v)", e.Worker, e.Reason, e.Enough)
}
func (Cancel) String() string { return "cancel" }
func (e CheckpointCompleted) String() string {
	return fmt.Sprintf("checkpoint completed a%d", e.Attempt)
}
func (e CheckpointsFailed) String() string {
	return fmt.Sprintf("checkpoints failed a%d: %v", e.Attempt, e.Failure)
}
