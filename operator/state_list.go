package operator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"reflect"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/statebackend"
)

// List declares a state that holds a list of V per key, with the codec that codec.Default picks for V.
// Elements are stored a few at a time: to append one costs the same however long the list is, and a
// snapshot copies no list. With a TTL an element's age is counted from when it was appended, whatever On
// says, so that the oldest ones expire first; OnReadAndWrite is refused.
func (s *States[K]) List[V any](name string, ttl ...TTL) *ListState[V] {
	return &ListState[V]{*s.Lists[V](name, ttl...)}
}

// Lists is List for several lists of each key, which have numbers, such as the start of a window.
func (s *States[K]) Lists[V any](name string, ttl ...TTL) *ListsState[V] {
	c, ok := s.defaultCodec[V](name)
	if !ok {
		return &ListsState[V]{}
	}
	return s.ListsWith(name, c, ttl...)
}

// ListsWith is Lists with a codec of the caller's choice.
func (s *States[K]) ListsWith[V any](name string, c codec.Codec[V], ttl ...TTL) *ListsState[V] {
	t, aging := s.ttl(name, ttl)
	if aging && t.On == OnReadAndWrite {
		s.bad("state %q: the elements of a list do not live longer for being read", name)
	}
	headHash := func(k *timerKey[K]) (uint64, uint64) {
		h := s.hash(&k.Key)
		return h, slotAt(h, k.Time)
	}
	itemHash := func(k *itemKey[K]) (uint64, uint64) {
		h := s.hash(&k.Key)
		return h, slotAt(slotAt(h, k.List), k.Part)
	}
	own := newOwner(c)
	if !aging {
		if t, ok := openLists(s, name, c, headHash, itemHash); ok {
			t.own = own
			return &ListsState[V]{t}
		}
		return &ListsState[V]{}
	}
	table, ok := openLists(s, name, codec.Codec[aged[V]](agedCodec[V]{c}), headHash, itemHash)
	if !ok {
		return &ListsState[V]{}
	}
	l := &agedLists[K, V]{t: table, own: own, aging: &s.aging, hash: headHash}
	if _, ok := table.heads.(statebackend.Expiring[timerKey[K]]); ok {
		l.places = map[timerKey[K]]indexPlace{}
	}
	l.index = newExpiry(t, func(e *indexed[timerKey[K]], at indexPlace) {
		if l.places != nil {
			l.places[e.key] = at
			return
		}
		h, _ := table.heads.Upsert(e.group, e.slot, &e.key)
		h.at = at
	})
	s.aging.states = append(s.aging.states, l)
	return &ListsState[V]{l}
}

// openLists declares the tables of lists of E and opens them. ok is false while the job is being built
// and after a problem.
func openLists[K comparable, E any](s *States[K], name string, c codec.Codec[E], headHash func(*timerKey[K]) (uint64, uint64), itemHash func(*itemKey[K]) (uint64, uint64)) (t *listTable[K, E], ok bool) {
	kc, ic := timerCodec[K]{s.key}, itemCodec[K]{s.key}
	hc, pc := headCodec[E]{c}, partCodec[E]{c}
	items := name + job.ItemsSuffix
	s.declare(name, "list", kc.Schema().String(), hc.Schema().String())
	s.declare(items, "list", ic.Schema().String(), pc.Schema().String())
	t = &listTable[K, E]{cur: s.cur}
	t.heads = s.openTable(name, codec.Codec[timerKey[K]](kc), codec.Codec[listHead[E]](hc), headHash)
	t.items = s.openTable(items, codec.Codec[itemKey[K]](ic), codec.Codec[listPart[E]](pc), itemHash)
	return t, t.heads != nil && t.items != nil
}

// listsAt are the lists of the current key.
type listsAt[V any] interface {
	// append tells whether the list is new.
	append(list int64, v *V) (fresh bool)
	len(list int64) int
	// get returns element i for reading, or nil.
	get(list int64, i int) *V
	set(list int64, i int, v *V)
	each(list int64, yield func(int, *V) bool)
	// cut removes the first n elements, n at most len; all of them make the list as good as never made.
	cut(list int64, n int)
}

// ListsState holds numbered lists of V for each key. Its methods work on the key of the record or timer
// being processed.
type ListsState[V any] struct{ at listsAt[V] }

// Append adds a copy of *v to the end of a list; it tells whether that is its only element.
func (s *ListsState[V]) Append(list int64, v *V) (first bool) { return s.at.append(list, v) }

// Len is the number of elements of a list.
func (s *ListsState[V]) Len(list int64) int { return s.at.len(list) }

// At returns element i of a list for reading. It is valid until the next use of any state. It panics
// when there is none.
func (s *ListsState[V]) At(list int64, i int) *V {
	v := s.at.get(list, i)
	if v == nil {
		panic(fmt.Sprintf("element %d of a list of %d", i, s.at.len(list)))
	}
	return v
}

// Set replaces element i of a list by a copy of *v. It panics when there is none.
func (s *ListsState[V]) Set(list int64, i int, v *V) {
	if n := s.at.len(list); i < 0 || i >= n {
		panic(fmt.Sprintf("element %d of a list of %d", i, n))
	}
	s.at.set(list, i, v)
}

// All goes over a list in the order of appending. The elements are for reading and valid until the
// next step or change of the state, which must not be this list's.
func (s *ListsState[V]) All(list int64) iter.Seq2[int, *V] {
	return func(yield func(int, *V) bool) { s.at.each(list, yield) }
}

// RemoveFirst removes up to n elements from the front.
func (s *ListsState[V]) RemoveFirst(list int64, n int) { s.at.cut(list, min(n, s.at.len(list))) }

// Clear removes a list and returns how many elements it had.
func (s *ListsState[V]) Clear(list int64) int {
	n := s.at.len(list)
	s.at.cut(list, n)
	return n
}

// ListState holds a list of V for each key. Its methods work on the key of the record or timer being
// processed.
type ListState[V any] struct{ l ListsState[V] }

// Append adds a copy of *v to the end; it tells whether that is the only element.
func (s *ListState[V]) Append(v *V) (first bool) { return s.l.Append(0, v) }

// Len is the number of elements.
func (s *ListState[V]) Len() int { return s.l.Len(0) }

// At returns element i for reading. It is valid until the next use of any state. It panics when there
// is none.
func (s *ListState[V]) At(i int) *V { return s.l.At(0, i) }

// Set replaces element i by a copy of *v. It panics when there is none.
func (s *ListState[V]) Set(i int, v *V) { s.l.Set(0, i, v) }

// All goes over the elements in the order of appending. They are for reading and valid until the next
// step or change of the state, which must not be this list's.
func (s *ListState[V]) All() iter.Seq2[int, *V] { return s.l.All(0) }

// RemoveFirst removes up to n elements from the front.
func (s *ListState[V]) RemoveFirst(n int) { s.l.RemoveFirst(0, n) }

// Clear removes the list and returns how many elements it had.
func (s *ListState[V]) Clear() int { return s.l.Clear(0) }

// partLen is the number of elements that are stored together.
const partLen = 4

// listHead says which elements a list has, from first to next, which is excluded, and holds the last few.
// Part p is the elements from p * partLen on; all parts but the last one are in the table of items.
type listHead[E any] struct {
	first, next int64
	at          indexPlace // In the expiry index, for lists with a TTL. Not part of a snapshot.
	tail        [partLen]E
}

// last is the number of the last part. The list is not empty.
func (h *listHead[E]) last() int64 { return (h.next - 1) / partLen }

// listPart is a part of a list. Its first elements may have been removed.
type listPart[E any] struct {
	gone int8
	els  [partLen]E
}

// itemKey is the key of a part.
type itemKey[K comparable] struct {
	Key  K
	List int64
	Part int64
}

// listTable keeps lists in two tables: the heads, which hold short lists whole, and the parts of longer
// ones. An element is changeable in place, so lists with a TTL are made of it too.
type listTable[K comparable, E any] struct {
	heads statebackend.Value[timerKey[K], listHead[E]]
	items statebackend.Value[itemKey[K], listPart[E]]
	cur   *cursor[K]
	own   owner[E]
	// changes counts calls that may have moved elements.
	changes int
	hk      timerKey[K] // Storage of the current keys.
	ik      itemKey[K]
	free    []*[partLen]E // See borrow.
}

// find returns the head of a list of the current key, or nil, and its slot.
func (l *listTable[K, E]) find(list int64) (*listHead[E], uint64) {
	l.hk.Key, l.hk.Time = *l.cur.key, list
	slot := slotAt(l.cur.hash, list)
	return l.heads.Get(l.cur.hash, slot, &l.hk), slot
}

// add makes room for an element and returns its place and whether the list is new.
func (l *listTable[K, E]) add(list int64) (e *E, fresh bool) {
	l.changes++
	l.hk.Key, l.hk.Time = *l.cur.key, list
	slot := slotAt(l.cur.hash, list)
	h, fresh := l.heads.Upsert(l.cur.hash, slot, &l.hk)
	if h.next%partLen == 0 && !fresh {
		p := h.last()
		part := listPart[E]{gone: int8(max(h.first-p*partLen, 0)), els: h.tail}
		clear(h.tail[:])
		l.ik = itemKey[K]{*l.cur.key, list, p}
		to, _ := l.items.Upsert(l.cur.hash, slotAt(slot, p), &l.ik)
		*to = part
		h, _ = l.heads.Upsert(l.cur.hash, slot, &l.hk)
	}
	e = &h.tail[h.next%partLen]
	h.next++
	return e, fresh
}

// item returns the element with that index for reading.
func (l *listTable[K, E]) item(group, slot uint64, k *timerKey[K], h *listHead[E], index int64) *E {
	p := index / partLen
	if p == h.last() {
		return &h.tail[index%partLen]
	}
	l.ik = itemKey[K]{k.Key, k.Time, p}
	return &l.items.Get(group, slotAt(slot, p), &l.ik).els[index%partLen]
}

// ref is item for changing.
func (l *listTable[K, E]) ref(group, slot uint64, k *timerKey[K], h *listHead[E], index int64) *E {
	l.changes++
	p := index / partLen
	if p == h.last() {
		h, _ = l.heads.Upsert(group, slot, k)
		return &h.tail[index%partLen]
	}
	l.ik = itemKey[K]{k.Key, k.Time, p}
	part, _ := l.items.Upsert(group, slotAt(slot, p), &l.ik)
	return &part.els[index%partLen]
}

func (l *listTable[K, E]) append(list int64, v *E) (fresh bool) {
	e, fresh := l.add(list)
	l.own.put(e, v)
	return fresh
}

func (l *listTable[K, E]) len(list int64) int {
	if h, _ := l.find(list); h != nil {
		return int(h.next - h.first)
	}
	return 0
}

func (l *listTable[K, E]) get(list int64, i int) *E {
	h, slot := l.find(list)
	if h == nil || i < 0 || int64(i) >= h.next-h.first {
		return nil
	}
	return l.item(l.cur.hash, slot, &l.hk, h, h.first+int64(i))
}

func (l *listTable[K, E]) set(list int64, i int, v *E) {
	h, slot := l.find(list)
	l.own.put(l.ref(l.cur.hash, slot, &l.hk, h, h.first+int64(i)), v)
}

// each gives yield copies: the loop's body may use other states, upon which a part may leave the cache.
func (l *listTable[K, E]) each(list int64, yield func(int, *E) bool) {
	h, slot := l.find(list)
	if h == nil {
		return
	}
	key, group := l.hk, l.cur.hash
	first, next, last := h.first, h.next, h.last()
	els := l.borrow()
	defer l.giveBack(els)
	for i := first; i < next; {
		if p := i / partLen; p < last {
			l.ik = itemKey[K]{key.Key, list, p}
			*els = l.items.Get(group, slotAt(slot, p), &l.ik).els
		} else {
			*els = l.heads.Get(group, slot, &key).tail
		}
		changes := l.changes
		for end := min(next, (i/partLen+1)*partLen); i < end && changes == l.changes; i++ {
			if !yield(int(i-first), &els[i%partLen]) {
				return
			}
		}
		if changes != l.changes { // The loop's body had another list changed, perhaps even this one.
			if h = l.heads.Get(group, slot, &key); h == nil {
				return
			}
			i, next, last = max(i, h.first), min(next, h.next), h.last()
		}
	}
}

// borrow gives memory for the elements of a part; loops may be nested.
func (l *listTable[K, E]) borrow() *[partLen]E {
	n := len(l.free)
	if n == 0 {
		return new([partLen]E)
	}
	els := l.free[n-1]
	l.free = l.free[:n-1]
	return els
}

func (l *listTable[K, E]) giveBack(els *[partLen]E) {
	clear(els[:])
	l.free = append(l.free, els)
}

func (l *listTable[K, E]) cut(list int64, n int) {
	if h, slot := l.find(list); h != nil && n > 0 {
		l.drop(l.cur.hash, slot, &l.hk, h, n)
	}
}

// drop removes the first n elements of the list with head h; it tells whether the list is gone.
func (l *listTable[K, E]) drop(group, slot uint64, k *timerKey[K], h *listHead[E], n int) (gone bool) {
	l.changes++
	var zero E
	first, last := h.first, h.last()
	to, all := first+int64(n), first+int64(n) == h.next
	for p := first / partLen; p < last && p*partLen < to; p++ {
		l.ik = itemKey[K]{k.Key, k.Time, p}
		if (p+1)*partLen <= to {
			l.items.Delete(group, slotAt(slot, p), &l.ik)
			continue
		}
		part, _ := l.items.Upsert(group, slotAt(slot, p), &l.ik)
		part.gone = int8(to - p*partLen)
		for i := range part.gone {
			part.els[i] = zero
		}
	}
	if all {
		l.heads.Delete(group, slot, k)
		return true
	}
	h, _ = l.heads.Upsert(group, slot, k)
	h.first = to
	for i := last * partLen; i < to; i++ {
		h.tail[i%partLen] = zero
	}
	return false
}

// agedLists are lists whose elements expire.
type agedLists[K comparable, V any] struct {
	t     *listTable[K, aged[V]]
	own   owner[V]
	aging *aging
	index expiry[timerKey[K]]
	hash  func(*timerKey[K]) (group, slot uint64)
	// places is where the index has a list, if heads may leave the memory and come back without what is not encoded; else nil.
	places map[timerKey[K]]indexPlace
}

// place is where the index has the list with head h.
func (l *agedLists[K, V]) place(k *timerKey[K], h *listHead[aged[V]]) indexPlace {
	if l.places != nil {
		return l.places[*k]
	}
	return h.at
}

func (l *agedLists[K, V]) append(list int64, v *V) (fresh bool) {
	l.trim(list)
	e, fresh := l.t.add(list)
	e.from = l.aging.now
	l.own.put(&e.val, v)
	if fresh {
		slot := slotAt(l.t.cur.hash, list)
		at := l.index.add(l.t.hk, l.t.cur.hash, slot, l.aging.now)
		if l.places != nil {
			l.places[l.t.hk] = at
			return fresh
		}
		h, _ := l.t.heads.Upsert(l.t.cur.hash, slot, &l.t.hk)
		h.at = at
	}
	return fresh
}

// trim removes what has expired from the front of a list and returns the head, nil when there is none.
func (l *agedLists[K, V]) trim(list int64) (*listHead[aged[V]], uint64) {
	h, slot := l.t.find(list)
	if h == nil {
		return nil, slot
	}
	h, n := l.old(l.t.cur.hash, slot, &l.t.hk, h)
	if n > 0 {
		h = l.shorten(l.t.cur.hash, slot, &l.t.hk, n)
	}
	return h, slot
}

// old counts the expired elements of a list with head h, which may be elsewhere after that.
func (l *agedLists[K, V]) old(group, slot uint64, k *timerKey[K], h *listHead[aged[V]]) (head *listHead[aged[V]], n int) {
	for first, next := h.first, h.next; first+int64(n) < next; n++ {
		expired := l.index.expired(l.t.item(group, slot, k, h, first+int64(n)).from, l.aging.now)
		h = l.t.heads.Get(group, slot, k)
		if !expired {
			break
		}
	}
	return h, n
}

// shorten removes the first n elements and returns the head, nil when nothing is left.
func (l *agedLists[K, V]) shorten(group, slot uint64, k *timerKey[K], n int) *listHead[aged[V]] {
	h := l.t.heads.Get(group, slot, k)
	if int64(n) == h.next-h.first {
		l.index.remove(l.place(k, h))
		delete(l.places, *k)
		h = l.t.heads.Get(group, slot, k)
	}
	if l.t.drop(group, slot, k, h, n) {
		return nil
	}
	return l.t.heads.Get(group, slot, k)
}

func (l *agedLists[K, V]) len(list int64) int {
	if h, _ := l.trim(list); h != nil {
		return int(h.next - h.first)
	}
	return 0
}

func (l *agedLists[K, V]) get(list int64, i int) *V {
	l.trim(list)
	if e := l.t.get(list, i); e != nil {
		return &e.val
	}
	return nil
}

func (l *agedLists[K, V]) set(list int64, i int, v *V) {
	h, slot := l.t.find(list)
	l.own.put(&l.t.ref(l.t.cur.hash, slot, &l.t.hk, h, h.first+int64(i)).val, v)
}

func (l *agedLists[K, V]) each(list int64, yield func(int, *V) bool) {
	l.trim(list)
	l.t.each(list, func(i int, e *aged[V]) bool { return yield(i, &e.val) })
}

func (l *agedLists[K, V]) cut(list int64, n int) {
	if h, slot := l.t.find(list); h != nil && n > 0 {
		l.shorten(l.t.cur.hash, slot, &l.t.hk, n)
	}
}

func (l *agedLists[K, V]) rebuild() {
	for k, h := range l.t.heads.All() {
		key := *k
		group, slot := l.hash(&key)
		l.index.add(key, group, slot, l.t.item(group, slot, &key, h, h.first).from)
		l.aging.now = max(l.aging.now, h.tail[(h.next-1)%partLen].from)
	}
	l.index.placeAll()
}

func (l *agedLists[K, V]) sweep(limit int) bool {
	for range limit {
		e, ok := l.index.due(l.aging.now)
		if !ok {
			return false
		}
		h := l.t.heads.Get(e.group, e.slot, &e.key)
		h, n := l.old(e.group, e.slot, &e.key, h)
		if n > 0 {
			if h = l.shorten(e.group, e.slot, &e.key, n); h == nil {
				continue
			}
		}
		from := l.t.item(e.group, e.slot, &e.key, h, h.first).from
		l.index.remove(l.place(&e.key, h))
		l.index.place(&e, l.index.add(e.key, e.group, e.slot, from))
	}
	_, more := l.index.due(l.aging.now)
	return more
}

func (l *agedLists[K, V]) tick() time.Duration { return l.index.tick() }

// headCodec encodes a listHead as two numbers of 8 bytes and the elements of the last part.
type headCodec[E any] struct{ el codec.Codec[E] }

// held are the elements of the last part that are there, as indices into tail.
func (h *listHead[E]) held() (from, to int64) {
	start := h.last() * partLen
	return max(h.first-start, 0), h.next - start
}

func (c headCodec[E]) Append(dst []byte, v *listHead[E]) (_ []byte, err error) {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(v.first))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(v.next))
	from, to := v.held()
	for i := from; i < to; i++ {
		if dst, err = c.el.Append(dst, &v.tail[i]); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func (c headCodec[E]) Decode(src []byte, v *listHead[E]) (int, error) {
	if len(src) < 16 {
		return 0, fmt.Errorf("the head of a list is cut short: %d bytes of 16", len(src))
	}
	v.first, v.next = int64(binary.LittleEndian.Uint64(src)), int64(binary.LittleEndian.Uint64(src[8:]))
	if v.first < 0 || v.next <= v.first {
		return 0, fmt.Errorf("the head of a list has elements %d to %d", v.first, v.next)
	}
	n := 16
	from, to := v.held()
	for i := from; i < to; i++ {
		m, err := c.el.Decode(src[n:], &v.tail[i])
		if err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

func (c headCodec[E]) Copy(dst, src *listHead[E]) {
	dst.first, dst.next, dst.at = src.first, src.next, src.at
	from, to := src.held()
	for i := from; i < to; i++ {
		c.el.Copy(&dst.tail[i], &src.tail[i])
	}
}

func (c headCodec[E]) Schema() codec.Schema {
	return codec.Schema{Codec: "list-head", Version: 1, Shape: c.el.Schema().String()}
}

// Evolve reads what was made of older values.
func (c headCodec[E]) Evolve(old codec.Schema) (_ codec.Codec[listHead[E]], err error) {
	if c.el, err = evolvePart(c.el, old, c.Schema()); err != nil {
		return nil, err
	}
	return c, nil
}

// partCodec encodes a listPart as a byte with the number of elements that are gone, and the others.
type partCodec[E any] struct{ el codec.Codec[E] }

func (c partCodec[E]) Append(dst []byte, v *listPart[E]) (_ []byte, err error) {
	dst = append(dst, byte(v.gone))
	for i := int(v.gone); i < partLen; i++ {
		if dst, err = c.el.Append(dst, &v.els[i]); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func (c partCodec[E]) Decode(src []byte, v *listPart[E]) (int, error) {
	if len(src) == 0 || src[0] >= partLen {
		return 0, errors.New("the part of a list is none")
	}
	v.gone = int8(src[0])
	n := 1
	for i := int(v.gone); i < partLen; i++ {
		m, err := c.el.Decode(src[n:], &v.els[i])
		if err != nil {
			return n, err
		}
		n += m
	}
	return n, nil
}

func (c partCodec[E]) Copy(dst, src *listPart[E]) {
	dst.gone = src.gone
	for i := int(src.gone); i < partLen; i++ {
		c.el.Copy(&dst.els[i], &src.els[i])
	}
}

func (c partCodec[E]) Schema() codec.Schema {
	return codec.Schema{Codec: "list-part", Version: 1, Shape: c.el.Schema().String()}
}

// Evolve reads what was made of older values.
func (c partCodec[E]) Evolve(old codec.Schema) (_ codec.Codec[listPart[E]], err error) {
	if c.el, err = evolvePart(c.el, old, c.Schema()); err != nil {
		return nil, err
	}
	return c, nil
}

// itemCodec encodes an itemKey as the key, the list in zigzag varint form, and the part as a varint.
type itemCodec[K comparable] struct{ key codec.Codec[K] }

func (c itemCodec[K]) Append(dst []byte, v *itemKey[K]) ([]byte, error) {
	dst, err := c.key.Append(dst, &v.Key)
	if err != nil {
		return dst, err
	}
	return binary.AppendUvarint(binary.AppendVarint(dst, v.List), uint64(v.Part)), nil
}

func (c itemCodec[K]) Decode(src []byte, v *itemKey[K]) (int, error) {
	n, err := c.key.Decode(src, &v.Key)
	if err != nil {
		return n, err
	}
	list, m := binary.Varint(src[n:])
	if m <= 0 {
		return n, fmt.Errorf("the number of a list at byte %d is cut short", n)
	}
	n += m
	part, m := binary.Uvarint(src[n:])
	if m <= 0 || part > math.MaxInt64 {
		return n, fmt.Errorf("the number of a list's part at byte %d is none", n)
	}
	v.List, v.Part = list, int64(part)
	return n + m, nil
}

func (c itemCodec[K]) Copy(dst, src *itemKey[K]) {
	c.key.Copy(&dst.Key, &src.Key)
	dst.List, dst.Part = src.List, src.Part
}

func (c itemCodec[K]) Schema() codec.Schema {
	return codec.Schema{Codec: "list-item", Version: 1, Shape: c.key.Schema().String()}
}

// owner makes values the state's own.
type owner[V any] struct{ copy func(dst, src *V) }

// newOwner makes an owner that copies what user code might still change: strings it shares.
func newOwner[V any](c codec.Codec[V]) owner[V] {
	if immutable(reflect.TypeFor[V]()) {
		return owner[V]{}
	}
	return owner[V]{codec.Sharing(c)}
}

func (o owner[V]) put(dst, src *V) {
	if o.copy == nil {
		*dst = *src
		return
	}
	var v V
	o.copy(&v, src)
	*dst = v
}

// immutable tells whether values of t point to nothing but strings.
func immutable(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String:
		return true
	case reflect.Array:
		return t.Len() == 0 || immutable(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !immutable(t.Field(i).Type) {
				return false
			}
		}
		return true
	default:
		return !record.HasPointers(t)
	}
}
