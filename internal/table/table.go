package table

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"reflect"
	"unsafe"

	"github.com/cairnstream/cairn/record"
)

// Config describes a Table.
type Config[K comparable, V any] struct {
	// First and Count are the key groups that the table holds, of K in all.
	First, Count, K int
	// Hash gives the group hash and the slot hash of a key. It must agree with what callers pass.
	Hash func(key *K) (group, slot uint64)
	// CopyKey and CopyValue make a copy that shares no memory with the original that anybody changes. *dst is zero before.
	// They are not called for types that are free of pointers.
	CopyKey   func(dst, src *K)
	CopyValue func(dst, src *V)
	// MaxFrozen is the most snapshots alive at a time. Zero means 2.
	MaxFrozen int
}

// Validate lists what is wrong with c.
func (c Config[K, V]) Validate() error {
	return validate(c.First, c.Count, c.K, c.Hash != nil, c.CopyKey != nil, c.CopyValue != nil, reflect.TypeFor[K](), reflect.TypeFor[V]())
}

func validate(first, count, k int, hash, copyKey, copyValue bool, key, value reflect.Type) error {
	var errs []error
	if k < 1 {
		errs = append(errs, fmt.Errorf("number of key groups is %d", k))
	}
	if first < 0 || count < 0 || first+count > k {
		errs = append(errs, fmt.Errorf("groups from %d, %d of them, are not within %d", first, count, k))
	}
	if !hash {
		errs = append(errs, errors.New("no hash function"))
	}
	if !copyKey && record.HasPointers(key) {
		errs = append(errs, fmt.Errorf("no function to copy keys of type %v", key))
	}
	if !copyValue && record.HasPointers(value) {
		errs = append(errs, fmt.Errorf("no function to copy values of type %v", value))
	}
	return errors.Join(errs...)
}

// Table maps keys to values. Only its owner's goroutine calls its methods.
type Table[K comparable, V any] struct {
	c       Core
	copyKey func(dst, src *K) // Nil for keys without pointers.
}

// slot is an entry. Core knows no more of it than its layout.
type slot[K comparable, V any] struct {
	val V // First, so that a V of size zero takes no room.
	key K
}

// New makes an empty table. It panics on a bad configuration: callers validate.
func New[K comparable, V any](c Config[K, V]) *Table[K, V] {
	if err := c.Validate(); err != nil {
		panic(fmt.Sprintf("table: %v", err))
	}
	keyPointers, valPointers := record.HasPointers(reflect.TypeFor[K]()), record.HasPointers(reflect.TypeFor[V]())
	tab := &Table[K, V]{}
	ts := types{
		slot: reflect.TypeFor[slot[K, V]](),
		// A pointer is passed the same way whatever it points to.
		hash:      *(*func(unsafe.Pointer) (uint64, uint64))(unsafe.Pointer(&c.Hash)),
		copyValue: func(dst, src unsafe.Pointer) { *(*V)(dst) = *(*V)(src) },
	}
	if keyPointers {
		tab.copyKey = c.CopyKey
	}
	if valPointers {
		ts.copyValue = func(dst, src unsafe.Pointer) {
			var fresh V
			c.CopyValue(&fresh, (*V)(src))
			*(*V)(dst) = fresh
		}
	}
	if keyPointers || valPointers {
		ts.move = func(dst, src unsafe.Pointer, n int) {
			copy(unsafe.Slice((*slot[K, V])(dst), n), unsafe.Slice((*slot[K, V])(src), n))
		}
	}
	upsert := tab.Upsert
	remove := tab.Delete
	ts.remove = *(*func(group, slot uint64, key unsafe.Pointer) bool)(unsafe.Pointer(&remove))
	ts.upsert = *(*func(group, slot uint64, key unsafe.Pointer) (unsafe.Pointer, bool))(unsafe.Pointer(&upsert))
	var s slot[K, V]
	tab.c = newCore(c.First, c.Count, c.K, c.MaxFrozen, layout{int(unsafe.Sizeof(s)), unsafe.Offsetof(s.key)}, ts, keyPointers || valPointers, valPointers)
	return tab
}

// Core is the part of the table that does not depend on its types.
func (tab *Table[K, V]) Core() *Core { return &tab.c }

// Len is the number of keys.
func (tab *Table[K, V]) Len() int { return tab.c.n }

// Upsert returns the value of key for changing in place, created as the zero V when there is none, which
// fresh tells. The pointer is valid until the next call.
func (tab *Table[K, V]) Upsert(groupHash, slotHash uint64, key *K) (v *V, fresh bool) {
	t := &tab.c
	g := &t.groups[int(t.k.of(groupHash))-t.first]
	h := mix(slotHash)
	id := g.lookup(h)
	c := &t.chunks[id>>chunkBits]
	p := id & (chunkPages - 1)
	hd := c.headOf(p)
	tag := tagOf(h)
	w := wordOf(h, c.words)
	for range c.words {
		ctrl := hd.ctrl[w]
		for m := matchTag(ctrl, tag); m != 0; m &= m - 1 {
			s := w<<3 + bits.TrailingZeros64(m)>>3
			if e := slotOf[K, V](c, p, s); e.key == *key {
				if hd.epoch > t.fast && !t.valPointers {
					if t.track {
						hd.changed.set(s)
					}
					return &e.val, false
				}
				return (*V)(t.own(g, h, id, s)), false
			}
		}
		if matchEmpty(ctrl) != 0 {
			break
		}
		if w++; w == c.words {
			w = 0
		}
	}
	if hd.next != 0 {
		if id, s := tab.find(hd.next, h, key); s >= 0 {
			return (*V)(t.own(g, h, id, s)), false
		}
	}
	return tab.insert(g, h, key), true
}

// insert adds key, which is not there, and returns its value, the zero V.
func (tab *Table[K, V]) insert(g *group, h uint64, key *K) *V {
	e := (*slot[K, V])(tab.c.insert(g, h))
	if tab.copyKey == nil {
		var zero V
		e.val, e.key = zero, *key
		return &e.val
	}
	*e = slot[K, V]{}
	tab.copyKey(&e.key, key)
	return &e.val
}

// Get returns the value of key for reading, or nil. The pointer is valid until the next call.
func (tab *Table[K, V]) Get(groupHash, slotHash uint64, key *K) *V {
	_, _, id, s := tab.lookup(groupHash, slotHash, key)
	if s < 0 {
		return nil
	}
	return (*V)(tab.c.view(id, s))
}

// Set stores a copy of *v.
func (tab *Table[K, V]) Set(groupHash, slotHash uint64, key *K, v *V) {
	if !tab.c.valPointers {
		dst, _ := tab.Upsert(groupHash, slotHash, key)
		*dst = *v
		return
	}
	g, h, id, s := tab.lookup(groupHash, slotHash, key)
	if s >= 0 {
		tab.c.set(g, h, id, s, unsafe.Pointer(v))
		return
	}
	var val V
	tab.c.types.copyValue(unsafe.Pointer(&val), unsafe.Pointer(v)) // Before insert moves what v may point to.
	*tab.insert(g, h, key) = val
}

// Delete removes key; it tells whether there was a value.
func (tab *Table[K, V]) Delete(groupHash, slotHash uint64, key *K) bool {
	g, h, id, s := tab.lookup(groupHash, slotHash, key)
	if s >= 0 {
		tab.c.remove(g, h, id, s)
	}
	return s >= 0
}

// All goes over the keys and values in no order. The table must not be changed meanwhile, and what is
// yielded is valid until the next step.
func (tab *Table[K, V]) All() iter.Seq2[*K, *V] {
	return func(yield func(*K, *V) bool) {
		tab.c.Each(*(*func(key, value unsafe.Pointer) bool)(unsafe.Pointer(&yield)))
	}
}

// lookup is the slot of a key, less than 0 if it has none.
func (tab *Table[K, V]) lookup(groupHash, slotHash uint64, key *K) (g *group, h uint64, id uint32, s int) {
	g = &tab.c.groups[int(tab.c.k.of(groupHash))-tab.c.first]
	h = mix(slotHash)
	id, s = tab.find(g.lookup(h), h, key)
	return g, h, id, s
}

// find looks for key in page id and those chained to it.
func (tab *Table[K, V]) find(id uint32, h uint64, key *K) (uint32, int) {
	tag := tagOf(h)
	for {
		c, p := &tab.c.chunks[id>>chunkBits], id&(chunkPages-1)
		hd := c.headOf(p)
		w := wordOf(h, c.words)
		for range c.words {
			ctrl := hd.ctrl[w]
			for m := matchTag(ctrl, tag); m != 0; m &= m - 1 {
				s := w<<3 + bits.TrailingZeros64(m)>>3
				if slotOf[K, V](c, p, s).key == *key {
					return id, s
				}
			}
			if matchEmpty(ctrl) != 0 {
				break
			}
			if w++; w == c.words {
				w = 0
			}
		}
		if id = hd.next; id == 0 {
			return 0, -1
		}
	}
}

// slotOf is a slot without a check: p is the low part of a page number, which is right by construction.
func slotOf[K comparable, V any](c *chunk, p uint32, s int) *slot[K, V] {
	return (*slot[K, V])(unsafe.Add(c.slot0, uintptr(int(p)*c.words<<3+s)*unsafe.Sizeof(slot[K, V]{})))
}
