package tables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
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
	alive    *statebackend.Alive
	written  *written
	released atomic.Bool
}

type frozenState struct {
	state   *state
	frozen  statebackend.FrozenTable
	base    statebackend.Chain // What changes may be written to; nil when it is to be written in full.
	removed []*removed         // Since the base.
}

var (
	errUnchanged = errors.New("nothing has changed")
	errMany      = errors.New("too much has changed")
)

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
	parts := make([]part, 0, len(s.states))
	for _, f := range s.states {
		p := part{state: f.state, epoch: f.frozen.Epoch()}
		if f.frozen.Len() > 0 {
			if err := s.write(ctx, w, buf, f, &p); err != nil {
				return nil, fmt.Errorf("operator %q: snapshot of state %q for checkpoint %v: %w", s.cfg.Operator, f.state.name, s.id, err)
			}
		}
		parts = append(parts, p)
		handles = append(handles, p.chain...)
	}
	s.written.put(s.id, parts)
	return handles, nil
}

// write stores one state: nothing if nothing changed, only what changed if that pays, else all of it.
func (s *snapshot) write(ctx context.Context, w statebackend.Writer, buf *buffer, f frozenState, p *part) error {
	if f.base != nil && len(f.base) < maxChain {
		// All changes together take no more than the full segment, so a restore reads at most twice what it must, and to write
		// that again costs no more than the changes since have. A half in one snapshot is too much at once.
		room := min(f.base[0].Length-f.base.Changes(), f.base[0].Length/2)
		h, err := s.section(ctx, w, f, func(out io.Writer) (segment.Summary, error) {
			return s.encodeChanges(ctx, buf, f, &capped{out: out, left: room})
		})
		switch {
		case err == nil:
			h.Base = f.base.Newest().Index
			p.chain, p.old = append(slices.Clip(f.base), h), len(f.base)
			return nil
		case errors.Is(err, errUnchanged):
			p.chain, p.old = f.base, len(f.base)
			return nil
		case !errors.Is(err, errMany):
			return err
		}
		p.many = f.base[0].Length-f.base.Changes() >= f.base[0].Length/2 // Else it was the turn of a full one anyway.
	}
	h, err := s.section(ctx, w, f, func(out io.Writer) (segment.Summary, error) { return s.encode(ctx, buf, f, out) })
	p.chain = statebackend.Chain{h}
	return err
}

// section stores a segment.
func (s *snapshot) section(ctx context.Context, w statebackend.Writer, f frozenState, encode func(io.Writer) (segment.Summary, error)) (h job.StateHandle, err error) {
	var sum segment.Summary
	fill := func(out io.Writer) (err error) {
		sum, err = encode(out)
		return err
	}
	if s.cfg.Inline {
		h, err = s.inline(f, fill)
	} else {
		h, err = w.Section(ctx, f.state.name, fill)
	}
	return s.describe(f, h, sum), err
}

// describe fills in a handle what is known of a state's segment.
func (s *snapshot) describe(f frozenState, h job.StateHandle, sum segment.Summary) job.StateHandle {
	h.Name, h.Kind, h.Key, h.Codec = f.state.name, statebackend.KindKeyed, f.state.key, f.state.value
	h.Groups, h.Entries, h.Index = s.cfg.Groups, int64(f.frozen.Len()), sum.Index
	return h
}

func (s *snapshot) descriptor(f frozenState) segment.Descriptor {
	return segment.Descriptor{
		Operator: s.cfg.Operator, Subtask: s.cfg.Task.Subtask, State: f.state.name, Key: f.state.key, Value: f.state.value,
		K: s.cfg.K, First: s.cfg.Groups.First, Last: s.cfg.Groups.Last, Checkpoint: uint64(s.id),
		Compression: s.cfg.Compression,
	}
}

// encode writes one state as a segment.
func (s *snapshot) encode(ctx context.Context, buf *buffer, f frozenState, out io.Writer) (segment.Summary, error) {
	buf.seg.Reset(out, s.descriptor(f))
	for g := s.cfg.Groups.First; g <= s.cfg.Groups.Last; g++ {
		if f.frozen.GroupLen(g) == 0 {
			continue
		}
		if err := buf.entries(ctx, g, f.frozen.Encode); err != nil {
			return segment.Summary{}, err
		}
	}
	return finish(buf.seg.Finish, f)
}

// encodeChanges writes what changed in one state since its base.
func (s *snapshot) encodeChanges(ctx context.Context, buf *buffer, f frozenState, out io.Writer) (segment.Summary, error) {
	d := s.descriptor(f)
	d.Base, d.Total = f.base.Newest().Index, int64(f.frozen.Len())
	buf.seg.Reset(out, d)
	for g := s.cfg.Groups.First; g <= s.cfg.Groups.Last; g++ {
		for _, r := range f.removed {
			err := r.encode(g-s.cfg.Groups.First, func(keys int64, data []byte) error { return buf.seg.Remove(g, keys, data) })
			if err != nil {
				return segment.Summary{}, err
			}
		}
		if f.frozen.GroupLen(g) == 0 {
			continue
		}
		if err := buf.entries(ctx, g, f.frozen.EncodeChanged); err != nil {
			return segment.Summary{}, err
		}
	}
	if buf.seg.Empty() {
		return segment.Summary{}, errUnchanged
	}
	return buf.seg.Finish()
}

// entries adds what encode gives of a key group to the segment.
func (b *buffer) entries(ctx context.Context, group int, encode func(int, []byte, int, statebackend.Flush) ([]byte, int64, error)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	rest, entries, err := encode(group, b.run[:0], runBytes, func(data []byte, entries int64) ([]byte, error) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return data[:0], b.seg.Add(group, entries, data)
	})
	if err != nil {
		return err
	}
	b.run = rest[:0]
	return b.seg.Add(group, entries, rest)
}

// capped fails when more than some bytes are written.
type capped struct {
	out  io.Writer
	left int64
}

func (c *capped) Write(p []byte) (int, error) {
	if c.left -= int64(len(p)); c.left < 0 {
		return 0, errMany
	}
	return c.out.Write(p)
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
	s.alive.Done()
}
