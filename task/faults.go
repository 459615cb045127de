package task

import (
	"errors"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// ofStore says whose fault an error of writing or reading a snapshot is: the blob store's, if it is from there, or that of
// the disk that snapshots and local state pass through.
func ofStore(err error) error {
	var store *blob.Error
	var disk statebackend.Fault
	switch {
	case errors.As(err, &store), errors.As(err, &disk):
		return &job.Error{Class: job.ClassExternal, Err: err}
	case statebackend.DiskFull(err):
		return &job.Error{Class: job.ClassExternal, Err: statebackend.Fault{Err: err}}
	}
	return err
}

// ofRestore is ofStore for a restore. What is gone or damaged stays so, and the job ends instead of reading it for ever;
// whoever puts it right submits the job again.
func ofRestore(err error) error {
	if errors.Is(err, statebackend.ErrCorrupt) || errors.Is(err, blob.ErrNotExist) || errors.Is(err, blob.ErrRange) {
		return &job.Error{Class: job.ClassRefused, Err: err}
	}
	return ofStore(err)
}
