package operator

import (
	"fmt"
	"iter"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// Map declares a state that holds a map from MK to V per key, with the codecs that codec.Default picks.
// Each entry is stored by itself. With a TTL each entry has an age of its own.
func (s *States[K]) Map[MK comparable, V any](name string, ttl ...TTL) *MapState[MK, V] {
	kc, ok := s.defaultCodec[MK](name)
	vc, vok := s.defaultCodec[V](name)
	if !ok || !vok {
		return &MapState[MK, V]{}
	}
	return s.MapWith(name, kc, vc, ttl...)
}

// MapWith is Map with codecs of the caller's choice.
func (s *States[K]) MapWith[MK comparable, V any](name string, kc codec.Codec[MK], vc codec.Codec[V], ttl ...TTL) *MapState[MK, V] {
	if err := codec.CheckKey(kc); err != nil {
		s.bad("state %q: %v", name, err)
		return &MapState[MK, V]{}
	}
	t, aging := s.ttl(name, ttl)
	xc, hc, ec := mapKeyCodec[K, MK]{s.key, kc}, mapHeadCodec[MK]{kc}, mapEntryCodec[MK, V]{kc, vc}
	sub := codec.NewHasher(kc)
	hash := func(k *mapKey[K, MK]) (uint64, uint64) {
		h := s.hash(&k.Key)
		return h, slotAt(h, int64(sub(&k.Sub)))
	}
	items := name + job.ItemsSuffix
	s.declare(name, "map", s.key.Schema().String(), hc.Schema().String())
	m := &mapTable[K, MK, V]{cur: s.cur, sub: sub, own: newOwner(vc)}
	m.heads = s.openKeyed(name, codec.Codec[mapHead[MK]](hc))
	if !aging {
		s.declare(items, "map", xc.Schema().String(), ec.Schema().String())
		if e := s.openTable(items, codec.Codec[mapKey[K, MK]](xc), codec.Codec[mapEntry[MK, V]](ec), hash); e != nil && m.heads != nil {
			m.items = plainTable[mapKey[K, MK], mapEntry[MK, V]]{e}
			return &MapState[MK, V]{m}
		}
		return &MapState[MK, V]{}
	}
	ac := agedCodec[mapEntry[MK, V]]{ec}
	s.declare(items, "map", xc.Schema().String(), ac.Schema().String())
	if e := s.openTable(items, codec.Codec[mapKey[K, MK]](xc), codec.Codec[aged[mapEntry[MK, V]]](ac), hash); e != nil && m.heads != nil {
		a := newAgedTable(e, t, &s.aging, hash)
		a.reset = func(e *mapEntry[MK, V]) {
			var zero V
			e.val = zero
		}
		a.forget = func(e *indexed[mapKey[K, MK]], v *mapEntry[MK, V]) { m.unlink(e.group, &e.key.Key, v) }
		m.items, m.aged = a, true
		return &MapState[MK, V]{m}
	}
	return &MapState[MK, V]{}
}

// mapAt is the map of the current key.
type mapAt[MK comparable, V any] interface {
	get(k MK) *V
	put(k MK, v *V)
	ref(k MK) (*V, bool)
	remove(k MK) bool
	len() int
	each(yield func(MK, *V) bool)
	clear()
}

// MapState holds a map from MK to V for each key. Its methods work on the map of the key of the record
// or timer being processed.
type MapState[MK comparable, V any] struct{ at mapAt[MK, V] }

// Get returns a copy of the value of k and whether there is one. What it points to is read-only.
func (s *MapState[MK, V]) Get(k MK) (v V, ok bool) {
	if p := s.at.get(k); p != nil {
		return *p, true
	}
	return v, false
}

// Peek returns the value of k for reading, or nil. It is valid until the next use of any state.
func (s *MapState[MK, V]) Peek(k MK) *V { return s.at.get(k) }

// Put stores a copy of v.
func (s *MapState[MK, V]) Put(k MK, v V) { s.at.put(k, &v) }

// Ref returns the value of k for changing in place, created as the zero V when there is none, which
// created tells. It is valid until the next use of any state.
func (s *MapState[MK, V]) Ref(k MK) (v *V, created bool) { return s.at.ref(k) }

// Delete removes k; it tells whether there was a value.
func (s *MapState[MK, V]) Delete(k MK) bool { return s.at.remove(k) }

// Len is the number of entries. With a TTL it costs a walk over all of them.
func (s *MapState[MK, V]) Len() int { return s.at.len() }

// All goes over the entries, the newest first. The value is for reading and valid until the next step
// or use of any state. Of this map the body may delete the entry that it is at, no other.
func (s *MapState[MK, V]) All() iter.Seq2[MK, *V] {
	return func(yield func(MK, *V) bool) { s.at.each(yield) }
}

// Clear removes all entries.
func (s *MapState[MK, V]) Clear() { s.at.clear() }

type mapKey[K, MK comparable] struct {
	Key K
	Sub MK
}

// mapHead begins the list of the entries of a key.
type mapHead[MK comparable] struct {
	first MK
	n     int64
}

// mapEntry is a value between its neighbours in the list of the key's entries.
type mapEntry[MK comparable, V any] struct {
	val              V
	prev, next       MK
	hasPrev, hasNext bool
}

// entryTable is a table of entries, which may expire.
type entryTable[X comparable, V any] interface {
	// live returns the value for reading, or nil.
	live(group, slot uint64, key *X) *V
	// peek is live for what may have expired.
	peek(group, slot uint64, key *X) *V
	// own is peek for changing, without making it any younger. The value is there.
	own(group, slot uint64, key *X) *V
	// put returns the value for changing: fresh when it is new for the user, inserted when it was not
	// in the table.
	put(group, slot uint64, key *X) (v *V, fresh, inserted bool)
	// remove removes the value; it tells whether it had not expired.
	remove(group, slot uint64, key *X) bool
}

// plainTable is a table of entries that do not expire.
type plainTable[X comparable, V any] struct{ t statebackend.Value[X, V] }

func (p plainTable[X, V]) live(group, slot uint64, key *X) *V { return p.t.Get(group, slot, key) }
func (p plainTable[X, V]) peek(group, slot uint64, key *X) *V { return p.t.Get(group, slot, key) }
func (p plainTable[X, V]) own(group, slot uint64, key *X) *V {
	v, _ := p.t.Upsert(group, slot, key)
	return v
}
func (p plainTable[X, V]) put(group, slot uint64, key *X) (v *V, fresh, inserted bool) {
	v, fresh = p.t.Upsert(group, slot, key)
	return v, fresh, fresh
}
func (p plainTable[X, V]) remove(group, slot uint64, key *X) bool {
	return p.t.Delete(group, slot, key)
}

// mapTable keeps maps in two tables: entries by key and map key, in a doubly linked list for each key,
// and the lists' beginnings.
type mapTable[K, MK comparable, V any] struct {
	heads statebackend.Value[K, mapHead[MK]]
	items entryTable[mapKey[K, MK], mapEntry[MK, V]]
	aged  bool
	sub   func(*MK) uint64
	own   owner[V]
	cur   *cursor[K]
	k     mapKey[K, MK] // Storage of the current key.
}

// at makes k the current entry and returns its place.
func (m *mapTable[K, MK, V]) at(k MK) (group, slot uint64, key *mapKey[K, MK]) {
	m.k = mapKey[K, MK]{*m.cur.key, k}
	return m.cur.hash, slotAt(m.cur.hash, int64(m.sub(&m.k.Sub))), &m.k
}

func (m *mapTable[K, MK, V]) get(k MK) *V {
	if e := m.items.live(m.at(k)); e != nil {
		return &e.val
	}
	return nil
}

func (m *mapTable[K, MK, V]) put(k MK, v *V) {
	p, _ := m.ref(k)
	m.own.put(p, v)
}

func (m *mapTable[K, MK, V]) ref(k MK) (*V, bool) {
	e, fresh, inserted := m.items.put(m.at(k))
	if !inserted {
		return &e.val, fresh
	}
	h, _ := m.heads.Upsert(m.cur.hash, m.cur.hash, m.cur.key)
	next, linked := h.first, h.n > 0
	h.first = k
	h.n++
	if linked {
		n := m.items.own(m.at(next))
		n.prev, n.hasPrev = k, true
	}
	e = m.items.own(m.at(k)) // Another state was asked since.
	if linked {
		e.next, e.hasNext = next, true
	}
	return &e.val, true
}

func (m *mapTable[K, MK, V]) remove(k MK) bool {
	e := m.items.peek(m.at(k))
	if e == nil {
		return false
	}
	m.unlink(m.cur.hash, m.cur.key, e)
	return m.items.remove(m.at(k))
}

// unlink takes an entry out of its key's list.
func (m *mapTable[K, MK, V]) unlink(group uint64, key *K, e *mapEntry[MK, V]) {
	prev, next, hasPrev, hasNext := e.prev, e.next, e.hasPrev, e.hasNext
	owner := *key // key may be that of the current entry.
	at := func(k MK) *mapEntry[MK, V] {
		m.k = mapKey[K, MK]{owner, k}
		return m.items.own(group, slotAt(group, int64(m.sub(&m.k.Sub))), &m.k)
	}
	if hasPrev {
		p := at(prev)
		p.next, p.hasNext = next, hasNext
	}
	if hasNext {
		n := at(next)
		n.prev, n.hasPrev = prev, hasPrev
	}
	h, _ := m.heads.Upsert(group, group, key)
	if h.n--; h.n == 0 {
		m.heads.Delete(group, group, key)
		return
	}
	if !hasPrev {
		h.first = next
	}
}

func (m *mapTable[K, MK, V]) len() (n int) {
	if !m.aged {
		if h := m.heads.Get(m.cur.hash, m.cur.hash, m.cur.key); h != nil {
			return int(h.n)
		}
		return 0
	}
	m.walk(func(_ MK, _ *mapEntry[MK, V]) bool {
		n++
		return true
	}, false)
	return n
}

func (m *mapTable[K, MK, V]) each(yield func(MK, *V) bool) {
	m.walk(func(k MK, e *mapEntry[MK, V]) bool { return yield(k, &e.val) }, true)
}

// walk goes over the entries that have not expired; use tells whether that counts as reading them.
func (m *mapTable[K, MK, V]) walk(yield func(MK, *mapEntry[MK, V]) bool, use bool) {
	for k, e := range m.chained {
		if m.aged {
			if use {
				e = m.items.live(m.at(k))
			} else {
				e = m.items.(*agedTable[mapKey[K, MK], mapEntry[MK, V]]).unexpired(m.at(k))
			}
		}
		if e != nil && !yield(k, e) {
			return
		}
	}
}

// chained goes over the entries of the current key, expired or not. The entry at hand may be removed.
func (m *mapTable[K, MK, V]) chained(yield func(MK, *mapEntry[MK, V]) bool) {
	h := m.heads.Get(m.cur.hash, m.cur.hash, m.cur.key)
	if h == nil {
		return
	}
	for k, more := h.first, true; more; {
		e := m.items.peek(m.at(k))
		next, hasNext := e.next, e.hasNext
		if !yield(k, e) {
			return
		}
		k, more = next, hasNext
	}
}

func (m *mapTable[K, MK, V]) clear() {
	for k := range m.chained {
		m.items.remove(m.at(k))
	}
	m.heads.Delete(m.cur.hash, m.cur.hash, m.cur.key)
}

// mapKeyCodec encodes a mapKey as the two keys.
type mapKeyCodec[K, MK comparable] struct {
	key codec.Codec[K]
	sub codec.Codec[MK]
}

func (c mapKeyCodec[K, MK]) Append(dst []byte, v *mapKey[K, MK]) ([]byte, error) {
	dst, err := c.key.Append(dst, &v.Key)
	if err != nil {
		return dst, err
	}
	return c.sub.Append(dst, &v.Sub)
}

func (c mapKeyCodec[K, MK]) Decode(src []byte, v *mapKey[K, MK]) (int, error) {
	n, err := c.key.Decode(src, &v.Key)
	if err != nil {
		return n, err
	}
	m, err := c.sub.Decode(src[n:], &v.Sub)
	return n + m, err
}

func (c mapKeyCodec[K, MK]) Copy(dst, src *mapKey[K, MK]) {
	c.key.Copy(&dst.Key, &src.Key)
	c.sub.Copy(&dst.Sub, &src.Sub)
}

func (c mapKeyCodec[K, MK]) Schema() codec.Schema {
	return codec.Schema{Codec: "map-key", Version: 1, Shape: codec.JoinSchemas(c.key.Schema(), c.sub.Schema())}
}

// mapHeadCodec encodes a mapHead as the number of entries and the first key.
type mapHeadCodec[MK comparable] struct{ sub codec.Codec[MK] }

func (c mapHeadCodec[MK]) Append(dst []byte, v *mapHead[MK]) ([]byte, error) {
	dst, err := codec.Int64().Append(dst, &v.n)
	if err != nil {
		return dst, err
	}
	return c.sub.Append(dst, &v.first)
}

func (c mapHeadCodec[MK]) Decode(src []byte, v *mapHead[MK]) (int, error) {
	n, err := codec.Int64().Decode(src, &v.n)
	if err != nil {
		return n, err
	}
	if v.n < 1 {
		return n, fmt.Errorf("a map of %d entries", v.n)
	}
	m, err := c.sub.Decode(src[n:], &v.first)
	return n + m, err
}

func (c mapHeadCodec[MK]) Copy(dst, src *mapHead[MK]) {
	c.sub.Copy(&dst.first, &src.first)
	dst.n = src.n
}

func (c mapHeadCodec[MK]) Schema() codec.Schema {
	return codec.Schema{Codec: "map-head", Version: 1, Shape: c.sub.Schema().String()}
}

// Evolve says that the keys of a map may not change.
func (c mapHeadCodec[MK]) Evolve(old codec.Schema) (codec.Codec[mapHead[MK]], error) {
	if _, _, _, err := holding(old, c.Schema()); err != nil {
		return nil, err
	}
	return c, nil
}

// mapEntryCodec encodes a mapEntry as a byte of flags, the keys of the neighbours that there are, and
// the value.
type mapEntryCodec[MK comparable, V any] struct {
	sub codec.Codec[MK]
	val codec.Codec[V]
}

const (
	flagPrev = 1
	flagNext = 2
)

func (c mapEntryCodec[MK, V]) Append(dst []byte, v *mapEntry[MK, V]) (_ []byte, err error) {
	flags := byte(0)
	if v.hasPrev {
		flags |= flagPrev
	}
	if v.hasNext {
		flags |= flagNext
	}
	dst = append(dst, flags)
	if v.hasPrev {
		if dst, err = c.sub.Append(dst, &v.prev); err != nil {
			return dst, err
		}
	}
	if v.hasNext {
		if dst, err = c.sub.Append(dst, &v.next); err != nil {
			return dst, err
		}
	}
	return c.val.Append(dst, &v.val)
}

func (c mapEntryCodec[MK, V]) Decode(src []byte, v *mapEntry[MK, V]) (int, error) {
	if len(src) == 0 || src[0]&^(flagPrev|flagNext) != 0 {
		return 0, fmt.Errorf("the entry of a map is none")
	}
	v.hasPrev, v.hasNext = src[0]&flagPrev != 0, src[0]&flagNext != 0
	n := 1
	if v.hasPrev {
		m, err := c.sub.Decode(src[n:], &v.prev)
		if err != nil {
			return n, err
		}
		n += m
	}
	if v.hasNext {
		m, err := c.sub.Decode(src[n:], &v.next)
		if err != nil {
			return n, err
		}
		n += m
	}
	m, err := c.val.Decode(src[n:], &v.val)
	return n + m, err
}

func (c mapEntryCodec[MK, V]) Copy(dst, src *mapEntry[MK, V]) {
	c.val.Copy(&dst.val, &src.val)
	c.sub.Copy(&dst.prev, &src.prev)
	c.sub.Copy(&dst.next, &src.next)
	dst.hasPrev, dst.hasNext = src.hasPrev, src.hasNext
}

func (c mapEntryCodec[MK, V]) Schema() codec.Schema {
	return codec.Schema{Codec: "map-entry", Version: 1, Shape: codec.JoinSchemas(c.sub.Schema(), c.val.Schema())}
}

// Evolve reads what was made of older values.
func (c mapEntryCodec[MK, V]) Evolve(old codec.Schema) (_ codec.Codec[mapEntry[MK, V]], err error) {
	if c.val, err = evolvePart(c.val, old, c.Schema()); err != nil {
		return nil, err
	}
	return c, nil
}
