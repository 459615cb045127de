package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	inspect "github.com/cairnstream/cairn/statebackend/stored"
)

// OpenStored is the inspect.Opener of handles of statebackend.KindTree; those of statebackend.KindFile come with them. What it
// opens is closed when ctx ends.
func OpenStored(ctx context.Context, r statebackend.Reader, k int, handles []job.StateHandle) (map[string]inspect.Source, error) {
	trees := map[int]*storedTree{}
	of := func(h job.StateHandle) *storedTree {
		t := trees[h.Groups.First]
		if t == nil {
			t = &storedTree{ctx: ctx, r: r, groups: h.Groups}
			trees[h.Groups.First] = t
		}
		return t
	}
	out := map[string]inspect.Source{}
	for _, h := range handles {
		switch h.Kind {
		case statebackend.KindFile:
			t := of(h)
			t.files = append(t.files, h)
		case statebackend.KindTree:
			data, err := snapshot.ReadSection(ctx, r, h, maxDescription)
			if err != nil {
				return nil, err
			}
			s, err := decodeTreeState(h, data)
			if err != nil {
				return nil, err
			}
			if s.k != k {
				return nil, fmt.Errorf("%w: %s is of %d key groups, the checkpoint of %d", statebackend.ErrCorrupt, snapshot.Place(h), s.k, k)
			}
			src, ok := out[h.Name].(*storedState)
			if !ok {
				src = &storedState{name: h.Name}
				out[h.Name] = src
			}
			src.parts = append(src.parts, storedPart{of(h), s, h.Codec})
		}
	}
	return out, nil
}

// storedTree is the tree of one subtask, opened when it is needed.
type storedTree struct {
	ctx    context.Context
	r      statebackend.Reader
	groups job.GroupRange
	files  []job.StateHandle
	once   sync.Once
	db     *pebbledb.DB
	err    error
}

func (t *storedTree) open() (*pebbledb.DB, error) {
	t.once.Do(func() { t.db, t.err = openRemote(t.ctx, t.r, t.groups, t.files) })
	return t.db, t.err
}

// storedState is the inspect.Source of a state.
type storedState struct {
	name  string
	parts []storedPart // By subtask.
}

type storedPart struct {
	tree  *storedTree
	state *treeState
	now   string // Schema of values.
}

// value takes an entry's value apart.
func (p *storedPart) value(name string, v []byte) ([]byte, error) {
	if len(v) == 0 || int(v[0]&^agedFlag) >= len(p.state.schemas) {
		return nil, fmt.Errorf("%w: a value of state %q", statebackend.ErrCorrupt, name)
	}
	if text := p.state.schemas[v[0]&^agedFlag]; text != p.now {
		return nil, fmt.Errorf("state %q has values that are not yet rewritten from the type %s to %s: a later checkpoint can be read", name, text, p.now)
	}
	return v[1:], nil
}

// Each implements inspect.Source.
func (s *storedState) Each(ctx context.Context, groups job.GroupRange, visit func(group int, key, value []byte) error) error {
	for i := range s.parts {
		p := &s.parts[i]
		g := groups.Intersect(p.tree.groups)
		if g.Len() == 0 || p.state.entriesIn(g) == 0 {
			continue
		}
		if err := p.each(ctx, s.name, g, visit); err != nil {
			return err
		}
	}
	return nil
}

func (s *treeState) entriesIn(g job.GroupRange) (n int64) {
	for i := g.First; i <= g.Last; i++ {
		n += s.counts[i-s.first]
	}
	return n
}

func (p *storedPart) each(ctx context.Context, name string, groups job.GroupRange, visit func(group int, key, value []byte) error) error {
	db, err := p.tree.open()
	if err != nil {
		return err
	}
	return eachEntry(ctx, db, p.state, groups, func(group int, key, v []byte) error {
		v, err := p.value(name, v)
		if err != nil {
			return err
		}
		return visit(group, key, v)
	})
}

// Get implements inspect.Source.
func (s *storedState) Get(_ context.Context, group int, key []byte) (value []byte, found bool, err error) {
	for i := range s.parts {
		p := &s.parts[i]
		if !p.tree.groups.Contains(group) || p.state.entriesIn(job.GroupRange{First: group, Last: group}) == 0 {
			continue
		}
		db, err := p.tree.open()
		if err != nil {
			return nil, false, err
		}
		v, closer, err := db.Get(append(appendPrefix(nil, group, p.state.id), key...))
		if errors.Is(err, pebbledb.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		v, err = p.value(s.name, bytes.Clone(v))
		return v, err == nil, errors.Join(err, closer.Close())
	}
	return nil, false, nil
}
