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
		data map[string][]byte
		n    int
		read int64
	}
	// FailAfter makes sections fail after so many bytes. Negative: never.
	FailAfter int64
}

var (
	_ statebackend.Writer = (*Objects)(nil)
	_ statebackend.Reader = (*Objects)(nil)
	// ErrFault is the failure that FailAfter causes.
	ErrFault = errors.New("fault on cue")
)

// NewObjects makes an empty store.
func NewObjects() *Objects {
	o := &Objects{FailAfter: -1}
	o.mu.data = map[string][]byte{}
	return o
}

type failing struct {
	bytes.Buffer
	left int64
}

func (f *failing) Write(p []byte) (int, error) {
	if f.left >= 0 {
		if f.left -= int64(len(p)); f.left < 0 {
			return 0, ErrFault
		}
	}
	return f.Buffer.Write(p)
}

// Section implements statebackend.Writer.
func (o *Objects) Section(_ context.Context, state string, fill func(io.Writer) error) (job.StateHandle, error) {
	w := failing{left: o.FailAfter}
	if err := fill(&w); err != nil {
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
