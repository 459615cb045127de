package dedup

import "github.com/cairnstream/cairn/operator"

const state = "seen"

// First declares the state of a deduplication and returns its handler, which passes on the first record of
// each key and drops the others. With a TTL, whose age is counted from that first record, the next one
// behind it counts as the first again.
func First[K comparable, T any](s *operator.States[K], ttl ...operator.TTL) operator.Handler[K, T, T] {
	for i := range ttl {
		ttl[i].On = operator.OnCreate
	}
	seen := s.Value[bool](state, ttl...)
	return operator.Handler[K, T, T]{Record: func(c *operator.KeyedContext[K, T], in *T) {
		if v, created := seen.RefNew(); created {
			*v = true
			c.Emit(*in)
		}
	}}
}

// Last declares the state of a deduplication and returns its handler, which passes on each record that is
// the last one of its key so far: newer tells whether a comes after b. What it emits are updates, of
// which the last one for a key counts. Of records of which none is newer the first one stays.
func Last[K comparable, T any](s *operator.States[K], newer func(a, b *T) bool, ttl ...operator.TTL) operator.Handler[K, T, T] {
	last := s.Value[T](state, ttl...)
	return operator.Handler[K, T, T]{Record: func(c *operator.KeyedContext[K, T], in *T) {
		if p := last.Peek(); p != nil && !newer(in, p) {
			return
		}
		// Records are never changed, and this state is replaced as a whole: it may share their memory.
		*last.Ref() = *in
		c.Emit(*in)
	}}
}
