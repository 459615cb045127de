package snapshot

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/segment"
)

// Reader opens what handles refer to. It is safe for concurrent use.
type Reader struct{ store blob.Store }

var _ statebackend.Reader = (*Reader)(nil)

// NewReader makes a Reader of a store.
func NewReader(s blob.Store) *Reader { return &Reader{s} }

// Range implements statebackend.Reader.
func (r *Reader) Range(ctx context.Context, h job.StateHandle, off, n int64) (io.ReadCloser, error) {
	if err := checkHandle(h); err != nil {
		return nil, err
	}
	if off < 0 || n < 0 || off > h.Length || n > h.Length-off {
		return nil, corrupt("state %q: %d bytes from %d of a section of %d", h.Name, n, off, h.Length)
	}
	if h.Object == "" {
		return io.NopCloser(bytes.NewReader(h.Inline[off : off+n])), nil
	}
	return r.store.GetRange(ctx, h.Object, h.Offset+off, n)
}

// ReadAll reads a section whole and verifies it. A section above limit is refused before it is read.
func (r *Reader) ReadAll(ctx context.Context, h job.StateHandle, limit int64) ([]byte, error) {
	if h.Length > limit {
		return nil, fmt.Errorf("%s: %d bytes, limit is %d", place(h), h.Length, limit)
	}
	body, err := r.Range(ctx, h, 0, h.Length)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(body)
	if err = errors.Join(err, body.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", place(h), err)
	}
	if got := segment.HashText(data); int64(len(data)) != h.Length || got != h.Hash {
		return nil, fmt.Errorf("%s: %w", place(h), corrupt("%d bytes with hash %s, the checkpoint has %d with %s", len(data), got, h.Length, h.Hash))
	}
	return data, nil
}

// Verify reads a section whole, in little memory, and compares its hash.
func (r *Reader) Verify(ctx context.Context, h job.StateHandle) error {
	body, err := r.Range(ctx, h, 0, h.Length)
	if err != nil {
		return err
	}
	var hash xxh3.Hasher
	n, err := io.Copy(&hash, body)
	if err = errors.Join(err, body.Close()); err != nil {
		return fmt.Errorf("%s: %w", place(h), err)
	}
	sum := hash.Sum128().Bytes()
	if got := hex.EncodeToString(sum[:]); n != h.Length || got != h.Hash {
		return fmt.Errorf("%s: %w", place(h), corrupt("%d bytes with hash %s, the checkpoint has %d with %s", n, got, h.Length, h.Hash))
	}
	return nil
}

func place(h job.StateHandle) string {
	if h.Object == "" {
		return fmt.Sprintf("state %q, inline", h.Name)
	}
	return fmt.Sprintf("state %q in object %s, bytes %d to %d", h.Name, h.Object, h.Offset, h.Offset+h.Length)
}

// checkHandle refuses a handle that cannot be meant.
func checkHandle(h job.StateHandle) error {
	switch {
	case h.Offset < 0 || h.Length < 0 || h.Offset > 1<<62 || h.Length > 1<<62 || h.Entries < 0:
		return corrupt("state %q: offset %d, length %d, %d entries", h.Name, h.Offset, h.Length, h.Entries)
	case h.Object != "" && len(h.Inline) > 0:
		return corrupt("state %q is both inline and in object %s", h.Name, h.Object)
	case h.Object == "" && int64(len(h.Inline)) != h.Length:
		return corrupt("state %q: %d bytes inline, %d were written", h.Name, len(h.Inline), h.Length)
	}
	return nil
}
