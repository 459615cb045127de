package join

import "github.com/cairnstream/cairn/operator"

const versionState = "versions"

// Temporal declares the states of a join with a versioned table and returns its handler. The records of
// the second stream are versions of the row of their key, each from its own time on. f is called for
// each record a with the newest version whose time is not after a's, once the watermark has reached a's
// time, so that no version is missed; of several versions with one time the last one that came
// counts. A record older than all versions is joined with nil when kind is Left, else it is dropped.
// What f returns has the time of a. The arguments are read-only and valid during the call.
//
// For each key the newest version that the watermark has passed is kept, and all newer ones.
func Temporal[K comparable, A, B, U any](s *operator.States[K], kind Kind, f func(a *A, version *B) U, ttl ...operator.TTL) operator.CoHandler[K, A, B, U] {
	waiting := s.Lists[A](leftState)
	versions := s.List[timed[B]](versionState, ttl...)
	// at finds the newest version at time t, or -1. The list is in the order of time.
	at := func(t int64) int {
		i := versions.Len() - 1
		for i >= 0 && versions.At(i).At > t {
			i--
		}
		return i
	}
	return operator.CoHandler[K, A, B, U]{
		Left: func(c *operator.KeyedContext[K, U], a *A) {
			t := c.Time()
			needTime(t)
			if t <= c.Watermark() {
				c.CountLate()
				return
			}
			if waiting.Append(t, a) {
				c.SetTimer(t)
			}
		},
		Right: func(c *operator.KeyedContext[K, U], b *B) {
			t := c.Time()
			needTime(t)
			if old := at(c.Watermark()); old > 0 {
				versions.RemoveFirst(old) // Nothing that is yet to come asks for them.
			}
			v := timed[B]{t, *b}
			i := versions.Len()
			versions.Append(&v)
			for ; i > 0 && versions.At(i-1).At > t; i-- {
				later := *versions.At(i - 1)
				versions.Set(i, &later)
			}
			if i < versions.Len()-1 {
				versions.Set(i, &v)
			}
		},
		Timer: func(c *operator.KeyedContext[K, U]) {
			t := c.Time()
			var row *B
			if i := at(t); i >= 0 {
				v := versions.At(i).Row
				row = &v
			}
			if row != nil || kind == Left {
				for _, a := range waiting.All(t) {
					c.Emit(f(a, row))
				}
			}
			waiting.Clear(t)
		},
	}
}
