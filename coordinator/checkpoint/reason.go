package checkpoint

import "github.com/cairnstream/cairn/job"

// Reason says why a checkpoint was aborted. The set is closed: it is the label of a metric.
type Reason string

// The reasons.
const (
	// ReasonExpired: some task did not acknowledge in time.
	ReasonExpired Reason = "expired"
	// ReasonDeclined: a task could not take its snapshot.
	ReasonDeclined Reason = "declined"
	// ReasonStopped: the attempt ended before every task had acknowledged.
	ReasonStopped Reason = "stopped"
	// ReasonSubsumed: a newer checkpoint committed first. Not a failure.
	ReasonSubsumed Reason = "subsumed"
	// ReasonPublish: the manifest or the transaction failed, and it is certain that nothing was committed.
	ReasonPublish Reason = "publish-failed"
	// ReasonUnfinished: a task finished without any committed snapshot.
	ReasonUnfinished Reason = "finished-without-snapshot"
)

// Reasons lists all of them.
var Reasons = []Reason{ReasonExpired, ReasonDeclined, ReasonStopped, ReasonSubsumed, ReasonPublish, ReasonUnfinished}

// Failed tells whether an abort for this reason is a failed checkpoint.
func (r Reason) Failed() bool { return r != ReasonSubsumed && r != ReasonStopped }

// tolerated tells whether a failure counts against the tolerable ones in a row. Those of the stores
// do not: with etcd or the blob store away a job runs on, and a restart would not help.
func (r Reason) tolerated(f *job.Failure) bool {
	switch r {
	case ReasonExpired:
		return true
	case ReasonDeclined:
		return f == nil || f.Class != job.ClassExternal
	case ReasonPublish:
		return f != nil && f.Class != job.ClassExternal
	}
	return false
}

// Skip says why a trigger that was due did not happen. The set is closed.
type Skip string

// The reasons to skip.
const (
	SkipRunning Skip = "running" // Max-concurrent checkpoints are on their way.
	SkipNoID    Skip = "no-id"   // The metadata store did not give out ids.
)

// Skips lists all of them.
var Skips = []Skip{SkipRunning, SkipNoID}

// AckResult says what an acknowledgement was.
type AckResult string

// The results. Objects of all but Accepted are released, except what something alive refers to.
const (
	Accepted          AckResult = "accepted"
	Duplicate         AckResult = "duplicate"
	Late              AckResult = "late"               // The checkpoint has ended.
	UnknownTask       AckResult = "unknown-task"       // The attempt has no such task.
	WrongAttempt      AckResult = "wrong-attempt"      // Of an execution that is not the checkpoint's.
	UnknownCheckpoint AckResult = "unknown-checkpoint" // Never triggered.
)

// Outcome is how a publication ended.
type Outcome string

// The outcomes.
const (
	PublishCommitted Outcome = "committed"
	PublishFailed    Outcome = "failed"  // Nothing was committed and nothing will be.
	PublishUnknown   Outcome = "unknown" // It may have been committed, or still be.
)

// Verdict is the answer to a manual request.
type Verdict string

// The verdicts.
const (
	VerdictCompleted  Verdict = "completed"
	VerdictFailed     Verdict = "failed"
	VerdictOff        Verdict = "checkpoints-off"
	VerdictNotRunning Verdict = "not-running"
	// VerdictTooMany: so many savepoints wait already that this one is not taken.
	VerdictTooMany Verdict = "too-many"
	// VerdictEnding: the job is about to end, so that no savepoint begins any more.
	VerdictEnding Verdict = "ending"
)
