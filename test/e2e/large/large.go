// Package large is what the end-to-end test of large state and its program (large/program) agree upon: which key record n
// is for, what its value becomes, and what a class of keys adds up to.
package large

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"
)

const (
	// Splits of the source. The records of a key are in one of them, so that their order is known.
	Splits = 4
	// Classes of keys, for each of which there is one row in the output.
	Classes = 64
	// valueSize is the bytes of a value's text, which does not compress.
	valueSize = 96
	// EntrySize is about what an entry takes: its text, a length and a counter, and its key.
	EntrySize = valueSize + 8 + 8
	// stride spreads the keys; it is a prime above any number of keys.
	stride = 2_654_435_761
)

// Index is which of so many keys record n is for. Each round of n over all of them meets each once, in no order.
func Index(n, keys int64) int64 {
	each := keys / Splits
	return n/Splits%each*(stride%each)%each*Splits + n%Splits
}

// Key is the key with an index.
func Key(index int64) uint64 {
	x := uint64(index) + 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// ClassOf is the class of a key.
func ClassOf(key uint64) uint32 { return uint32(key % Classes) }

// Digest is what record n makes of a key's text, which is empty at first.
func Digest(text string, n int64) uint64 { return xxh3.HashStringSeed(text, uint64(n)) }

// Text is the text that a digest stands for.
func Text(digest uint64) string {
	var b [valueSize]byte
	for i := 0; i < valueSize; i += 8 {
		digest = (digest ^ digest>>29) * 0xbf58476d1ce4e5b9
		digest ^= digest >> 32
		binary.LittleEndian.PutUint64(b[i:], digest+uint64(i))
	}
	return string(b[:])
}

// Row is the answer for a class: how many records there were for its keys, and their digests added up and xored.
type Row struct {
	Class   uint32
	Records int64
	Sum     uint64
	Xor     uint64
}

// Add adds the digest of one record.
func (r *Row) Add(digest uint64) {
	r.Records++
	r.Sum += digest
	r.Xor ^= digest
}
