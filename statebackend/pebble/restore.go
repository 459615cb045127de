package pebble

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// restore is what a checkpoint has of an operator, as far as no state has taken it yet.
type restore struct {
	fetcher
	b      *Backend
	names  map[string]bool              // States that nobody has opened.
	trees  map[string]*treeState        // What the tree has by now.
	checks map[string][]job.StateHandle // Handles of every subtask, for their schemas.
	// segments are those with entries of this subtask's groups, by state, in order.
	segments map[string][]job.StateHandle
}

// source is the tree of one subtask in a checkpoint.
type source struct {
	groups job.GroupRange
	states []*treeState
	files  []job.StateHandle
}

// Restore implements statebackend.Backend.
func (b *Backend) Restore(ctx context.Context, r statebackend.Reader, handles []job.StateHandle) error {
	fail := func(err error) error {
		b.broken = fmt.Errorf("operator %q: restore: %w", b.p.Operator, err)
		return b.broken
	}
	switch {
	case b.closed:
		return fail(errors.New("the backend is closed"))
	case b.restored:
		return fmt.Errorf("operator %q: restore: it has been restored already", b.p.Operator)
	}
	b.restored = true
	for _, s := range b.states {
		if s.n > 0 {
			return fail(fmt.Errorf("state %q has entries already", s.name))
		}
	}
	x := &restore{
		fetcher: fetcher{ctx: ctx, reader: r, local: b.local, shared: b.shared, troubles: &b.troubles}, b: b, names: map[string]bool{}, trees: map[string]*treeState{},
		checks: map[string][]job.StateHandle{}, segments: map[string][]job.StateHandle{},
	}
	sources, err := x.sort(handles)
	if err != nil {
		return fail(err)
	}
	for _, s := range b.states {
		if err := x.check(s); err != nil {
			b.broken = err
			return err
		}
	}
	if err := x.fetch(sources); err != nil {
		return fail(err)
	}
	b.restore = x
	for _, s := range b.states {
		if x.trees[s.name] == nil { // Its number may be that of another state now.
			if err := b.number(s); err != nil {
				return fail(fmt.Errorf("state %q: %w", s.name, err))
			}
		}
	}
	for _, s := range b.states {
		if err := x.load(s); err != nil {
			b.broken = err
			return err
		}
	}
	return nil
}

// sort tells the handles apart. It returns the trees with entries of this subtask's groups.
func (x *restore) sort(handles []job.StateHandle) ([]*source, error) {
	byFirst := map[int]*source{}
	of := func(h job.StateHandle) *source {
		s := byFirst[h.Groups.First]
		if s == nil {
			s = &source{groups: h.Groups}
			byFirst[h.Groups.First] = s
		}
		return s
	}
	for _, h := range handles {
		ours := h.Groups.Intersect(x.b.p.Groups).Len() > 0
		switch h.Kind {
		case statebackend.KindFile:
			if ours {
				s := of(h)
				s.files = append(s.files, h)
			}
			continue
		case statebackend.KindTree:
			t, err := x.describe(h)
			if err != nil {
				return nil, err
			}
			if ours {
				s := of(h)
				s.states = append(s.states, t)
			}
		case statebackend.KindKeyed:
			if ours {
				x.segments[h.Name] = append(x.segments[h.Name], h)
			}
		default:
			continue
		}
		if h.Entries > 0 {
			x.names[h.Name] = true
		}
		x.checks[h.Name] = append(x.checks[h.Name], h)
	}
	var out []*source
	for _, first := range slices.Sorted(maps.Keys(byFirst)) {
		s := byFirst[first]
		if len(s.states) > 0 {
			out = append(out, s)
		}
	}
	return out, nil
}

// describe reads the description of a state in a tree.
func (x *restore) describe(h job.StateHandle) (*treeState, error) {
	return x.fetcher.describe(h, x.b.p.K)
}

// check compares the schemas of a state. Every handle counts, also those of other groups, so that all subtasks agree.
func (x *restore) check(s *state) error {
	for _, h := range x.checks[s.name] {
		if h.Kind != statebackend.KindTree {
			if err := s.check(h.Key, []string{h.Codec}); err != nil {
				return err
			}
			continue
		}
		t, err := x.describe(h)
		if err != nil {
			return fmt.Errorf("operator %q: restore: %w", x.b.p.Operator, err)
		}
		if err := checkTree(s.t, x.b.p.Operator, t, h); err != nil {
			return err
		}
	}
	return nil
}

// fetch brings the trees' files here. One that was of the same groups becomes the tree; of others the entries are copied.
func (x *restore) fetch(sources []*source) error {
	b := x.b
	for _, s := range sources {
		if len(s.files) == 0 {
			return fmt.Errorf("%w: state %q of key groups %v has no files", statebackend.ErrCorrupt, s.states[0].name, s.groups)
		}
	}
	b.nextID = 0
	if len(sources) == 0 {
		return nil
	}
	if len(sources) == 1 && sources[0].groups == b.p.Groups {
		src := sources[0]
		if err := b.replaceTree(func(dir string) error { return x.download(dir, src.files) }); err != nil {
			return err
		}
		for _, t := range src.states {
			x.trees[t.name] = t
			b.nextID = max(b.nextID, t.next)
		}
		x.keepBase(src)
		return nil
	}
	for _, src := range sources {
		if err := x.copy(src); err != nil {
			return err
		}
	}
	b.tree.empty = false
	return nil
}

// keepBase makes what was restored one that snapshots can build on.
func (x *restore) keepBase(src *source) {
	if !x.b.p.Own || x.b.p.Restored == 0 {
		return
	}
	all := &stored{files: map[string]job.StateHandle{}}
	for _, h := range src.files {
		all.files[h.Name] = h
	}
	for _, hs := range x.checks {
		for _, h := range hs {
			if h.Groups == src.groups && h.Kind == statebackend.KindTree {
				all.states = append(all.states, h)
			}
		}
	}
	x.b.snapshots.put(x.b.p.Restored, all)
}

// replaceTree opens the tree that fill puts into its folder.
func (b *Backend) replaceTree(fill func(dir string) error) error {
	b.tree.renew()
	if err := b.tree.db.Close(); err != nil {
		return err
	}
	b.tree.db = nil
	if err := os.RemoveAll(b.treeDir()); err != nil {
		return err
	}
	if err := os.MkdirAll(b.treeDir(), 0o755); err != nil {
		return err
	}
	if err := fill(b.treeDir()); err != nil {
		return err
	}
	if err := b.openTree(); err != nil {
		return fmt.Errorf("%w: open the tree: %w", statebackend.ErrCorrupt, err)
	}
	b.tree.empty = false
	// The library links no log of files into a checkpoint before it has written to it: it does with the first change.
	out := &sorted{b: b, prefix: "restore", n: &b.restoredFiles}
	if err := errors.Join(out.add(appendPrefix(nil, noGroup, 0), nil, true), out.ingest()); err != nil {
		out.drop()
		return err
	}
	return nil
}

// noGroup is above all key groups.
const noGroup = 1<<16 - 1

// copy adds the entries of our groups in another subtask's tree to ours.
func (x *restore) copy(src *source) error {
	b := x.b
	groups := src.groups.Intersect(b.p.Groups)
	ids := map[byte]*treeState{}
	for _, t := range src.states {
		to := x.trees[t.name]
		if to == nil {
			to = &treeState{name: t.name, key: t.key, first: b.p.Groups.First, counts: make([]int64, b.p.Groups.Len()), id: byte(b.nextID)}
			if b.nextID++; b.nextID > maxStates {
				return fmt.Errorf("the checkpoint has %d states, which is above the limit", b.nextID)
			}
			x.trees[t.name] = to
		}
		to.newest = max(to.newest, t.newest)
		for g := groups.First; g <= groups.Last; g++ {
			to.counts[g-to.first] += t.counts[g-t.first]
		}
		ids[t.id] = to
	}
	dir, err := os.MkdirTemp(b.dir, "restore-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	lower, upper := appendPrefix(nil, groups.First, 0), appendPrefix(nil, groups.Last+1, 0)
	db, err := x.openRange(dir, src, lower, upper)
	if err != nil {
		return err
	}
	defer db.Close()
	it, err := db.NewIter(&pebbledb.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return err
	}
	defer it.Close()
	out := &sorted{b: b, prefix: "restore", n: &b.restoredFiles}
	var c copier
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err == nil {
			err = c.add(src, ids, it.Key(), v, out)
		}
		if err != nil {
			out.drop()
			return err
		}
	}
	if err := errors.Join(it.Error(), c.flush(out)); err != nil {
		out.drop()
		return err
	}
	return out.ingest()
}

// copier puts entries of other trees under the numbers that their states and schemas have here. Since the states' may be in
// another order, it sorts what is of one key group.
type copier struct {
	rows  rows
	group int
}

func (c *copier) add(src *source, ids map[byte]*treeState, key, value []byte, out *sorted) error {
	if len(key) < prefixLen || len(value) == 0 {
		return fmt.Errorf("%w: an entry of a tree with %d and %d bytes", statebackend.ErrCorrupt, len(key), len(value))
	}
	to := ids[key[2]]
	if to == nil {
		return nil // Of a state that had been given up.
	}
	var from *treeState
	for _, t := range src.states {
		if t.id == key[2] {
			from = t
		}
	}
	schema := int(value[0] &^ agedFlag)
	if schema >= len(from.schemas) {
		return fmt.Errorf("%w: state %q: a value of schema %d of %d", statebackend.ErrCorrupt, from.name, schema, len(from.schemas))
	}
	if from.schemas[schema] == "" {
		return fmt.Errorf("%w: state %q: a value of schema %d, which none should be of", statebackend.ErrCorrupt, from.name, schema)
	}
	at := slices.Index(to.schemas, from.schemas[schema])
	if at < 0 {
		at = len(to.schemas)
		to.schemas = append(to.schemas, from.schemas[schema])
	}
	if group := int(key[0])<<8 | int(key[1]); group != c.group {
		if err := c.flush(out); err != nil {
			return err
		}
		c.group = group
	}
	off := len(c.rows.buf)
	c.rows.buf = append(appendPrefix(c.rows.buf, c.group, to.id), key[prefixLen:]...)
	end := len(c.rows.buf)
	c.rows.buf = append(append(c.rows.buf, value[0]&agedFlag|byte(at)), value[1:]...)
	c.rows.push(off, end, false)
	return nil
}

func (c *copier) flush(out *sorted) error {
	c.rows.sortAll()
	err := c.rows.put(out)
	c.rows.reset()
	return err
}

// load gives s what the checkpoint has for it.
func (x *restore) load(s *state) error {
	if err := x.check(s); err != nil {
		return err
	}
	if t := x.trees[s.name]; t != nil {
		if err := s.adopt(t); err != nil {
			return err
		}
		delete(x.trees, s.name)
	}
	chains, err := statebackend.Chains(x.segments[s.name])
	if err != nil {
		return fmt.Errorf("operator %q: restore: %w", x.b.p.Operator, err)
	}
	for _, c := range chains {
		if err := x.loadChain(s, c); err != nil {
			return fmt.Errorf("operator %q: restore state %q of key groups %v: %w", x.b.p.Operator, s.name, c[0].Groups, err)
		}
	}
	if s.n <= rewriteAtOnce {
		for s.rewrite() {
		}
	}
	delete(x.names, s.name)
	delete(x.segments, s.name)
	delete(x.checks, s.name)
	return nil
}
