package pebble

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// An entry's key in the tree is two bytes of key group, high byte first, the number of its state, and the encoded key.
const prefixLen = 3

func appendPrefix(dst []byte, group int, id byte) []byte {
	return append(dst, byte(group>>8), byte(group), id)
}

// state is one state of a backend: the statebackend.Store below its cache.
type state struct {
	b     *Backend
	t     statebackend.Type
	name  string
	id    byte // Its number in the tree.
	cache *statebackend.Cache
	// schemas are the texts of those under which entries of the tree may be encoded; now is the number of the present one.
	schemas []string
	now     byte
	// decode are the decoders of values of those schemas.
	decode []statebackend.Decoder
	counts []int64 // Entries by key group, from the subtask's first.
	n      int64
	size   float64 // Bytes of an encoded entry, about: what those written of late had.

	stale  bool   // Entries of the tree may be of other schemas than the present one.
	redo   []byte // The key where rewriting those goes on; empty for the first.
	walks  int    // Walks over the cache that are going on.
	newest int64  // Of a state whose values age: the latest time that the tree has of them.
	resume []byte // The key where the search for old entries goes on; empty for the first.
	at     []byte // The key that a walk is at.

	keyOf  unsafe.Pointer // Storage of a key and a value, for visits.
	valOf  unsafe.Pointer
	keyBuf []byte
}

var _ statebackend.Store = (*state)(nil)

// Len implements statebackend.Store.
func (s *state) Len() int { return int(s.n) }

// Count implements statebackend.Store.
func (s *state) Count(group uint64, n int) {
	s.counts[int(group%uint64(s.b.p.K))-s.b.p.Groups.First] += int64(n)
	s.n += int64(n)
}

// Room implements statebackend.Store.
func (s *state) Room() { s.b.room(s) }

// Walk implements statebackend.Store.
func (s *state) Walk(begin bool) {
	if begin {
		s.walks++
	} else {
		s.walks--
	}
}

// key encodes a key as the tree has it.
func (s *state) key(group uint64, key unsafe.Pointer) []byte {
	k, err := s.cache.Key.Append(appendPrefix(s.keyBuf[:0], int(group%uint64(s.b.p.K)), s.id), key)
	if err != nil {
		s.b.fault(fmt.Errorf("state %q: encode a key: %w", s.name, err))
	}
	s.keyBuf = k
	return k
}

// seek finds the value of a key in the tree. It is valid until the next use of the tree.
func (s *state) seek(group uint64, key unsafe.Pointer) ([]byte, bool) {
	s.b.stillGood()
	if s.b.tree.empty {
		return nil, false
	}
	return s.b.tree.get(s.key(group, key))
}

// Find implements statebackend.Store.
func (s *state) Find(group uint64, key, into unsafe.Pointer) bool {
	v, ok := s.seek(group, key)
	if ok {
		s.decodeValue(v, into)
	}
	return ok
}

// Has implements statebackend.Store.
func (s *state) Has(group uint64, key unsafe.Pointer) bool {
	_, ok := s.seek(group, key)
	return ok
}

func (s *state) decodeValue(v []byte, into unsafe.Pointer) {
	if err := s.tryDecode(v, into); err != nil {
		s.b.fault(fmt.Errorf("state %q: %w: a value of the local tree: %w", s.name, statebackend.ErrCorrupt, err))
	}
}

func (s *state) tryDecode(v []byte, into unsafe.Pointer) error {
	if len(v) == 0 {
		return fmt.Errorf("it has no bytes")
	}
	schema := int(v[0] &^ agedFlag)
	if schema >= len(s.decode) || s.decode[schema] == nil {
		return fmt.Errorf("it was written under schema %d of %d", schema, len(s.decode))
	}
	n, err := s.decode[schema](v[1:], into)
	if err == nil && n != len(v)-1 {
		err = fmt.Errorf("%d bytes of it are left over", len(v)-1-n)
	}
	return err
}

// tag is the byte that values written now begin with.
func (s *state) tag() byte {
	tag := s.now
	if s.cache.Aged {
		tag |= agedFlag
	}
	return tag
}

// Each implements statebackend.Store.
func (s *state) Each(visit func(key, value unsafe.Pointer) bool) {
	s.eachIn(s.b.p.Groups, func(_ int, k, v []byte) bool {
		s.decodeKey(k)
		reflect.NewAt(s.cache.Value.Type, s.valOf).Elem().SetZero()
		s.decodeValue(v, s.valOf)
		return visit(s.keyOf, s.valOf)
	})
}

// decodeKey decodes a key of the tree to keyOf.
func (s *state) decodeKey(k []byte) {
	reflect.NewAt(s.cache.Key.Type, s.keyOf).Elem().SetZero()
	if n, err := s.cache.Key.Decode(k, s.keyOf); err != nil || n != len(k) {
		s.b.fault(fmt.Errorf("state %q: %w: a key of the local tree: %d of %d bytes: %w", s.name, statebackend.ErrCorrupt, n, len(k), err))
	}
}

// eachIn visits the encoded keys and values that the tree has of the state in key groups, one group after the other.
func (s *state) eachIn(g job.GroupRange, visit func(group int, key, value []byte) bool) {
	s.eachFrom(g, nil, visit)
}

// eachFrom is eachIn from a key of the tree on, if there is one. It tells whether it came to the end.
func (s *state) eachFrom(g job.GroupRange, from []byte, visit func(group int, key, value []byte) bool) bool {
	if s.b.tree.empty || g.Len() == 0 {
		return true
	}
	it := s.b.tree.iterator(&pebbledb.IterOptions{
		LowerBound: appendPrefix(nil, g.First, 0), UpperBound: appendPrefix(nil, g.Last+1, 0),
	})
	defer it.Close()
	if len(from) == 0 {
		from = appendPrefix(nil, g.First, s.id)
	}
	for ok := it.SeekGE(from); ok; {
		k := it.Key()
		s.at = k
		at := int(binary.BigEndian.Uint16(k))
		switch {
		case k[2] == s.id:
			v, err := it.ValueAndErr()
			if err != nil {
				s.b.fault(err)
			}
			if !visit(at, k[prefixLen:], v) {
				return false
			}
			ok = it.Next()
		case k[2] < s.id:
			ok = it.SeekGE(appendPrefix(nil, at, s.id))
		default:
			if at == g.Last {
				return true
			}
			ok = it.SeekGE(appendPrefix(nil, at+1, s.id))
		}
	}
	if err := it.Error(); err != nil {
		s.b.fault(err)
	}
	return true
}

// open makes the cache of a state without entries.
func (b *Backend) open(t statebackend.Type) (*state, error) {
	s := &state{b: b, t: t, name: t.StateName(), counts: make([]int64, b.p.Groups.Len())}
	if b.restore == nil || b.restore.trees[s.name] == nil { // Else it has its number already: they are not used up by restarts.
		if err := b.number(s); err != nil {
			return nil, err
		}
	}
	c, err := t.NewCache(statebackend.TableParams{
		First: b.p.Groups.First, Count: b.p.Groups.Len(), K: b.p.K, MaxFrozen: b.p.MaxConcurrent + 4,
		Operator: b.p.Operator, MaxValue: b.p.MaxValue,
	}, s)
	if err != nil {
		return nil, err
	}
	s.cache = c
	s.keyOf, s.valOf = reflect.New(c.Key.Type).UnsafePointer(), reflect.New(c.Value.Type).UnsafePointer()
	c.Limit = firstRoom
	_, value := t.Schemas()
	s.now, err = s.addSchema(value)
	return s, err
}

// addSchema makes text one of the schemas that entries of the tree may be of and returns its number.
func (s *state) addSchema(text string) (byte, error) {
	if i := slices.Index(s.schemas, text); i >= 0 {
		return byte(i), nil
	}
	if len(s.schemas) == maxSchemas {
		return 0, &job.Error{Class: job.ClassRefused, Err: fmt.Errorf(
			"operator %q, state %q: its entries are of %d schemas already, which is the limit: run the version before until all are rewritten",
			s.b.p.Operator, s.name, maxSchemas)}
	}
	key, _ := s.t.Schemas()
	d, err := statebackend.Evolve(s.t, s.b.p.Operator, key, text)
	if err != nil {
		return 0, err
	}
	if d == nil {
		d = s.cache.Value.Decode
	}
	s.schemas, s.decode = append(slices.Clip(s.schemas), text), append(s.decode, d)
	return byte(len(s.schemas) - 1), nil
}

// adopt takes what a restore brought into the tree as the content of a state that has none.
func (s *state) adopt(old *treeState) error {
	s.id, s.schemas, s.decode = old.id, nil, nil
	for _, text := range old.schemas {
		if text == "" { // No entry is of it any more.
			s.schemas, s.decode = append(s.schemas, ""), append(s.decode, nil)
			continue
		}
		if _, err := s.addSchema(text); err != nil {
			return err
		}
	}
	_, value := s.t.Schemas()
	var err error
	if s.now, err = s.addSchema(value); err != nil {
		return err
	}
	for i, text := range s.schemas {
		s.stale = s.stale || text != "" && i != int(s.now)
	}
	s.newest = max(s.newest, old.newest)
	for i, n := range old.counts {
		if g := s.b.p.Groups; g.Contains(old.first + i) {
			s.counts[old.first+i-g.First] += n
			s.n += n
		}
	}
	return nil
}

// check compares schemas.
func (s *state) check(key string, schemas []string) error {
	return checkSchemas(s.t, s.b.p.Operator, key, schemas)
}

// checkSchemas tells whether t reads values of those schemas; the empty ones are of none.
func checkSchemas(t statebackend.Type, operator, key string, schemas []string) error {
	for _, text := range schemas {
		if text == "" {
			continue
		}
		if _, err := statebackend.Evolve(t, operator, key, text); err != nil {
			return err
		}
	}
	return nil
}

// checkTree tells whether t reads the entries of a state in a tree.
func checkTree(t statebackend.Type, operator string, s *treeState, h job.StateHandle) error {
	if err := checkSchemas(t, operator, h.Key, s.schemas); err != nil {
		return err
	}
	_, value := t.Schemas()
	return behind(operator, s, h, value)
}

const maxStates = 255

// number gives a state a number that was never used in the tree: there may be entries of states that were given up.
func (b *Backend) number(s *state) error {
	if b.nextID == maxStates {
		return fmt.Errorf("it is one too many: there were %d states, those of a map or a list counted twice, which is the limit", maxStates)
	}
	s.id = byte(b.nextID)
	b.nextID++
	return nil
}

// tree is the LSM tree as its owner reads it.
type tree struct {
	b     *Backend
	db    *pebbledb.DB
	files files
	empty bool // Nothing was ever written.
}

// get finds the value of a key. It is valid until the next call.
func (t *tree) get(key []byte) ([]byte, bool) {
	if err := t.b.troubles.err(); err != nil {
		t.b.fault(err)
	}
	v, ok, err := t.files.get(t, key)
	if err != nil {
		t.b.fault(err)
	}
	return v, ok
}

func (t *tree) iterator(o *pebbledb.IterOptions) *pebbledb.Iterator {
	if err := t.b.troubles.err(); err != nil {
		t.b.fault(err)
	}
	it, err := t.db.NewIter(o)
	if err != nil {
		t.b.fault(err)
	}
	return it
}

// renew has the next read see what was written since the last one.
func (t *tree) renew() { t.files.listed = false }
