package job

import "time"

// Report is a message from a worker to the coordinator.
type Report interface{ report() }

// TaskState is the state of a task as its worker reports it.
type TaskState string

// The states of tasks.
const (
	TaskReady     TaskState = "ready"       // Deployed and restored, waiting for Start.
	TaskRunning   TaskState = "running"     //
	TaskEndOfData TaskState = "end-of-data" // Will emit nothing more; barriers still flow.
	TaskFinished  TaskState = "finished"    // Closed after its final checkpoint. Terminal.
	TaskCancelled TaskState = "cancelled"   // Terminal.
	TaskFailed    TaskState = "failed"      // Terminal.
)

// Terminal tells whether the task is gone.
func (s TaskState) Terminal() bool {
	return s == TaskFinished || s == TaskCancelled || s == TaskFailed
}

// ProgramInfo is a program that a worker has.
type ProgramInfo struct {
	Name    string
	Version string
}

// WorkerInfo is how a worker registers.
type WorkerInfo struct {
	ID       WorkerID
	Slots    int
	Data     string // Address for data exchange, host:port.
	HTTP     string // Address of its HTTP endpoint, or empty.
	Host     string
	PID      int
	Programs []ProgramInfo
	Version  string
}

type (
	// TaskChanged reports a state of a task. Failure is set when State is TaskFailed.
	TaskChanged struct {
		Run
		Task    Task
		State   TaskState
		Failure *Failure
	}
	// Ack delivers a task's part of a checkpoint: a snapshot per operator of its chain.
	Ack struct {
		Run
		Task       Task
		Checkpoint CheckpointID
		Operators  map[string]SubtaskSnapshot
		Savepoint  map[string]SubtaskSnapshot // The same for the savepoint that is taken with it; nil for none.
		Stats      CheckpointStats
	}
	// Decline says that a task cannot take part in a checkpoint.
	Decline struct {
		Run
		Task       Task
		Checkpoint CheckpointID
		Failure    Failure
	}
	// Mail is what a reader tells its enumerator or the other way; the coordinator passes it on.
	Mail struct {
		Run
		From Task
		To   Task
		Body []byte
	}
	// Counters are sums since the task started, sent about once a second while they change.
	Counters struct {
		Run
		Task   Task
		Values map[string]int64 // records_in, records_out, late_records, ...
		Hot    []HotKeys        // Of the task's keyed operators.
	}
)

func (TaskChanged) report() {}
func (Ack) report()         {}
func (Decline) report()     {}
func (Mail) report()        {}
func (Counters) report()    {}

// CheckpointStats are measurements of one task's part of a checkpoint.
type CheckpointStats struct {
	Start time.Duration // From the trigger at the JobManager to the first barrier, if clocks agree.
	Align time.Duration // From the first barrier to the last.
	Sync  time.Duration // Synchronous part of the snapshot.
	Async time.Duration // Encoding and upload.
	// Upload is the part of Async that the blob store took.
	Upload time.Duration
	Bytes  int64
}
