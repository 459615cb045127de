package tables

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/segment"
)

// sorters are what a WriteCanonical needs, of the size of the largest key group.
var sorters = sync.Pool{New: func() any { return &sorter{} }}

type sorter struct {
	rows segment.Rows
	seg  segment.SortedWriter
}

// WriteCanonical implements statebackend.Snapshot. What snapshots build on is as if it had not been.
func (s *snapshot) WriteCanonical(ctx context.Context, w statebackend.Writer) ([]job.StateHandle, error) {
	if s.released.Load() {
		return nil, fmt.Errorf("operator %q: savepoint %v: the snapshot was released", s.cfg.Operator, s.id)
	}
	states := slices.SortedFunc(slices.Values(s.states), func(a, b frozenState) int { return cmp.Compare(a.state.name, b.state.name) })
	buf := sorters.Get().(*sorter)
	defer sorters.Put(buf)
	var out []job.StateHandle
	for _, f := range states {
		if f.frozen.Len() == 0 {
			continue
		}
		var sum segment.Summary
		h, err := w.Section(ctx, f.state.name, func(out io.Writer) (err error) {
			sum, err = s.sorted(ctx, buf, f, out)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("operator %q: savepoint %v of state %q: %w", s.cfg.Operator, s.id, f.state.name, err)
		}
		out = append(out, s.describe(f, h, sum))
	}
	return out, nil
}

// sorted writes one state as a canonical segment.
func (s *snapshot) sorted(ctx context.Context, buf *sorter, f frozenState, out io.Writer) (segment.Summary, error) {
	buf.seg.Reset(out, s.descriptor(f))
	for g := s.cfg.Groups.First; g <= s.cfg.Groups.Last; g++ {
		if f.frozen.GroupLen(g) == 0 {
			continue
		}
		buf.rows.Reset()
		err := f.frozen.Entries(g, func(key, value []byte) error {
			buf.rows.Add(key, value)
			if buf.rows.Len()%4096 == 0 {
				return ctx.Err()
			}
			return nil
		})
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			buf.rows.Sort()
			err = buf.rows.AddTo(&buf.seg, g)
		}
		if err != nil {
			return segment.Summary{}, err
		}
	}
	return finish(buf.seg.Finish, f)
}

// finish ends a segment with all of a state.
func finish(end func() (segment.Summary, error), f frozenState) (segment.Summary, error) {
	sum, err := end()
	if err == nil && sum.Entries != int64(f.frozen.Len()) {
		err = fmt.Errorf("%d entries encoded of %d", sum.Entries, f.frozen.Len())
	}
	return sum, err
}
