package coordinator

import (
	"time"

	"github.com/cairnstream/cairn/coordinator/lifecycle"
	"github.com/cairnstream/cairn/job"
)

// JobState is the state of a job, as lifecycle.State names them.
type JobState string

// The states of jobs.
const (
	JobCreated    = JobState(lifecycle.Created)
	JobWaiting    = JobState(lifecycle.WaitingForSlots)
	JobDeploying  = JobState(lifecycle.Deploying)
	JobRunning    = JobState(lifecycle.Running)
	JobFinishing  = JobState(lifecycle.Finishing)
	JobRestarting = JobState(lifecycle.Restarting)
	JobCancelling = JobState(lifecycle.Cancelling)
	JobFailing    = JobState(lifecycle.Failing)
	JobFinished   = JobState(lifecycle.Finished)
	JobCancelled  = JobState(lifecycle.Cancelled)
	JobFailed     = JobState(lifecycle.Failed)
)

// Ended tells whether nothing more happens to the job.
func (s JobState) Ended() bool { return lifecycle.State(s).Terminal() }

// CheckpointState says how a checkpoint stands.
type CheckpointState string

// The states of checkpoints.
const (
	CheckpointInProgress CheckpointState = "in-progress"
	CheckpointCompleted  CheckpointState = "completed" // Committed, and retained.
	CheckpointFailed     CheckpointState = "failed"
	CheckpointSubsumed   CheckpointState = "subsumed" // A newer one took its place.
)

// Submission asks for a job.
type Submission struct {
	Spec      job.Spec
	RequestID string // Chosen by the caller; empty: no protection against a repetition.
	Fresh     bool   // Start from nothing, not from the newest checkpoint of an earlier job of that name.
	Overwrite bool   // Sinks may overwrite output that they do not know of.
	// From is the snapshot to begin with, in place of the newest checkpoint of an earlier job of that name: the URL of the
	// folder of a checkpoint or savepoint, of this cluster or another one, JOB/latest or JOB/checkpoint/N. Empty for none.
	From string
	// Claim makes the savepoint From the job's own: it is deleted when the first checkpoint of the job has completed.
	Claim bool
	Adapt Adaptation // Of what the job begins with.
}

// Adaptation says in what a job may differ from the snapshot that it begins with. It is stored with the job and holds for every
// restore from a snapshot that is older than the submission.
type Adaptation struct {
	AllowDropped bool              `json:",omitempty"` // Operators of the snapshot that the job does not have are left out.
	AllowDrained bool              `json:",omitempty"` // The snapshot was taken at the end of all data.
	DropStates   []string          `json:",omitempty"` // States that are left out, each OPERATOR/STATE.
	Rename       map[string]string `json:",omitempty"` // What operators of the snapshot are called in the job.
}

// Submitted is the answer to a Submission.
type Submitted struct {
	Job         Job
	ResumedFrom job.CheckpointID // The job goes on from this checkpoint; 0: it starts from nothing.
	Notes       []string         // What the user should know, such as that.
	Existed     bool             // The job was there already, by an earlier Submission with the same RequestID.
}

// Job is a job in short.
type Job struct {
	ID           job.ID
	Name         string
	Program      string
	Version      string
	State        JobState
	Reason       string // Why it is in that state.
	Attempt      job.Attempt
	Restarts     int64
	Parallelism  int
	Slots        int // That it needs.
	Submitted    time.Time
	Started      time.Time // When it first ran.
	Ended        time.Time
	Checkpoint   job.CheckpointID // The newest committed one; 0: none.
	Checkpointed time.Time
	From         string       // The snapshot that it began with, if that was not its own.
	Failure      *job.Failure `json:",omitempty"` // The last one.
	// Counters are sums over tasks and attempts: records_in of readers, records_out of the last
	// vertices, everything else of all tasks. Work that was repeated counts again.
	Counters map[string]int64
}

// Vertex is a chain of operators that runs as one task per subtask.
type Vertex struct {
	Name        string
	Operators   []string
	Parallelism int
	Tasks       []TaskStatus
}

// TaskStatus is a task and how it stands.
type TaskStatus struct {
	Task     job.Task
	State    job.TaskState // Empty before it reports.
	Worker   job.WorkerID
	Counters map[string]int64
}

// JobEvent is something that happened to a job.
type JobEvent struct {
	Time    time.Time
	Kind    string // One word: state, checkpoint, failure, restore, note.
	Message string
}

// JobDetail is all about a job.
type JobDetail struct {
	Job         Job
	Spec        job.Spec
	Fingerprint string
	Vertices    []Vertex
	Events      []JobEvent       // The latest ones, oldest first.
	Restored    job.CheckpointID // That the present attempt started from; 0: from nothing.
	Progress    Progress
	// HotKeys are those of the operators with keyed state, of running jobs as they are and of others as they last were.
	// Watch leaves them out.
	HotKeys []job.HotKeys
}

// Progress is how a job fares.
type Progress struct {
	Incidents            []Incident // The latest failures, oldest first.
	CheckpointsCompleted int64      // Under this leader.
	CheckpointsFailed    int64
	CheckpointsSkipped   int64
	LastCheckpoint       *Checkpoint // The last completed one.
	RunningSince         time.Time   // Zero when not every task runs.
}

// Incident is a failure that ended an attempt, and how long it took until every task ran again (0:
// they do not yet).
type Incident = lifecycle.Incident

// Checkpoint is a checkpoint in short.
type Checkpoint struct {
	ID           job.CheckpointID
	State        CheckpointState
	Mode         job.Mode
	Attempt      job.Attempt
	Triggered    time.Time
	Duration     time.Duration // From the trigger to the end.
	Bytes        int64         // Written for this checkpoint.
	Acknowledged int           // Tasks that have acknowledged it,
	Tasks        int           // of how many.
	Reason       string        // Why it failed.
	Final        bool          // Taken after the end of all data.
	Manifest     string        // Object key of the manifest of a completed one.
}

// TaskCheckpoint is a task's part of a checkpoint.
type TaskCheckpoint struct {
	Task   job.Task
	Worker job.WorkerID
	Stats  job.CheckpointStats
}

// OperatorCheckpoint is an operator's part of a checkpoint.
type OperatorCheckpoint struct {
	Name        string
	Parallelism int
	Entries     int64
	Bytes       int64 // Of all its states, those of earlier checkpoints that it refers to included.
}

// CheckpointDetail is all about a checkpoint.
type CheckpointDetail struct {
	Checkpoint Checkpoint
	Tasks      []TaskCheckpoint     // Empty for one that an earlier leader took.
	Operators  []OperatorCheckpoint // Of a completed one.
}

// Node is a TaskManager as the JobManager sees it.
type Node struct {
	Worker    job.WorkerInfo
	FreeSlots int
	Tasks     int // That it runs.
	Connected time.Time
	Heartbeat time.Time
}
