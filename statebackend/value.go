package statebackend

import (
	"iter"

	"github.com/cairnstream/cairn/codec"
)

// ValueDesc describes a state that holds one V per key.
//
// The position of a key has two parts: the hash of the user's key, whose remainder modulo the
// number of key groups is its group, and a slot hash that spreads keys inside the group. A state
// whose key is the user's key uses one hash for both; a state whose key is (user's key, window)
// mixes the window into the slot.
type ValueDesc[K comparable, V any] struct {
	Name  string
	Key   codec.Codec[K]
	Value codec.Codec[V]
	// Hash gives the group hash and the slot hash of a key, for restores. Both are functions of
	// the key alone.
	Hash func(key *K) (group, slot uint64)
	// Aged says that the encoding of a value begins with 8 bytes that tell from when on it ages, in milliseconds since
	// 1970: a store that does not fit into memory can find what has expired by them. See Expiring.
	Aged bool
}

// Value is a state that holds one V per key. The owner's goroutine alone calls it.
type Value[K comparable, V any] interface {
	// Upsert returns the value of key for reading and changing in place, created as the zero V
	// when there is none; fresh tells that it was. The pointer is valid until the next call on
	// any state of the backend.
	Upsert(group, slot uint64, key *K) (v *V, fresh bool)
	// Get returns the value of key for reading, or nil. The pointer is valid until the next call.
	Get(group, slot uint64, key *K) *V
	// Set stores a copy of *v, which shares no memory with it but that of strings.
	Set(group, slot uint64, key *K, v *V)
	// Delete removes key; it tells whether there was a value.
	Delete(group, slot uint64, key *K) bool
	// Len is the number of keys.
	Len() int
	// All goes over the keys and values in no order. The state must not be changed meanwhile.
	All() iter.Seq2[*K, *V]
}

// Expiring is implemented by values that are not all in memory, and find by themselves what has aged.
type Expiring[K comparable] interface {
	// Aging tells whether the values do age.
	Aging() bool
	// Old visits up to n keys of which it has a value that began to age before a time, in milliseconds since 1970; there may
	// be a newer value by now. It goes on where the last call ended, and tells whether it has come to no end yet. What was
	// changed of late it may find later. The key is valid during the call, in which the state must not be used.
	Old(before int64, n int, visit func(key *K)) (more bool)
	// Newest is the latest time that a value which was restored began to age.
	Newest() int64
}

// Ahead is implemented by values of which it pays to say some time before which keys will be used.
type Ahead interface {
	// Far tells whether that is so now: the state is too large for the nearer caches of a processor.
	Far() bool
	// Fetch brings near what is known under keys with these hashes. It changes nothing and may do
	// nothing. groups and slots are of the same length.
	Fetch(groups, slots []uint64)
}
