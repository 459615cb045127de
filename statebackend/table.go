package statebackend

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/internal/table"
)

// Type is the description of a state with its types erased: what a backend needs to make it.
type Type interface {
	StateName() string
	// Schemas are the texts of the schemas of key and value.
	Schemas() (key, value string)
	// NewTable makes the state as a table in memory.
	NewTable(p TableParams) (Table, error)
}

// TableParams say which key groups a table holds.
type TableParams struct {
	First, Count, K int
	MaxFrozen       int
}

// Table is a state with its types erased; it is a Value[K, V] as well. The owner alone calls it.
type Table interface {
	Len() int
	// Bytes is the memory of the table, without what keys and values point to.
	Bytes() int64
	// Freeze fixes the content.
	Freeze() (FrozenTable, error)
	// Merge is Backend.Merge for one table.
	Merge(budget time.Duration) bool
	// Load decodes count entries of one key group, which are all of data, and adds them. A key of another
	// group, one that is there already, and bytes left over are errors.
	Load(group int, count int64, data []byte) error
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
	Encode(group int, dst []byte, limit int, flush func(data []byte, entries int64) ([]byte, error)) ([]byte, int64, error)
	Release()
}

// valueType erases the types of a ValueDesc.
type valueType[K comparable, V any] struct{ d ValueDesc[K, V] }

func (t valueType[K, V]) StateName() string { return t.d.Name }

func (t valueType[K, V]) Schemas() (key, value string) {
	return SchemaText(t.d.Key.Schema()), SchemaText(t.d.Value.Schema())
}

// SchemaText is the text of a schema with the version of the codec's format, as checkpoints keep it.
func SchemaText(s codec.Schema) string {
	if s.Version <= 1 {
		return s.String()
	}
	return s.String() + " v" + strconv.Itoa(s.Version)
}

func (t valueType[K, V]) NewTable(p TableParams) (Table, error) {
	c := table.Config[K, V]{
		First: p.First, Count: p.Count, K: p.K, Hash: t.d.Hash,
		CopyKey: t.d.Key.Copy, CopyValue: t.d.Value.Copy, MaxFrozen: p.MaxFrozen,
	}
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("state %q: %w", t.d.Name, err)
	}
	return &valueTable[K, V]{Table: table.New(c), d: t.d, p: p}, nil
}

// valueTable is a Value and a Table.
type valueTable[K comparable, V any] struct {
	*table.Table[K, V]
	d ValueDesc[K, V]
	p TableParams
}

func (t *valueTable[K, V]) Freeze() (FrozenTable, error) {
	f, err := t.Table.Freeze()
	if err != nil {
		if errors.Is(err, table.ErrTooManyFrozen) {
			err = ErrTooManySnapshots
		}
		return nil, err
	}
	return &frozenValue[K, V]{Frozen: f, key: t.d.Key, value: t.d.Value, first: t.p.First}, nil
}

func (t *valueTable[K, V]) Load(group int, count int64, data []byte) error {
	pos := 0
	for i := range count {
		var k K
		n, err := t.d.Key.Decode(data[pos:], &k)
		if err != nil {
			return fmt.Errorf("key of entry %d at byte %d: %w", i, pos, err)
		}
		pos += n
		groupHash, slotHash := t.d.Hash(&k)
		if g := int(groupHash % uint64(t.p.K)); g != group {
			return fmt.Errorf("entry %d: its key belongs to key group %d, not %d: the key's hash has changed", i, g, group)
		}
		v, fresh := t.Upsert(groupHash, slotHash, &k)
		if !fresh {
			return fmt.Errorf("entry %d: its key is there twice", i)
		}
		n, err = t.d.Value.Decode(data[pos:], v)
		if err != nil {
			return fmt.Errorf("value of entry %d at byte %d: %w", i, pos, err)
		}
		pos += n
	}
	if pos != len(data) {
		return fmt.Errorf("%d entries take %d bytes of %d", count, pos, len(data))
	}
	return nil
}

type frozenValue[K comparable, V any] struct {
	*table.Frozen[K, V]
	key   codec.Codec[K]
	value codec.Codec[V]
	first int
}

func (f *frozenValue[K, V]) GroupLen(group int) int { return f.Frozen.GroupLen(group - f.first) }

func (f *frozenValue[K, V]) Encode(group int, dst []byte, limit int, flush func([]byte, int64) ([]byte, error)) ([]byte, int64, error) {
	var entries int64
	var err error
	f.Each(group-f.first, func(k *K, v *V) bool {
		if dst, err = f.key.Append(dst, k); err != nil {
			err = fmt.Errorf("encode a key: %w", err)
			return false
		}
		if dst, err = f.value.Append(dst, v); err != nil {
			err = fmt.Errorf("encode the value of key %v: %w", *k, err)
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

// OpenValue opens the state that d describes in b.
func OpenValue[K comparable, V any](b Backend, d ValueDesc[K, V]) (Value[K, V], error) {
	var problems []error
	if d.Name == "" {
		problems = append(problems, errors.New("it has no name"))
	}
	if d.Key == nil {
		problems = append(problems, errors.New("it has no codec for keys"))
	}
	if d.Value == nil {
		problems = append(problems, errors.New("it has no codec for values"))
	}
	if d.Hash == nil {
		problems = append(problems, errors.New("it has no hash function"))
	}
	if len(problems) > 0 {
		return nil, fmt.Errorf("open state %q: %w", d.Name, errors.Join(problems...))
	}
	t, err := b.Open(valueType[K, V]{d})
	if err != nil {
		return nil, err
	}
	v, ok := t.(Value[K, V])
	if !ok {
		return nil, fmt.Errorf("open state %q: the backend's table is a %T, which is no Value[%v, %v]",
			d.Name, t, reflect.TypeFor[K](), reflect.TypeFor[V]())
	}
	return v, nil
}
