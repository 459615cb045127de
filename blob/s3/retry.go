package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/cairnstream/cairn/blob"
)

// retry makes a request until it succeeds, fails for good, or was tried often enough. Its error says how often.
func (s *Store) retry(ctx context.Context, op, key string, request func() error) error {
	for try := 1; ; try++ {
		err := classify(request())
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return s.fail(op, key, ctx.Err())
		}
		// Gateways over a file system report a conflict also when a Delete takes a directory away that this request was
		// about to use. The next try tells: a true conflict stays.
		if !blob.IsTransient(err) && !errors.Is(err, blob.ErrConflict) {
			return s.fail(op, key, err)
		}
		if try >= s.options.Tries {
			return s.fail(op, key, fmt.Errorf("tried %d times: %w", try, err))
		}
		if s.pause(ctx, try) != nil {
			return s.fail(op, key, fmt.Errorf("%w, while waiting to try again after: %w", ctx.Err(), err))
		}
	}
}

// pause waits before another try; its error is that of ctx.
func (s *Store) pause(ctx context.Context, try int) error {
	most := s.options.MaxPause
	if shift := try - 1; shift < 20 {
		most = min(most, s.options.FirstPause<<shift)
	}
	timer := time.NewTimer(most/10 + rand.N(most))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func (s *Store) fail(op, key string, err error) error {
	if err == nil {
		return nil
	}
	return blob.WrapError(op, s.location.Object(key), err)
}

// statusError is a server's refusal, classified.
type statusError struct {
	kind      error // of package blob; nil where it has no word for it
	transient bool
	response  minio.ErrorResponse
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("%d %s: %s", e.response.StatusCode, e.response.Code, e.response.Message)
	if e.kind != nil {
		return fmt.Sprintf("%v (%s)", e.kind, text)
	}
	return text
}

func (e *statusError) Unwrap() []error {
	if e.kind != nil {
		return []error{e.kind}
	}
	return nil
}

// Timeout makes transient refusals pass for what they are in blob.IsTransient.
func (e *statusError) Timeout() bool { return e.transient }

// Temporary completes net.Error.
func (e *statusError) Temporary() bool { return e.transient }

var kinds = map[string]error{
	"NoSuchKey": blob.ErrNotExist, "NoSuchVersion": blob.ErrNotExist, "NotFound": blob.ErrNotExist,
	"PreconditionFailed": blob.ErrExists,
	"InvalidRange":       blob.ErrRange,
	"EntityTooLarge":     blob.ErrTooLarge,
	"AccessDenied":       blob.ErrDenied, "InvalidAccessKeyId": blob.ErrDenied, "SignatureDoesNotMatch": blob.ErrDenied,
	"AccountProblem": blob.ErrDenied, "AllAccessDisabled": blob.ErrDenied, "InvalidToken": blob.ErrDenied,
	"QuotaExceeded": blob.ErrFull, "XMinioStorageFull": blob.ErrFull, "InsufficientCapacity": blob.ErrFull,
	"ObjectParentIsFile": blob.ErrConflict, "ExistingObjectIsDirectory": blob.ErrConflict, "XMinioParentIsObject": blob.ErrConflict,
	"ObjectExistsAsDirectory": blob.ErrConflict,
}

// passing are refusals that pass by themselves, beside those that the status says it of.
var passing = map[string]bool{
	"SlowDown": true, "SlowDownRead": true, "SlowDownWrite": true, "RequestTimeout": true, "Throttling": true, "ThrottlingException": true,
	"RequestLimitExceeded": true, "RequestThrottled": true, "InternalError": true, "ServiceUnavailable": true, "OperationAborted": true,
	// Two conditional writes at the same moment: AWS demands that one of them comes again.
	"ConditionalRequestConflict": true,
	// Temporary credentials are renewed by the next try.
	"ExpiredToken": true, "ExpiredTokenException": true,
}

// classify turns an error of the client library into one that package blob understands.
func classify(err error) error {
	var r minio.ErrorResponse
	if !errors.As(err, &r) {
		return classifyTransport(err)
	}
	e := &statusError{kind: kinds[r.Code], response: r}
	if e.kind == nil && r.Code != "NoSuchBucket" && r.Code != "NoSuchUpload" {
		switch r.StatusCode {
		case http.StatusNotFound:
			e.kind = blob.ErrNotExist
		case http.StatusPreconditionFailed:
			e.kind = blob.ErrExists
		case http.StatusRequestedRangeNotSatisfiable:
			e.kind = blob.ErrRange
		case http.StatusForbidden, http.StatusUnauthorized:
			e.kind = blob.ErrDenied
		case http.StatusInsufficientStorage:
			e.kind = blob.ErrFull
		}
	}
	if e.kind == nil {
		switch r.StatusCode {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
			http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			e.transient = true
		}
		e.transient = e.transient || passing[r.Code]
	}
	return e
}

// classifyTransport: a request that got no answer may get one the next time, unless the other side is not who it
// should be.
func classifyTransport(err error) error {
	var ue *url.Error
	if !errors.As(err, &ue) || errors.Is(err, context.Canceled) {
		return err
	}
	var certificate *tls.CertificateVerificationError
	permanent := errors.As(err, &certificate) || strings.Contains(ue.Err.Error(), "server gave HTTP response to HTTPS client")
	return &transportError{err: err, transient: !permanent}
}

type transportError struct {
	err       error
	transient bool
}

func (e *transportError) Error() string   { return e.err.Error() }
func (e *transportError) Unwrap() error   { return e.err }
func (e *transportError) Timeout() bool   { return e.transient }
func (e *transportError) Temporary() bool { return e.transient }

func isCode(err error, code string) bool {
	var e *statusError
	return errors.As(err, &e) && e.response.Code == code
}
