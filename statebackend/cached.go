package statebackend

import (
	"fmt"
	"iter"
	"reflect"
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
	// Walk tells that a walk over the cache begins or ends: meanwhile nothing leaves it.
	Walk(begin bool)
	// Old and Newest are those of Expiring.
	Old(before int64, n int, visit func(key unsafe.Pointer)) (more bool)
	Newest() int64
}

// Cache is the part of a state that is in memory, with its types erased: all of a cached state that is not compiled for
// each of them.
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

	store      Store
	gauge      *gauge // Nil for values of one size.
	main, gone access
	scratch    reflect.Value // Storage of a value,
	at         unsafe.Pointer
}

// access is what is done with a table of the state's types.
type access struct {
	upsert func(group, slot uint64, key unsafe.Pointer) (unsafe.Pointer, bool)
	get    func(group, slot uint64, key unsafe.Pointer) unsafe.Pointer
	read   func(group, slot uint64, key unsafe.Pointer) unsafe.Pointer
	load   func(group, slot uint64, key unsafe.Pointer) unsafe.Pointer
	set    func(group, slot uint64, key, value unsafe.Pointer)
	remove func(group, slot uint64, key unsafe.Pointer) bool
}

// accessTo gives the methods of t. A pointer is passed the same way whatever it points to.
func accessTo[K comparable, V any](t *table.Table[K, V]) access {
	upsert, get, read, load, set, remove := t.Upsert, t.Get, t.Read, t.Load, t.Set, t.Delete
	return access{
		*(*func(uint64, uint64, unsafe.Pointer) (unsafe.Pointer, bool))(unsafe.Pointer(&upsert)),
		*(*func(uint64, uint64, unsafe.Pointer) unsafe.Pointer)(unsafe.Pointer(&get)),
		*(*func(uint64, uint64, unsafe.Pointer) unsafe.Pointer)(unsafe.Pointer(&read)),
		*(*func(uint64, uint64, unsafe.Pointer) unsafe.Pointer)(unsafe.Pointer(&load)),
		*(*func(uint64, uint64, unsafe.Pointer, unsafe.Pointer))(unsafe.Pointer(&set)),
		*(*func(uint64, uint64, unsafe.Pointer) bool)(unsafe.Pointer(&remove)),
	}
}

// room is called before every change.
func (c *Cache) room() {
	if c.gauge != nil {
		c.gauge.settle()
	}
	if c.Main.Len()+c.Gone.Len() >= c.Limit {
		c.store.Room()
	}
}

func (c *Cache) upsert(group, slot uint64, key unsafe.Pointer) (unsafe.Pointer, bool) {
	c.room()
	p, fresh := c.main.upsert(group, slot, key)
	if c.gauge != nil {
		c.gauge.pending = p
	}
	if !fresh {
		return p, false
	}
	if c.Gone.Len() > 0 && c.gone.remove(group, slot, key) || !c.store.Find(group, key, p) {
		c.store.Count(group, 1)
		return p, true
	}
	return p, false
}

func (c *Cache) get(group, slot uint64, key unsafe.Pointer) unsafe.Pointer {
	if p := c.main.read(group, slot, key); p != nil {
		return p
	}
	if c.Gone.Len() > 0 && c.gone.get(group, slot, key) != nil {
		return nil
	}
	c.scratch.SetZero()
	if !c.store.Find(group, key, c.at) {
		return nil
	}
	c.room()
	p := c.main.load(group, slot, key)
	reflect.NewAt(c.Value.Type, p).Elem().Set(c.scratch)
	return p
}

func (c *Cache) set(group, slot uint64, key, value unsafe.Pointer) {
	p, _ := c.upsert(group, slot, key)
	c.main.set(group, slot, key, value)
	if c.gauge != nil {
		c.gauge.pending = p
	}
}

func (c *Cache) remove(group, slot uint64, key unsafe.Pointer) bool {
	c.room()
	if !c.main.remove(group, slot, key) {
		if c.Gone.Len() > 0 && c.gone.get(group, slot, key) != nil || !c.store.Has(group, key) {
			return false
		}
	}
	c.gone.upsert(group, slot, key)
	c.store.Count(group, -1)
	return true
}

// Rewrite has the store take over the value of a key again, if there is one.
func (c *Cache) Rewrite(key unsafe.Pointer) {
	if group, slot := c.Hash(key); c.get(group, slot, key) != nil {
		c.upsert(group, slot, key)
	}
}

func (c *Cache) each(yield func(key, value unsafe.Pointer) bool) {
	c.store.Walk(true)
	defer c.store.Walk(false)
	more := true
	c.store.Each(func(key, value unsafe.Pointer) bool {
		group, slot := c.Hash(key)
		if c.main.get(group, slot, key) == nil && c.gone.get(group, slot, key) == nil {
			more = yield(key, value)
		}
		return more
	})
	if more {
		c.Main.Each(yield)
	}
}

// cached is a Value that holds in memory what a Store has not, or what was used of late.
type cached[K comparable, V any] struct{ c *Cache }

// newCached makes the tables of c.
func newCached[K comparable, V any](cfg table.Config[K, V], c *Cache) (cached[K, V], *table.Table[K, V], error) {
	if err := cfg.Validate(); err != nil {
		return cached[K, V]{}, nil, err
	}
	// Keys that are gone have a value of no use: another type of table would be compiled for every state.
	main, gone := table.New(cfg), table.New(cfg)
	c.Main, c.Gone, c.main, c.gone = main.Core(), gone.Core(), accessTo(main), accessTo(gone)
	c.Main.Cache()
	c.Gone.Cache()
	return cached[K, V]{c}, main, nil
}

// Upsert implements Value.
func (v cached[K, V]) Upsert(group, slot uint64, key *K) (*V, bool) {
	p, fresh := v.c.upsert(group, slot, unsafe.Pointer(key))
	return (*V)(p), fresh
}

// Get implements Value.
func (v cached[K, V]) Get(group, slot uint64, key *K) *V {
	return (*V)(v.c.get(group, slot, unsafe.Pointer(key)))
}

// Set implements Value.
func (v cached[K, V]) Set(group, slot uint64, key *K, val *V) {
	v.c.set(group, slot, unsafe.Pointer(key), unsafe.Pointer(val))
}

// Delete implements Value.
func (v cached[K, V]) Delete(group, slot uint64, key *K) bool {
	return v.c.remove(group, slot, unsafe.Pointer(key))
}

// Len implements Value.
func (v cached[K, V]) Len() int { return v.c.store.Len() }

// All implements Value.
func (v cached[K, V]) All() iter.Seq2[*K, *V] {
	return func(yield func(*K, *V) bool) {
		v.c.each(*(*func(key, value unsafe.Pointer) bool)(unsafe.Pointer(&yield)))
	}
}

// Far implements Ahead.
func (v cached[K, V]) Far() bool { return v.c.Main.Far() }

// Fetch implements Ahead.
func (v cached[K, V]) Fetch(groups, slots []uint64) { v.c.Main.Fetch(groups, slots) }

// Aging implements Expiring.
func (v cached[K, V]) Aging() bool { return v.c.Aged }

// Old implements Expiring.
func (v cached[K, V]) Old(before int64, n int, visit func(key *K)) bool {
	return v.c.store.Old(before, n, *(*func(unsafe.Pointer))(unsafe.Pointer(&visit)))
}

// Newest implements Expiring.
func (v cached[K, V]) Newest() int64 { return v.c.store.Newest() }

// NewCache makes the state of t as a cache over s.
func (t *valueType) NewCache(p TableParams, s Store) (*Cache, error) {
	c := &Cache{Key: t.key, Value: t.value, Hash: t.hash, Pointers: t.pointers, Aged: t.aged, Settle: t.settled, store: s}
	c.TooLarge = func(key unsafe.Pointer, n int64) error { return t.tooLarge(p, key, n) }
	v := reflect.New(t.value.Type)
	c.scratch, c.at = v.Elem(), v.UnsafePointer()
	if err := t.makeCache(p, c); err != nil {
		return nil, fmt.Errorf("state %q: %w", t.name, err)
	}
	return c, nil
}
