package stored

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
)

// Snapshot is a checkpoint or savepoint whose states can be read. One goroutine at a time uses it.
type Snapshot struct {
	Manifest *snapshot.Manifest
	reader   *snapshot.Reader
	openers  map[string]Opener
	states   []*State
}

// Open loads the manifest with that key. A checkpoint may have been copied to another place, as a folder: its own objects are
// then looked for beside the manifest.
func Open(ctx context.Context, store blob.Store, key string, o Options) (*Snapshot, error) {
	m, err := snapshot.LoadManifest(ctx, store, key)
	if err != nil {
		return nil, err
	}
	own := fmt.Sprintf("/jobs/%s/checkpoints/%d", m.Job, uint64(m.Checkpoint))
	if dir := path.Dir(key); !strings.HasSuffix("/"+dir, own) {
		m.Rename(func(object string) string {
			if was, name := path.Split(object); strings.HasSuffix("/"+was, own+"/") {
				return path.Join(dir, name)
			}
			return object
		})
	}
	return New(m, snapshot.NewReader(store), o), nil
}

// New is Open for a manifest that is loaded.
func New(m *snapshot.Manifest, r *snapshot.Reader, o Options) *Snapshot {
	s := &Snapshot{Manifest: m, reader: r, openers: map[string]Opener{statebackend.KindKeyed: openSegments}}
	maps.Copy(s.openers, o.Openers)
	for _, name := range slices.Sorted(maps.Keys(m.Operators)) {
		s.states = append(s.states, s.statesOf(name)...)
	}
	return s
}

// States are all states, in the order of operators and names: those that have entries, and those that the program declares
// and that are empty.
func (s *Snapshot) States() []*State { return s.states }

// ErrNotFound is in the chain of an error about an operator or a state that the snapshot does not have.
var ErrNotFound = errors.New("not found")

// Of are the states of an operator.
func (s *Snapshot) Of(operator string) ([]*State, error) {
	var out []*State
	var others []string
	for _, st := range s.states {
		if st.Operator == operator {
			out = append(out, st)
		} else if !slices.Contains(others, st.Operator) {
			others = append(others, st.Operator)
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	if _, ok := s.Manifest.Operators[operator]; ok {
		return nil, fmt.Errorf("operator %q %w: it has no state; these have: %s", operator, ErrNotFound, strings.Join(others, ", "))
	}
	return nil, fmt.Errorf("operator %q %w: there are %s", operator, ErrNotFound, strings.Join(others, ", "))
}

// State finds a state.
func (s *Snapshot) State(operator, name string) (*State, error) {
	list, err := s.Of(operator)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, st := range list {
		if st.Name == name {
			return st, nil
		}
		names = append(names, st.Name)
	}
	return nil, fmt.Errorf("state %q of operator %q %w: there are %s", name, operator, ErrNotFound, strings.Join(names, ", "))
}

// table is what a snapshot has of one table: what backends know as a state.
type table struct {
	name        string
	kind        string // Of the handles.
	handles     []job.StateHandle
	key, value  string // Schemas.
	entries     int64
	bytes       int64
	subtasks    int
	first, last int // Key groups.
}

func (t *table) add(h job.StateHandle, newest bool) {
	if len(t.handles) == 0 {
		t.kind, t.key, t.value, t.first, t.last = h.Kind, h.Key, h.Codec, h.Groups.First, h.Groups.Last
	}
	t.handles = append(t.handles, h)
	t.bytes += h.Length
	if newest {
		t.entries += h.Entries
		t.subtasks++
	}
	t.first, t.last = min(t.first, h.Groups.First), max(t.last, h.Groups.Last)
}

// weight is about the memory that a table takes once it is read: its bytes are compressed, and each entry costs some.
func (t *table) weight() int64 {
	if t == nil {
		return 0
	}
	return t.bytes + 256*t.entries
}

// statesOf puts the tables of an operator together to the states that its program declares.
func (s *Snapshot) statesOf(operator string) []*State {
	tables := map[string]*table{}
	var files int64 // Bytes of files that several states have in common.
	for _, sub := range s.Manifest.Operators[operator].Subtasks {
		for i, h := range sub.States {
			if h.Kind == statebackend.KindFile {
				files += h.Length
				continue
			}
			t := tables[h.Name]
			if t == nil {
				t = &table{name: h.Name}
				tables[h.Name] = t
			}
			t.add(h, i+1 == len(sub.States) || sub.States[i+1].Base == "")
		}
	}
	var entries int64
	for _, t := range tables {
		if t.kind == statebackend.KindTree {
			entries += t.entries
		}
	}
	for _, t := range tables {
		if t.kind == statebackend.KindTree && entries > 0 {
			t.bytes += int64(float64(files) * float64(t.entries) / float64(entries))
		}
	}
	decls := map[string]job.StateDecl{}
	for _, op := range s.Manifest.Graph.Operators {
		if op.Name == operator {
			for _, d := range op.State {
				decls[d.Name] = d
			}
		}
	}
	var out []*State
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		if base, ok := strings.CutSuffix(name, job.ItemsSuffix); ok && tables[base] != nil && twoTables(tables[base].value) {
			continue // A part of that state.
		}
		items := tables[name+job.ItemsSuffix]
		if items == nil && twoTables(tables[name].value) {
			items = emptyItems(decls, name)
			if items == nil { // Lists that fit into their heads have no parts.
				_, elem, _ := strings.Cut(tables[name].value, ":")
				_, key, _ := strings.Cut(tables[name].key, ":")
				items = &table{name: name + job.ItemsSuffix, kind: statebackend.KindKeyed, key: "list-item:" + key, value: "list-part:" + elem, last: -1}
			}
		}
		out = append(out, s.newState(operator, tables[name], items, decls[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(decls)) {
		d := decls[name]
		if tables[name] != nil || d.Value == "" {
			continue // Lists of the engine's own have no schema.
		}
		if base, ok := strings.CutSuffix(name, job.ItemsSuffix); ok && twoTables(decls[base].Value) {
			continue
		}
		t := &table{name: name, kind: statebackend.KindKeyed, key: d.Key, value: d.Value, last: -1}
		if d.Key == "" {
			t.kind = d.Kind
		}
		out = append(out, s.newState(operator, t, emptyItems(decls, name), d))
	}
	slices.SortFunc(out, func(a, b *State) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// emptyItems is the second table of a state, as it is declared.
func emptyItems(decls map[string]job.StateDecl, name string) *table {
	d, ok := decls[name+job.ItemsSuffix]
	if !ok || !twoTables(decls[name].Value) {
		return nil
	}
	return &table{name: d.Name, kind: statebackend.KindKeyed, key: d.Key, value: d.Value, last: -1}
}

// twoTables tells whether the values of a table are the heads of maps or lists.
func twoTables(value string) bool {
	return strings.HasPrefix(value, "map-head:") || strings.HasPrefix(value, "list-head:")
}

// source opens a table; nil if it is empty.
func (s *Snapshot) source(ctx context.Context, operator string, t *table) (Source, error) {
	if t == nil || len(t.handles) == 0 {
		return nil, nil
	}
	open := s.openers[t.kind]
	if open == nil {
		return nil, fmt.Errorf("operator %q, state %q: its kind is %q: this program reads %s",
			operator, t.name, t.kind, strings.Join(slices.Sorted(maps.Keys(s.openers)), ", "))
	}
	handles := t.handles
	if t.kind == statebackend.KindTree {
		for _, sub := range s.Manifest.Operators[operator].Subtasks {
			for _, h := range sub.States {
				if h.Kind == statebackend.KindFile {
					handles = append(handles[:len(handles):len(handles)], h)
				}
			}
		}
	}
	all, err := open(ctx, s.reader, s.Manifest.K, handles)
	if err != nil {
		return nil, fmt.Errorf("operator %q: %w", operator, err)
	}
	src := all[t.name]
	if src == nil {
		return nil, fmt.Errorf("operator %q: nothing reads state %q", operator, t.name)
	}
	return located{src, operator}, nil
}

// located says in errors of a Source whose state it is.
type located struct {
	src      Source
	operator string
}

func (l located) Each(ctx context.Context, groups job.GroupRange, visit func(int, []byte, []byte) error) error {
	var own error
	err := l.src.Each(ctx, groups, func(g int, key, value []byte) error {
		own = visit(g, key, value)
		return own
	})
	if err != nil && own == nil {
		return fmt.Errorf("operator %q: %w", l.operator, err)
	}
	return err
}

func (l located) Get(ctx context.Context, group int, key []byte) ([]byte, bool, error) {
	value, found, err := l.src.Get(ctx, group, key)
	if err != nil {
		err = fmt.Errorf("operator %q: %w", l.operator, err)
	}
	return value, found, err
}

// layout is nil for what only the program can decode.
func layout(schema string) (*codec.Layout, error) {
	l, err := layoutOf(schema)
	if err != nil {
		return nil, err
	}
	return l, nil
}
