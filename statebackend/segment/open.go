package segment

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// Open reads the index of the segment that h describes, nearly always by one read, and compares it with what h and k, the
// number of key groups, say of it. It also returns the end of the segment that it read: blocks may be in it.
func Open(ctx context.Context, r statebackend.Reader, h job.StateHandle, k int) (ix *Index, tail []byte, err error) {
	for n := min(h.Length, TailGuess); ; {
		if tail, err = readTail(ctx, r, h, n); err != nil {
			return nil, nil, fmt.Errorf("index: %w", err)
		}
		ix, need, err := ParseTail(tail, h.Length)
		switch {
		case err != nil:
			return nil, nil, err
		case ix != nil:
			return ix, tail, ix.check(h, k)
		case need <= n:
			return nil, nil, corrupt("its index cannot be read")
		}
		n = need
	}
}

func readTail(ctx context.Context, r statebackend.Reader, h job.StateHandle, n int64) ([]byte, error) {
	body, err := r.Range(ctx, h, h.Length-n, n)
	if err != nil {
		return nil, err
	}
	tail, err := io.ReadAll(body) // By what there is: h may say more than that.
	if err = errors.Join(err, body.Close()); err != nil {
		return nil, err
	}
	if int64(len(tail)) != n {
		return nil, corrupt("%d bytes of the last %d", len(tail), n)
	}
	return tail, nil
}

// check compares the index with what a checkpoint says of the segment.
func (ix *Index) check(h job.StateHandle, k int) error {
	entries := ix.Entries
	if h.Base != "" {
		entries = ix.Total
	}
	switch {
	case h.Index != ix.Hash:
		return corrupt("the hash of its index is %s, the checkpoint has %s", ix.Hash, h.Index)
	case h.Base != ix.Base:
		return corrupt("it holds changes to %q, the checkpoint has changes to %q", ix.Base, h.Base)
	case ix.First != h.Groups.First || ix.Last != h.Groups.Last || entries != h.Entries:
		return corrupt("it makes %d entries of key groups [%d,%d], the checkpoint has %d of %v", entries, ix.First, ix.Last, h.Entries, h.Groups)
	case ix.Key != h.Key || ix.Value != h.Codec:
		return corrupt("it has keys and values of %s and %s, the checkpoint says %s and %s", ix.Key, ix.Value, h.Key, h.Codec)
	case ix.K != k:
		return &job.Error{Class: job.ClassRefused, Err: fmt.Errorf(
			"it was written with max-parallelism %d, not %d: max-parallelism is fixed for the life of the state", ix.K, k)}
	}
	return nil
}
