package pebble

import "unsafe"

// oldLimit is how many entries a search for old ones looks at in one call: well below a millisecond's work.
const oldLimit = 1024

// Old implements statebackend.Store. It reads all entries of the state: the library tells who collects properties of blocks
// nothing of values, by which blocks without old ones could be passed by.
func (s *state) Old(before int64, n int, visit func(key unsafe.Pointer)) (more bool) {
	looked := 0
	g := s.b.p.Groups
	done := s.eachFrom(g, s.resume, func(_ int, k, v []byte) bool {
		if n == 0 || looked == oldLimit {
			s.resume = append(s.resume[:0], s.at...)
			return false
		}
		looked++
		if age, ok := ageOf(v); ok && age < before {
			n--
			s.decodeKey(k)
			visit(s.keyOf)
		}
		return true
	})
	if done {
		s.resume = s.resume[:0]
	}
	return !done
}

// Newest implements statebackend.Store.
func (s *state) Newest() int64 { return s.newest }
