package coordinator

import (
	"errors"
	"fmt"
)

// Errors that a caller tells apart, by errors.Is. Their texts are for people.
var (
	// ErrInvalid: the request can never work.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound: there is no such job or checkpoint.
	ErrNotFound = errors.New("not found")
	// ErrRefused: a check refuses it as things stand; nothing was changed.
	ErrRefused = errors.New("refused")
	// ErrUnavailable: a store is away, or this coordinator has stopped. It may work later, or elsewhere.
	ErrUnavailable = errors.New("not available")
	// ErrFailed: it was tried, and failed.
	ErrFailed = errors.New("failed")
)

// kindError is an error of one of the kinds above whose text does not repeat the kind.
type kindError struct {
	kind error
	text string
	err  error
}

func (e *kindError) Error() string { return e.text }
func (e *kindError) Unwrap() []error {
	if e.err == nil {
		return []error{e.kind}
	}
	return []error{e.kind, e.err}
}

func errorf(kind error, format string, args ...any) error {
	e := fmt.Errorf(format, args...)
	return &kindError{kind, e.Error(), e}
}

// errStopped is what a coordinator that has stopped says.
func errStopped() error { return errorf(ErrUnavailable, "this JobManager has stopped leading") }
