package metastore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

// settlePause is the time between two tries while the store gives no answer: short against a lease, long against a
// round trip.
const settlePause = 100 * time.Millisecond

// Settle commits a transaction and does not return before it knows the outcome, or ctx is done.
//
// Reading back alone cannot settle an unknown outcome: the request may still be under way and take effect after
// the read. So Settle repeats the transaction, which is safe because it must have a witness: a key that it puts and
// demands to be absent. Whichever copy of the request arrives first makes the others fail, and a witness that
// holds the very value that this transaction puts says that a copy arrived; so the value must be unlike any that
// another transaction could put there (it holds the epoch and the attempt, say). Nothing else may delete or rewrite
// the witness meanwhile.
//
// An error that is ErrOutcomeUnknown means that ctx ended first: then the outcome is still open.
func Settle(ctx context.Context, l Leadership, txn Txn) (Outcome, error) {
	witness, err := findWitness(txn)
	if err != nil {
		return 0, err
	}
	for unknown := false; ; {
		outcome, err := l.Commit(ctx, txn)
		if err == nil && outcome == ConditionFailed && unknown {
			outcome, err = readWitness(ctx, l, witness)
		}
		switch {
		case err == nil && (outcome != NotLeader || !unknown):
			return outcome, nil
		case err == nil:
			// Over, but an earlier copy may have arrived before that. Only the next leader's reading tells.
			return 0, fmt.Errorf("settle %q: %w: %w", witness.Key, ErrNotLeader, ErrOutcomeUnknown)
		case errors.Is(err, ErrOutcomeUnknown):
			unknown = true
		case errors.Is(err, ErrUnavailable):
		case unknown:
			return 0, fmt.Errorf("settle %q: %w: %w", witness.Key, ErrOutcomeUnknown, err)
		case ctx.Err() != nil:
			// The wait for the store ended within the call and not between two: the same to the caller.
			return 0, fmt.Errorf("settle %q: %w: %w", witness.Key, ErrUnavailable, err)
		default:
			return 0, err
		}
		select {
		case <-ctx.Done():
			if unknown {
				return 0, fmt.Errorf("settle %q: %w: %w", witness.Key, ErrOutcomeUnknown, err)
			}
			return 0, err
		case <-time.After(settlePause):
		}
	}
}

// readWitness tells a transaction that met its own effect from one that met somebody else's.
func readWitness(ctx context.Context, l Leadership, witness Put) (Outcome, error) {
	e, err := l.Get(ctx, witness.Key)
	switch {
	case errors.Is(err, ErrNotFound):
		return ConditionFailed, nil
	case errors.Is(err, ErrNotLeader):
		return NotLeader, nil
	case err != nil:
		return 0, fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	case bytes.Equal(e.Value, witness.Value):
		return Committed, nil
	}
	return ConditionFailed, nil
}

func findWitness(txn Txn) (Put, error) {
	for _, p := range txn.Puts {
		for _, c := range txn.Conditions {
			if c == Absent(p.Key) && len(p.Value) > 0 {
				return p, nil
			}
		}
	}
	return Put{}, fmt.Errorf("%w: %v has no witness: it must put a value to a key that it demands to be absent", ErrInvalid, txn)
}
