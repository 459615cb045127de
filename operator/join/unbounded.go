package join

import "github.com/cairnstream/cairn/operator"

// Unbounded declares the states of an inner join without bounds and returns its handler. f is called for
// each pair of one key when the later one comes; what it returns has that one's time. The arguments
// are read-only and valid during the call. Without a TTL every record is kept for ever.
func Unbounded[K comparable, A, B, U any](s *operator.States[K], f func(a *A, b *B) U, ttl ...operator.TTL) operator.CoHandler[K, A, B, U] {
	left, right := s.List[A](leftState, ttl...), s.List[B](rightState, ttl...)
	return operator.CoHandler[K, A, B, U]{
		Left: func(c *operator.KeyedContext[K, U], a *A) {
			left.Append(a)
			for _, b := range right.All() {
				c.Emit(f(a, b))
			}
		},
		Right: func(c *operator.KeyedContext[K, U], b *B) {
			right.Append(b)
			for _, a := range left.All() {
				c.Emit(f(a, b))
			}
		},
	}
}
