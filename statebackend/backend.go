package statebackend

import (
	"context"
	"io"
	"time"

	"github.com/cairnstream/cairn/job"
)

// Params say for whom a backend is made.
type Params struct {
	Job           job.ID
	Task          job.Task
	Operator      string
	Groups        job.GroupRange // The key groups of this subtask,
	K             int            // of so many in all.
	MaxConcurrent int            // Checkpoints in flight at a time, from the job's settings.
	// Incremental is the setting checkpoint.incremental: a snapshot may refer to objects of earlier ones.
	Incremental bool
	// Own tells that the checkpoint to restore is of this job: its objects may be referred to by later snapshots. Those of
	// another job's are deleted without regard to them.
	Own bool
	// Restored is the checkpoint that Restore is given, or 0.
	Restored    job.CheckpointID
	Compression Compression // Of the blocks of segments.
	// MaxValue bounds the encoding of one value, in bytes: a larger one is a ValueError, thrown as a Fault when it is
	// written or soon after, and at the latest an error of the next Freeze or Write. 0 means no limit.
	MaxValue int64
	// Dir is a folder of this process alone, for state that does not fit into memory. It is there, it is shared by all
	// backends of the process, each of which makes folders in it and removes them at Close, and it is removed when the
	// process is gone. Empty in tests of backends that need none.
	Dir string
	// Local is a folder that outlives the process, for copies of what was written to or read from the blob store. Several
	// processes of one machine may use it at a time. Empty for none.
	Local string
	// Budget is the memory that the backends of the process share.
	Budget *Budget
}

// Compression says how the blocks of segments are compressed. Zero is the fastest level of zstd.
type Compression int8

// The kinds of compression. In between are the levels of zstd from 1 on.
const (
	NoCompression  Compression = -1
	MaxCompression Compression = 4
)

// Factory makes backends. It is chosen by a job's setting state.backend and is safe for concurrent use.
type Factory interface {
	New(ctx context.Context, p Params) (Backend, error)
}

// Backend holds the keyed state of one operator of one subtask. The goroutine that owns the subtask alone
// calls it; no method but Restore and Open does I/O or waits.
//
// Order: Restore at most once, before any record is processed, and Open (through OpenValue) of every state,
// in either order; then Unopened must be empty; then Freeze, Merge and Committed; Close last.
type Backend interface {
	// Open returns the state that t describes, with what Restore has for it. Opening a name twice is an error.
	Open(t Type) (Table, error)
	// Restore takes the keyed states of all subtasks that the operator had in a checkpoint, as Chains has them, and loads those
	// entries whose key group is in this subtask's range: at once for states that are open, else when they are
	// opened, under the same ctx. Before anything is loaded the schemas of open states are compared. After an
	// error the backend is only good for Close. Handles of kinds that are not keyed state's are passed over.
	Restore(ctx context.Context, r Reader, handles []job.StateHandle) error
	// Unopened names the states that Restore has been given and that nobody has opened, sorted. To go on would
	// lose them: Freeze refuses to.
	Unopened() []string
	// Freeze fixes the content of all states as of now and returns it. It is the synchronous part of a
	// snapshot: its time depends on the number of key groups, not of keys. At most MaxConcurrent + 1 snapshots
	// are alive at a time; one more is ErrTooManySnapshots.
	Freeze(id job.CheckpointID) (Snapshot, error)
	// Merge gives back what only released snapshots needed, for at most about budget; it tells whether work is
	// left. The owner calls it between batches, after an abort too.
	Merge(budget time.Duration) bool
	// Committed says that the snapshots up to id, those aborted aside, are durable, and that what the newest of them
	// refers to is kept for the next one: that may build on it. Called before each Freeze; an id that the backend does not
	// know, such as 0, is one to build nothing on.
	Committed(id job.CheckpointID)
	// Sizes are the states that are open, in the order of Open.
	Sizes() []Size
	// Close drops everything. Snapshots that are still alive stay readable until they are released.
	Close() error
}

// Tender is a Backend that has work for Merge at other times than after a Freeze too. Due tells whether it has some now; it is
// asked after every batch.
type Tender interface {
	Due() bool
}

// Size says how large a state is.
type Size struct {
	State   string
	Entries int64
	Bytes   int64 // In memory, without what keys and values point to; of a backend on disk those of caches and buffers too.
	Disk    int64 // In files of the process's own, about. 0 for a backend that keeps its state in memory.
}

// Snapshot is the frozen content of a backend. One goroutine at a time uses it, which need not be the
// owner's, while the owner goes on.
type Snapshot interface {
	// Write encodes the states and stores them, through w or in the handles themselves, and returns a Chain of handles, one
	// behind the other, for each state that has entries. All but the last of a chain, or all of it, may be handles of the
	// checkpoint that it builds on: see Committed. It blocks on w, and may be repeated with another w.
	Write(ctx context.Context, w Writer) ([]job.StateHandle, error)
	// WriteCanonical is Write for a savepoint: it stores all of each state that has entries, as a segment of KindKeyed whose
	// entries are in the order of key groups and encoded keys, and refers to nothing that was stored before. The states are in
	// the order of their names. The same entries give the same segments on every backend, and any backend restores them. No
	// later snapshot builds on it.
	WriteCanonical(ctx context.Context, w Writer) ([]job.StateHandle, error)
	// Release lets the backend use the memory again. It is called once, after a Write or instead of it, from any
	// goroutine.
	Release()
}

// Writer stores what a Snapshot writes; snapshot.Writer implements it. One goroutine at a time uses it.
type Writer interface {
	// Section stores the bytes that fill writes and returns where they are: Inline or Object, Offset, Length and
	// Hash of the handle are set, the rest is the caller's. After an error of fill nothing of it is stored.
	Section(ctx context.Context, state string, fill func(io.Writer) error) (job.StateHandle, error)
	// Object stores the n bytes of r as an object of their own, which later checkpoints may refer to by itself, and returns
	// where they are, as Section does. Unlike that it is safe for concurrent use.
	Object(ctx context.Context, state string, r io.ReaderAt, n int64) (job.StateHandle, error)
}

// Reader opens what a Writer stored; snapshot.Reader implements it. It is safe for concurrent use.
type Reader interface {
	// Range opens n bytes from offset off of the section that h describes, inline or not. The range lies inside
	// the section. Who reads less than a section verifies it by other means than h.Hash.
	Range(ctx context.Context, h job.StateHandle, off, n int64) (io.ReadCloser, error)
}

// The kinds of the handles of keyed states.
const (
	KindKeyed = "keyed" // A state as a segment.
	// KindTree is a state in the files of an LSM tree, which the handles of KindFile of the same subtask are. The section of
	// a state holds its description (see statebackend/pebble/FORMAT.md), its handle's Name is the state's; that of a file
	// is the file's.
	KindTree = "tree"
	KindFile = "tree-file"
)

// The names of the backends, as the setting state.backend takes them.
const (
	Memory = "memory"
	FS     = "fs"
	Pebble = "pebble"
)
