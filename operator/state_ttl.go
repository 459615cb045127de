package operator

import (
	"fmt"
	"math"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/statebackend"
)

// TTL is how long the entries of a state live, in processing time. An entry that is older is never
// seen again, and its memory is given back without its key being met again. The clock is read once
// per batch.
type TTL struct {
	After time.Duration // At least a millisecond.
	On    TTLOn
}

// TTLOn says what an entry's age is counted from.
type TTLOn int

// The policies of TTL.
const (
	OnWrite        TTLOn = iota // From its last change.
	OnCreate                    // From its creation.
	OnReadAndWrite              // From its last use.
)

// Validate says what is wrong with t.
func (t TTL) Validate() error {
	switch {
	case t.After < time.Millisecond:
		return fmt.Errorf("TTL of %v: want at least 1ms", t.After)
	case t.On < OnWrite || t.On > OnReadAndWrite:
		return fmt.Errorf("TTL with unknown policy %d", t.On)
	}
	return nil
}

// aging looks after the states of an operator whose entries expire.
type aging struct {
	clock  func() time.Time
	now    int64 // Milliseconds since 1970. Never goes back.
	states []sweeper
}

// sweeper is a state with entries that expire.
type sweeper interface {
	// rebuild makes the index from the restored state.
	rebuild()
	// sweep looks at up to limit entries that may have expired; it tells whether more are waiting.
	sweep(limit int) (more bool)
	// tick is the time between two runs of sweep that find something.
	tick() time.Duration
}

// sweepRun is how many entries are looked at between two batches: well below a millisecond's work.
const sweepRun = 256

// look reads the clock.
func (a *aging) look() {
	if len(a.states) > 0 {
		a.now = max(a.now, a.clock().UnixMilli())
	}
}

// sweep gives back some of what has expired.
func (a *aging) sweep() (more bool) {
	for _, s := range a.states {
		more = s.sweep(sweepRun) || more
	}
	return more
}

func (a *aging) rebuild() {
	a.look()
	for _, s := range a.states {
		s.rebuild()
	}
}

// tick is how often to sweep when no records come; 0 for never.
func (a *aging) tick() (d time.Duration) {
	for _, s := range a.states {
		if t := s.tick(); d == 0 || t < d {
			d = t
		}
	}
	return d
}

// aged is a value with the time that its age is counted from, and the place of its key in the index.
// The place is not part of a snapshot.
type aged[V any] struct {
	val  V
	from int64 // Milliseconds since 1970.
	at   indexPlace
}

// indexPlace is where an expiry index has a key.
type indexPlace struct{ bucket, pos uint32 }

// agedName is the name of the codec of aged values.
const agedName = "aged"

// agedCodec encodes an aged value as 8 bytes of time and the value.
type agedCodec[V any] struct{ val codec.Codec[V] }

func (c agedCodec[V]) Append(dst []byte, v *aged[V]) ([]byte, error) {
	dst, err := codec.Int64().Append(dst, &v.from)
	if err != nil {
		return dst, err
	}
	return c.val.Append(dst, &v.val)
}

func (c agedCodec[V]) Decode(src []byte, v *aged[V]) (int, error) {
	n, err := codec.Int64().Decode(src, &v.from)
	if err != nil {
		return n, err
	}
	m, err := c.val.Decode(src[n:], &v.val)
	return n + m, err
}

func (c agedCodec[V]) Copy(dst, src *aged[V]) {
	c.val.Copy(&dst.val, &src.val)
	dst.from, dst.at = src.from, src.at
}

func (c agedCodec[V]) Schema() codec.Schema {
	return codec.Schema{Codec: agedName, Version: 1, Shape: c.val.Schema().String()}
}

// Evolve reads what was made of older values.
func (c agedCodec[V]) Evolve(old codec.Schema) (_ codec.Codec[aged[V]], err error) {
	if c.val, err = evolvePart(c.val, old, c.Schema()); err != nil {
		return nil, err
	}
	return c, nil
}

// expiry is an index of keys by the time when they may expire, in coarse buckets. Each key of the
// table that it belongs to is in it once; the table's value knows where, so that a key that is removed
// leaves at once. A key whose age began anew stays where it is until its bucket is due, and moves then.
type expiry[X comparable] struct {
	after   int64 // Milliseconds.
	width   int64 // Of a bucket.
	buckets map[uint32]*[]indexed[X]
	order   timeHeap // The buckets that there are.
	free    []*[]indexed[X]
	// place stores where a key of the table is now.
	place func(e *indexed[X], at indexPlace)
}

// indexed is a key with its place in the table.
type indexed[X comparable] struct {
	key         X
	group, slot uint64
}

// newExpiry makes buckets of a sixteenth of the time to live, a second at least.
func newExpiry[X comparable](t TTL, place func(*indexed[X], indexPlace)) expiry[X] {
	after := t.After.Milliseconds()
	return expiry[X]{after: after, width: (max(after/16, 1) + 999) / 1000 * 1000, buckets: map[uint32]*[]indexed[X]{}, place: place}
}

func (x *expiry[X]) tick() time.Duration { return time.Duration(x.width) * time.Millisecond }

func (x *expiry[X]) expired(from, now int64) bool { return now-from >= x.after }

// bucketOf is the bucket of what expires first when its age is counted from that time. It is due when
// all of it can have expired.
func (x *expiry[X]) bucketOf(from int64) uint32 {
	return uint32(min(max((from+x.after+x.width-1)/x.width, 0), math.MaxUint32))
}

// add puts a key in and returns its place, which the caller stores.
func (x *expiry[X]) add(key X, group, slot uint64, from int64) indexPlace {
	n := x.bucketOf(from)
	b := x.buckets[n]
	if b == nil {
		if k := len(x.free); k > 0 {
			b, x.free = x.free[k-1], x.free[:k-1]
		} else {
			b = &[]indexed[X]{}
		}
		x.buckets[n] = b
		x.order.push(int64(n))
	}
	*b = append(*b, indexed[X]{key, group, slot})
	return indexPlace{n, uint32(len(*b) - 1)}
}

// remove takes out the key at that place. The last one of the bucket takes its place.
func (x *expiry[X]) remove(at indexPlace) {
	b := x.buckets[at.bucket]
	last := len(*b) - 1
	if int(at.pos) != last {
		(*b)[at.pos] = (*b)[last]
		x.place(&(*b)[at.pos], at)
	}
	(*b)[last] = indexed[X]{}
	*b = (*b)[:last]
}

// due returns the last key of the first bucket that is due.
func (x *expiry[X]) due(now int64) (indexed[X], bool) {
	for len(x.order) > 0 && x.order[0]*x.width <= now {
		n := uint32(x.order[0])
		b := x.buckets[n]
		if k := len(*b); k > 0 {
			return (*b)[k-1], true
		}
		x.order.pop()
		delete(x.buckets, n)
		if len(x.free) < 4 {
			x.free = append(x.free, b)
		}
	}
	return indexed[X]{}, false
}

// placeAll stores where every key is.
func (x *expiry[X]) placeAll() {
	for n, b := range x.buckets {
		for i := range *b {
			x.place(&(*b)[i], indexPlace{n, uint32(i)})
		}
	}
}

// agedTable is a table whose entries expire.
type agedTable[X comparable, V any] struct {
	t     statebackend.Value[X, aged[V]]
	on    TTLOn
	aging *aging
	index expiry[X]
	hash  func(*X) (group, slot uint64)
	// forget is called before an expired entry is swept away, or nil. It may change values of the table.
	forget func(e *indexed[X], v *V)
	// reset makes an expired value as good as new; nil for the zero V.
	reset func(v *V)
	// finds is the table if it finds by itself what may have expired: then the index is empty.
	finds statebackend.Expiring[X]
	found []X
	round int64 // When the next search begins.
}

func newAgedTable[X comparable, V any](t statebackend.Value[X, aged[V]], ttl TTL, a *aging, hash func(*X) (uint64, uint64)) *agedTable[X, V] {
	x := &agedTable[X, V]{t: t, on: ttl.On, aging: a, hash: hash}
	if f, ok := t.(statebackend.Expiring[X]); ok && f.Aging() {
		x.finds = f
	}
	x.index = newExpiry(ttl, func(e *indexed[X], at indexPlace) {
		v, _ := t.Upsert(e.group, e.slot, &e.key)
		v.at = at
	})
	a.states = append(a.states, x)
	return x
}

// live returns the value of key for reading, or nil.
func (x *agedTable[X, V]) live(group, slot uint64, key *X) *V {
	v := x.t.Get(group, slot, key)
	if v == nil || x.index.expired(v.from, x.aging.now) {
		return nil
	}
	if x.on == OnReadAndWrite && v.from != x.aging.now {
		v, _ = x.t.Upsert(group, slot, key)
		v.from = x.aging.now
	}
	return &v.val
}

// unexpired is live without making the value any younger.
func (x *agedTable[X, V]) unexpired(group, slot uint64, key *X) *V {
	v := x.t.Get(group, slot, key)
	if v == nil || x.index.expired(v.from, x.aging.now) {
		return nil
	}
	return &v.val
}

func (x *agedTable[X, V]) peek(group, slot uint64, key *X) *V {
	if v := x.t.Get(group, slot, key); v != nil {
		return &v.val
	}
	return nil
}

func (x *agedTable[X, V]) own(group, slot uint64, key *X) *V {
	v, _ := x.t.Upsert(group, slot, key)
	return &v.val
}

// put returns the value of key for changing: fresh when it is new and zero for the user, inserted when
// it was not in the table.
func (x *agedTable[X, V]) put(group, slot uint64, key *X) (p *V, fresh, inserted bool) {
	v, inserted := x.t.Upsert(group, slot, key)
	now := x.aging.now
	switch {
	case inserted:
		fresh = true
		v.from = now
		if x.finds == nil {
			v.at = x.index.add(*key, group, slot, now)
		}
	case x.index.expired(v.from, now):
		fresh = true
		v.from = now // Its place in the index is early, no more.
		if x.reset != nil {
			x.reset(&v.val)
		} else {
			var zero V
			v.val = zero
		}
	case x.on != OnCreate:
		v.from = now
	}
	return &v.val, fresh, inserted
}

// remove removes key; it tells whether there was a value that had not expired.
func (x *agedTable[X, V]) remove(group, slot uint64, key *X) bool {
	v := x.t.Get(group, slot, key)
	if v == nil {
		return false
	}
	live := !x.index.expired(v.from, x.aging.now)
	if x.finds == nil {
		x.index.remove(v.at)
	}
	x.t.Delete(group, slot, key)
	return live
}

func (x *agedTable[X, V]) rebuild() {
	if x.finds != nil {
		x.aging.now = max(x.aging.now, x.finds.Newest())
		return
	}
	for k, v := range x.t.All() {
		group, slot := x.hash(k)
		x.index.add(*k, group, slot, v.from)
		x.aging.now = max(x.aging.now, v.from)
	}
	x.index.placeAll()
}

func (x *agedTable[X, V]) sweep(limit int) bool {
	if x.finds != nil {
		return x.search(limit)
	}
	for range limit {
		e, ok := x.index.due(x.aging.now)
		if !ok {
			return false
		}
		v := x.t.Get(e.group, e.slot, &e.key)
		if from := v.from; !x.index.expired(from, x.aging.now) {
			x.index.remove(v.at)
			x.index.place(&e, x.index.add(e.key, e.group, e.slot, from))
			continue
		}
		if x.forget != nil {
			val := v.val
			x.forget(&e, &val)
		}
		x.remove(e.group, e.slot, &e.key)
	}
	_, more := x.index.due(x.aging.now)
	return more
}

// search is sweep for a table that finds what may have expired.
func (x *agedTable[X, V]) search(limit int) (more bool) {
	now := x.aging.now
	if now < x.round {
		return false
	}
	x.found = x.found[:0]
	more = x.finds.Old(now-x.index.after+1, limit, func(k *X) { x.found = append(x.found, *k) })
	for i := range x.found {
		e := indexed[X]{key: x.found[i]}
		e.group, e.slot = x.hash(&e.key)
		v := x.t.Get(e.group, e.slot, &e.key)
		if v == nil || !x.index.expired(v.from, now) {
			continue // It changed since it was stored.
		}
		if x.forget != nil {
			val := v.val
			x.forget(&e, &val)
		}
		x.remove(e.group, e.slot, &e.key)
	}
	clear(x.found)
	x.round = now + searchPause
	if !more {
		x.round = now + max(x.index.after/2, x.index.width)
	}
	return more
}

// searchPause is the least time between two steps of a search, in milliseconds: it reads all entries of a state.
const searchPause = 10

func (x *agedTable[X, V]) tick() time.Duration { return x.index.tick() }
