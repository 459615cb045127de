package snapshot

import (
	"bytes"
	"context"
	"io"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
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

// ReadAll is ReadSection.
func (r *Reader) ReadAll(ctx context.Context, h job.StateHandle, limit int64) ([]byte, error) {
	return ReadSection(ctx, r, h, limit)
}

// Verify reads a section whole, in little memory, and compares its hash.
func (r *Reader) Verify(ctx context.Context, h job.StateHandle) error {
	return CopySection(ctx, r, h, io.Discard)
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
