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

// hasherOf is h for keys whose memory is that of an M. The pointer is passed the same way whatever
// it points to, so h is called directly, without a closure around it.
func hasherOf[K, M any](h func(*M) uint64) Hasher[K] {
	return *(*Hasher[K])(unsafe.Pointer(&h))
}

func (c word8[T]) newHasher() Hasher[T] { return hasherOf[T](hash8At) }

// hash8At is the hash of a number of 8 bytes.
func hash8At(p *uint64) uint64 { return hash4to8(bits.RotateLeft64(*p, 32), 8) }

func (text) newHasher() Hasher[string] { return newStringHasher() }

func newStringHasher() Hasher[string] {
	var buf []byte
	return func(key *string) uint64 {
		s := *key
		if uint(len(s))-3 <= maxShort-3 {
			return hashShort(s)
		}
		buf = append(binary.AppendUvarint(buf[:0], uint64(len(s))), s...)
		return xxh3.Hash(buf)
	}
}

func (c word4[T]) newHasher() Hasher[T] { return hasherOf[T](hash4At) }

func hash4At(p *uint32) uint64 { return hash4to8(uint64(*p)<<32|uint64(*p), 4) }

func (c word2[T]) newHasher() Hasher[T] { return hasherOf[T](hash2At) }

func hash2At(p *uint16) uint64 {
	var b [2]byte
	binary.LittleEndian.PutUint16(b[:], *p)
	return xxh3.Hash(b[:])
}

func (c word1[T]) newHasher() Hasher[T] { return hasherOf[T](hash1At) }

func (flag) newHasher() Hasher[bool] { return hasherOf[bool](hash1At) }

func hash1At(p *byte) uint64 { return hashes1[*p] }

// hashes1 are the hashes of all bytes.
var hashes1 = func() (h [256]uint64) {
	for i := range h {
		h[i] = xxh3.Hash([]byte{byte(i)})
	}
	return h
}()
