package metastore

import (
	"context"
	"errors"
	"fmt"
)

// Errors that a caller tells apart, by errors.Is.
var (
	// ErrNotFound: there is no such key.
	ErrNotFound = errors.New("key not found")
	// ErrNoLeader: nobody holds the election at this moment.
	ErrNoLeader = errors.New("no leader")
	// ErrNotLeader: this leadership is over. Nothing that is tried through it has an effect any more.
	ErrNotLeader = errors.New("not the leader any more")
	// ErrOutcomeUnknown: the request was sent and no answer came, so that it has been carried out, or will be, or
	// never is. See Settle for how to find out.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrUnavailable: the store could not be asked; nothing was done. It passes by itself.
	ErrUnavailable = errors.New("metadata store not available")
	// ErrTooLarge: a limit of this package (see the Max constants) is exceeded; nothing was done.
	ErrTooLarge = errors.New("over the limit")
	// ErrInvalid: a key, name or transaction breaks the rules; nothing was done.
	ErrInvalid = errors.New("invalid")
	// ErrClosed: the Store was closed.
	ErrClosed = errors.New("metadata store is closed")
)

// Store is a client's view of the metadata store.
//
// Goroutines: all methods may be called from any goroutine at the same time. All may block on the network and
// return soon after ctx is done; Get, List, Leader and Commit also have a time limit of their own, so that they
// never hang on a store that is away. So they are not called by a goroutine that must not wait.
//
// Reads are linearizable: a read sees every write that was acknowledged, to anybody, before it began. Values that
// are handed out belong to the caller. Errors name the operation and the key. Reads may be repeated at will.
type Store interface {
	// Get reads a key; ErrNotFound if there is none.
	Get(ctx context.Context, key string) (Entry, error)

	// List reads all keys that begin with prefix (any string; empty: all), sorted by key, all as of one moment.
	List(ctx context.Context, prefix string) ([]Entry, error)

	// Elect stands for election and blocks until this candidate leads or ctx is done; ctx has no meaning for the
	// leadership once it is won. id is where others reach the candidate. While the store is away it goes on trying.
	// Every call is a candidate of its own.
	Elect(ctx context.Context, name, id string) (Leadership, error)

	// Leader says who holds the election; ErrNoLeader if nobody does. The answer may be old when it arrives.
	Leader(ctx context.Context, name string) (LeaderInfo, error)

	// Close ends the leaderships won through this Store as if by Resign, as far as the store answers within a
	// short time, and frees what the Store holds. It waits for the goroutines that the Store started. It may be
	// called twice.
	Close() error
}

// Leadership is the right to write, from the moment it was won until it is lost. Its methods may be called from any
// goroutine at the same time; concurrent commits have no order among them.
type Leadership interface {
	// Epoch is greater than that of every earlier leader of the same election. Never 0.
	Epoch() uint64

	// Lost is closed once this leadership is known to be over: resigned, replaced, or given up because the store
	// was away for too long. It can be over some time before that is known here, so Lost is a hint to stop; what
	// protects the data is the guard in Commit.
	Lost() <-chan struct{}

	// Commit carries out the transaction atomically if this leadership holds and all conditions do. The Outcome is
	// what happened; it is Committed only if everything took effect, durably. An error that is ErrOutcomeUnknown
	// leaves open whether it did or still will, and every other error means that it did not and never will. Values
	// are copied before it returns. A commit must not be blindly repeated: see Settle.
	Commit(ctx context.Context, txn Txn) (Outcome, error)

	// Get reads a key under the guard: ErrNotLeader if this leadership is over, so that an answer is what holds
	// while this leader may still change it. ErrNotFound if there is none.
	Get(ctx context.Context, key string) (Entry, error)

	// Resign ends this leadership, so that the next candidate need not wait for it to run out. After an error the
	// leadership is over for this process and runs out by itself for others. It may be called twice.
	Resign(ctx context.Context) error
}

// Entry is a key with its value. Revisions grow with every write to the store, whatever the key.
type Entry struct {
	Key            string
	Value          []byte
	CreateRevision int64 // when the key came to be (anew, if it was deleted before)
	ModRevision    int64 // when the value was last written
}

func (e Entry) String() string {
	return fmt.Sprintf("%s (%d bytes, revision %d)", e.Key, len(e.Value), e.ModRevision)
}

// LeaderInfo says who leads.
type LeaderInfo struct {
	ID    string // as given to Elect: where to reach the leader
	Epoch uint64
}

func (l LeaderInfo) String() string { return fmt.Sprintf("%s (epoch %d)", l.ID, l.Epoch) }

// Outcome is how a commit ended.
type Outcome int

// The outcomes of a commit. The zero value is none of them; it comes with an error.
const (
	// Committed: everything took effect.
	Committed Outcome = iota + 1
	// ConditionFailed: a condition did not hold; nothing was changed.
	ConditionFailed
	// NotLeader: the leadership is over; nothing was changed and nothing will be.
	NotLeader
)

func (o Outcome) String() string {
	switch o {
	case Committed:
		return "committed"
	case ConditionFailed:
		return "condition failed"
	case NotLeader:
		return "not leader"
	}
	return fmt.Sprintf("outcome(%d)", int(o))
}
