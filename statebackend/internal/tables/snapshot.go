package tables

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/segment"
)

type snapshot struct {
	id       job.CheckpointID
	cfg      Config
	states   []frozenState
	alive    *alive
	released atomic.Bool
}

type frozenState struct {
	state  *state
	frozen statebackend.FrozenTable
}

// runBytes is about how much of a key group is encoded before it goes into the segment.
const runBytes = 32 << 10

// buffers are what a Write needs; kept, since snapshots come again and again.
var buffers = sync.Pool{New: func() any { return &buffer{} }}

type buffer struct {
	run []byte
	seg segment.Writer
}

// Write implements statebackend.Snapshot.
func (s *snapshot) Write(ctx context.Context, w statebackend.Writer) ([]job.StateHandle, error) {
	if s.released.Load() {
		return nil, fmt.Errorf("operator %q: snapshot for checkpoint %v: it was released", s.cfg.Operator, s.id)
	}
	buf := buffers.Get().(*buffer)
	defer buffers.Put(buf)
	var handles []job.StateHandle
	for _, f := range s.states {
		if f.frozen.Len() == 0 {
			continue
		}
		var sum segment.Summary
		fill := func(out io.Writer) (err error) {
			sum, err = s.encode(ctx, buf, f, out)
			return err
		}
		var h job.StateHandle
		var err error
		if s.cfg.Inline {
			h, err = s.inline(f, fill)
		} else {
			h, err = w.Section(ctx, f.state.name, fill)
		}
		if err != nil {
			return nil, fmt.Errorf("operator %q: snapshot of state %q for checkpoint %v: %w", s.cfg.Operator, f.state.name, s.id, err)
		}
		h.Name, h.Kind, h.Key, h.Codec = f.state.name, statebackend.KindKeyed, f.state.key, f.state.value
		h.Groups, h.Entries, h.Index = s.cfg.Groups, sum.Entries, sum.Index
		handles = append(handles, h)
	}
	return handles, nil
}

// encode writes one state as a segment.
func (s *snapshot) encode(ctx context.Context, buf *buffer, f frozenState, out io.Writer) (segment.Summary, error) {
	groups := s.cfg.Groups
	buf.seg.Reset(out, segment.Descriptor{
		Operator: s.cfg.Operator, Subtask: s.cfg.Task.Subtask, State: f.state.name, Key: f.state.key, Value: f.state.value,
		K: s.cfg.K, First: groups.First, Last: groups.Last, Checkpoint: uint64(s.id),
		Compression: s.cfg.Compression,
	})
	for g := groups.First; g <= groups.Last; g++ {
		if f.frozen.GroupLen(g) == 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return segment.Summary{}, err
		}
		flush := func(data []byte, entries int64) ([]byte, error) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			return data[:0], buf.seg.Add(g, entries, data)
		}
		rest, entries, err := f.frozen.Encode(g, buf.run[:0], runBytes, flush)
		if err != nil {
			return segment.Summary{}, err
		}
		if err := buf.seg.Add(g, entries, rest); err != nil {
			return segment.Summary{}, err
		}
		buf.run = rest[:0]
	}
	sum, err := buf.seg.Finish()
	if err == nil && sum.Entries != int64(f.frozen.Len()) {
		err = fmt.Errorf("%d entries encoded of %d", sum.Entries, f.frozen.Len())
	}
	return sum, err
}

// inline keeps a segment in its handle.
func (s *snapshot) inline(f frozenState, fill func(io.Writer) error) (job.StateHandle, error) {
	buf := limited{limit: s.cfg.InlineLimit}
	err := fill(&buf)
	if buf.size > buf.limit {
		return job.StateHandle{}, &job.Error{Class: job.ClassUser, Err: &statebackend.LimitError{
			Operator: s.cfg.Operator, State: f.state.name, Size: buf.size, Limit: buf.limit,
		}}
	}
	if err != nil {
		return job.StateHandle{}, err
	}
	data := buf.Bytes()
	return job.StateHandle{Inline: data, Length: int64(len(data)), Hash: segment.HashText(data)}, nil
}

// limited counts what is written to it and keeps it up to a limit, so that an error can tell the whole size
// without the memory for it.
type limited struct {
	bytes.Buffer
	size, limit int64
}

func (l *limited) Write(p []byte) (int, error) {
	l.size += int64(len(p))
	if l.size > l.limit {
		l.Buffer = bytes.Buffer{}
		return len(p), nil
	}
	return l.Buffer.Write(p)
}

// Release implements statebackend.Snapshot.
func (s *snapshot) Release() {
	if !s.released.CompareAndSwap(false, true) {
		return
	}
	for _, f := range s.states {
		f.frozen.Release()
	}
	s.alive.done()
}
