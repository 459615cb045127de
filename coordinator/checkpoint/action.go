package checkpoint

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cairnstream/cairn/job"
)

// Action is an output of the Machine. Actions are carried out in order; those that wait for a store
// are carried out elsewhere and answered by an event.
type Action interface {
	action()
	String() string
}

type (
	// Reserve asks for all ids below Limit. The reservation must be durable before Reserved answers:
	// an id that was used is never used again, by any leader. Answer: Reserved or ReserveFailed.
	Reserve struct{ Limit job.CheckpointID }
	// Trigger starts a checkpoint at the enumerators in To. Its id is reserved already.
	Trigger struct {
		Attempt   job.Attempt
		ID        job.CheckpointID
		Final     bool
		To        []job.Task
		Committed job.CheckpointID // The base of increments, and a repeated commit notice.
		Full      bool             // It is no base.
		Savepoint *Savepoint       // That is taken with it, or nil.
	}
	// Publish makes a checkpoint exist: first its manifest is written and durable, then one
	// transaction, guarded by the leadership, writes the pointer to it. Every object in Snapshots
	// was durable before its task acknowledged. The manifest of a Savepoint is written and durable before
	// the transaction, which puts both on record. Answer: Published.
	Publish struct {
		Attempt   job.Attempt
		ID        job.CheckpointID
		Final     bool
		Savepoint *Savepoint
		Triggered time.Time
		Snapshots map[job.Task]Snapshot
	}
	// Resolve asks to find out how an unknown publication ended, by the same guarded transaction.
	// Until it is known nothing of the checkpoint is deleted. Answer: Published.
	Resolve struct{ ID job.CheckpointID }
	// Complete says that ID and all before it that were not aborted have committed: the transaction
	// is durable. It goes to all tasks of the attempt, so that sinks commit.
	Complete struct {
		Attempt  job.Attempt
		ID       job.CheckpointID
		Final    bool // Every task had reached the end of its data.
		Duration time.Duration
		Bytes    int64
	}
	// AbortCheckpoint says that a checkpoint will never commit. It goes to all tasks of the attempt
	// and needs nothing durable: an abort that is lost costs time only.
	AbortCheckpoint struct {
		Attempt job.Attempt
		ID      job.CheckpointID
		Reason  Reason
		Waiting []job.Task   // Those that had not acknowledged.
		Failure *job.Failure // Of a decline or a publication.
	}
	// DropSavepoint says that a savepoint will never be: its folder is deleted, with all that tasks may have
	// written there. The AbortCheckpoint of its checkpoint came before.
	DropSavepoint struct{ Savepoint Savepoint }
	// Skipped says that a trigger was due and did not happen.
	Skipped struct{ Reason Skip }
	// Answer says what an acknowledgement was.
	Answer struct {
		Attempt job.Attempt
		ID      job.CheckpointID
		Task    job.Task
		Result  AckResult
	}
	// Release names objects that nothing committed or on its way refers to: they are deleted in the
	// queue of deletions. Manifest is set when the manifest of ID is to be deleted too.
	Release struct {
		ID       job.CheckpointID
		Objects  []string
		Manifest bool
	}
	// Discard ends a committed checkpoint that is beyond retention. First its pointer is removed,
	// durably and with a note that its deletion has begun, then its Objects are deleted, then its
	// manifest, then the note. It has its own queue and delays nothing. Answer: Deleted.
	Discard struct {
		ID      job.CheckpointID
		Objects []string // Those that no other checkpoint refers to.
	}
	// FailJob says that the attempt should fail, and so restart.
	FailJob struct{ Failure job.Failure }
	// Reply answers a Requested.
	Reply struct {
		Token   Token
		Verdict Verdict
		ID      job.CheckpointID // Of VerdictCompleted and VerdictFailed.
		Reason  Reason           // Of VerdictFailed.
	}
)

func (Reserve) action()         {}
func (Trigger) action()         {}
func (Publish) action()         {}
func (Resolve) action()         {}
func (Complete) action()        {}
func (AbortCheckpoint) action() {}
func (DropSavepoint) action()   {}
func (Skipped) action()         {}
func (Answer) action()          {}
func (Release) action()         {}
func (Discard) action()         {}
func (FailJob) action()         {}
func (Reply) action()           {}

func (a Reserve) String() string { return fmt.Sprintf("reserve below %v", a.Limit) }
func (a Trigger) String() string {
	return fmt.Sprintf("trigger %v%s%s%s a%d to=%v committed=%v", a.ID, finalText(a.Final), fullText(a.Full), a.Savepoint.text(), a.Attempt, a.To, a.Committed)
}
func (a Publish) String() string {
	var parts []string
	for _, t := range slices.SortedFunc(maps.Keys(a.Snapshots), job.Task.Compare) {
		parts = append(parts, fmt.Sprintf("%v:%s", t, strings.Join(a.Snapshots[t].Objects(), "+")))
	}
	return fmt.Sprintf("publish %v%s%s a%d %s", a.ID, finalText(a.Final), a.Savepoint.text(), a.Attempt, strings.Join(parts, " "))
}
func (a Resolve) String() string { return fmt.Sprintf("resolve %v", a.ID) }
func (a Complete) String() string {
	return fmt.Sprintf("complete %v%s a%d after %v, %d bytes", a.ID, finalText(a.Final), a.Attempt, a.Duration, a.Bytes)
}
func (a AbortCheckpoint) String() string {
	s := fmt.Sprintf("abort %v a%d: %s", a.ID, a.Attempt, a.Reason)
	if len(a.Waiting) > 0 {
		s += fmt.Sprintf(" waiting=%v", a.Waiting)
	}
	if a.Failure != nil {
		s += " (" + a.Failure.String() + ")"
	}
	return s
}
func (a DropSavepoint) String() string { return "drop" + a.Savepoint.text() }
func (a Skipped) String() string       { return "skipped: " + string(a.Reason) }
func (a Answer) String() string        { return fmt.Sprintf("ack %v %v: %s", a.ID, a.Task, a.Result) }
func (a Release) String() string {
	s := fmt.Sprintf("release %v of %v", a.Objects, a.ID)
	if a.Manifest {
		s += " and its manifest"
	}
	return s
}
func (a Discard) String() string { return fmt.Sprintf("discard %v objects=%v", a.ID, a.Objects) }
func (a FailJob) String() string { return "fail job: " + a.Failure.String() }
func (a Reply) String() string {
	s := fmt.Sprintf("reply #%d: %s", a.Token, a.Verdict)
	if a.ID != 0 {
		s += " " + a.ID.String()
	}
	if a.Reason != "" {
		s += " " + string(a.Reason)
	}
	return s
}

func fullText(full bool) string {
	if full {
		return " full"
	}
	return ""
}

func (s *Savepoint) text() string {
	switch {
	case s == nil:
		return ""
	case s.Stop:
		return " stop with savepoint " + s.ID
	}
	return " savepoint " + s.ID
}

func finalText(final bool) string {
	if final {
		return " final"
	}
	return ""
}
