package statebackend

import (
	"fmt"
	"iter"
	"unsafe"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/internal/table"
)

// Store is what lies below the cache of a state that need not fit into memory. The owner alone calls it, with the hash
// that gives a key its group. It panics with a Fault when it fails.
type Store interface {
	// Find decodes the value of key to into, which is zero, and tells whether there was one.
	Find(group uint64, key, into unsafe.Pointer) bool
	// Has is Find without the value.
	Has(group uint64, key unsafe.Pointer) bool
	// Room is called before an entry is added to a cache that has reached Cache.Limit.
	Room()
	// Count notes that the state, cache included, has n entries more.
	Count(group uint64, n int)
	// Len is the number of entries of the state, cache included.
	Len() int
	// Each visits the entries of the store, also those that the cache has another or no value for, until visit returns
	// false. What visit is given is valid during the call.
	Each(visit func(key, value unsafe.Pointer) bool)
}

// Cache is the part of a state that is in memory, with its types erased.
type Cache struct {
	Main  *table.Core // Entries: those changed since the store took them over, and others while there is room.
	Gone  *table.Core // Keys that were removed, likewise. No key is in both.
	Limit int         // Entries of both from which on Room is called.
	Key   codec.Raw
	Value codec.Raw
	Hash  func(key unsafe.Pointer) (group, slot uint64)
	// Pointers tells that entries have memory besides that of the tables.
	Pointers bool
	Aged     bool // See ValueDesc.
	// Settle looks at the value that was changed last. It is called before a freeze and before entries are moved.
	Settle func() error
	// TooLarge is the error of a value of n bytes, which are more than TableParams.MaxValue.
	TooLarge func(key unsafe.Pointer, n int64) error
}

// cached is a Value that holds in memory what a Store has not, or what was used of late.
type cached[K comparable, V any] struct {
	main    *table.Table[K, V]
	gone    *table.Table[K, struct{}]
	cache   *Cache
	store   Store
	gauge   *gauge // Nil for values of one size.
	scratch V
}

func newCached[K comparable, V any](c table.Config[K, V], keep *Cache, s Store) (*cached[K, V], error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	v := &cached[K, V]{main: table.New(c), cache: keep, store: s}
	v.gone = table.New(table.Config[K, struct{}]{
		First: c.First, Count: c.Count, K: c.K, Hash: c.Hash, CopyKey: c.CopyKey, MaxFrozen: c.MaxFrozen,
		CopyValue: func(_, _ *struct{}) {},
	})
	keep.Main, keep.Gone = v.main.Core(), v.gone.Core()
	keep.Main.Cache()
	keep.Gone.Cache()
	return v, nil
}

// room is called before every change.
func (v *cached[K, V]) room() {
	if v.gauge != nil {
		v.gauge.settle()
	}
	if v.main.Len()+v.gone.Len() >= v.cache.Limit {
		v.store.Room()
	}
}

// Upsert implements Value.
func (v *cached[K, V]) Upsert(group, slot uint64, key *K) (*V, bool) {
	v.room()
	p, fresh := v.main.Upsert(group, slot, key)
	if v.gauge != nil {
		v.gauge.pending = unsafe.Pointer(p)
	}
	if !fresh {
		return p, false
	}
	if v.gone.Len() > 0 && v.gone.Delete(group, slot, key) || !v.store.Find(group, unsafe.Pointer(key), unsafe.Pointer(p)) {
		v.store.Count(group, 1)
		return p, true
	}
	return p, false
}

// Get implements Value.
func (v *cached[K, V]) Get(group, slot uint64, key *K) *V {
	if p := v.main.Read(group, slot, key); p != nil {
		return p
	}
	if v.gone.Len() > 0 && v.gone.Get(group, slot, key) != nil {
		return nil
	}
	var zero V
	v.scratch = zero
	if !v.store.Find(group, unsafe.Pointer(key), unsafe.Pointer(&v.scratch)) {
		return nil
	}
	v.room()
	p := v.main.Load(group, slot, key)
	*p = v.scratch
	return p
}

// Set implements Value.
func (v *cached[K, V]) Set(group, slot uint64, key *K, val *V) {
	p, _ := v.Upsert(group, slot, key)
	v.main.Set(group, slot, key, val)
	if v.gauge != nil {
		v.gauge.pending = unsafe.Pointer(p)
	}
}

// Delete implements Value.
func (v *cached[K, V]) Delete(group, slot uint64, key *K) bool {
	v.room()
	if !v.main.Delete(group, slot, key) {
		if v.gone.Len() > 0 && v.gone.Get(group, slot, key) != nil || !v.store.Has(group, unsafe.Pointer(key)) {
			return false
		}
	}
	v.gone.Upsert(group, slot, key)
	v.store.Count(group, -1)
	return true
}

// Len implements Value.
func (v *cached[K, V]) Len() int { return v.store.Len() }

// All implements Value.
func (v *cached[K, V]) All() iter.Seq2[*K, *V] {
	return func(yield func(*K, *V) bool) {
		more := true
		v.store.Each(func(key, value unsafe.Pointer) bool {
			k := (*K)(key)
			group, slot := v.cache.Hash(key)
			if v.main.Get(group, slot, k) == nil && v.gone.Get(group, slot, k) == nil {
				more = yield(k, (*V)(value))
			}
			return more
		})
		if more {
			v.main.All()(yield)
		}
	}
}

// Far implements Ahead.
func (v *cached[K, V]) Far() bool { return v.main.Far() }

// Fetch implements Ahead.
func (v *cached[K, V]) Fetch(groups, slots []uint64) { v.main.Fetch(groups, slots) }

// NewCache makes the state of t as a cache over s.
func (t *valueType) NewCache(p TableParams, s Store) (*Cache, error) {
	c := &Cache{Key: t.key, Value: t.value, Hash: t.hash, Pointers: t.pointers, Aged: t.aged, Settle: t.settled}
	c.TooLarge = func(key unsafe.Pointer, n int64) error { return t.tooLarge(p, key, n) }
	if err := t.makeCache(p, c, s); err != nil {
		return nil, fmt.Errorf("state %q: %w", t.name, err)
	}
	return c, nil
}
