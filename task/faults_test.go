package task

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

func TestFaultsOfTheStore(t *testing.T) {
	for want, errs := range map[job.Class][]error{
		job.ClassRefused: {
			statebackend.ErrCorrupt, blob.WrapError("get", "x", blob.ErrNotExist), blob.WrapError("get-range", "x", blob.ErrRange),
		},
		job.ClassExternal: {blob.WrapError("put", "x", blob.ErrFull), blob.WrapError("get", "x", errors.New("503")),
			statebackend.Fault{Err: errors.New("read")}, &fs.PathError{Op: "write", Path: "/spool", Err: syscall.ENOSPC}},
		job.ClassInternal: {errors.New("a bug")},
	} {
		for _, err := range errs {
			if got := job.FailureOf("", "", fmt.Errorf("restore: %w", ofRestore(fmt.Errorf("state: %w", err)))); got.Class != want {
				t.Errorf("%v: %v, want %v", err, got.Class, want)
			}
		}
	}
}
