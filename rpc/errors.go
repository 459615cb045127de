package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/cairnstream/cairn/coordinator"
	pb "github.com/cairnstream/cairn/proto/cairn/v1"
)

// Kind says what an error of Jobs means to its caller.
type Kind int

// The kinds of errors.
const (
	// Failed is an operation that was tried and failed, and everything else.
	Failed Kind = iota
	// Invalid is a request that can never work.
	Invalid
	// NotFound is a job, checkpoint or TaskManager that is not there.
	NotFound
	// Refused is a request that a check refuses as things stand: the name is running already, the program is known
	// in another topology. Nothing was changed.
	Refused
	// Unreachable is a JobManager that does not answer or does not lead.
	Unreachable
	// Interrupted is the caller's own ctx being done.
	Interrupted
)

func (k Kind) String() string {
	switch k {
	case Failed:
		return "failed"
	case Invalid:
		return "invalid"
	case NotFound:
		return "not found"
	case Refused:
		return "refused"
	case Unreachable:
		return "unreachable"
	case Interrupted:
		return "interrupted"
	}
	return fmt.Sprintf("kind(%d)", int(k))
}

// Error is an error with a kind. The outermost one in a chain counts.
type Error struct {
	Kind Kind
	Err  error
	// Leader of an Unreachable one is where the leader is, if known.
	Leader string
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an error with a kind.
func Errorf(k Kind, format string, args ...any) error {
	return &Error{Kind: k, Err: fmt.Errorf(format, args...)}
}

// NotLeaderError says that a JobManager does not lead, and who does, or "" if nobody is known to.
func NotLeaderError(leader string) error {
	msg := "this JobManager does not lead, and no other is known to"
	if leader != "" {
		msg = "this JobManager does not lead: " + leader + " does"
	}
	return &Error{Kind: Unreachable, Err: errors.New(msg), Leader: leader}
}

// KindOf is the kind of err, which may be one of package coordinator. An error without one is Failed.
func KindOf(err error) Kind {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Kind
	case errors.Is(err, coordinator.ErrInvalid):
		return Invalid
	case errors.Is(err, coordinator.ErrNotFound):
		return NotFound
	case errors.Is(err, coordinator.ErrRefused):
		return Refused
	case errors.Is(err, coordinator.ErrUnavailable):
		return Unreachable
	case errors.Is(err, coordinator.ErrFailed):
		return Failed
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Interrupted
	}
	return Failed
}

var codeOf = map[Kind]codes.Code{
	Failed:      codes.Aborted,
	Invalid:     codes.InvalidArgument,
	NotFound:    codes.NotFound,
	Refused:     codes.FailedPrecondition,
	Unreachable: codes.Unavailable,
	Interrupted: codes.Canceled,
}

// statusOf is the error that a server answers with.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	st := status.New(codeOf[KindOf(err)], text(err.Error()))
	var e *Error
	if errors.As(err, &e) && e.Kind == Unreachable {
		if with, werr := st.WithDetails(&pb.NotLeader{Leader: e.Leader}); werr == nil {
			st = with
		}
	}
	return st.Err()
}

// fromStatus is the inverse of statusOf on the client's side, where addr is whom it asked.
func fromStatus(ctx context.Context, addr string, err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	if ctx.Err() != nil && (st.Code() == codes.Canceled || st.Code() == codes.DeadlineExceeded) {
		return &Error{Kind: Interrupted, Err: ctx.Err()}
	}
	e := &Error{Kind: Failed, Err: errors.New(st.Message())}
	switch st.Code() {
	case codes.InvalidArgument:
		e.Kind = Invalid
	case codes.NotFound:
		e.Kind = NotFound
	case codes.FailedPrecondition:
		e.Kind = Refused
	case codes.Aborted:
		// Failed, in the server's own words.
	case codes.Unavailable:
		e.Kind = Unreachable
		e.Err = fmt.Errorf("JobManager at %s: %s", addr, plain(st.Message()))
		for _, d := range st.Details() {
			if n, ok := d.(*pb.NotLeader); ok {
				e.Leader = n.Leader
			}
		}
	case codes.Unimplemented:
		e.Err = fmt.Errorf("JobManager at %s does not know this request (it may be of another version): %s", addr, st.Message())
	default:
		e.Err = fmt.Errorf("JobManager at %s: %s (%v)", addr, st.Message(), st.Code())
	}
	return e
}

// plain cuts a message of the transport down to what failed.
func plain(msg string) string {
	msg, _ = strings.CutPrefix(msg, `connection error: desc = "`)
	if _, after, ok := strings.Cut(msg, "transport: Error while dialing: "); ok {
		msg = after
	}
	return strings.TrimSuffix(msg, `"`)
}

// isNotLeader tells a JobManager that answered but does not lead from one that did not answer.
func isNotLeader(err error) bool {
	for _, d := range status.Convert(err).Details() {
		if _, ok := d.(*pb.NotLeader); ok {
			return true
		}
	}
	return false
}
