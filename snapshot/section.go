package snapshot

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// ReadSection reads a section whole and verifies it. A section above limit is refused before it is read.
func ReadSection(ctx context.Context, r statebackend.Reader, h job.StateHandle, limit int64) ([]byte, error) {
	if h.Length > limit {
		return nil, fmt.Errorf("%s: %w", Place(h), corrupt("%d bytes, the limit is %d", h.Length, limit))
	}
	var b bytes.Buffer
	if err := CopySection(ctx, r, h, &b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// CopySection copies a section to dst and verifies it: what dst has is of use only without an error.
func CopySection(ctx context.Context, r statebackend.Reader, h job.StateHandle, dst io.Writer) error {
	body, err := r.Range(ctx, h, 0, h.Length)
	if err != nil {
		return fmt.Errorf("%s: %w", Place(h), err)
	}
	var hash xxh3.Hasher
	n, err := copyAll(io.MultiWriter(dst, &hash), body)
	if err = errors.Join(err, body.Close()); err != nil {
		return fmt.Errorf("%s: %w", Place(h), err)
	}
	return compare(h, n, &hash)
}

// VerifySection reads src to its end and tells whether it is the section that h describes.
func VerifySection(h job.StateHandle, src io.Reader) error {
	var hash xxh3.Hasher
	n, err := copyAll(&hash, src)
	if err != nil {
		return fmt.Errorf("%s: %w", Place(h), err)
	}
	return compare(h, n, &hash)
}

// buffers are for copies of large sections. With small ones a copy is calls of the system more than it is bytes.
var buffers = sync.Pool{New: func() any { return new([256 << 10]byte) }}

func copyAll(dst io.Writer, src io.Reader) (int64, error) {
	buf := buffers.Get().(*[256 << 10]byte)
	defer buffers.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, buf[:])
}

func compare(h job.StateHandle, n int64, hash *xxh3.Hasher) error {
	sum := hash.Sum128().Bytes()
	if got := hex.EncodeToString(sum[:]); n != h.Length || got != h.Hash {
		return fmt.Errorf("%s: %w", Place(h), corrupt("%d bytes with hash %s, the checkpoint has %d with %s", n, got, h.Length, h.Hash))
	}
	return nil
}

// Place names the place of a handle's bytes.
func Place(h job.StateHandle) string {
	what := fmt.Sprintf("state %q", h.Name)
	if h.Kind == statebackend.KindFile {
		what = "file " + h.Name
	}
	if h.Object == "" {
		return what + " in the checkpoint's metadata"
	}
	return fmt.Sprintf("%s in object %s, bytes %d to %d", what, h.Object, h.Offset, h.Offset+h.Length)
}
