package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// NewReader is for implementations: it makes the reader that Get and GetRange hand out of a source that should
// deliver size bytes. Reading fails once ctx is done; a source that ends early fails with io.ErrUnexpectedEOF, and
// one that has more is cut; errors are of type *Error.
func NewReader(ctx context.Context, op, object string, src io.ReadCloser, size int64) io.ReadCloser {
	return &reader{ctx: ctx, op: op, object: object, src: src, size: size}
}

type reader struct {
	ctx        context.Context
	op, object string
	src        io.ReadCloser
	size, read int64
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, WrapError(r.op, r.object, err)
	}
	if r.read == r.size {
		return 0, io.EOF
	}
	if left := r.size - r.read; int64(len(p)) > left {
		p = p[:left]
	}
	n, err := r.src.Read(p)
	r.read += int64(n)
	switch {
	case err == nil || r.read == r.size:
		return n, nil
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("%w after %d of %d bytes", io.ErrUnexpectedEOF, r.read, r.size)
	}
	return n, WrapError(r.op, r.object, err)
}

func (r *reader) Close() error { return r.src.Close() }

// CopyBody is for implementations of Put: it copies exactly size bytes of body to dst and looks at ctx between
// pieces. A body that is too short is a permanent error, because it would be so the next time.
func CopyBody(ctx context.Context, dst io.Writer, body io.Reader, size int64) error {
	buf := make([]byte, min(size, 256<<10))
	for done := int64(0); done < size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(body, buf[:min(int64(len(buf)), size-done)])
		done += int64(n)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return &ShortBodyError{Got: done, Want: size}
		}
		if err != nil {
			return fmt.Errorf("read body at byte %d: %w", done, err)
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// ShortBodyError says that a body given to Put had fewer bytes than promised.
type ShortBodyError struct{ Got, Want int64 }

func (e *ShortBodyError) Error() string {
	return fmt.Sprintf("body has %d bytes, %d were promised", e.Got, e.Want)
}

// Unwrap makes it an io.ErrUnexpectedEOF.
func (e *ShortBodyError) Unwrap() error { return io.ErrUnexpectedEOF }

// CheckRange is for implementations of GetRange: ErrRange unless the range lies inside an object of that size.
func CheckRange(off, n, size int64) error {
	if off < 0 || n < 0 || off > size || n > size-off {
		return fmt.Errorf("%w: %d bytes from %d, object has %d", ErrRange, n, off, size)
	}
	return nil
}
