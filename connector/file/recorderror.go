package file

import (
	"fmt"

	"github.com/cairnstream/cairn/job"
)

// RecordError says that a record of a file cannot be decoded. It comes with class job.ClassRecord; a reader that is
// read again goes on behind the record.
type RecordError struct {
	Path   string
	Line   int64  // From 1; 0 where only the offset is known, in a range of a large file.
	Offset int64  // Of the record's first byte in the file, decompressed.
	Record []byte // The record's bytes; of one that is too long the beginning.
	Err    error
}

// What an error shows of a record.
const shownBytes = 256

func (e *RecordError) Error() string {
	where := fmt.Sprintf("byte %d", e.Offset)
	if e.Line > 0 {
		where = fmt.Sprintf("line %d (byte %d)", e.Line, e.Offset)
	}
	return fmt.Sprintf("%s: %s: %v: %s", e.Path, where, e.Err, quoteBytes(e.Record))
}

func (e *RecordError) Unwrap() error { return e.Err }

func quoteBytes(b []byte) string {
	if len(b) > shownBytes {
		return fmt.Sprintf("%q... (%d bytes)", b[:shownBytes], len(b))
	}
	return fmt.Sprintf("%q", b)
}

func (e *RecordError) classified() error {
	return &job.Error{Class: job.ClassRecord, Err: e}
}
