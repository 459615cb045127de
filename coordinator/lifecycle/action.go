package lifecycle

import (
	"fmt"
	"time"

	"github.com/cairnstream/cairn/job"
)

// Action is an output of the Machine. Actions are carried out in order.
type Action interface {
	action()
	String() string
}

type (
	// Entered reports a transition, for people and metrics.
	Entered struct {
		From, To State
		Reason   string
	}
	// Place asks the scheduler, and holds the slots if there are enough. Answer: Placed.
	Place struct{}
	// Persist makes the attempt durable: a number that was used once is never used again, by any
	// leader. No publication of a checkpoint may be open, and the newest checkpoint is known, before
	// it is answered. Answer: Persisted or PersistFailed.
	Persist struct{ Attempt job.Attempt }
	// Deploy sends every worker its tasks, to be restored from the newest checkpoint. The attempt is
	// durable.
	Deploy struct {
		Attempt    job.Attempt
		Placements []job.Placement
	}
	// Start lets the tasks run: every one is Ready.
	Start struct {
		Attempt job.Attempt
		Workers []job.WorkerID
	}
	// AllRunning says that every task runs; checkpoints may begin. AtEnd are those tasks that have
	// reached the end of their data already. Recovery is the time since the failure that the attempt
	// recovers from was noticed, or 0.
	AllRunning struct {
		Attempt  job.Attempt
		AtEnd    []job.Task
		Recovery time.Duration
		Cause    Cause // Of the failure.
	}
	// Halted says that the attempt is given up: its checkpoints stop. Its tasks may still be there.
	Halted struct{ Attempt job.Attempt }
	// CancelTasks ends the attempt's tasks on these workers; each task answers.
	CancelTasks struct {
		Attempt job.Attempt
		Workers []job.WorkerID
	}
	// Freed says that no task of the attempt is left: its slots are free.
	Freed struct{ Attempt job.Attempt }
	// Expel ends the sessions of workers that did not end the attempt's tasks in time. They count as
	// lost; being told that they were replaced they cancel everything at once.
	Expel struct {
		Workers []job.WorkerID
		Reason  string
	}
	// ReadersDone tells an enumerator that all its readers have finished.
	ReadersDone struct {
		Attempt job.Attempt
		Task    job.Task
		Worker  job.WorkerID
	}
	// Finish ends a job without checkpoints: every task is at the end of its data.
	Finish struct {
		Attempt job.Attempt
		Workers []job.WorkerID
	}
	// Restart says that the job will be started again after Delay.
	Restart struct {
		Cause   Cause
		Failure job.Failure
		Delay   time.Duration
	}
	// Lacking says what a waiting job lacks.
	Lacking struct{ Shortfall string }
	// Conclude ends the job. The terminal record is durable before anybody is told, and before
	// anything is cleaned up: a job with that record never runs again.
	Conclude struct {
		State   State
		Failure *job.Failure // Of Failed.
	}
)

func (Entered) action()     {}
func (Place) action()       {}
func (Persist) action()     {}
func (Deploy) action()      {}
func (Start) action()       {}
func (AllRunning) action()  {}
func (Halted) action()      {}
func (CancelTasks) action() {}
func (Freed) action()       {}
func (Expel) action()       {}
func (ReadersDone) action() {}
func (Finish) action()      {}
func (Restart) action()     {}
func (Lacking) action()     {}
func (Conclude) action()    {}

func (a Entered) String() string {
	s := fmt.Sprintf("%s -> %s", a.From, a.To)
	if a.Reason != "" {
		s += " (" + a.Reason + ")"
	}
	return s
}
func (Place) String() string     { return "place" }
func (a Persist) String() string { return fmt.Sprintf("persist a%d", a.Attempt) }
func (a Deploy) String() string {
	s := fmt.Sprintf("deploy a%d", a.Attempt)
	for _, p := range a.Placements {
		s += fmt.Sprintf(" %v@%s", p.Task, p.Worker)
	}
	return s
}
func (a Start) String() string { return fmt.Sprintf("start a%d on %v", a.Attempt, a.Workers) }
func (a AllRunning) String() string {
	s := fmt.Sprintf("all running a%d", a.Attempt)
	if len(a.AtEnd) > 0 {
		s += fmt.Sprintf(" at-end=%v", a.AtEnd)
	}
	if a.Cause != "" {
		s += fmt.Sprintf(" recovered from %s in %v", a.Cause, a.Recovery)
	}
	return s
}
func (a Halted) String() string      { return fmt.Sprintf("halted a%d", a.Attempt) }
func (a CancelTasks) String() string { return fmt.Sprintf("cancel a%d on %v", a.Attempt, a.Workers) }
func (a Freed) String() string       { return fmt.Sprintf("freed a%d", a.Attempt) }
func (a Expel) String() string       { return fmt.Sprintf("expel %v: %s", a.Workers, a.Reason) }
func (a ReadersDone) String() string {
	return fmt.Sprintf("readers done a%d %v@%s", a.Attempt, a.Task, a.Worker)
}
func (a Finish) String() string { return fmt.Sprintf("finish a%d on %v", a.Attempt, a.Workers) }
func (a Restart) String() string {
	return fmt.Sprintf("restart after %v because %s: %v", a.Delay, a.Cause, a.Failure)
}
func (a Lacking) String() string { return "lacking: " + a.Shortfall }
func (a Conclude) String() string {
	s := "conclude " + string(a.State)
	if a.Failure != nil {
		s += ": " + a.Failure.String()
	}
	return s
}
