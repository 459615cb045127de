package operator

import (
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/statebackend"
)

// Value declares a state that holds one V per key, with the codec that codec.Default picks for V.
func (s *States[K]) Value[V any](name string, ttl ...TTL) *ValueState[V] {
	c, ok := s.defaultCodec[V](name)
	if !ok {
		return &ValueState[V]{}
	}
	return s.ValueWith(name, c, ttl...)
}

// ValueWith is Value with a codec of the caller's choice.
func (s *States[K]) ValueWith[V any](name string, c codec.Codec[V], ttl ...TTL) *ValueState[V] {
	return &ValueState[V]{at: s.valueOf(name, "value", c, ttl)}
}

func (s *States[K]) valueOf[V any](name, kind string, c codec.Codec[V], ttl []TTL) valueAt[V] {
	t, aging := s.ttl(name, ttl)
	if !aging {
		s.declare(name, kind, s.key.Schema().String(), c.Schema().String())
		if v := s.openKeyed(name, c); v != nil {
			return boundValue[K, V]{v, newOwner(c), s.cur}
		}
		return nil
	}
	ac := agedCodec[V]{c}
	s.declare(name, kind, s.key.Schema().String(), ac.Schema().String())
	if v := s.openKeyed(name, codec.Codec[aged[V]](ac)); v != nil {
		return agedValue[K, V]{newAgedTable(v, t, &s.aging, s.keyHash), newOwner(c), s.cur}
	}
	return nil
}

// valueAt is a state at the current key.
type valueAt[V any] interface {
	get() *V
	upsert() (v *V, fresh bool)
	set(*V)
	clear() bool
}

// ValueState holds one V for each key. Its methods work on the key of the record or timer being
// processed.
type ValueState[V any] struct{ at valueAt[V] }

// Get returns a copy of the value and whether there is one. What it points to is read-only.
func (s *ValueState[V]) Get() (v V, ok bool) {
	if p := s.at.get(); p != nil {
		return *p, true
	}
	return v, false
}

// Peek returns the value for reading, or nil when there is none. It is valid until the next use of
// any state: Get without the copy.
func (s *ValueState[V]) Peek() *V { return s.at.get() }

// Set stores a copy of v.
func (s *ValueState[V]) Set(v V) { s.at.set(&v) }

// Update gives f the value for changing in place, the zero V when there is none. The pointer is
// valid during the call.
func (s *ValueState[V]) Update(f func(v *V)) {
	p, _ := s.at.upsert()
	f(p)
}

// Ref returns the value for changing in place, created as the zero V when there is none. It is
// valid until the next use of any state, the cheapest way to read and write in one.
func (s *ValueState[V]) Ref() *V {
	p, _ := s.at.upsert()
	return p
}

// RefNew is Ref that tells whether the value was created.
func (s *ValueState[V]) RefNew() (v *V, created bool) { return s.at.upsert() }

// Clear removes the value; it tells whether there was one.
func (s *ValueState[V]) Clear() bool { return s.at.clear() }

type boundValue[K comparable, V any] struct {
	v   statebackend.Value[K, V]
	own owner[V]
	cur *cursor[K]
}

func (b boundValue[K, V]) get() *V            { return b.v.Get(b.cur.hash, b.cur.hash, b.cur.key) }
func (b boundValue[K, V]) upsert() (*V, bool) { return b.v.Upsert(b.cur.hash, b.cur.hash, b.cur.key) }
func (b boundValue[K, V]) set(v *V) {
	p, _ := b.upsert()
	b.own.put(p, v)
}
func (b boundValue[K, V]) clear() bool { return b.v.Delete(b.cur.hash, b.cur.hash, b.cur.key) }

// agedValue is a value that expires.
type agedValue[K comparable, V any] struct {
	t   *agedTable[K, V]
	own owner[V]
	cur *cursor[K]
}

func (b agedValue[K, V]) get() *V { return b.t.live(b.cur.hash, b.cur.hash, b.cur.key) }
func (b agedValue[K, V]) upsert() (*V, bool) {
	v, fresh, _ := b.t.put(b.cur.hash, b.cur.hash, b.cur.key)
	return v, fresh
}
func (b agedValue[K, V]) set(v *V) {
	p, _ := b.upsert()
	b.own.put(p, v)
}
func (b agedValue[K, V]) clear() bool { return b.t.remove(b.cur.hash, b.cur.hash, b.cur.key) }

// Reducing declares a state that folds the values added to a key into one by reduce, which changes
// into. The value of a key is the first that was added until there are two.
func (s *States[K]) Reducing[V any](name string, reduce func(into, v *V), ttl ...TTL) *ReducingState[V] {
	c, ok := s.defaultCodec[V](name)
	if !ok {
		return &ReducingState[V]{}
	}
	return &ReducingState[V]{ValueState[V]{s.valueOf(name, "reducing", c, ttl)}, reduce, newOwner(c)}
}

// ReducingState holds for each key what a function made of the values added.
type ReducingState[V any] struct {
	v      ValueState[V]
	reduce func(into, v *V)
	own    owner[V]
}

// Add folds v into the value of the current key.
func (s *ReducingState[V]) Add(v *V) {
	p, fresh := s.v.at.upsert()
	if fresh {
		s.own.put(p, v)
		return
	}
	s.reduce(p, v)
}

// Get returns the value and whether there is one.
func (s *ReducingState[V]) Get() (V, bool) { return s.v.Get() }

// Clear removes the value; it tells whether there was one.
func (s *ReducingState[V]) Clear() bool { return s.v.Clear() }

// Aggregation folds values of In into an Acc, of which it makes an Out.
type Aggregation[In, Acc, Out any] struct {
	Zero   func() Acc // nil for the zero Acc.
	Add    func(acc *Acc, in *In)
	Result func(acc *Acc) Out
}

// Aggregating declares a state that folds the values added to a key into an accumulator.
func (s *States[K]) Aggregating[In, Acc, Out any](name string, a Aggregation[In, Acc, Out], ttl ...TTL) *AggregatingState[In, Acc, Out] {
	if a.Add == nil || a.Result == nil {
		s.bad("state %q: an Aggregation needs Add and Result", name)
	}
	c, ok := s.defaultCodec[Acc](name)
	if !ok {
		return &AggregatingState[In, Acc, Out]{}
	}
	return &AggregatingState[In, Acc, Out]{ValueState[Acc]{s.valueOf(name, "aggregating", c, ttl)}, a}
}

// AggregatingState holds an accumulator for each key.
type AggregatingState[In, Acc, Out any] struct {
	v ValueState[Acc]
	a Aggregation[In, Acc, Out]
}

// Add folds in into the accumulator of the current key.
func (s *AggregatingState[In, Acc, Out]) Add(in *In) {
	p, fresh := s.v.at.upsert()
	if fresh && s.a.Zero != nil {
		*p = s.a.Zero()
	}
	s.a.Add(p, in)
}

// Get returns the result for the current key and whether anything was added.
func (s *AggregatingState[In, Acc, Out]) Get() (out Out, ok bool) {
	if p := s.v.at.get(); p != nil {
		return s.a.Result(p), true
	}
	return out, false
}

// Clear removes the accumulator; it tells whether there was one.
func (s *AggregatingState[In, Acc, Out]) Clear() bool { return s.v.Clear() }
