package pebble

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/cairnstream/cairn/job"
)

// An entry stays in the encoding that it was written in, and is read by it. But a program knows the names that fields have had only
// as far back as its author has kept the aliases, so entries must not fall behind by more than one type: those of an older one are
// rewritten between batches, and until that is done the next change of the type is refused.

// rewriteStep is how many entries are looked at between two batches.
const rewriteStep = 512

// rewriteAtOnce is how many entries of a state are rewritten before the first record: a part of a second. A variable for tests
// with few entries.
var rewriteAtOnce int64 = 200_000

// rewrite has some entries of older schemas written anew; it tells whether more may be left.
func (s *state) rewrite() bool {
	if !s.stale {
		return false
	}
	var keys []unsafe.Pointer // A step's, rare enough.
	looked := 0
	done := s.eachFrom(s.b.p.Groups, s.redo, func(_ int, k, v []byte) bool {
		if looked == rewriteStep {
			s.redo = append(s.redo[:0], s.at...)
			return false
		}
		if looked++; len(v) > 0 && v[0]&^agedFlag != s.now {
			s.decodeKey(k)
			key := reflect.New(s.cache.Key.Type)
			key.Elem().Set(reflect.NewAt(s.cache.Key.Type, s.keyOf).Elem())
			keys = append(keys, key.UnsafePointer())
		}
		return true
	})
	for _, k := range keys {
		s.cache.Rewrite(k)
	}
	s.stale = !done // What the tree still has is in the cache too, and is written by the next snapshot at the latest.
	return s.stale
}

// inUse are the schemas of entries as a snapshot has them: "" in the place of one that no entry is of.
func (s *state) inUse() []string {
	out := make([]string, len(s.schemas))
	for i, text := range s.schemas {
		if s.stale || i == int(s.now) {
			out[i] = text
		}
	}
	return out
}

// behind refuses a change of type when entries are of an older one than the last.
func behind(operator string, t *treeState, h job.StateHandle, now string) error {
	for _, text := range t.schemas {
		if text != "" && text != h.Codec && now != h.Codec {
			return &job.Error{Class: job.ClassRefused, Err: fmt.Errorf(
				"operator %q, state %q: some entries have not yet been rewritten from the type %s, which is older than that of the program "+
					"before, %s: run that program, which rewrites them as it runs, until a checkpoint is taken after that, and then this one",
				operator, h.Name, text, h.Codec)}
		}
	}
	return nil
}
