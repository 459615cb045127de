package statebackend

import (
	"errors"
	"fmt"
	"reflect"
	"time"
	"unsafe"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/internal/table"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// Type is the description of a state with its types erased: what a backend needs to make it.
type Type interface {
	StateName() string
	// Schemas are the texts of the schemas of key and value.
	Schemas() (key, value string)
	// Evolve takes the texts of the schemas of key and value under which entries were written. It returns what
	// decodes such values, nil where those of the state itself do. Keys have only one encoding: they are placed by
	// it. An error is a *SchemaError without the operator; see Evolve.
	Evolve(key, value string) (decode Decoder, err error)
	// NewTable makes the state as a table in memory, NewCache as a cache over s. A backend calls one of them.
	NewTable(p TableParams) (Table, error)
	NewCache(p TableParams, s Store) (*Cache, error)
}

// Decoder reads one value from the front of src into *v, which is of the state's type, and returns how many bytes
// it took. *v is zero before.
type Decoder = func(src []byte, v unsafe.Pointer) (int, error)

// TableParams say which key groups a table holds.
type TableParams struct {
	First, Count, K int
	MaxFrozen       int
	Operator        string // For messages.
	MaxValue        int64  // Params.MaxValue.
}

// Table is a state with its types erased. The owner alone calls it.
type Table interface {
	Len() int
	// Bytes is the memory of the table, without what keys and values point to.
	Bytes() int64
	// Freeze fixes the content.
	Freeze() (FrozenTable, error)
	// Merge is Backend.Merge for one table.
	Merge(budget time.Duration) bool
	// Load decodes count entries of one key group, which are all of data, and adds them. A key of another
	// group and bytes left over are errors, and so is a key that is there already, unless it may be replaced. value
	// decodes the values: what the Type's Evolve gave for the schema that they were written under.
	Load(group int, count int64, data []byte, value Decoder, replace bool) error
	// Reserve makes room for about n entries of a key group that has none yet.
	Reserve(group, n int)
	// Remove decodes count keys of one key group, which are all of data, and removes those that are there.
	Remove(group int, count int64, data []byte) error
	// Track turns on or off that the table notes what changes, from its last Freeze on; see table.Core.Track.
	Track(on bool, removed func(group int, key unsafe.Pointer))
	// Rebase makes the Freeze of that epoch the one from which on changes count.
	Rebase(epoch uint32)
	// AppendKey encodes a key that Track's function is called with.
	AppendKey(dst []byte, key unsafe.Pointer) ([]byte, error)
	Close()
}

// FrozenTable is the frozen content of a Table. One goroutine at a time uses it.
type FrozenTable interface {
	Len() int
	// GroupLen is the number of entries of a key group.
	GroupLen(group int) int
	// Encode appends the entries of a key group to dst, in no order. After an entry that made dst longer than
	// limit it calls flush with what is there and the number of entries in it, and goes on with what flush
	// returns. The end is not flushed: it is returned with its number of entries.
	Encode(group int, dst []byte, limit int, flush Flush) ([]byte, int64, error)
	// EncodeChanged is Encode for the entries that may have changed since the base.
	EncodeChanged(group int, dst []byte, limit int, flush Flush) ([]byte, int64, error)
	// Entries visits the encoded entries of a key group, in no order. key and value are valid during the call. An error of
	// visit ends it and is returned.
	Entries(group int, visit func(key, value []byte) error) error
	// Epoch numbers the Freezes of a table.
	Epoch() uint32
	Release()
}

// Flush takes encoded entries and gives back memory for more.
type Flush = func(data []byte, entries int64) ([]byte, error)

// valueType is the Type of a Value.
type valueType struct {
	name       string
	key, value codec.Raw
	hash       func(key unsafe.Pointer) (group, slot uint64)
	// They keep for themselves what they make it of.
	makeTable func(p TableParams) (*table.Core, error)
	makeCache func(p TableParams, c *Cache) error
	pointers  bool
	aged      bool
	// settle, if set, panics when the value that was changed last is too large.
	settle func()
}

func (t *valueType) StateName() string { return t.name }

func (t *valueType) Schemas() (key, value string) {
	return SchemaText(t.key.Schema), SchemaText(t.value.Schema)
}

func (t *valueType) Evolve(key, value string) (Decoder, error) {
	nowKey, nowValue := t.Schemas()
	refuse := func(part, old, now string, why error) (Decoder, error) {
		return nil, &SchemaError{State: t.name, Part: part, Old: old, New: now, Err: why}
	}
	if key != nowKey {
		return refuse("key", key, nowKey, errKey)
	}
	if value == nowValue {
		return nil, nil
	}
	old, err := codec.ParseSchema(value)
	if err != nil {
		return refuse("value", value, nowValue, err)
	}
	decode, err := t.value.Evolve(old)
	if err != nil {
		return refuse("value", value, nowValue, err)
	}
	return decode, nil
}

func (t *valueType) NewTable(p TableParams) (Table, error) {
	c, err := t.makeTable(p)
	if err != nil {
		return nil, fmt.Errorf("state %q: %w", t.name, err)
	}
	return &valueTable{Core: c, t: t, p: p}, nil
}

// SchemaText is the text of a schema, as checkpoints keep it. codec.ParseSchema reads it.
func SchemaText(s codec.Schema) string { return s.String() }

// Evolve is t's Evolve for a restore of an operator: its error is a *job.Error of class job.ClassRefused with a
// *SchemaError that names the operator too.
func Evolve(t Type, operator, key, value string) (Decoder, error) {
	decode, err := t.Evolve(key, value)
	if err == nil {
		return decode, nil
	}
	if e := new(SchemaError); errors.As(err, &e) {
		e.Operator = operator
	}
	return nil, &job.Error{Class: job.ClassRefused, Err: err}
}

// valueTable is the Table of a Value.
type valueTable struct {
	*table.Core
	t *valueType
	p TableParams
}

// settled calls settle of the type, if there is one, and gives its panic as an error.
func (t *valueTable) settled() (err error) { return t.t.settled() }

func (t *valueType) settled() (err error) {
	if t.settle == nil {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			f, ok := v.(Fault)
			if !ok {
				panic(v)
			}
			err = f.Err
		}
	}()
	t.settle()
	return nil
}

func (t *valueTable) Freeze() (FrozenTable, error) {
	if err := t.settled(); err != nil {
		return nil, err
	}
	f, err := t.Core.Freeze()
	if err != nil {
		if errors.Is(err, table.ErrTooManyFrozen) {
			err = ErrTooManySnapshots
		}
		return nil, err
	}
	return &frozenValue{Frozen: f, t: t.t, p: t.p}, nil
}

// Merge is the Core's. It moves entries, so what was given out is looked at before.
func (t *valueTable) Merge(budget time.Duration) bool {
	if t.t.settle != nil {
		t.t.settle()
	}
	return t.Core.Merge(budget)
}

func (t *valueTable) Load(group int, count int64, data []byte, value Decoder, replace bool) error {
	if value == nil {
		value = t.t.value.Decode
	}
	return t.decode(group, count, data, func(i int64, pos int, groupHash, slotHash uint64, k unsafe.Pointer) (int, error) {
		v, fresh := t.Upsert(groupHash, slotHash, k)
		switch {
		case fresh:
		case replace:
			reflect.NewAt(t.t.value.Type, v).Elem().SetZero()
		default:
			return 0, fmt.Errorf("entry %d: its key is there twice", i)
		}
		n, err := value(data[pos:], v)
		if err != nil {
			return 0, fmt.Errorf("value of entry %d at byte %d: %w", i, pos, err)
		}
		return n, nil
	})
}

func (t *valueTable) Remove(group int, count int64, data []byte) error {
	return t.decode(group, count, data, func(_ int64, _ int, groupHash, slotHash uint64, k unsafe.Pointer) (int, error) {
		t.Delete(groupHash, slotHash, k)
		return 0, nil
	})
}

func (t *valueTable) Reserve(group, n int) { t.Core.Reserve(group-t.p.First, n) }

func (t *valueTable) AppendKey(dst []byte, key unsafe.Pointer) ([]byte, error) {
	return t.t.key.Append(dst, key)
}

// decode calls visit with count keys of one key group. What visit reads of data behind a key, from pos on, it returns.
func (t *valueTable) decode(group int, count int64, data []byte, visit func(i int64, pos int, groupHash, slotHash uint64, k unsafe.Pointer) (int, error)) error {
	pos := 0
	key := t.t.key
	pointers := record.HasPointers(key.Type)
	var k unsafe.Pointer
	for i := range count {
		if k == nil || pointers { // A codec finds zeroes.
			k = reflect.New(key.Type).UnsafePointer()
		}
		n, err := key.Decode(data[pos:], k)
		if err != nil {
			return fmt.Errorf("key of entry %d at byte %d: %w", i, pos, err)
		}
		pos += n
		groupHash, slotHash := t.t.hash(k)
		if g := int(groupHash % uint64(t.p.K)); g != group {
			return fmt.Errorf("entry %d: its key belongs to key group %d, not %d: the key's hash has changed", i, g, group)
		}
		if n, err = visit(i, pos, groupHash, slotHash, k); err != nil {
			return err
		}
		pos += n
	}
	if pos != len(data) {
		return fmt.Errorf("%d entries take %d bytes of %d", count, pos, len(data))
	}
	return nil
}

type frozenValue struct {
	*table.Frozen
	t *valueType
	p TableParams
}

func (f *frozenValue) GroupLen(group int) int { return f.Frozen.GroupLen(group - f.p.First) }

func (f *frozenValue) Encode(group int, dst []byte, limit int, flush Flush) ([]byte, int64, error) {
	return f.encode(f.Each, group, dst, limit, flush)
}

func (f *frozenValue) EncodeChanged(group int, dst []byte, limit int, flush Flush) ([]byte, int64, error) {
	return f.encode(f.EachChanged, group, dst, limit, flush)
}

func (f *frozenValue) encode(each func(int, func(k, v unsafe.Pointer) bool), group int, dst []byte, limit int, flush Flush) ([]byte, int64, error) {
	var entries int64
	var err error
	each(group-f.p.First, func(k, v unsafe.Pointer) bool {
		if dst, _, err = f.append(dst, k, v); err != nil {
			return false
		}
		if entries++; len(dst) > limit {
			if dst, err = flush(dst, entries); err != nil {
				return false
			}
			entries = 0
		}
		return true
	})
	return dst, entries, err
}

// append encodes an entry. The key ends at mid.
func (f *frozenValue) append(dst []byte, k, v unsafe.Pointer) (out []byte, mid int, err error) {
	if dst, err = f.t.key.Append(dst, k); err != nil {
		return dst, 0, fmt.Errorf("encode a key: %w", err)
	}
	mid = len(dst)
	if dst, err = f.t.value.Append(dst, v); err != nil {
		return dst, 0, fmt.Errorf("encode the value of key %v: %w", reflect.NewAt(f.t.key.Type, k).Elem(), err)
	}
	if n := int64(len(dst) - mid); n > f.p.MaxValue && f.p.MaxValue > 0 {
		return dst, 0, &job.Error{Class: job.ClassUser, Err: &ValueError{
			Operator: f.p.Operator, State: f.t.name, Key: keyText(f.t.key, k), Size: n, Limit: f.p.MaxValue,
		}}
	}
	return dst, mid, nil
}

func (f *frozenValue) Entries(group int, visit func(key, value []byte) error) (err error) {
	var buf []byte
	f.Each(group-f.p.First, func(k, v unsafe.Pointer) bool {
		var mid int
		if buf, mid, err = f.append(buf[:0], k, v); err == nil {
			err = visit(buf[:mid:mid], buf[mid:])
		}
		return err == nil
	})
	return err
}

// OpenValue opens the state that d describes in b.
func OpenValue[K comparable, V any](b Backend, d ValueDesc[K, V]) (Value[K, V], error) {
	if err := check(d.Name, d.Key != nil, d.Value != nil, d.Hash != nil); err != nil {
		return nil, err
	}
	var v Value[K, V]
	config := func(p TableParams) table.Config[K, V] {
		return table.Config[K, V]{
			First: p.First, Count: p.Count, K: p.K, Hash: d.Hash,
			CopyKey: d.Key.Copy, CopyValue: codec.Sharing(d.Value), MaxFrozen: p.MaxFrozen,
		}
	}
	typ := &valueType{
		pointers: record.HasPointers(reflect.TypeFor[K]()) || record.HasPointers(reflect.TypeFor[V]()),
		aged:     d.Aged,
		name:     d.Name, key: codec.Erase(d.Key), value: codec.Erase(d.Value),
		hash: *(*func(unsafe.Pointer) (uint64, uint64))(unsafe.Pointer(&d.Hash)), // A pointer is passed the same way whatever it points to.
	}
	typ.makeTable = func(p TableParams) (*table.Core, error) {
		c := config(p)
		if err := c.Validate(); err != nil {
			return nil, err
		}
		t := table.New(c)
		v = measure(t, d, typ, p)
		return t.Core(), nil
	}
	typ.makeCache = func(p TableParams, keep *Cache) error {
		c, main, err := newCached(config(p), keep)
		if err != nil {
			return err
		}
		v, keep.gauge = c, newGauge(d, typ, p, main)
		return nil
	}
	_, err := b.Open(typ)
	switch {
	case err != nil:
		return nil, err
	case v == nil:
		return nil, fmt.Errorf("open state %q: the backend has not made it", d.Name)
	}
	return v, nil
}

func check(name string, key, value, hash bool) error {
	var problems []error
	for _, p := range []struct {
		ok  bool
		say string
	}{
		{name != "", "it has no name"}, {key, "it has no codec for keys"},
		{value, "it has no codec for values"}, {hash, "it has no hash function"},
	} {
		if !p.ok {
			problems = append(problems, errors.New(p.say))
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("open state %q: %w", name, errors.Join(problems...))
	}
	return nil
}
