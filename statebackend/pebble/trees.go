package pebble

import (
	"bytes"
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

// OpenTrees is a statebackend.OpenTrees. Files are fetched whole, those alone that have entries of the key groups, so that each is
// verified by its hash, and are read one entry after the other.
func OpenTrees(ctx context.Context, r statebackend.Reader, p statebackend.Params, handles []job.StateHandle) (statebackend.TreeStates, error) {
	t := &treeStates{
		fetcher: fetcher{ctx: ctx, reader: r, local: newLocal(p), troubles: &troubles{}},
		p:       p, names: map[string]bool{}, of: map[string][]described{},
	}
	byFirst := map[int]*foreign{}
	for _, h := range handles {
		if h.Kind != statebackend.KindTree && h.Kind != statebackend.KindFile {
			continue
		}
		f := byFirst[h.Groups.First]
		if f == nil {
			f = &foreign{src: source{groups: h.Groups}}
			byFirst[h.Groups.First] = f
		}
		if f.src.groups != h.Groups {
			return nil, fmt.Errorf("operator %q: restore: %w: two subtasks have key groups %v and %v", p.Operator, statebackend.ErrCorrupt, f.src.groups, h.Groups)
		}
		if h.Kind == statebackend.KindFile {
			f.src.files = append(f.src.files, h)
			continue
		}
		s, err := t.describe(h, p.K)
		if err != nil {
			return nil, fmt.Errorf("operator %q: restore: %w", p.Operator, err)
		}
		f.src.states = append(f.src.states, s)
		t.of[h.Name] = append(t.of[h.Name], described{h, s, f})
		if h.Entries > 0 {
			t.names[h.Name] = true
		}
	}
	for _, first := range slices.Sorted(maps.Keys(byFirst)) {
		f := byFirst[first]
		if len(f.src.files) == 0 {
			return nil, fmt.Errorf("operator %q: restore: %w: state %q of key groups %v has no files", p.Operator, statebackend.ErrCorrupt, f.src.states[0].name, f.src.groups)
		}
		if f.src.groups.Intersect(p.Groups).Len() > 0 {
			t.trees = append(t.trees, f)
		}
	}
	return t, nil
}

// treeStates implements statebackend.TreeStates.
type treeStates struct {
	fetcher
	p     statebackend.Params
	names map[string]bool // Of states with entries.
	of    map[string][]described
	trees []*foreign // With entries of our key groups, in their order.
	dir   string     // Of the files; empty when there are none.
}

// described is what a subtask has of a state.
type described struct {
	h    job.StateHandle
	s    *treeState
	tree *foreign
}

// foreign is a tree that another backend reads.
type foreign struct {
	src source
	db  *pebbledb.DB // Nil until it is needed.
}

func (t *treeStates) Names() []string { return slices.Sorted(maps.Keys(t.names)) }

func (t *treeStates) Check(typ statebackend.Type) error {
	for _, d := range t.of[typ.StateName()] {
		if err := checkTree(typ, t.p.Operator, d.s, d.h); err != nil {
			return err
		}
	}
	return nil
}

func (t *treeStates) Each(state string, visit func(group int, schema string, key, value []byte) error) error {
	for _, f := range t.trees {
		groups := f.src.groups.Intersect(t.p.Groups)
		for _, d := range t.of[state] {
			if d.tree != f || d.s.entriesIn(groups) == 0 {
				continue
			}
			err := t.open(f)
			if err == nil {
				err = d.each(t.ctx, groups, visit)
			}
			if err != nil {
				return fmt.Errorf("operator %q: restore state %q of the tree of key groups %v: %w", t.p.Operator, state, f.src.groups, err)
			}
		}
	}
	return nil
}

// open fetches what of a tree is needed, once.
func (t *treeStates) open(f *foreign) (err error) {
	if f.db != nil {
		return nil
	}
	if t.dir == "" {
		if t.dir, err = os.MkdirTemp(t.p.Dir, "trees-"); err != nil {
			return statebackend.Fault{Err: err, Path: t.p.Dir}
		}
		t.shared = &shared{blocks: pebbledb.NewCache(canonicalBlocks), files: pebbledb.NewFileCache(1, openFiles)}
	}
	dir, err := os.MkdirTemp(t.dir, "tree-")
	if err != nil {
		return statebackend.Fault{Err: err, Path: t.dir}
	}
	groups := f.src.groups.Intersect(t.p.Groups)
	f.db, err = t.openRange(dir, &f.src, appendPrefix(nil, groups.First, 0), appendPrefix(nil, groups.Last+1, 0))
	return err
}

// Close implements statebackend.TreeStates.
func (t *treeStates) Close() error {
	var errs []error
	for _, f := range t.trees {
		if f.db != nil {
			errs = append(errs, f.db.Close())
			f.db = nil
		}
	}
	if t.dir != "" {
		t.shared.files.Unref()
		t.shared.blocks.Unref()
		errs = append(errs, os.RemoveAll(t.dir))
		t.dir = ""
	}
	return errors.Join(errs...)
}

// each visits the entries in some of the key groups of the tree.
func (d *described) each(ctx context.Context, groups job.GroupRange, visit func(group int, schema string, key, value []byte) error) (err error) {
	return eachEntry(ctx, d.tree.db, d.s, groups, func(group int, key, v []byte) error {
		if len(v) == 0 || int(v[0]&^agedFlag) >= len(d.s.schemas) || d.s.schemas[v[0]&^agedFlag] == "" {
			return fmt.Errorf("%w: key group %d: a value is of a schema that none should be of", statebackend.ErrCorrupt, group)
		}
		return visit(group, d.s.schemas[v[0]&^agedFlag], key, v[1:])
	})
}

// eachEntry visits the entries of a state in some of the key groups of a tree, in their order, and compares their number with what
// the state's description says. A value begins with its tag.
func eachEntry(ctx context.Context, db *pebbledb.DB, s *treeState, groups job.GroupRange, visit func(group int, key, value []byte) error) (err error) {
	it, err := db.NewIterWithContext(ctx, &pebbledb.IterOptions{
		LowerBound: appendPrefix(nil, groups.First, 0), UpperBound: appendPrefix(nil, groups.Last+1, 0),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for g := groups.First; g <= groups.Last; g++ {
		want := s.counts[g-s.first]
		if want == 0 {
			continue
		}
		prefix := appendPrefix(nil, g, s.id)
		var n int64
		for ok := it.SeekGE(prefix); ok && bytes.HasPrefix(it.Key(), prefix); ok = it.Next() {
			if n++; n%4096 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			v, err := it.ValueAndErr()
			if err == nil {
				err = visit(g, it.Key()[prefixLen:], v)
			}
			if err != nil {
				return err
			}
		}
		if err := it.Error(); err != nil {
			return err
		}
		if n != want {
			return fmt.Errorf("%w: state %q has %d entries of key group %d, not %d", statebackend.ErrCorrupt, s.name, n, g, want)
		}
	}
	return ctx.Err()
}
