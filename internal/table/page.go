package table

import (
	"math/bits"
	"unsafe"
)

// A page holds up to 48 entries of one group. Its head is one cache line.
type head struct {
	ctrl  [maxWords]uint64 // A byte per slot: empty, deleted, or the tag of the key that is there.
	epoch uint32           // The table's epoch when this page was made.
	next  uint32           // The page that holds what does not fit here, or 0. See Table.overflow.
	used  uint8
	depth uint8 // Number of leading hash bits that all its keys share.
	// changed has a bit for each slot whose entry was made or may have been changed in epoch. Only kept when the table tracks
	// changes. See Core.Track.
	changed mask
}

// mask has a bit for each slot of a page.
type mask [maxWords]uint8

func (m *mask) set(s int)      { m[s>>3] |= 1 << (s & 7) }
func (m *mask) clear(s int)    { m[s>>3] &^= 1 << (s & 7) }
func (m *mask) has(s int) bool { return m[s>>3]>>(s&7)&1 != 0 }

// past is what changed in a page before its present epoch: some of it perhaps before the table's base, but no base between
// them is remembered. So what is taken over by the store below, or by a snapshot, is let go of at once when a page goes on
// being changed meanwhile, as every page with a popular key does.
type past struct {
	epoch   uint32 // Of the last of those changes. When the base has reached it, none of them counts any more.
	changed mask
}

// since is the epoch in which the entry in slot s of page p may have been changed last, 0 if that was not after base.
func (c *chunk) since(p, s int, base uint32) uint32 {
	hd := &c.heads[p]
	if hd.epoch <= base {
		return 0
	}
	if hd.changed.has(s) {
		return hd.epoch
	}
	if c.past != nil && c.past[p].epoch > base && c.past[p].changed.has(s) {
		return c.past[p].epoch
	}
	return 0
}

// renew has page p, which is page q of from or a copy of it, begin another epoch.
func (c *chunk) renew(p int, epoch uint32, from *chunk, q int, base uint32) {
	was, before := from.heads[q], from.past[q]
	c.heads[p].epoch, c.heads[p].changed = epoch, mask{}
	switch {
	case was.epoch <= base:
		before = past{}
	case before.epoch <= base:
		before = past{was.epoch, was.changed}
	default:
		for w, m := range was.changed {
			before.changed[w] |= m
		}
		before.epoch = was.epoch
	}
	c.past[p] = before
}

const (
	maxWords = 6
	maxSlots = 8 * maxWords

	ctrlEmpty   = 0x80
	ctrlDeleted = 0xFE

	lsb      = 0x0101010101010101
	msb      = 0x8080808080808080
	allEmpty = ctrlEmpty * lsb
)

var emptyCtrl = [maxWords]uint64{allEmpty, allEmpty, allEmpty, allEmpty, allEmpty, allEmpty}

// The sizes of pages, in words of eight slots.
var classWords = [...]uint8{1, 2, 4, 6}

const numClasses = len(classWords)

// A page is full at 7 of 8 slots, so that nearly every search ends in the word where it begins.
func capacity(class int) int { return 7 * int(classWords[class]) }

// classFor is the smallest of the first limit classes that holds n entries, or the last of them.
func classFor(n, limit int) int {
	for c := range limit {
		if n <= capacity(c) {
			return c
		}
	}
	return limit - 1
}

// A page number is the number of its chunk and its place in it. Page 0 is always empty and never written.
const (
	chunkBits  = 8
	chunkPages = 1 << chunkBits
)

// chunk is a run of pages of one class.
type chunk struct {
	head0  unsafe.Pointer // &heads[0], for the path that matters.
	slot0  unsafe.Pointer // The first slot of the first page.
	words  int
	class  int
	heads  []head
	shared []uint64 // A bit per slot whose value shares memory with a frozen page. Nil when values are free of pointers.
	uses   []uint64 // A bit per slot whose entry was read since Evict last came by. Nil but for caches.
	past   []past   // Of each page. Nil if the table never tracked changes.
}

func newChunk(words, class int, heads []head, slots unsafe.Pointer) chunk {
	return chunk{head0: unsafe.Pointer(unsafe.SliceData(heads)), slot0: slots, words: words, class: class, heads: heads}
}

// size is the number of slots of a page.
func (c *chunk) size() int { return 8 * c.words }

// headOf is &c.heads[p] without a check: p is the low part of a page number, which is right by construction.
func (c *chunk) headOf(p uint32) *head {
	return (*head)(unsafe.Add(c.head0, uintptr(p)*unsafe.Sizeof(head{})))
}

// mix spreads a hash: the directory uses the top bits, tags and places the low half.
func mix(slot uint64) uint64 {
	h := slot * 0x9E3779B97F4A7C15
	return h ^ h>>32
}

func tagOf(h uint64) uint64 { return (h & 0x7F) * lsb }

// wordOf is where the search in a page begins.
func wordOf(h uint64, words int) int { return int((h >> 7 & 0x1FFFFFF) * uint64(words) >> 25) }

// matchTag marks the bytes of ctrl that equal the tag; it may mark others, which the comparison of keys sorts out.
func matchTag(ctrl, tag uint64) uint64 {
	x := ctrl ^ tag
	return (x - lsb) &^ x & msb
}

func matchEmpty(ctrl uint64) uint64 { return ctrl &^ (ctrl << 6) & msb }
func matchFree(ctrl uint64) uint64  { return ctrl & msb }

// take marks a free slot of page p as used by a key with hash h, and returns it. There must be one.
func (c *chunk) take(p int, h uint64) int {
	hd := &c.heads[p]
	w := wordOf(h, c.words)
	for {
		if m := matchFree(hd.ctrl[w]); m != 0 {
			b := bits.TrailingZeros64(m) &^ 7
			hd.ctrl[w] = hd.ctrl[w]&^(0xFF<<b) | (h&0x7F)<<b
			hd.used++
			return w<<3 + b>>3
		}
		if w++; w == c.words {
			w = 0
		}
	}
}

// drop marks slot s of page p as free.
func (c *chunk) drop(p, s int) {
	hd := &c.heads[p]
	w, b := s>>3, s&7<<3
	mark := uint64(ctrlDeleted)
	if matchEmpty(hd.ctrl[w]) != 0 {
		mark = ctrlEmpty // No search goes past this word.
	}
	hd.ctrl[w] = hd.ctrl[w]&^(0xFF<<b) | mark<<b
	hd.changed.clear(s)
	if c.past != nil {
		c.past[p].changed.clear(s)
	}
	if hd.used--; hd.used == 0 {
		hd.ctrl = emptyCtrl
	}
}

// each calls f with every slot in use of page p until it returns false.
func (c *chunk) each(p int, f func(s int) bool) bool {
	hd := &c.heads[p]
	for w := range c.words {
		for m := ^hd.ctrl[w] & msb; m != 0; m &= m - 1 {
			if !f(w<<3 + bits.TrailingZeros64(m)>>3) {
				return false
			}
		}
	}
	return true
}
