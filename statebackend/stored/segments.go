package stored

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/segment"
)

// openSegments is the Opener of statebackend.KindKeyed.
func openSegments(_ context.Context, r statebackend.Reader, k int, handles []job.StateHandle) (map[string]Source, error) {
	out := map[string]Source{}
	chains, err := statebackend.Chains(handles)
	if err != nil {
		return nil, err
	}
	for _, c := range chains {
		name := c[0].Name
		s, _ := out[name].(*segments)
		if s == nil {
			s = &segments{k: k}
			out[name] = s
		}
		ch := chain{groups: c[0].Groups}
		for _, h := range c {
			ch.parts = append(ch.parts, &part{r: r, h: h, k: k})
		}
		s.chains = append(s.chains, ch)
	}
	for name, s := range out {
		s := s.(*segments)
		slices.SortStableFunc(s.chains, func(a, b chain) int { return cmp.Compare(a.groups.First, b.groups.First) })
		for i := 1; i < len(s.chains); i++ {
			a, b := s.chains[i-1].parts[0].h, s.chains[i].parts[0].h
			if a.Groups.Last >= b.Groups.First {
				return nil, corrupt("state %q: two subtasks have key groups %v and %v", name, a.Groups, b.Groups)
			}
			if a.Key != b.Key || a.Codec != b.Codec {
				return nil, corrupt("state %q: two subtasks have other schemas: %s, %s and %s, %s", name, a.Key, a.Codec, b.Key, b.Codec)
			}
		}
	}
	return out, nil
}

// segments is the Source of a table that is stored in segments. It opens the layouts when they are needed: what cannot be
// decoded can be listed all the same.
type segments struct {
	k       int
	chains  []chain // In the order of key groups.
	layouts layouts
}

// chain is what one subtask has of a table: a segment with all, and perhaps others with what changed later.
type chain struct {
	groups job.GroupRange
	parts  []*part
}

// part is one segment.
type part struct {
	r  statebackend.Reader
	h  job.StateHandle
	k  int
	ix *segment.Index
}

func (s *segments) open() error {
	if s.layouts.key != nil {
		return nil
	}
	var err error
	s.layouts, err = layoutsOf(s.chains[0].parts[0].h)
	return err
}

// Each implements Source.
func (s *segments) Each(ctx context.Context, groups job.GroupRange, visit func(int, []byte, []byte) error) error {
	if err := s.open(); err != nil {
		return err
	}
	for _, c := range s.chains {
		in := c.groups.Intersect(groups)
		if in.Len() == 0 {
			continue
		}
		each := s.merged
		if len(c.parts) == 1 {
			each = s.single
		}
		if err := each(ctx, c, in, visit); err != nil {
			return err
		}
	}
	return nil
}

// single goes over a segment that holds all.
func (s *segments) single(ctx context.Context, c chain, groups job.GroupRange, visit func(int, []byte, []byte) error) error {
	p := c.parts[0]
	st, err := p.stream(ctx, groups)
	if err != nil {
		return p.fail(err)
	}
	defer st.close()
	for {
		more, err := st.block(func(r run) error {
			return s.entries(p, r, visit)
		})
		if err != nil || !more {
			return p.fail(err)
		}
	}
}

// visitError is an error of a visitor, which is not the segment's fault.
type visitError struct{ error }

func (e visitError) Unwrap() error { return e.error }

// fail says which segment an error is about.
func (p *part) fail(err error) error {
	var v visitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &v):
		return v.error
	}
	return fmt.Errorf("state %q, key groups %v in %s: %w", p.h.Name, p.h.Groups, place(p.h), err)
}

func place(h job.StateHandle) string {
	if h.Object == "" {
		return "the checkpoint's metadata"
	}
	return fmt.Sprintf("object %s, bytes %d to %d", h.Object, h.Offset, h.Offset+h.Length)
}

// entries goes over the entries of a run.
func (s *segments) entries(p *part, r run, visit func(int, []byte, []byte) error) error {
	data := r.data
	for i := range r.entries {
		n, err := s.layouts.key.Len(data)
		if err != nil {
			return corrupt("key group %d, key of entry %d: %v", r.group, i, err)
		}
		key := data[:n]
		data = data[n:]
		if g, err := s.layouts.groupOf(key, s.k); err != nil || g != r.group {
			return corrupt("key group %d, entry %d: its key belongs to key group %d (%v)", r.group, i, g, err)
		}
		var value []byte
		if !r.removed {
			if n, err = s.layouts.value.Len(data); err != nil {
				return corrupt("key group %d, value of entry %d: %v", r.group, i, err)
			}
			value, data = data[:n:n], data[n:]
		}
		if err := visit(r.group, key, value); err != nil {
			return visitError{err}
		}
	}
	if len(data) > 0 {
		return corrupt("key group %d: %d entries leave %d bytes", r.group, r.entries, len(data))
	}
	return nil
}

// merged goes over the groups of a chain one by one and applies what changed.
func (s *segments) merged(ctx context.Context, c chain, groups job.GroupRange, visit func(int, []byte, []byte) error) error {
	streams := make([]*stream, 0, len(c.parts))
	defer func() {
		for _, st := range streams {
			st.close()
		}
	}()
	for _, p := range c.parts {
		st, err := p.stream(ctx, groups)
		if err != nil {
			return p.fail(err)
		}
		streams = append(streams, st)
	}
	type entry struct {
		key, value []byte
		gone       bool
	}
	for g := groups.First; g <= groups.Last; g++ {
		var all []entry
		at := map[string]int{}
		for _, st := range streams {
			err := st.group(g, func(r run) error {
				r.data = bytes.Clone(r.data) // The stream uses its memory again.
				return s.entries(st.part, r, func(_ int, key, value []byte) error {
					e := entry{key, value, r.removed}
					if i, ok := at[string(key)]; ok {
						all[i] = e
						return nil
					}
					at[string(key)] = len(all)
					all = append(all, e)
					return nil
				})
			})
			if err != nil {
				return st.part.fail(err)
			}
		}
		for _, e := range all {
			if e.gone {
				continue
			}
			if err := visit(g, e.key, e.value); err != nil {
				return err
			}
		}
	}
	return nil
}

// Get implements Source.
func (s *segments) Get(ctx context.Context, group int, key []byte) (value []byte, found bool, err error) {
	if err := s.open(); err != nil {
		return nil, false, err
	}
	for _, c := range s.chains {
		if !c.groups.Contains(group) {
			continue
		}
		for _, p := range slices.Backward(c.parts) {
			known := false
			err := p.group(ctx, group, func(r run) error {
				return s.entries(p, r, func(_ int, k, v []byte) error {
					if bytes.Equal(k, key) {
						known, found, value = true, !r.removed, bytes.Clone(v)
					}
					return nil
				})
			})
			if err != nil || known {
				return value, found, p.fail(err)
			}
		}
	}
	return nil, false, nil
}

// run is a run of entries of one key group, or of keys that are gone.
type run struct {
	group   int
	removed bool
	entries int64
	data    []byte
}

func runs(b segment.Block, c segment.Content, visit func(run) error) error {
	return b.Runs(c, func(r segment.Run) error {
		return visit(run{group: r.Group, removed: r.Removed, entries: r.Entries, data: r.Data})
	})
}

// stream reads the blocks of a segment one behind the other.
type stream struct {
	part   *part
	groups job.GroupRange
	blocks []segment.Block // Not read yet.
	body   io.ReadCloser   // Nil where there are none.
	stored []byte
	raw    []byte
	held   heldRuns
}

// stream begins at the first block with entries of the groups.
func (p *part) stream(ctx context.Context, groups job.GroupRange) (*stream, error) {
	ix, err := p.index(ctx)
	if err != nil {
		return nil, err
	}
	s := &stream{part: p, groups: groups, blocks: ix.Overlapping(groups)}
	if len(s.blocks) == 0 {
		return s, nil
	}
	first, last := s.blocks[0], s.blocks[len(s.blocks)-1]
	s.body, err = p.r.Range(ctx, p.h, first.Offset, last.Offset+last.Stored-first.Offset)
	return s, err
}

func (s *stream) close() {
	if s.body != nil {
		_ = s.body.Close() // It was read only.
	}
}

// block reads the next block; it tells whether there was one.
func (s *stream) block(visit func(run) error) (bool, error) {
	if len(s.blocks) == 0 {
		return false, nil
	}
	b := s.blocks[0]
	s.blocks = s.blocks[1:]
	if int64(cap(s.stored)) < b.Stored {
		s.stored = make([]byte, b.Stored)
	}
	stored := s.stored[:b.Stored]
	if _, err := io.ReadFull(s.body, stored); err != nil {
		return false, fmt.Errorf("block at byte %d: %w", b.Offset, err)
	}
	content, err := b.Decode(stored, &s.raw)
	if err != nil {
		return false, err
	}
	return true, runs(b, content, func(r run) error {
		if !s.groups.Contains(r.group) {
			return nil
		}
		return visit(r)
	})
}

// group visits the runs of the next group, or of none if it has none. Groups come in ascending order.
func (s *stream) group(g int, visit func(run) error) error {
	return s.held.group(g, func() bool { return len(s.blocks) > 0 && s.blocks[0].First <= g }, s.block, visit)
}

// heldRuns are those of the last block that was read, which belong to groups to come.
type heldRuns []run

// group visits the runs of a key group: those that are held, and those of blocks as long as the next one may have some.
func (h *heldRuns) group(g int, more func() bool, block func(func(run) error) (bool, error), visit func(run) error) error {
	for {
		for len(*h) > 0 && (*h)[0].group <= g {
			r := (*h)[0]
			*h = (*h)[1:]
			if err := visit(r); err != nil {
				return err
			}
		}
		if len(*h) > 0 || !more() {
			return nil
		}
		*h = (*h)[:0]
		if _, err := block(func(r run) error {
			r.data = bytes.Clone(r.data)
			*h = append(*h, r)
			return nil
		}); err != nil {
			return err
		}
	}
}

// group visits the runs of one group and reads no more than its blocks.
func (p *part) group(ctx context.Context, g int, visit func(run) error) error {
	s, err := p.stream(ctx, job.GroupRange{First: g, Last: g})
	if err != nil {
		return err
	}
	defer s.close()
	for {
		if more, err := s.block(visit); err != nil || !more {
			return err
		}
	}
}

// index reads the segment's index once.
func (p *part) index(ctx context.Context) (*segment.Index, error) {
	if p.ix != nil {
		return p.ix, nil
	}
	ix, _, err := segment.Open(ctx, p.r, p.h, p.k)
	if err != nil {
		return nil, err
	}
	p.ix = ix
	return ix, nil
}
