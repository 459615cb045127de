package operator

import (
	"context"
	"time"

	"github.com/cairnstream/cairn/record"
)

// Split is a part of a source's input, with the position to read on from. A split is in one place
// at a time: with the enumerator, on its way to a reader, or with a reader.
type Split struct {
	ID   string // Unique within the source, for people and metrics.
	Body []byte // The connector's own description, position included.
}

// Source is what a connector implements to be read. Values are shared by all subtasks.
type Source[T any] interface {
	// Splits lists the whole input, once, when the job starts without a checkpoint. It runs on a
	// goroutine of its own and may block until ctx is done. The order is the order of reading.
	Splits(ctx context.Context, c SourceContext) ([]Split, error)
	// Open starts to read a split at its position. It runs on the reader's goroutine and must not
	// block for long.
	Open(ctx context.Context, c SourceContext, s Split) (SplitReader[T], error)
	// Bounded tells whether the input ends.
	Bounded() bool
	// Validate lists what is wrong with the source's own configuration, without touching the
	// outside world.
	Validate() error
}

// SourceContext is what a source knows of its surroundings.
type SourceContext struct {
	Name        string // The source's.
	Subtask     int    // -1 in Splits.
	Parallelism int
	Now         func() time.Time
	// Wake makes the reader poll again after it was told Wait. Any goroutine may call it.
	Wake func()
}

// InOrder is implemented by sources whose splits follow each other in event time, so that a split
// that is not yet read does not hold the watermark back.
type InOrder interface{ SplitsInOrder() bool }

// ReadStatus says what a reader should do after a Read.
type ReadStatus int

// The outcomes of Read.
const (
	ReadMore ReadStatus = iota // Read again when there is room.
	ReadWait                   // Nothing now; Wake tells when.
	ReadEnd                    // The split is exhausted.
)

// SplitReader reads one split.
type SplitReader[T any] interface {
	// Read appends up to limit records to b.Rows, and their times to b.Times only if the source
	// itself has timestamps. A source that knows watermarks of the split marks them in b where they hold; the strategy
	// adds its own. It returns within a few milliseconds. A record that cannot be decoded
	// is an error of class job.ClassRecord that names where it is and shows its bytes.
	Read(b *record.Batch[T], limit int) (ReadStatus, error)
	// Position returns the split to go on from behind the last record that Read gave.
	Position() Split
	// Close is idempotent.
	Close() error
}
