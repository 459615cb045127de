package job

import (
	"errors"
	"fmt"
)

// Class says whose fault a failure is.
type Class string

// The classes of failures.
const (
	// ClassUser is a fault in user code: a panic or an error that a function returned.
	ClassUser Class = "user-code"
	// ClassRecord is a record that cannot be decoded or processed.
	ClassRecord Class = "record"
	// ClassExternal is a fault of a system outside: a source, a sink, the blob store, etcd.
	ClassExternal Class = "external"
	// ClassInfrastructure is the loss of a process or of a connection between ours.
	ClassInfrastructure Class = "infrastructure"
	// ClassInternal is a fault of Cairn itself.
	ClassInternal Class = "internal"
	// ClassRefused is an input that can never work, so a restart is of no use.
	ClassRefused Class = "refused"
)

// Failure is what made a task, a checkpoint or a job fail.
type Failure struct {
	Class   Class
	Task    string `json:",omitempty"` // Task.String(), or empty.
	Worker  WorkerID
	Message string
	Stack   string `json:",omitempty"` // Of a panic in user code.
}

func (f Failure) String() string {
	s := string(f.Class) + ": " + f.Message
	if f.Task != "" {
		s = f.Task + ": " + s
	}
	return s
}

// Retriable tells whether a restart may help. A record that cannot be decoded comes again after
// every restart.
func (f Failure) Retriable() bool { return f.Class != ClassRefused && f.Class != ClassRecord }

// Error is an error with a class. The innermost one in a chain counts.
type Error struct {
	Class Class
	Stack string
	Err   error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes a classified error.
func Errorf(c Class, format string, args ...any) error {
	return &Error{Class: c, Err: fmt.Errorf(format, args...)}
}

// FailureOf classifies err; an error without a class is taken as internal.
func FailureOf(task string, w WorkerID, err error) Failure {
	f := Failure{Class: ClassInternal, Task: task, Worker: w, Message: err.Error()}
	for e := err; e != nil; {
		var c *Error
		if !errors.As(e, &c) {
			break
		}
		f.Class = c.Class
		if c.Stack != "" {
			f.Stack = c.Stack
		}
		e = c.Err
	}
	return f
}
