package table

import (
	"math/bits"
	"unsafe"
)

// fetchRun is how many lookups go side by side: about as many reads as a core has under way at a time.
const fetchRun = 32

// farBytes is a size that no longer fits in the second-level cache of a core beside everything else.
const farBytes = 256 << 10

// Far tells whether Fetch is worth its while: the processor does not have all of the table at hand anyway.
func (t *Core) Far() bool { return t.n > farBytes/t.size }

// Fetch reads what a lookup of keys with these hashes will read, so that the processor has it at hand then. A lookup
// is a chain of reads, each of which depends on the one before: those of one lookup wait for memory one by one, while
// here the reads of many wait side by side. groups and slots are of the same length. Nothing changes.
func (t *Core) Fetch(groups, slots []uint64) {
	var pages [fetchRun]uint32
	var entries [fetchRun]unsafe.Pointer
	for len(groups) > 0 {
		n := min(len(groups), fetchRun)
		gs, ss := groups[:n], slots[:n]
		groups, slots = groups[n:], slots[n:]
		for i, hash := range gs {
			pages[i] = t.groups[int(t.k.of(hash))-t.first].lookup(mix(ss[i]))
		}
		for i, hash := range ss {
			h := mix(hash)
			c, p := &t.chunks[pages[i]>>chunkBits], pages[i]&(chunkPages-1)
			w := wordOf(h, c.words)
			m := matchTag(c.headOf(p).ctrl[w], tagOf(h))
			s := bits.TrailingZeros64(m) >> 3 & 7 // The first slot of the word when the key is not there.
			entries[i] = t.at(c, int(p), w<<3+s)
		}
		for _, e := range entries[:n] {
			t.fetched += *(*byte)(e) // Kept, since a read that nobody needs is not made.
		}
	}
}

// Far is Core.Far.
func (tab *Table[K, V]) Far() bool { return tab.c.Far() }

// Fetch is Core.Fetch.
func (tab *Table[K, V]) Fetch(groups, slots []uint64) { tab.c.Fetch(groups, slots) }
