package sealed

// KeysForTest are the keys of s.
func (s *Store) KeysForTest() Keys { return s.keys }
