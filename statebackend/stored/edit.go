package stored

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
)

// Editor makes a new savepoint out of a snapshot, with some entries set or removed and everything else carried over: the
// states that nobody touches, the positions of sources, what sinks have pending. Make one with NewEditor, then Apply
// changes, then Write. One goroutine uses it.
//
// Changes are held in memory, encoded; of the snapshot no more than a range of key groups at a time.
type Editor struct {
	s       *Snapshot
	now     int64
	changed map[*State]map[int]map[string][]Change // By group and the user's key, in order.
	count   int
	written bool
}

// NewEditor makes an Editor. Entries with a TTL that do not say when they were written are as old as now.
func NewEditor(s *Snapshot, now time.Time) *Editor {
	return &Editor{s: s, now: now.UnixMilli(), changed: map[*State]map[int]map[string][]Change{}}
}

// Changes is how many there are.
func (e *Editor) Changes() int { return e.count }

// Change sets or removes an entry. Keys and values are encoded as the state's schemas say: Snapshot.ParseChange reads one from
// JSON, SetValue makes one of Go values.
type Change struct {
	State  *State
	Delete bool
	// Key is the user's key. To remove a Key without its MapKey, or without its Time, removes all of it.
	Key    []byte
	MapKey []byte // Of maps and broadcast states; nil for none.
	// Time is that of a timer, the start of a window, the number of a list (0 where there is only one).
	Time    int64
	HasTime bool
	Value   []byte
	Elems   [][]byte // Of a list, in place of Value: all of it.
	// Written, in milliseconds since 1970, is what the age of an entry with a TTL is counted from.
	Written    int64
	HasWritten bool
}

// changeJSON is a Change as a line of a file has it: what Entry.Record has, and delete.
type changeJSON struct {
	Operator *string        `json:"operator"`
	State    *string        `json:"state"`
	Key      jsontext.Value `json:"key"`
	MapKey   jsontext.Value `json:"map_key"`
	Time     jsontext.Value `json:"time"`
	Window   jsontext.Value `json:"window"`
	Place    *int64         `json:"place"`
	List     *int64         `json:"list"`
	Value    jsontext.Value `json:"value"`
	Written  jsontext.Value `json:"written"`
	Subtask  *int           `json:"subtask"`
	Index    *int           `json:"index"`
	Delete   bool           `json:"delete"`
}

// ParseChange reads a change: an object like those of Entry.Record, or with "delete": true and no value.
func (s *Snapshot) ParseChange(line []byte) (c Change, err error) {
	var j changeJSON
	if err := json.Unmarshal(line, &j, json.RejectUnknownMembers(true)); err != nil {
		return c, inLine(err)
	}
	if j.Operator == nil || j.State == nil {
		return c, errors.New("operator or state is missing")
	}
	if c.State, err = s.State(*j.Operator, *j.State); err != nil {
		return c, err
	}
	st := c.State
	c.Delete = j.Delete
	if st.Kind == OperatorList || j.Subtask != nil || j.Index != nil {
		return c, st.fail(errNoEdit)
	}
	if st.Unreadable != nil {
		return c, st.fail(st.Unreadable)
	}
	if err := st.members(j); err != nil {
		return c, st.fail(err)
	}
	encode := func(name string, l *codec.Layout, v jsontext.Value, dst *[]byte) {
		if v == nil || err != nil {
			return
		}
		b, e := l.Encode([]byte{}, v)
		if e != nil {
			err = st.fail(fmt.Errorf("%s: %w", name, e))
		}
		*dst = b
	}
	millis := func(name string, v jsontext.Value, dst *int64, has *bool) {
		if v == nil || err != nil {
			return
		}
		ms, ok := codec.ParseMillis(v)
		if !ok {
			err = st.fail(fmt.Errorf("%s: want a time such as \"2001-02-03T04:05:06Z\", or milliseconds since 1970, not %s", name, v))
		}
		*dst, *has = ms, true
	}
	encode("key", st.Key, j.Key, &c.Key)
	encode("map_key", st.MapKey, j.MapKey, &c.MapKey)
	millis("time", j.Time, &c.Time, &c.HasTime)
	millis("window", j.Window, &c.Time, &c.HasTime)
	millis("written", j.Written, &c.Written, &c.HasWritten)
	for _, n := range []*int64{j.Place, j.List} {
		if n != nil {
			c.Time, c.HasTime = *n, true
		}
	}
	if err != nil || c.Delete {
		return c, err
	}
	if st.Kind != List {
		encode("value", st.Value, j.Value, &c.Value)
		return c, err
	}
	c.Elems, err = st.elements(j.Value)
	return c, err
}

// inLine says what is wrong with a line without the names of Go types.
func inLine(err error) error {
	var s *json.SemanticError
	switch {
	case !errors.As(err, &s):
		return err
	case s.Err != nil:
		return fmt.Errorf("at %q: %w", s.JSONPointer, s.Err)
	}
	return fmt.Errorf("at %q: %s does not fit there", s.JSONPointer, s.JSONValue)
}

var errNoEdit = errors.New("a list of an operator's subtasks is carried over as it is: it cannot be changed")

// members tells which ones are missing or make no sense.
func (st *State) members(j changeJSON) error {
	has := map[string]bool{
		"key": j.Key != nil, "map_key": j.MapKey != nil, "time": j.Time != nil, "window": j.Window != nil, "place": j.Place != nil,
		"list": j.List != nil, "value": j.Value != nil, "written": j.Written != nil,
	}
	may := map[string]bool{"value": true, "written": st.TTL} // And whether they must be there to set an entry.
	must := []string{"value"}
	if st.Kind != Broadcast {
		must = append(must, "key")
	}
	switch st.Kind {
	case Map, Broadcast:
		must = append(must, "map_key")
	case Timers:
		must = append(must, "time")
	case Windows:
		at := "window"
		if st.Value.Is("session") {
			at = "place"
		}
		must = append(must, at)
	case List:
		may["list"] = true
	}
	for _, m := range must {
		may[m] = true
		if !j.Delete && !has[m] {
			return fmt.Errorf("%s is missing", m)
		}
	}
	if j.Delete {
		may["value"], may["written"] = false, false
		if st.Kind == Broadcast && !has["map_key"] || st.Kind != Broadcast && !has["key"] {
			return errors.New("the key is missing")
		}
	}
	for _, m := range []string{"key", "map_key", "time", "window", "place", "list", "value", "written"} {
		if has[m] && !may[m] {
			what := string(st.Kind)
			if j.Delete {
				what = "delete of a " + what
			}
			return fmt.Errorf("a %s has no %s", what, m)
		}
	}
	return nil
}

// elements reads the list that is the value of a list: elements as they are, or with a TTL {"from": TIME, "value": ELEMENT}.
func (st *State) elements(text jsontext.Value) ([][]byte, error) {
	var list []jsontext.Value
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, st.fail(fmt.Errorf("value: want a list: %w", err))
	}
	if len(list) == 0 {
		return nil, st.fail(errors.New("value: an empty list is none: delete it"))
	}
	elem := st.mainLayout.value.Parts()[0]
	out := make([][]byte, len(list))
	for i, v := range list {
		b, err := elem.Encode([]byte{}, v)
		if err != nil {
			return nil, st.fail(fmt.Errorf("value: element %d: %w", i, err))
		}
		out[i] = b
	}
	return out, nil
}

// SetValue makes the Change that sets the value of a key, of a state with one value of a key: its schemas have to be those of
// the codecs.
func SetValue[K comparable, V any](st *State, key codec.Codec[K], value codec.Codec[V], k K, v V) (c Change, err error) {
	c = Change{State: st}
	if c.Key, err = encoded(st, "key", st.Key, key, k); err != nil {
		return c, err
	}
	c.Value, err = encoded(st, "value", st.Value, value, v)
	return c, err
}

// SetEntry is SetValue for an entry of a map.
func SetEntry[K, MK comparable, V any](st *State, key codec.Codec[K], mapKey codec.Codec[MK], value codec.Codec[V], k K, mk MK, v V) (c Change, err error) {
	if c, err = SetValue(st, key, value, k, v); err != nil {
		return c, err
	}
	c.MapKey, err = encoded(st, "map key", st.MapKey, mapKey, mk)
	return c, err
}

// DeleteKey makes the Change that removes all that a state has of a key.
func DeleteKey[K comparable](st *State, key codec.Codec[K], k K) (c Change, err error) {
	c = Change{State: st, Delete: true}
	c.Key, err = encoded(st, "key", st.Key, key, k)
	return c, err
}

func encoded[T any](st *State, what string, l *codec.Layout, c codec.Codec[T], v T) ([]byte, error) {
	if l == nil {
		return nil, st.fail(fmt.Errorf("it is a %s and has no %s", st.Kind, what))
	}
	if is, want := c.Schema().String(), l.Schema().String(); is != want {
		return nil, st.fail(fmt.Errorf("its %ss are of %s, not of %s", what, want, is))
	}
	b, err := c.Append([]byte{}, &v)
	if err != nil {
		return nil, st.fail(fmt.Errorf("%s: %w", what, err))
	}
	return b, nil
}

// Apply adds a change. Of several to one entry the last one counts.
func (e *Editor) Apply(c Change) error {
	st := c.State
	switch {
	case e.written:
		return errors.New("the editor has written its savepoint")
	case st == nil || !slices.Contains(e.s.states, st):
		return errors.New("a change of a state of another snapshot")
	case st.Unreadable != nil:
		return st.fail(st.Unreadable)
	case st.Kind == OperatorList:
		return st.fail(errNoEdit)
	case !c.Delete && (st.Kind == Map || st.Kind == Broadcast) && c.MapKey == nil:
		return st.fail(errors.New("the map key is missing"))
	case !c.Delete && (st.Kind == Timers || st.Kind == Windows) && !c.HasTime:
		return st.fail(errors.New("the time is missing"))
	case !c.Delete && st.Kind == List && len(c.Elems) == 0:
		return st.fail(errors.New("an empty list is none: delete it"))
	}
	check := func(what string, l *codec.Layout, b []byte) error {
		if l == nil {
			return nil
		}
		if _, err := decode(l, b); err != nil {
			return st.fail(fmt.Errorf("%s: %w", what, err))
		}
		return nil
	}
	err := check("key", st.Key, c.Key)
	if c.MapKey != nil && err == nil {
		err = check("map key", st.MapKey, c.MapKey)
	}
	if !c.Delete && err == nil {
		if st.Kind != List {
			err = check("value", st.Value, c.Value)
		}
		for _, b := range c.Elems {
			if err == nil {
				err = check("element", st.mainLayout.value.Parts()[0], b)
			}
		}
	}
	if err != nil {
		return err
	}
	group := 0
	if st.Key != nil {
		group = job.GroupOf(codec.Hash(c.Key), e.s.Manifest.K)
	}
	groups := e.changed[st]
	if groups == nil {
		groups = map[int]map[string][]Change{}
		e.changed[st] = groups
	}
	if groups[group] == nil {
		groups[group] = map[string][]Change{}
	}
	groups[group][string(c.Key)] = append(groups[group][string(c.Key)], c)
	e.count++
	return nil
}

// overlay is what becomes of a table: by group, the new values of keys; nil for those that are gone.
type overlay map[int]map[string][]byte

func (o overlay) put(group int, key, value []byte) {
	if o[group] == nil {
		o[group] = map[string][]byte{}
	}
	o[group][string(key)] = value
}

// overlays works out what the changes of a keyed state do to its tables.
func (e *Editor) overlays(ctx context.Context, st *State) (main, items overlay, err error) {
	changed := e.changed[st]
	src, itemsSrc, err := st.sources(ctx)
	if err != nil {
		return nil, nil, err
	}
	main, items = overlay{}, overlay{}
	k := e.s.Manifest.K
	err = batches(st.All(), k, st.main.weight()+st.items.weight(), func(groups job.GroupRange) error {
		first, last := k, -1 // Of those with changes.
		for g := range changed {
			if groups.Contains(g) {
				first, last = min(first, g), max(last, g)
			}
		}
		if last < 0 {
			return nil
		}
		have, err := st.load(ctx, src, itemsSrc, job.GroupRange{First: first, Last: last}, func(key []byte) bool {
			_, ok := changed[job.GroupOf(codec.Hash(key), k)][string(key)]
			return ok
		})
		if err != nil {
			return err
		}
		for g := first; g <= last; g++ {
			for key, list := range changed[g] {
				h := have[key]
				if h == nil {
					h = &held{}
				}
				for _, raw := range h.main {
					main.put(g, raw, nil)
				}
				for _, raw := range h.items {
					items.put(g, raw, nil)
				}
				entries, err := e.apply(st, h.entries, list)
				if err == nil {
					err = st.encode(g, []byte(key), entries, main, items)
				}
				if err != nil {
					return st.fail(err)
				}
			}
		}
		return nil
	})
	return main, items, err
}

// apply is what the entries of one key become.
func (e *Editor) apply(st *State, entries []*Entry, changes []Change) ([]*Entry, error) {
	for _, c := range changes {
		same := func(o *Entry) bool {
			return (c.MapKey == nil || bytes.Equal(o.MapKey, c.MapKey)) && (!c.HasTime || o.Time == c.Time)
		}
		session := st.Kind == Windows && st.Value.Is("session")
		if c.Delete {
			if session {
				return nil, errors.New("sessions of a key refer to each other: only the accumulator of one can be changed")
			}
			entries = slices.DeleteFunc(entries, same)
			continue
		}
		n := &Entry{State: st, Key: c.Key, MapKey: c.MapKey, Time: c.Time, Written: e.now, Value: c.Value, Elems: c.Elems}
		if c.HasWritten {
			n.Written = c.Written
		}
		c.HasTime = c.HasTime || st.Kind == List // 0 is a number too.
		at := slices.IndexFunc(entries, same)
		if session {
			if at < 0 || !sameSession(st, entries[at].Value, c.Value) {
				return nil, errors.New("sessions of a key refer to each other: only the accumulator of one can be changed")
			}
		}
		switch {
		case at >= 0:
			entries[at] = n
		case st.Kind == Map: // A new entry is the first one.
			entries = slices.Insert(entries, 0, n)
		default:
			entries = append(entries, n)
		}
	}
	return entries, nil
}

// sameSession tells whether two sessions differ in their accumulators at most.
func sameSession(st *State, a, b []byte) bool {
	var p, q codec.Parts
	if _, err := st.Value.Split(a, &p); err != nil {
		return false
	}
	_, err := st.Value.Split(b, &q)
	return err == nil && slices.Equal(p.Nums, q.Nums)
}

// encode puts the entries of one key into the tables.
func (st *State) encode(group int, key []byte, entries []*Entry, main, items overlay) error {
	aged := func(l *codec.Layout, e *Entry, value []byte) ([]byte, error) {
		if !l.Is("aged") {
			return value, nil
		}
		return l.Join(nil, codec.Parts{Nums: []int64{e.Written}, Vals: [][]byte{value}})
	}
	switch st.Kind {
	case Map:
		return st.encodeMap(group, key, entries, main, items, aged)
	case List:
		return st.encodeLists(group, key, entries, main, items)
	}
	for _, e := range entries {
		k := key
		var err error
		if st.mainLayout.key.Is("key-time") {
			if k, err = st.mainLayout.key.Join(nil, codec.Parts{Nums: []int64{e.Time}, Vals: [][]byte{key}}); err != nil {
				return err
			}
		}
		v, err := aged(st.mainLayout.value, e, e.Value)
		if err != nil {
			return err
		}
		main.put(group, k, v)
	}
	return nil
}

func (st *State) encodeMap(group int, key []byte, entries []*Entry, main, items overlay, aged func(*codec.Layout, *Entry, []byte) ([]byte, error)) error {
	if len(entries) == 0 {
		return nil
	}
	entry := st.itemsLayout.value
	if entry.Is("aged") {
		entry = entry.Parts()[0]
	}
	for i, e := range entries {
		vals := [][]byte{nil, nil, e.Value}
		if i > 0 {
			vals[0] = entries[i-1].MapKey
		}
		if i+1 < len(entries) {
			vals[1] = entries[i+1].MapKey
		}
		v, err := entry.Join(nil, codec.Parts{Vals: vals})
		if err == nil {
			v, err = aged(st.itemsLayout.value, e, v)
		}
		if err != nil {
			return err
		}
		items.put(group, append(bytes.Clone(key), e.MapKey...), v)
	}
	head, err := st.mainLayout.value.Join(nil, codec.Parts{Nums: []int64{int64(len(entries))}, Vals: [][]byte{entries[0].MapKey}})
	main.put(group, key, head)
	return err
}

func (st *State) encodeLists(group int, key []byte, entries []*Entry, main, items overlay) error {
	for _, e := range entries {
		next := int64(len(e.Elems))
		last := (next - 1) / partLen
		for n := range last {
			v, err := st.itemsLayout.value.Join(nil, codec.Parts{Nums: []int64{0}, Elems: e.Elems[n*partLen : (n+1)*partLen]})
			if err != nil {
				return err
			}
			items.put(group, binary.AppendUvarint(binary.AppendVarint(bytes.Clone(key), e.Time), uint64(n)), v)
		}
		head, err := st.mainLayout.value.Join(nil, codec.Parts{Nums: []int64{0, next}, Elems: e.Elems[last*partLen:]})
		if err != nil {
			return err
		}
		k, err := st.mainLayout.key.Join(nil, codec.Parts{Nums: []int64{e.Time}, Vals: [][]byte{key}})
		if err != nil {
			return err
		}
		main.put(group, k, head)
	}
	return nil
}
