package statetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/segment"
)

// Objects is a statebackend.Writer and Reader in memory, with an object per section.
type Objects struct {
	mu struct {
		sync.Mutex
		data   map[string][]byte
		n      int
		read   int64
		ranges int
		last   int    // Range that does not fail; negative for all of them.
		left   int64  // Bytes until
		during func() // this is called; nil for nothing.
	}
	// FailAfter makes sections fail after so many bytes. Negative: never.
	FailAfter int64
}

var (
	_ statebackend.Writer = (*Objects)(nil)
	_ statebackend.Reader = (*Objects)(nil)
	// ErrFault is the failure that FailAfter and FailRead cause.
	ErrFault = errors.New("fault on cue")
)

// NewObjects makes an empty store.
func NewObjects() *Objects {
	o := &Objects{FailAfter: -1}
	o.mu.data, o.mu.last = map[string][]byte{}, -1
	return o
}

// During has f called in the middle of a write, once, when so many bytes of sections have come from now on. It takes back what
// it was told before; nil is for nothing.
func (o *Objects) During(bytes int64, f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.left, o.mu.during = bytes, f
}

func (o *Objects) passed(n int) {
	o.mu.Lock()
	var f func()
	if o.mu.left -= int64(n); o.mu.left < 0 {
		f, o.mu.during = o.mu.during, nil
	}
	o.mu.Unlock()
	if f != nil {
		f()
	}
}

type failing struct {
	bytes.Buffer
	o    *Objects
	left int64
}

func (f *failing) Write(p []byte) (int, error) {
	f.o.passed(len(p))
	if f.left >= 0 {
		if f.left -= int64(len(p)); f.left < 0 {
			return 0, ErrFault
		}
	}
	return f.Buffer.Write(p)
}

// Section implements statebackend.Writer.
func (o *Objects) Section(ctx context.Context, state string, fill func(io.Writer) error) (job.StateHandle, error) {
	w := failing{o: o, left: o.FailAfter}
	if err := errors.Join(fill(&w), ctx.Err()); err != nil {
		return job.StateHandle{}, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.n++
	key := fmt.Sprintf("object-%d-%s", o.mu.n, state)
	o.mu.data[key] = w.Bytes()
	return job.StateHandle{Object: key, Length: int64(w.Len()), Hash: segment.HashText(w.Bytes())}, nil
}

// Object implements statebackend.Writer.
func (o *Objects) Object(ctx context.Context, state string, r io.ReaderAt, n int64) (job.StateHandle, error) {
	return o.Section(ctx, state, func(w io.Writer) error {
		_, err := io.Copy(w, io.NewSectionReader(r, 0, n))
		return err
	})
}

// Range implements statebackend.Reader.
func (o *Objects) Range(_ context.Context, h job.StateHandle, off, n int64) (io.ReadCloser, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.read += n
	if o.mu.ranges++; o.mu.last >= 0 && o.mu.ranges > o.mu.last {
		return nil, fmt.Errorf("object %s: %w", h.Object, ErrFault)
	}
	data := h.Inline
	if h.Object != "" {
		var ok bool
		if data, ok = o.mu.data[h.Object]; !ok {
			return nil, fmt.Errorf("object %s does not exist", h.Object)
		}
	}
	if off+n > int64(len(data)) {
		return nil, fmt.Errorf("object %s has %d bytes: no range of %d from %d", h.Object, len(data), n, off)
	}
	return io.NopCloser(bytes.NewReader(slices.Clone(data[off : off+n]))), nil
}

// FailRead has all reads but the next n fail; a negative n is for none.
func (o *Objects) FailRead(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.last = n
	if n >= 0 {
		o.mu.last += o.mu.ranges
	}
}

// BytesRead is the sum of all ranges opened.
func (o *Objects) BytesRead() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.read
}

// Damage returns h with its bytes replaced by what change makes of them, in o or in h itself.
func (o *Objects) Damage(h job.StateHandle, change func([]byte) []byte) job.StateHandle {
	o.mu.Lock()
	defer o.mu.Unlock()
	if h.Object == "" {
		h.Inline = change(slices.Clone(h.Inline))
		return h
	}
	o.mu.n++
	key := fmt.Sprintf("damaged-%d", o.mu.n)
	if data := change(slices.Clone(o.mu.data[h.Object])); data != nil {
		o.mu.data[key] = data
	}
	h.Object = key
	return h
}
