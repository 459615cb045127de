package statebackend

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"syscall"

	"github.com/cairnstream/cairn/job"
)

// Fault is what a backend panics with when an access to state fails, since the methods of states have no error to
// return: a read of the disk that fails, a write for which there is no room. It ends the attempt.
//
// From the first one on every access throws the same Fault, and Freeze returns its error: user code may recover from
// the panic, but no checkpoint must then be taken of a state that lost a change.
type Fault struct {
	// Err says what failed. The class of failure is external unless Err has one.
	Err error
	// Path is where, for an error that does not say so.
	Path string
}

// Error says what failed and, for a disk that is full, what to do.
func (f Fault) Error() string {
	if !DiskFull(f.Err) {
		return f.Err.Error()
	}
	path := f.Path
	if p := (*fs.PathError)(nil); path == "" && errors.As(f.Err, &p) {
		path = p.Path
	}
	where := "the disk of local state is full"
	if path != "" {
		where = fmt.Sprintf("the disk of %s is full", path)
	}
	return fmt.Sprintf("%v: %s: free space on it, give the TaskManager a larger one with --dir, or spread the job over more TaskManagers", f.Err, where)
}

// Unwrap gives what failed.
func (f Fault) Unwrap() error { return f.Err }

// DiskFull tells whether err is for want of room on a disk.
func DiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Recovered turns what a panic was raised with into the failure of a task: a fault of state as what it is, everything
// else as one of user code, with the stack. A recover in user code may have wrapped the fault in an error of its own.
func Recovered(v any) error {
	if err, ok := v.(error); ok {
		if f := (Fault{}); errors.As(err, &f) {
			return &job.Error{Class: job.ClassExternal, Err: fmt.Errorf("access to state: %w", err)}
		}
	}
	return &job.Error{Class: job.ClassUser, Stack: string(debug.Stack()), Err: fmt.Errorf("panic: %v", v)}
}
