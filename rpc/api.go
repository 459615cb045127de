package rpc

import (
	"context"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
)

// Jobs is the API of jobs: what the command line asks of a JobManager.
//
// Any goroutine may call it. Every method may block until ctx is done. ref names a job: its id, a unique prefix of
// it, or its name. Errors have a kind, see KindOf.
type Jobs interface {
	// Submit starts a job. The same RequestID gives the same job.
	Submit(ctx context.Context, s coordinator.Submission) (coordinator.Submitted, error)
	// List lists jobs, newest first.
	List(ctx context.Context) ([]coordinator.Job, error)
	// Get gives all about a job.
	Get(ctx context.Context, ref string) (coordinator.JobDetail, error)
	// Watch calls f with the job as it is and then after each change, one call at a time, until the job has ended,
	// f returns an error, which Watch returns as it is, or ctx is done. Events are those since the call before.
	// A job that changes faster than f returns is seen less often; no event is left out that Get would show.
	Watch(ctx context.Context, ref string, f func(coordinator.JobDetail) error) error
	// Cancel asks for the end of a job and returns before it has ended. One that has ended is left as it is.
	Cancel(ctx context.Context, ref string) (coordinator.Job, error)
	// TriggerCheckpoint starts a checkpoint and waits for its end.
	TriggerCheckpoint(ctx context.Context, ref string, o coordinator.TriggerOptions) (coordinator.Checkpoint, error)
	// TakeSavepoint takes a savepoint and waits for it, and for the end of the job if that is to stop with it.
	TakeSavepoint(ctx context.Context, ref string, o coordinator.SavepointOptions) (coordinator.Savepoint, error)
	// ListSavepoints lists the savepoints that were taken of a job, or of all when ref is empty, newest first.
	ListSavepoints(ctx context.Context, ref string) ([]coordinator.Savepoint, error)
	// DeleteSavepoint deletes one by its id, objects and all.
	DeleteSavepoint(ctx context.Context, id string) (coordinator.Savepoint, error)
	// ListCheckpoints lists what is known of a job's checkpoints, newest first.
	ListCheckpoints(ctx context.Context, ref string) ([]coordinator.Checkpoint, error)
	// GetCheckpoint gives all about a checkpoint; id 0 is the newest completed one.
	GetCheckpoint(ctx context.Context, ref string, id job.CheckpointID) (coordinator.CheckpointDetail, error)
	// Nodes lists the TaskManagers.
	Nodes(ctx context.Context) ([]coordinator.Node, error)
	// Version says what the JobManager is. One that does not lead answers too.
	Version(ctx context.Context) (Version, error)
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
