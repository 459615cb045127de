package stored

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
)

// Kind is the kind of a State.
type Kind string

// The kinds of states.
const (
	Value        Kind = "value" // One value of a key.
	Reducing     Kind = "reducing"
	Aggregating  Kind = "aggregating"
	Map          Kind = "map"           // Values by key and map key.
	List         Kind = "list"          // A list of a key, or several that have numbers.
	Timers       Kind = "timers"        // Times of a key; the value is false once the timer was taken back.
	Windows      Kind = "windows"       // Values by key and the start of a window, or the place of a session.
	OperatorList Kind = "operator list" // A list of a subtask.
	Broadcast    Kind = "broadcast"     // A map that is the same in every subtask.
)

// State is a state as the program declares it.
type State struct {
	Operator, Name string
	Kind           Kind
	// Key, MapKey and Value are nil where there is none, and where only the program can decode them: Unreadable says why.
	// Value of a list is that of an element.
	Key, MapKey, Value *codec.Layout
	Unreadable         error
	KeySchema          string // Of the user's key; texts as the program gave them.
	ValueSchema        string
	TTL                bool // Entries expire.

	Entries  int64 // Of a map: of all keys. Of a list: how many lists.
	Bytes    int64
	Subtasks int            // That have entries.
	Groups   job.GroupRange // That those subtasks have.

	s           *Snapshot
	main, items *table
	mainLayout  layouts
	itemsLayout layouts
}

// Entry is an entry of a State. Its bytes are valid during the call that it is given to.
type Entry struct {
	State   *State
	Group   int
	Key     []byte   // The user's key, encoded; nil for states of the operator.
	MapKey  []byte   // Of maps and broadcast states.
	Time    int64    // Of timers and windows, in milliseconds since 1970. Of lists their number.
	Written int64    // With a TTL: what the age is counted from, in milliseconds since 1970.
	Value   []byte   // Encoded; of all but lists.
	Elems   [][]byte // Of a list, encoded, in order. With a TTL each is one of the codec aged.
	Subtask int      // Of a list of the operator,
	Index   int      // and the place in it.
}

func (s *Snapshot) newState(operator string, t, items *table, decl job.StateDecl) *State {
	st := &State{
		Operator: operator, Name: t.name, Kind: Value, s: s, main: t, Entries: t.entries, Bytes: t.bytes, Subtasks: t.subtasks,
		Groups: job.GroupRange{First: t.first, Last: t.last}, KeySchema: t.key, ValueSchema: t.value,
	}
	if t.kind == snapshot.KindList || t.kind == snapshot.KindBroadcast {
		st.ofOperator(decl)
		return st
	}
	var err error
	note := func(e error) {
		if err == nil {
			err = e
		}
	}
	lay := func(t *table) (l layouts) {
		var e error
		if l.key, e = layout(t.key); e != nil {
			note(fmt.Errorf("its keys cannot be read without the program: %w", e))
		}
		if l.value, e = layout(t.value); e != nil {
			note(fmt.Errorf("its values cannot be read without the program: %w", e))
		}
		return l
	}
	st.mainLayout = lay(t)
	key, value := st.mainLayout.key, st.mainLayout.value
	if key != nil {
		st.Key = key.User()
		st.KeySchema = st.Key.Schema().String()
	}
	switch {
	case twoTables(t.value):
		st.Kind = List
		if strings.HasPrefix(t.value, "map-head:") {
			st.Kind = Map
		}
		if value != nil {
			st.Value = value.Parts()[0]
			st.TTL = st.Value.Is("aged")
		}
		if items != nil {
			st.addItems(items, lay(items))
		}
		if st.Kind == List && st.TTL && st.Value != nil {
			st.Value = st.Value.Parts()[0]
		}
	case (t.name == "timers" || t.name == "clock-timers") && strings.HasPrefix(t.key, "key-time:") && t.value == "bool":
		st.Kind, st.Value = Timers, value
	case strings.HasPrefix(t.key, "key-time:"):
		st.Kind, st.Value = Windows, value
	default:
		if k := Kind(decl.Kind); k == Reducing || k == Aggregating {
			st.Kind = k
		}
		st.Value = value
		if value != nil && value.Is("aged") {
			st.TTL, st.Value = true, value.Parts()[0]
		}
	}
	if st.Value != nil {
		st.ValueSchema = st.Value.Schema().String()
	}
	st.Unreadable = err
	return st
}

// addItems adds the table of entries of a map, or of parts of lists.
func (st *State) addItems(items *table, l layouts) {
	st.items, st.itemsLayout = items, l
	st.Bytes += items.bytes
	if st.Kind != Map {
		return
	}
	st.Entries = items.entries
	if l.key != nil && l.key.Is("map-key") {
		st.MapKey = l.key.Parts()[1]
	}
	entry := l.value
	if entry != nil && entry.Is("aged") {
		st.TTL, entry = true, entry.Parts()[0]
	}
	st.Value = nil
	if entry != nil && entry.Is("map-entry") {
		st.Value = entry.Parts()[1]
	}
}

// ofOperator fills in a state without keys, whose elements are encoded as the program's declaration says.
func (st *State) ofOperator(decl job.StateDecl) {
	st.Kind, st.KeySchema, st.ValueSchema = OperatorList, "", "bytes"
	if st.main.kind == snapshot.KindBroadcast {
		st.Kind = Broadcast
		st.Entries = 0
		if len(st.main.handles) > 0 {
			st.Entries = st.main.handles[0].Entries // All have the same.
		}
	}
	st.Groups = job.GroupRange{First: 0, Last: -1}
	items := decl.Value
	for _, of := range []string{"item:", "entry:"} { // What the checkpoint says of its items counts.
		if rest, ok := strings.CutPrefix(st.main.value, of); ok {
			items = rest
		}
	}
	if items == "" {
		return // The engine's own: bytes.
	}
	st.ValueSchema = items
	if st.Kind == OperatorList {
		// What cannot be decoded is shown as bytes: where an item ends is known all the same.
		if l, err := layout(items); err == nil {
			st.Value, st.ValueSchema = l, l.Schema().String()
		}
		return
	}
	pair, err := layout("map-key:" + items)
	if err != nil {
		st.Unreadable = err
		return
	}
	st.MapKey, st.Value = pair.Parts()[0], pair.Parts()[1]
	st.ValueSchema = st.Value.Schema().String()
}

// Each visits the entries of the key groups, group by group in ascending order, in no order within one. States of the
// operator are visited whole, whatever the groups.
func (st *State) Each(ctx context.Context, groups job.GroupRange, visit func(*Entry) error) error {
	if st.Kind == OperatorList || st.Kind == Broadcast {
		return st.eachItem(ctx, visit)
	}
	if st.Unreadable != nil {
		return st.fail(st.Unreadable)
	}
	main, items, err := st.sources(ctx)
	if err != nil || main == nil {
		return err
	}
	switch st.Kind {
	case List:
		return st.lists(ctx, main, items, groups, visit)
	case Map:
		if items == nil {
			return st.fail(corrupt("there are heads of maps, but no entries"))
		}
		main = items
	}
	var e Entry
	return main.Each(ctx, groups, func(g int, key, value []byte) error {
		if err := st.parse(&e, g, key, value); err != nil {
			return st.fail(err)
		}
		return visit(&e)
	})
}

// All are all key groups.
func (st *State) All() job.GroupRange { return job.GroupRange{First: 0, Last: st.s.Manifest.K - 1} }

func (st *State) sources(ctx context.Context) (main, items Source, err error) {
	if main, err = st.s.source(ctx, st.Operator, st.main); err != nil {
		return nil, nil, err
	}
	items, err = st.s.source(ctx, st.Operator, st.items)
	return main, items, err
}

func (st *State) fail(err error) error {
	return fmt.Errorf("operator %q, state %q: %w", st.Operator, st.Name, err)
}

// parse makes an Entry of one of a table: of the items of a map, else of the only table.
func (st *State) parse(e *Entry, group int, key, value []byte) error {
	*e = Entry{State: st, Group: group, Key: key, Value: value}
	l := st.mainLayout
	var p codec.Parts
	if st.Kind == Map {
		l = st.itemsLayout
	}
	if l.key.User() != l.key {
		if _, err := l.key.Split(key, &p); err != nil {
			return corrupt("key: %v", err)
		}
		e.Key = p.Vals[0]
		if st.Kind == Map {
			e.MapKey = p.Vals[1]
		} else {
			e.Time = p.Nums[0]
		}
	}
	v := l.value
	if v.Is("aged") {
		if _, err := v.Split(value, &p); err != nil {
			return corrupt("value: %v", err)
		}
		e.Written, e.Value = p.Nums[0], p.Vals[0]
		v = v.Parts()[0]
	}
	if st.Kind == Map {
		if _, err := v.Split(e.Value, &p); err != nil {
			return corrupt("value: %v", err)
		}
		e.Value = p.Vals[2]
	}
	return nil
}

// partLen is the number of elements of a list's part.
const partLen = 4

// batchBytes is about how much of a state is held in memory where two of its tables, or two states, are put together. A key
// group is never divided.
const batchBytes = 16 << 20

// batches divides the groups into ranges that are read one after the other.
func batches(groups job.GroupRange, k int, weight int64, visit func(job.GroupRange) error) error {
	step := groups.Len()
	if weight > batchBytes {
		step = max(int(batchBytes*int64(k)/weight), 1)
	}
	for g := groups.First; g <= groups.Last; g += step {
		if err := visit(job.GroupRange{First: g, Last: min(g+step-1, groups.Last)}); err != nil {
			return err
		}
	}
	return nil
}

// lists puts lists together.
func (st *State) lists(ctx context.Context, heads, items Source, groups job.GroupRange, visit func(*Entry) error) error {
	return batches(groups, st.s.Manifest.K, st.items.weight(), func(some job.GroupRange) error {
		parts := map[string][]byte{}
		if items != nil {
			err := items.Each(ctx, some, func(_ int, k, v []byte) error {
				parts[string(k)] = bytes.Clone(v)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return heads.Each(ctx, some, func(g int, key, value []byte) error {
			e, err := st.list(g, key, value, func(k []byte) ([]byte, bool) {
				v, ok := parts[string(k)]
				return v, ok
			})
			if err != nil {
				return st.fail(err)
			}
			return visit(e)
		})
	})
}

// list puts a list together from its head and its parts.
func (st *State) list(group int, key, head []byte, part func(key []byte) ([]byte, bool)) (*Entry, error) {
	var k, h, p codec.Parts
	if _, err := st.mainLayout.key.Split(key, &k); err != nil {
		return nil, corrupt("key: %v", err)
	}
	if _, err := st.mainLayout.value.Split(head, &h); err != nil {
		return nil, corrupt("head of a list: %v", err)
	}
	e := &Entry{State: st, Group: group, Key: k.Vals[0], Time: k.Nums[0]}
	first, next := h.Nums[0], h.Nums[1]
	var raw []byte
	for n := first / partLen; n < (next-1)/partLen; n++ {
		raw = append(raw[:0], k.Vals[0]...)
		raw = binary.AppendUvarint(binary.AppendVarint(raw, k.Nums[0]), uint64(n))
		b, ok := part(raw)
		if !ok {
			return nil, corrupt("part %d of a list with the elements %d to %d is missing", n, first, next)
		}
		if st.itemsLayout.value == nil {
			return nil, corrupt("the parts of lists have no schema")
		}
		if _, err := st.itemsLayout.value.Split(b, &p); err != nil {
			return nil, corrupt("part of a list: %v", err)
		}
		if gone := max(first-n*partLen, 0); p.Nums[0] != gone {
			return nil, corrupt("of part %d of a list %d elements are gone, not %d", n, p.Nums[0], gone)
		}
		e.Elems = append(e.Elems, p.Elems...)
	}
	e.Elems = append(e.Elems, h.Elems...)
	return e, nil
}

// eachItem goes over a list or map of the operator.
func (st *State) eachItem(ctx context.Context, visit func(*Entry) error) error {
	for sub, s := range st.s.Manifest.Operators[st.Operator].Subtasks {
		for _, h := range s.States {
			if h.Name != st.Name {
				continue
			}
			items, err := st.s.reader.ReadList(ctx, []snapshot.Part{{Handle: h, Step: 1}})
			if err != nil {
				return fmt.Errorf("operator %q, subtask %d: %w", st.Operator, sub, err)
			}
			for i, b := range items {
				e := Entry{State: st, Subtask: sub, Index: i, Value: b}
				if st.MapKey != nil {
					n, err := st.MapKey.Len(b)
					if err != nil {
						return st.fail(corrupt("entry %d of subtask %d: %v", i, sub, err))
					}
					e.MapKey, e.Value = b[:n:n], b[n:]
				}
				if err := visit(&e); err != nil {
					return err
				}
			}
			if st.Kind == Broadcast {
				return nil // The others have the same.
			}
		}
	}
	return nil
}

// Get gives the entries of a key, encoded as Key says: one of a value; those of a map, the newest first; the list, or several;
// timers and windows by time. It reads little more than the key's group.
func (st *State) Get(ctx context.Context, key []byte) ([]*Entry, error) {
	if st.Unreadable != nil {
		return nil, st.fail(st.Unreadable)
	}
	if st.Key == nil {
		return nil, st.fail(errors.New("it is a state of the operator, which has no keys"))
	}
	group := job.GroupOf(codec.Hash(key), st.s.Manifest.K)
	main, items, err := st.sources(ctx)
	if err != nil || main == nil {
		return nil, err
	}
	if !oneValue(st.Kind) {
		held, err := st.load(ctx, main, items, job.GroupRange{First: group, Last: group}, func(k []byte) bool { return bytes.Equal(k, key) })
		if err != nil || held[string(key)] == nil {
			return nil, err
		}
		return held[string(key)].entries, nil
	}
	value, found, err := main.Get(ctx, group, key)
	if err != nil || !found {
		return nil, err
	}
	e := new(Entry)
	if err := st.parse(e, group, key, value); err != nil {
		return nil, st.fail(err)
	}
	return []*Entry{e}, nil
}

// GetMap gives the entry of a key and map key, or nil.
func (st *State) GetMap(ctx context.Context, key, mapKey []byte) (*Entry, error) {
	if st.Unreadable != nil {
		return nil, st.fail(st.Unreadable)
	}
	if st.Kind != Map {
		return nil, st.fail(fmt.Errorf("it is of kind %s and has no map keys", st.Kind))
	}
	_, items, err := st.sources(ctx)
	if err != nil || items == nil {
		return nil, err
	}
	group := job.GroupOf(codec.Hash(key), st.s.Manifest.K)
	k := append(slices.Clone(key), mapKey...)
	v, found, err := items.Get(ctx, group, k)
	if err != nil || !found {
		return nil, err
	}
	e := new(Entry)
	if err := st.parse(e, group, k, v); err != nil {
		return nil, st.fail(err)
	}
	return e, nil
}

// held is what a state has of one user's key.
type held struct {
	entries     []*Entry // In the order that Get has.
	main, items [][]byte // The keys in its tables.
}

// load reads what there is of the wanted keys of some groups. main and items may be nil.
func (st *State) load(ctx context.Context, main, items Source, groups job.GroupRange, want func(key []byte) bool) (map[string]*held, error) {
	out := map[string]*held{}
	wanted := func(src Source, l layouts, visit func(h *held, group int, k, v []byte) error) error {
		if src == nil {
			return nil
		}
		return src.Each(ctx, groups, func(g int, k, v []byte) error {
			n, err := l.key.UserLen(k)
			if err != nil {
				return st.fail(corrupt("key: %v", err))
			}
			if !want(k[:n]) {
				return nil
			}
			h := out[string(k[:n])]
			if h == nil {
				h = &held{}
				out[string(k[:n])] = h
			}
			return visit(h, g, bytes.Clone(k), bytes.Clone(v))
		})
	}
	itemValues := map[string][]byte{}
	heads := map[string][]byte{}
	err := wanted(items, st.itemsLayout, func(h *held, g int, k, v []byte) error {
		h.items = append(h.items, k)
		if st.Kind == List {
			itemValues[string(k)] = v
			return nil
		}
		e := new(Entry)
		h.entries = append(h.entries, e)
		itemValues[string(k)] = v
		return st.wrap(st.parse(e, g, k, v))
	})
	if err != nil {
		return nil, err
	}
	err = wanted(main, st.mainLayout, func(h *held, g int, k, v []byte) error {
		h.main = append(h.main, k)
		switch st.Kind {
		case Map:
			heads[string(k)] = v
			return nil
		case List:
			e, err := st.list(g, k, v, func(k []byte) ([]byte, bool) {
				v, ok := itemValues[string(k)]
				return v, ok
			})
			h.entries = append(h.entries, e)
			return st.wrap(err)
		}
		e := new(Entry)
		h.entries = append(h.entries, e)
		return st.wrap(st.parse(e, g, k, v))
	})
	if err != nil {
		return nil, err
	}
	for key, h := range out {
		if st.Kind != Map {
			slices.SortFunc(h.entries, func(a, b *Entry) int { return cmp.Compare(a.Time, b.Time) })
			continue
		}
		if h.entries, err = st.chained(heads[key], h.entries, func(e *Entry) []byte { return itemValues[key+string(e.MapKey)] }); err != nil {
			return nil, st.fail(err)
		}
	}
	return out, nil
}

func (st *State) wrap(err error) error {
	if err == nil {
		return nil
	}
	return st.fail(err)
}

// chained puts the entries of a map in their order. value is what the table has of one.
func (st *State) chained(head []byte, entries []*Entry, value func(*Entry) []byte) ([]*Entry, error) {
	if head == nil {
		return nil, corrupt("%d entries of a map without a head", len(entries))
	}
	var h codec.Parts
	if _, err := st.mainLayout.value.Split(head, &h); err != nil {
		return nil, corrupt("head of a map: %v", err)
	}
	links := make(map[string]*Entry, len(entries))
	for _, e := range entries {
		links[string(e.MapKey)] = e
	}
	out := make([]*Entry, 0, len(entries))
	for at := h.Vals[0]; at != nil; {
		e := links[string(at)]
		if e == nil {
			return nil, corrupt("the entries of a map of %d do not lead to each other", h.Nums[0])
		}
		delete(links, string(at))
		out = append(out, e)
		var err error
		if at, err = st.next(value(e)); err != nil {
			return nil, err
		}
	}
	if len(links) > 0 || int64(len(out)) != h.Nums[0] {
		return nil, corrupt("a map of %d entries has %d that lead to each other and %d more", h.Nums[0], len(out), len(links))
	}
	return out, nil
}

// next is the map key behind an entry of a map, or nil.
func (st *State) next(value []byte) ([]byte, error) {
	v := st.itemsLayout.value
	var p codec.Parts
	if v.Is("aged") {
		if _, err := v.Split(value, &p); err != nil {
			return nil, corrupt("value: %v", err)
		}
		value, v = p.Vals[0], v.Parts()[0]
	}
	if _, err := v.Split(value, &p); err != nil {
		return nil, corrupt("value: %v", err)
	}
	return p.Vals[1], nil
}
