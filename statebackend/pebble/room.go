package pebble

import (
	"time"

	"github.com/cairnstream/cairn/internal/table"
)

// The memory of caches. Each backend has a share of the budget, for all of its states together. Up to soft of it a cache takes what
// it wants; beyond it every entry that comes in has another one leave. When what is left has changed since it was last
// written, the caches are written while the owner goes on; it waits for that only when the share is used up.
const (
	soft = 0.7
	// firstRoom is how many entries a cache takes before anybody counts.
	firstRoom = 1024
	// roomStep is how many entries a cache takes from one look to the next, at most.
	roomStep = 4096
	// evictStep is how many entries leave at a time, and evictPages how far the search for them goes: well under a millisecond.
	evictStep  = 512
	evictPages = 256
)

// leastShare keeps caches useful when the budget is divided among very many, and so large that the search for what may leave
// does not come by twice between two accesses to state: who has a pointer into one state uses another one meanwhile. A variable
// for tests that keep to one.
var leastShare int64 = 4 << 20

// memory is what the caches of a state take. What keys and values point to is taken to be as large as their encoding.
func (s *state) memory() int64 {
	m := s.cache.Main.Live() + s.cache.Gone.Live()
	if s.cache.Pointers {
		n := s.cache.Main.Len() + s.cache.Gone.Len()
		m += int64(float64(n) * (s.size + pointerCost))
	}
	return m
}

// pointerCost is about what an allocation wastes.
const pointerCost = 16

func (b *Backend) memory() (total int64) {
	for _, s := range b.states {
		total += s.memory()
	}
	return total
}

// share is the memory that the caches of this backend may take. However much the indexes and filters of files take, it is no less
// than the least.
func (b *Backend) share() int64 {
	return max(int64(cachePart*float64(b.p.Budget.Share()))-b.tree.files.bytes, leastShare)
}

// room sees that the cache of s may take more entries.
func (b *Backend) room(s *state) {
	b.stillGood()
	b.harvest()
	share := b.share()
	limit := int64(soft * float64(share))
	for spilled := false; ; {
		total, have := b.memory(), s.cache.Main.Len()+s.cache.Gone.Len()
		if left := limit - total; left > 0 {
			per := 64 + int64(s.size)
			if have > 0 {
				per = max(s.memory()/int64(have), 16)
			}
			s.cache.Limit = have + int(min(left/per/4, roomStep)) + 64
			return
		}
		want := evictStep
		if total > limit+limit/8 && len(b.pending) == 0 { // Pages are less full than they could be: Tidy makes fewer of them.
			want *= 2
		}
		gone, kept := b.evict(s, want)
		have = s.cache.Main.Len() + s.cache.Gone.Len()
		if total < share {
			if kept > 3*gone && len(b.pending) == 0 {
				b.spill()
			}
			s.cache.Limit = have + evictStep/2
			return
		}
		switch {
		case len(b.pending) > 0:
			b.wait()
		case gone > 0: // Less than left, or it would never come down to a share that has shrunk.
			s.cache.Limit = have + gone/2
			return
		case kept > 0 && !spilled:
			b.spill()
			spilled = true
		default: // The caches of other states, or what has no entries, or a share that has shrunk: this one goes on with what it has.
			s.cache.Limit = have + evictStep/2
			return
		}
	}
}

// evict has about want entries leave the caches, those of s or of the state that takes most. It also tells how many stayed
// since they are not in the tree yet.
func (b *Backend) evict(s *state, want int) (gone, kept int) {
	largest := s
	for _, o := range b.states {
		if o.memory() > largest.memory() {
			largest = o
		}
	}
	for _, o := range []*state{largest, s} {
		for _, c := range []*table.Core{o.cache.Gone, o.cache.Main} {
			if c.Len() > 0 && gone < want && o.walks == 0 {
				out, stayed := c.Evict(want-gone, evictPages)
				gone, kept = gone+out, kept+stayed
			}
		}
		if gone >= want || largest == s {
			break
		}
	}
	return gone, kept
}

// spill has the caches written.
func (b *Backend) spill() {
	if _, err := b.freeze(""); err != nil {
		b.fault(err)
	}
}

// wait waits for the oldest flush on its way, and gives back what it needed.
func (b *Backend) wait() {
	f := b.pending[0]
	<-f.done
	b.harvest()
	if f.err != nil {
		b.fault(f.err)
	}
	for _, s := range b.states {
		for s.cache.Main.Merge(time.Second) {
		}
		for s.cache.Gone.Merge(time.Second) {
		}
	}
}
