package operator

import (
	"reflect"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/statebackend"
)

// States declares the states of a keyed operator. The operator's constructor calls Value, List and so
// on, once when the job is built and once for each subtask.
//
// Each state may be given a TTL. A state with one encodes its entries differently, so that adding or
// removing it later makes a new state of it; another time or policy does not.
type States[K comparable] struct {
	declarations
	key codec.Codec[K]
	// Of a running subtask:
	backend statebackend.Backend
	hash    func(*K) uint64
	cur     *cursor[K]
	aging   aging
	ahead   []statebackend.Ahead // Tables by the user's key that are one.
	shared  *operatorState       // Broadcast states; nil for an operator without a broadcast side.
}

// cursor is the key that the operator is at.
type cursor[K comparable] struct {
	key  *K
	hash uint64
}

// NewStates makes a States that only collects declarations.
func NewStates[K comparable](key codec.Codec[K]) *States[K] { return &States[K]{key: key} }

// ttl checks the options of a state, of which there is at most one.
func (s *States[K]) ttl(name string, list []TTL) (TTL, bool) {
	if len(list) == 0 {
		return TTL{}, false
	}
	if len(list) > 1 {
		s.bad("state %q: %d TTLs", name, len(list))
	}
	if err := list[0].Validate(); err != nil {
		s.bad("state %q: %v", name, err)
		list[0].After = time.Hour
	}
	return list[0], true
}

// defaultCodec is codec.Default, with a problem noted when there is none.
func (s *States[K]) defaultCodec[V any](name string) (codec.Codec[V], bool) {
	c, err := codec.Default[V]()
	if err != nil {
		s.bad("state %q: %v", name, err)
	}
	return c, err == nil
}

// openTable opens one table of a state. It is nil while the job is being built and after a problem.
func (s *States[K]) openTable[X comparable, V any](name string, kc codec.Codec[X], vc codec.Codec[V], hash func(*X) (group, slot uint64)) statebackend.Value[X, V] {
	if s.backend == nil {
		return nil
	}
	if immutable(reflect.TypeFor[V]()) {
		vc = sharing[V]{vc}
	}
	v, err := statebackend.OpenValue(s.backend, statebackend.ValueDesc[X, V]{Name: name, Key: kc, Value: vc, Hash: hash, Aged: vc.Schema().Codec == agedName})
	if err != nil {
		s.bad("%v", err)
		return nil
	}
	return v
}

// sharing is the codec of values that point to nothing but strings: a copy shares those.
type sharing[V any] struct{ codec.Codec[V] }

func (sharing[V]) Copy(dst, src *V) { *dst = *src }

// Evolve is that of the codec.
func (c sharing[V]) Evolve(old codec.Schema) (_ codec.Codec[V], err error) {
	if c.Codec, err = codec.Evolve(c.Codec, old); err != nil {
		return nil, err
	}
	return c, nil
}

// openKeyed is openTable for a table whose key is the user's key.
func (s *States[K]) openKeyed[V any](name string, vc codec.Codec[V]) statebackend.Value[K, V] {
	v := s.openTable(name, s.key, vc, s.keyHash)
	if a, ok := v.(statebackend.Ahead); ok {
		s.ahead = append(s.ahead, a)
	}
	return v
}

// keyHash places a table whose key is the user's key.
func (s *States[K]) keyHash(k *K) (group, slot uint64) {
	h := s.hash(k)
	return h, h
}

// open puts s to work for a subtask.
func (s *States[K]) open(c *Context, cur *cursor[K], hash func(*K) uint64, now *int64) {
	s.backend, s.cur, s.hash, s.now, s.side = c.State, cur, hash, now, c.Side
	s.aging.clock = c.Now
	if s.shared != nil {
		s.shared.open(c)
	}
}
