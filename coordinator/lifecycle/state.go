package lifecycle

import "slices"

// State is where a job is in its life.
type State string

// The states of a job.
const (
	Created         State = "created"   // Recorded; nothing has been tried.
	WaitingForSlots State = "waiting"   // For slots, a program or a store; it says what it lacks.
	Deploying       State = "deploying" // From a placement to the moment when every task runs.
	Running         State = "running"
	Finishing       State = "finishing"  // All data is read; the final checkpoint and the sinks' commits are under way.
	Restarting      State = "restarting" // The tasks of the failed attempt end, then a pause passes.
	Cancelling      State = "cancelling" // The tasks end because somebody asked.
	Failing         State = "failing"    // The tasks end after a failure that no restart mends.
	Finished        State = "finished"   // Terminal.
	Cancelled       State = "cancelled"  // Terminal.
	Failed          State = "failed"     // Terminal.
)

// States lists all of them.
var States = []State{Created, WaitingForSlots, Deploying, Running, Finishing, Restarting, Cancelling, Failing, Finished, Cancelled, Failed}

// Terminal tells whether the life is over.
func (s State) Terminal() bool { return s == Finished || s == Cancelled || s == Failed }

// transitions is the one table of what may follow what.
var transitions = map[State][]State{
	Created:         {WaitingForSlots, Cancelled},
	WaitingForSlots: {Deploying, Cancelled},
	// Back to waiting when a chosen worker is lost, or the attempt cannot be made durable, before anything was sent.
	Deploying:  {Running, WaitingForSlots, Restarting, Failing, Cancelling, Cancelled},
	Running:    {Finishing, Finished, Restarting, Failing, Cancelling},
	Finishing:  {Finished, Restarting, Failing, Cancelling},
	Restarting: {WaitingForSlots, Cancelling, Cancelled},
	Cancelling: {Cancelled, Finished}, // Finished when every task had closed by itself.
	Failing:    {Failed},
}

func allowed(from, to State) bool { return slices.Contains(transitions[from], to) }

// Cause says what made an attempt end early. The set is closed: it is the label of a metric.
type Cause string

// The causes.
const (
	CauseTask       Cause = "task-failed"
	CauseWorker     Cause = "worker-lost"
	CauseCheckpoint Cause = "checkpoint"
	CauseDeploy     Cause = "deploy-timeout"
	CauseRestore    Cause = "restore"
	CauseFailover   Cause = "jobmanager-restarted"
)

// Causes lists all of them.
var Causes = []Cause{CauseTask, CauseWorker, CauseCheckpoint, CauseDeploy, CauseRestore, CauseFailover}
