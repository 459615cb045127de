package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/cairnstream/cairn/metastore"
)

// ask makes a request that changes nothing, within the time limits of ctx and of the store.
func (s *Store) ask(ctx context.Context, request func(context.Context) error) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, s.config.RequestTimeout)
	defer cancel()
	err := request(limited)
	switch {
	case err == nil:
		return nil
	case s.check(ctx) != nil:
		return s.check(ctx)
	case isRefusal(err):
		return err
	}
	return fmt.Errorf("%w: %w", metastore.ErrUnavailable, err)
}

// change makes a request that changes something. Its error is ErrOutcomeUnknown unless it is certain that nothing
// was done.
func (s *Store) change(ctx context.Context, request func(context.Context) error) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, s.config.RequestTimeout)
	defer cancel()
	err := request(limited)
	switch {
	case err == nil || isRefusal(err):
		return err
	case errors.Is(err, rpctypes.ErrTooManyRequests): // it was turned away at the door
		return fmt.Errorf("%w: %w", metastore.ErrUnavailable, err)
	case s.check(ctx) != nil:
		return fmt.Errorf("%w: %w", metastore.ErrOutcomeUnknown, s.check(ctx))
	}
	return fmt.Errorf("%w: %w", metastore.ErrOutcomeUnknown, err)
}

// check says whether it makes sense to ask at all.
func (s *Store) check(ctx context.Context) error {
	select {
	case <-s.closed:
		return metastore.ErrClosed
	default:
		return ctx.Err()
	}
}

// isRefusal tells whether etcd answered that it does not do this: then nothing was done, and nothing will be.
func isRefusal(err error) bool {
	if errors.Is(err, rpctypes.ErrTooManyRequests) {
		return false
	}
	var e rpctypes.EtcdError
	if !errors.As(err, &e) {
		return false
	}
	// By name, as only the packages that speak gRPC themselves import its codes.
	switch e.Code().String() {
	case "InvalidArgument", "PermissionDenied", "Unauthenticated", "FailedPrecondition", "NotFound", "ResourceExhausted",
		"OutOfRange", "Unimplemented":
		return true
	}
	return false
}
