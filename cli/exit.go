package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/rpc"
)

// The exit codes.
const (
	Done        = 0
	Failed      = 1 // The operation failed.
	Usage       = 2 // It was asked for in a wrong way.
	NotFound    = 3
	Unreachable = 4
	Refused     = 5 // By a check.
)

// codeOf is the exit code of an error.
func codeOf(err error) int {
	var c *codeError
	switch {
	case err == nil:
		return Done
	case errors.As(err, &c):
		return c.code
	}
	switch rpc.KindOf(err) {
	case rpc.Invalid:
		return Usage
	case rpc.NotFound:
		return NotFound
	case rpc.Refused:
		return Refused
	case rpc.Unreachable:
		return Unreachable
	}
	return Failed
}

// codeError is an error with an exit code of its own.
type codeError struct {
	code int
	err  error
	hint string // How to learn more; empty: none.
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

// usage lists what is wrong with how a command was called.
func usage(what string, problems ...string) error {
	return &codeError{code: Usage, err: &job.Problems{What: what, List: problems}}
}

// wrongInput marks an error of a check of the input.
func wrongInput(err error) error {
	if err == nil {
		return nil
	}
	return &codeError{code: Usage, err: err}
}

// problemsOf takes an error apart that lists problems.
func problemsOf(err error) []string {
	var p *job.Problems
	switch {
	case err == nil:
		return nil
	case errors.As(err, &p):
		return p.List
	}
	return []string{err.Error()}
}

// outcome is the error of a job that did not finish.
func outcome(j coordinator.Job) error {
	switch j.State {
	case coordinator.JobFinished:
		return nil
	case coordinator.JobFailed:
		code, why := Failed, j.Reason
		if j.Failure != nil {
			why = j.Failure.String()
			// What was asked for is wrong, unless a checkpoint was to be gone on from: then that may be.
			switch {
			case j.Failure.Class != job.ClassRefused || j.Checkpoint > 0:
			case j.From != "":
				code = Refused
			default:
				code = Usage
			}
			if j.Failure.Stack != "" {
				why += "\n" + strings.TrimRight(j.Failure.Stack, "\n")
			}
		}
		return &codeError{code: code, err: fmt.Errorf("job %q (%s) failed: %s", j.Name, j.ID, why)}
	}
	return &codeError{code: Failed, err: fmt.Errorf("job %q (%s) is %s", j.Name, j.ID, j.State)}
}
