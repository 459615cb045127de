package faulty

import (
	"io"
	"syscall"

	"github.com/cairnstream/cairn/blob"
)

// damage wraps body, which has size bytes, and says which size to announce.
func damage(object string, body io.ReadCloser, size int64, kind Damage, random uint64) (io.ReadCloser, int64) {
	if size == 0 {
		return body, size
	}
	switch kind {
	case Flip:
		return &flipped{ReadCloser: body, at: int64(random % uint64(size)), bit: byte(1 << (random >> 61))}, size
	case Truncate:
		keep := int64(random % uint64(size))
		return &cut{ReadCloser: body, left: keep, end: io.EOF}, keep
	case Break:
		return &cut{ReadCloser: body, left: size / 2, end: blob.WrapError("get", object, syscall.ECONNRESET)}, size
	}
	return body, size
}

// flipped changes one bit.
type flipped struct {
	io.ReadCloser
	at, pos int64
	bit     byte
}

func (f *flipped) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if i := f.at - f.pos; i >= 0 && i < int64(n) {
		p[i] ^= f.bit
	}
	f.pos += int64(n)
	return n, err
}

// cut ends early.
type cut struct {
	io.ReadCloser
	left int64
	end  error
}

func (c *cut) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, c.end
	}
	n, err := c.ReadCloser.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}
