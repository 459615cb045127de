package operator

const topState = "top"

// TopN declares the state of a keyed top-n and returns its handler. It keeps the n best records of each
// key, where better tells whether a is better than b, and emits an update for each rank whose record
// changed: of those with one key and rank the last one counts. Ranks begin at 1, and f makes what is
// emitted of one. Of equal records the first one ranks higher.
func TopN[K comparable, T, U any](s *States[K], n int, better func(a, b *T) bool, f func(rank int, row *T) U, ttl ...TTL) Handler[K, T, U] {
	top := s.Lists[T](topState, ttl...)
	return Handler[K, T, U]{Record: func(c *KeyedContext[K, U], in *T) {
		from, to := rank(top, 0, n, better, in)
		for i := from; i < to; i++ {
			c.Emit(f(i+1, top.At(0, i)))
		}
	}}
}

// TopNWindow is TopN for each window of event time: the n best are emitted when it is complete, each once.
// assign gives the window of a time: its start, and its end, which is not part of it.
func TopNWindow[K comparable, T, U any](s *States[K], n int, better func(a, b *T) bool, f func(rank int, row *T) U, assign func(time int64) (start, end int64)) Handler[K, T, U] {
	top := s.Lists[T](topState)
	return Handler[K, T, U]{
		Record: func(c *KeyedContext[K, U], in *T) {
			_, end := assign(c.Time())
			if end-1 <= c.Watermark() {
				c.CountLate()
				return
			}
			if from, to := rank(top, end-1, n, better, in); from == 0 && to == 1 {
				c.SetTimer(end - 1)
			}
		},
		Timer: func(c *KeyedContext[K, U]) {
			for i, row := range top.All(c.Time()) {
				c.Emit(f(i+1, row))
			}
			top.Clear(c.Time())
		},
	}
}

// rank puts in into a list of the n best, best first. The records from..to-1 are in another place than
// before.
func rank[T any](top *ListsState[T], list int64, n int, better func(a, b *T) bool, in *T) (from, to int) {
	k := top.Len(list)
	i := k
	for i > 0 && better(in, top.At(list, i-1)) {
		i--
	}
	if i >= n {
		return 0, 0
	}
	if k < n {
		top.Append(list, in)
		k++
	}
	for j := k - 1; j > i; j-- {
		row := *top.At(list, j-1)
		top.Set(list, j, &row)
	}
	top.Set(list, i, in)
	return i, k
}
