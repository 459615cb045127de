package table

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Frozen is the content of a table at one moment. One goroutine at a time reads it, while the table's owner
// goes on; what it hands out must not be changed.
type Frozen struct {
	layout
	groups   []group
	chunks   []chunk
	n        int
	epoch    uint32
	base     uint32
	tracked  bool
	memory   memory
	released atomic.Bool
}

// Len is the number of keys.
func (f *Frozen) Len() int { return f.n }

// GroupLen is the number of keys of the i-th group of the table.
func (f *Frozen) GroupLen(i int) int { return f.groups[i].n }

// Each calls visit with the entries of the i-th group of the table, in no order, until it returns false.
func (f *Frozen) Each(i int, visit func(key, value unsafe.Pointer) bool) {
	g := &f.groups[i]
	depthOf := func(id uint32) int { return int(f.chunks[id>>chunkBits].heads[id&(chunkPages-1)].depth) }
	for id := range g.pages(depthOf) {
		for id != 0 {
			c, p := &f.chunks[id>>chunkBits], int(id&(chunkPages-1))
			ok := c.each(p, func(s int) bool {
				v := f.at(c, p, s)
				return visit(unsafe.Add(v, f.key), v)
			})
			if !ok {
				return
			}
			id = c.heads[p].next
		}
	}
	runtime.KeepAlive(f) // Its memory is given back when f is found unreachable.
}

// Epoch numbers the snapshots of a table; later ones have higher numbers.
func (f *Frozen) Epoch() uint32 { return f.epoch }

// Base is the epoch of the snapshot that EachChanged counts from; ok is false when the table did not track changes.
func (f *Frozen) Base() (epoch uint32, ok bool) { return f.base, f.tracked }

// EachChanged is Each for the entries that are new or may have been changed since the base.
func (f *Frozen) EachChanged(i int, visit func(key, value unsafe.Pointer) bool) {
	g := &f.groups[i]
	if g.touched <= f.base {
		return
	}
	last := uint32(0)
	for _, id := range g.entries() {
		// Not by the depth of pages, as in Each: so the processor need not wait for one page to know the next.
		if id == last {
			continue
		}
		last = id
		for id != 0 {
			c, p := &f.chunks[id>>chunkBits], id&(chunkPages-1)
			hd := c.headOf(p)
			id = hd.next
			if hd.epoch > f.base && !f.eachChanged(c, int(p), hd, visit) {
				return
			}
		}
	}
	runtime.KeepAlive(f) // As in Each.
}

// eachChanged visits the changed entries of one page.
func (f *Frozen) eachChanged(c *chunk, p int, hd *head, visit func(key, value unsafe.Pointer) bool) bool {
	changed := hd.changed
	if past := &c.past[p]; past.epoch > f.base {
		for w, m := range past.changed {
			changed[w] |= m
		}
	}
	for w := range c.words {
		for m := changed[w]; m != 0; m &= m - 1 {
			b := bits.TrailingZeros8(m)
			if hd.ctrl[w]>>(b<<3)&0x80 != 0 {
				continue // Nothing is there any more.
			}
			v := f.at(c, p, w<<3+b)
			if !visit(unsafe.Add(v, f.key), v) {
				return false
			}
		}
	}
	return true
}

// Release says that nobody reads f any more. It may be called from any goroutine, and again.
func (f *Frozen) Release() {
	if f.released.CompareAndSwap(false, true) {
		f.memory.release()
	}
}
