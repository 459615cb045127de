package job

import "iter"

// Command is a message from the coordinator to a worker. Every one carries the leader's epoch
// (on the session) and the attempt; a worker drops what is stale.
type Command interface{ command() }

// Run says which execution a message is about.
type Run struct {
	Job     ID
	Attempt Attempt
}

// Placement says where a task runs.
type Placement struct {
	Task   Task
	Worker WorkerID
	Data   string // Address of the worker's data exchange, host:port.
}

type (
	// Deploy asks a worker to build and restore Tasks, register their inputs, and report Ready
	// (or Failed). Nothing runs before Start.
	Deploy struct {
		Run
		Spec        Spec
		Fingerprint string // Of Spec.Graph: the worker's own build must agree.
		Placements  []Placement
		Tasks       []Task // Those that this worker runs.
		Restore     *Restore
	}
	// Start lets the tasks of a deployed attempt run. It is sent when every task is Ready.
	Start struct{ Run }
	// Cancel ends an attempt on a worker; each task answers with Cancelled, Failed or Finished.
	Cancel struct{ Run }
	// Trigger starts a checkpoint at the enumerators in To. Committed is the newest checkpoint
	// known to be committed, repeated here in case a Complete was lost.
	Trigger struct {
		Run
		Checkpoint CheckpointID
		Final      bool // Every task has reached the end of its data.
		To         []Task
		Committed  CheckpointID
		Mode       Mode
		Full       bool // It builds on nothing.
		// Savepoint is where every task writes all of its state once more, beside the checkpoint; nil for nowhere. A Trigger with
		// one goes to all workers of the attempt, since barriers do not say where it is.
		Savepoint *SavepointTarget
		// Stop ends the job: tasks do nothing behind the barrier but wait, and close when it has committed.
		Stop bool
	}
	// Complete says that every checkpoint up to UpTo that was not aborted is durable: sinks commit.
	Complete struct {
		Run
		UpTo CheckpointID
	}
	// Abort says that a checkpoint will never complete: uploads stop, alignment ends.
	Abort struct {
		Run
		Checkpoint CheckpointID
		Reason     string
	}
	// ReadersDone tells an enumerator that all its readers have finished, so it may close.
	ReadersDone struct {
		Run
		Task Task
	}
	// Finish ends a job without checkpoints whose tasks have all reached the end of their data:
	// sinks commit, tasks close.
	Finish struct{ Run }
	// Deliver hands over mail between a reader and its enumerator. It is advice: it may be lost or
	// repeated.
	Deliver struct {
		Run
		To   Task
		From Task
		Body []byte
	}
)

func (Deploy) command()      {}
func (Start) command()       {}
func (Cancel) command()      {}
func (Trigger) command()     {}
func (Complete) command()    {}
func (Abort) command()       {}
func (ReadersDone) command() {}
func (Finish) command()      {}
func (Deliver) command()     {}

// SavepointTarget is the folder that a savepoint goes to.
type SavepointTarget struct {
	Store  string // URL of the store; empty for the cluster's.
	Folder string // Key in it, which is before the names of all objects.
}

// Restore says from which checkpoint the tasks of a Deploy start.
type Restore struct {
	Checkpoint CheckpointID
	Job        ID     // Which took it.
	Store      string // URL of the store that has it; empty for the cluster's.
	Manifest   string // Object key of the manifest.
	// Tasks holds, per operator name, what the checkpoint has of it (all subtasks), cut down to
	// the operators of the tasks of this worker.
	Operators map[string]OperatorSnapshot
}

// OperatorSnapshot is the state of one operator in a checkpoint, over all its subtasks.
type OperatorSnapshot struct {
	Parallelism int
	Subtasks    []SubtaskSnapshot // Index: subtask.
}

// SubtaskSnapshot is what one subtask of one operator has in a checkpoint.
type SubtaskSnapshot struct {
	// EndOfData is set when the subtask had reached the end of its data before the barrier.
	EndOfData bool
	Watermark int64 // Milliseconds; watermark.Min when none was seen. Never the final one.
	States    []StateHandle
}

// StateHandle says where the bytes of one state of one subtask are.
type StateHandle struct {
	Name   string // Name of the state within its operator.
	Kind   string // keyed, list, broadcast
	Key    string `json:",omitempty"` // Schema of the key, of keyed state.
	Codec  string // Schema of the value or item.
	Groups GroupRange
	// Entries is how many the state has, also when this handle holds only what changed.
	Entries int64
	// Inline holds the bytes themselves (a framed, checked segment) when Object is empty.
	Inline []byte `json:",omitempty"`
	Object string `json:",omitempty"` // Object key.
	Offset int64  `json:",omitempty"`
	Length int64  `json:",omitempty"`
	Hash   string `json:",omitempty"` // xxh3-128 of the Length bytes, hexadecimal.
	// Index is the hash of a keyed segment's index, which holds the hash of every block of it: who
	// reads a part of the segment verifies it by this.
	Index string `json:",omitempty"`
	// Base makes the handle one of changes: it is the Index of the handle that they change, which is the one right before
	// it. Without a Base the handle holds the state as a whole.
	Base string `json:",omitempty"`
}

// Newest yields the handles without those that the next one changes: how large the states are, these say.
func (s SubtaskSnapshot) Newest() iter.Seq[StateHandle] {
	return func(yield func(StateHandle) bool) {
		for i, h := range s.States {
			if changed := i+1 < len(s.States) && s.States[i+1].Base != ""; !changed && !yield(h) {
				return
			}
		}
	}
}
