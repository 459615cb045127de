package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
)

// Errors that a caller tells apart, by errors.Is. All of them are permanent.
var (
	ErrNotExist = errors.New("object does not exist")
	ErrExists   = errors.New("object exists already")
	ErrRange    = errors.New("range is not inside the object")
	ErrTooLarge = errors.New("object is too large")
	ErrBadKey   = errors.New("bad key")
	// ErrConflict: one key would be a directory of the other (x and x/child).
	ErrConflict = errors.New("key conflicts with another object's key")
	// ErrFull: the medium has no room, or a quota is used up. Trying again at once does not help.
	ErrFull = errors.New("no space left in the store")
	// ErrDenied: credentials are missing, wrong or lack the right.
	ErrDenied = errors.New("access denied")
)

// Error says what was tried on which object, and why it failed.
type Error struct {
	Op     string // put, put-if-absent, get, get-range, stat, delete, list, open
	Object string // URL of the object, or its key where the URL is not known
	Err    error
	// Transient: the same call may succeed later without anybody doing anything (see IsTransient).
	Transient bool
}

func (e *Error) Error() string { return fmt.Sprintf("blob: %s %s: %v", e.Op, e.Object, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// WrapError makes an *Error of err and classifies it by IsTransient. An err that is one already, or nil, is
// returned as it is; one that has an *Error inside, such as that of a body which comes from another store, is not.
func WrapError(op, object string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(*Error); ok { //nolint:errorlint // One inside another error does not count.
		return err
	}
	return &Error{Op: op, Object: object, Err: err, Transient: IsTransient(err)}
}

// IsTransient tells whether err is of the kind that passes by itself: a time-out, a refused or broken connection,
// a server that is busy. Everything else, cancellation by the caller included, is permanent: it needs somebody to
// change something.
func IsTransient(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var be *Error
	if errors.As(err, &be) {
		return be.Transient
	}
	for _, permanent := range []error{ErrNotExist, ErrExists, ErrRange, ErrTooLarge, ErrBadKey, ErrConflict, ErrFull, ErrDenied} {
		if errors.Is(err, permanent) {
			return false
		}
	}
	var short *ShortBodyError
	if errors.As(err, &short) {
		return false
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	for _, passing := range []error{
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.ETIMEDOUT,
		syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EAGAIN, syscall.EINTR, syscall.ESTALE,
		io.ErrUnexpectedEOF, net.ErrClosed,
	} {
		if errors.Is(err, passing) {
			return true
		}
	}
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return true
	}
	var dns *net.DNSError
	return errors.As(err, &dns) && (dns.IsTemporary || dns.IsTimeout)
}
