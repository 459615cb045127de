package rpc

import (
	"context"
	"time"

	"github.com/cairnstream/cairn/job"
)

// Jobs is the API of jobs: what the command line asks of a JobManager.
//
// Any goroutine may call it. Every method may block until ctx is done. ref names a job: its id, a unique prefix of
// it, or its name. Errors have a kind, see KindOf.
type Jobs interface {
	// Submit starts a job. The same RequestID gives the same job.
	Submit(ctx context.Context, s Submission) (Submitted, error)
	// List lists jobs, newest first.
	List(ctx context.Context) ([]Job, error)
	// Get gives all about a job.
	Get(ctx context.Context, ref string) (JobDetail, error)
	// Watch calls f with the job as it is and then after each change, one call at a time, until the job has ended,
	// f returns an error, which Watch returns as it is, or ctx is done. Events are those since the call before.
	// A job that changes faster than f returns is seen less often; no event is left out that Get would show.
	Watch(ctx context.Context, ref string, f func(JobDetail) error) error
	// Cancel asks for the end of a job and returns before it has ended. One that has ended is left as it is.
	Cancel(ctx context.Context, ref string) (Job, error)
	// TriggerCheckpoint starts a checkpoint and waits for its end.
	TriggerCheckpoint(ctx context.Context, ref string) (Checkpoint, error)
	// ListCheckpoints lists what is known of a job's checkpoints, newest first.
	ListCheckpoints(ctx context.Context, ref string) ([]Checkpoint, error)
	// GetCheckpoint gives all about a checkpoint; id 0 is the newest completed one.
	GetCheckpoint(ctx context.Context, ref string, id job.CheckpointID) (CheckpointDetail, error)
	// Nodes lists the TaskManagers.
	Nodes(ctx context.Context) ([]Node, error)
	// Version says what the JobManager is. One that does not lead answers too.
	Version(ctx context.Context) (Version, error)
}

// JobState is the state of a job.
type JobState string

// The states of jobs.
const (
	JobCreated    JobState = "created"    // Recorded; not yet deployed.
	JobWaiting    JobState = "waiting"    // For slots or for a program; Job.Reason says what lacks.
	JobDeploying  JobState = "deploying"  //
	JobRunning    JobState = "running"    //
	JobFinishing  JobState = "finishing"  // All data was read; the last checkpoint and the commits are under way.
	JobRestarting JobState = "restarting" // Failed; waiting for the next attempt.
	JobCancelling JobState = "cancelling" //
	JobFinished   JobState = "finished"   // Ended: all data was processed.
	JobCancelled  JobState = "cancelled"  // Ended by Cancel.
	JobFailed     JobState = "failed"     // Ended by a failure that no restart mends.
)

// Ended tells whether nothing more happens to the job.
func (s JobState) Ended() bool { return s == JobFinished || s == JobCancelled || s == JobFailed }

// CheckpointState says how a checkpoint stands.
type CheckpointState string

// The states of checkpoints.
const (
	CheckpointInProgress CheckpointState = "in-progress"
	CheckpointCompleted  CheckpointState = "completed" // Committed, and retained.
	CheckpointFailed     CheckpointState = "failed"
	CheckpointSubsumed   CheckpointState = "subsumed" // Committed once, deleted since.
)

// Submission asks for a job.
type Submission struct {
	Spec      job.Spec
	RequestID string // Chosen by the caller; empty: no protection against a repetition.
	Fresh     bool   // Start from nothing, not from the newest checkpoint of an earlier job of that name.
	Overwrite bool   // Sinks may overwrite output that they do not know of.
}

// Submitted is the answer to a Submission.
type Submitted struct {
	Job     Job
	Notes   []string // What the user should know, such as which checkpoint the job goes on from.
	Existed bool     // The job was there already, by an earlier Submission with the same RequestID.
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
	Failure      *job.Failure     // The last one.
	Counters     map[string]int64 // Sums over all tasks.
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
}

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

// CheckpointDetail is all about a checkpoint.
type CheckpointDetail struct {
	Checkpoint Checkpoint
	Tasks      []TaskCheckpoint
}

// Node is a TaskManager as the JobManager sees it.
type Node struct {
	Worker    job.WorkerInfo
	FreeSlots int
	Tasks     int // That it runs.
	Connected time.Time
	Heartbeat time.Time
}

// Version says what a JobManager is.
type Version struct {
	Version       string // Of the binary.
	GoVersion     string
	Cluster       string
	Leader        bool // This JobManager leads.
	LeaderAddress string
	Epoch         job.Epoch
}
