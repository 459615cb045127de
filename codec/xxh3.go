package codec

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// XXH3 with 64 bits and seed 0 (xxhash specification, version 0.2), for keys whose encoding need
// not be laid out in memory first: 8 bytes in a register, and a short string behind its length.

// The first 128 bytes of the default secret, as little-endian words.
const (
	secret0   = 0xbe4ba423396cfeb8
	secret8   = 0x1cad21f72c81017c
	secret16  = 0xdb979083e96dd4de
	secret24  = 0x1f67b3b7a4a44072
	secret32  = 0x78e5c0cc4ee679cb
	secret40  = 0x2172ffcc7dd05a82
	secret48  = 0x8e2443f7744608b8
	secret56  = 0x4c263a81e69035e0
	secret64  = 0xcb00c391bb52283c
	secret72  = 0xa32e531b8b65d088
	secret80  = 0x4ef90da297486471
	secret88  = 0xd8acdea946ef1938
	secret96  = 0x3f349ce33f76faa8
	secret104 = 0x1d4f0bc7c7bbdcf9
	secret112 = 0x3159b4cd4be0518a
	secret120 = 0x647378d9c97e9fc8
)

const (
	prime64      = 0x9e3779b185ebca87
	primeMix     = 0x9fb21c651e98df25
	primeScatter = 0x165667919e3779f9
)

// hash8 is the hash of the 8 bytes of v in little-endian order.
func hash8(v uint64) uint64 { return hash4to8(bits.RotateLeft64(v, 32), 8) }

// hash4to8 is the hash of 4 to 8 bytes: the first 4 are the high half of v, the last 4 the low one.
func hash4to8(v, size uint64) uint64 {
	h := v ^ secret8 ^ secret16
	h ^= bits.RotateLeft64(h, 49) ^ bits.RotateLeft64(h, 24)
	h *= primeMix
	h ^= h>>35 + size
	h *= primeMix
	return h ^ h>>28
}

// hash9to16 is the hash of 9 to 16 bytes: the first 8 are low, the last 8 are high.
func hash9to16(low, high, size uint64) uint64 {
	low ^= secret24 ^ secret32
	high ^= secret40 ^ secret48
	return scatter(size + bits.ReverseBytes64(low) + high + fold(low, high))
}

// maxShort is the length of the longest string that hashShort takes: its length is one byte, and
// the whole has at most 128.
const maxShort = 127

// hashShort is the hash of the encoding of s, which has 3 to maxShort bytes.
func hashShort(s string) uint64 {
	p, n := unsafe.Pointer(unsafe.StringData(s)), len(s)
	size := uint64(n) + 1
	switch {
	case n == 3:
		first := uint64(s[0])<<8 | uint64(s[1])<<16 | uint64(s[2])<<24 | 3
		return hash4to8(first<<32|first, size)
	case n < 8:
		first := uint64(load4(p, 0)<<8 | uint32(n))
		return hash4to8(first<<32|uint64(load4(p, n-4)), size)
	case n < 16:
		return hash9to16(load8(p, 0)<<8|uint64(n), load8(p, n-8), size)
	}
	return hashMiddle(p, n)
}

// hashMiddle is hashShort of 16 to maxShort bytes at p.
func hashMiddle(p unsafe.Pointer, n int) uint64 {
	size := uint64(n) + 1
	h := size * prime64
	if size > 32 {
		if size > 64 {
			if size > 96 {
				h += fold(load8(p, 47)^secret96, load8(p, 55)^secret104)
				h += fold(load8(p, n-64)^secret112, load8(p, n-56)^secret120)
			}
			h += fold(load8(p, 31)^secret64, load8(p, 39)^secret72)
			h += fold(load8(p, n-48)^secret80, load8(p, n-40)^secret88)
		}
		h += fold(load8(p, 15)^secret32, load8(p, 23)^secret40)
		h += fold(load8(p, n-32)^secret48, load8(p, n-24)^secret56)
	}
	h += fold((load8(p, 0)<<8|uint64(n))^secret0, load8(p, 7)^secret8)
	h += fold(load8(p, n-16)^secret16, load8(p, n-8)^secret24)
	return scatter(h)
}

func fold(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high ^ low
}

func scatter(h uint64) uint64 {
	h ^= h >> 37
	h *= primeScatter
	return h ^ h>>32
}

func load8(p unsafe.Pointer, at int) uint64 {
	return binary.LittleEndian.Uint64(unsafe.Slice((*byte)(unsafe.Add(p, at)), 8))
}

func load4(p unsafe.Pointer, at int) uint32 {
	return binary.LittleEndian.Uint32(unsafe.Slice((*byte)(unsafe.Add(p, at)), 4))
}
