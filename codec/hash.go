package codec

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// HashName names the hash of keys in the headers of snapshots: 64-bit XXH3 with seed 0.
const HashName = "xxh3-64"

// Hash hashes an encoded key.
func Hash(encoded []byte) uint64 { return xxh3.Hash(encoded) }

// Hasher hashes keys: Hash over the encoding of *key. It may own a buffer, so that each goroutine
// needs a Hasher of its own.
//
// A key that cannot be encoded is a panic, with an error as its value: it is a fault of the record
// and has no hash.
type Hasher[K any] func(key *K) uint64

// NewHasher returns a Hasher of keys that c encodes. Integers, strings and structs whose memory is
// their encoding are hashed where they are; other keys are encoded into a buffer first, which is
// kept.
func NewHasher[K any](c Codec[K]) Hasher[K] {
	if f, ok := c.(interface{ newHasher() Hasher[K] }); ok {
		if h := f.newHasher(); h != nil {
			return h
		}
	}
	return slowHasher(c)
}

func slowHasher[K any](c Codec[K]) Hasher[K] {
	var buf []byte
	return func(key *K) uint64 {
		b, err := c.Append(buf[:0], key)
		if err != nil {
			panic(fmt.Errorf("hash key: %w", err))
		}
		buf = b
		return xxh3.Hash(b)
	}
}

func (c word8[T]) newHasher() Hasher[T] {
	return func(key *T) uint64 { return hash8(*(*uint64)(unsafe.Pointer(key))) }
}

// hash8 is XXH3 of the 8 bytes of v in little-endian order, written out: its branch for inputs of
// 4 to 8 bytes (xxhash specification, XXH3 "medium small" inputs) with every constant folded.
func hash8(v uint64) uint64 {
	const (
		flip  = 0x1cad21f72c81017c ^ 0xdb979083e96dd4de // Bytes 8 to 24 of the default secret.
		prime = 0x9fb21c651e98df25
	)
	h := bits.RotateLeft64(v, 32) ^ flip
	h ^= bits.RotateLeft64(h, 49) ^ bits.RotateLeft64(h, 24)
	h *= prime
	h ^= h>>35 + 8
	h *= prime
	return h ^ h>>28
}

func (text[T]) newHasher() Hasher[T] {
	short := new([64]byte)
	var long []byte
	return func(key *T) uint64 {
		s := *(*string)(unsafe.Pointer(key))
		if len(s) < len(short) { // The length takes one byte.
			short[0] = byte(len(s))
			return xxh3.Hash(short[:1+copy(short[1:], s)])
		}
		long = append(binary.AppendUvarint(long[:0], uint64(len(s))), s...)
		return xxh3.Hash(long)
	}
}

func (c word4[T]) newHasher() Hasher[T] {
	return func(key *T) uint64 {
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], *(*uint32)(unsafe.Pointer(key)))
		return xxh3.Hash(b[:])
	}
}

func (c word2[T]) newHasher() Hasher[T] {
	return func(key *T) uint64 {
		var b [2]byte
		binary.LittleEndian.PutUint16(b[:], *(*uint16)(unsafe.Pointer(key)))
		return xxh3.Hash(b[:])
	}
}

func (c word1[T]) newHasher() Hasher[T] { return hashByte[T] }

func (flag[T]) newHasher() Hasher[T] { return hashByte[T] }

func hashByte[T any](key *T) uint64 { return xxh3.Hash([]byte{*(*byte)(unsafe.Pointer(key))}) }
