package table

import "time"

// A cache is a table that holds some of the entries of a larger store: those that changed since the store took them over, and
// others as long as there is room. What Rebase is told is what the store has taken over.

// Cache makes an empty table a cache: it tracks changes from the start, and notes which entries are read.
func (t *Core) Cache() {
	t.caching = true
	t.chunks[0].uses = make([]uint64, 1)
	t.Track(true, nil)
}

// Live is the memory of pages with content, of old content that snapshots still need included.
func (t *Core) Live() int64 { return t.live }

// Evict removes about want entries that did not change since the base, those first that were not read since it last came by. It
// looks at no more than pages pages, and passes over those that a snapshot sees: to change them would copy them. It tells how many
// entries went, and how many stayed since they changed or a snapshot sees them. No other entry is moved, so pointers to what was
// read or changed since the hand of this clock came by last stay good.
func (t *Core) Evict(want, pages int) (gone, kept int) {
	for ; pages > 0 && gone < want && t.n > 0; pages-- {
		g := &t.groups[t.hand.group]
		if g.n == 0 || t.hand.index >= 1<<g.depth() {
			t.hand.index = 0
			if t.hand.group++; t.hand.group == len(t.groups) {
				t.hand.group = 0
			}
			continue
		}
		id := g.entries()[t.hand.index]
		t.hand.index += 1 << (g.depth() - t.depthOf(id))
		for id != 0 {
			c, p := t.page(id)
			next := c.heads[p].next
			n, m := t.evictPage(g, c, p)
			gone, kept = gone+n, kept+m
			id = next
		}
	}
	return gone, kept
}

// evictPage is Evict for one page.
func (t *Core) evictPage(g *group, c *chunk, p int) (gone, kept int) {
	hd := &c.heads[p]
	if hd.epoch <= t.frozen {
		return 0, int(hd.used)
	}
	uses := c.uses[p]
	c.uses[p] = 0
	c.each(p, func(s int) bool {
		switch {
		case c.since(p, s, t.base) > 0:
			kept++
			return true
		case uses>>s&1 != 0:
			return true
		}
		e := t.at(c, p, s)
		if t.pointers {
			t.types.move(e, t.zero, 1)
		}
		c.drop(p, s)
		g.n--
		t.n--
		gone++
		return true
	})
	return gone, kept
}

// Sparse tells that pages take much more memory than their entries need, as they do after Evict, and that Tidy may help.
func (t *Core) Sparse() bool {
	return t.slots > 4096 && t.n < t.slots*11/20 && (t.n < t.stuck.n*3/4 || t.slots > t.stuck.slots*5/4)
}

// Tidy has entries share pages while the table is sparse, for as long as about budget allows. It moves entries. It does nothing
// while snapshots are alive: what they see would be copied. It tells whether work is left.
func (t *Core) Tidy(budget time.Duration) (more bool) {
	if len(t.alive) > 0 {
		return false
	}
	start := time.Now()
	for looked := 1; t.Sparse(); looked++ {
		if looked%mergeStep == 0 && time.Since(start) >= budget {
			return true
		}
		if t.broom.group == len(t.groups) {
			if !t.swept {
				t.stuck.n, t.stuck.slots = t.n, t.slots
			}
			t.broom, t.swept = place{}, false
		}
		g := &t.groups[t.broom.group]
		if g.n == 0 && g.entries()[0] != 0 {
			t.empty(g)
			t.swept = true
		}
		if g.n == 0 || t.broom.index >= 1<<g.depth() {
			t.broom = place{group: t.broom.group + 1}
			continue
		}
		h := uint64(t.broom.index) << 1 << g.shift
		if t.narrow(g, h, tidyFill) {
			t.swept = true
			t.broom.index &^= 1<<(g.depth()-t.depthOf(g.lookup(h))) - 1 // There may be more to put on it.
			continue
		}
		t.broom.index += 1 << (g.depth() - t.depthOf(g.lookup(h)))
	}
	return false
}

// tidyFill is how many entries to a word of eight slots Tidy puts together: there is room for more before the page is split again.
const tidyFill = 6

// Read is Get for a cache.
func (tab *Table[K, V]) Read(groupHash, slotHash uint64, key *K) *V {
	_, _, id, s := tab.lookup(groupHash, slotHash, key)
	if s < 0 {
		return nil
	}
	c, p := tab.c.page(id)
	c.uses[p] |= 1 << s
	return (*V)(tab.c.view(id, s))
}

// Load adds an entry that the store below a cache has, and returns its value, the zero V, for filling. The key is not there.
func (tab *Table[K, V]) Load(groupHash, slotHash uint64, key *K) *V {
	t := &tab.c
	g := &t.groups[int(t.k.of(groupHash))-t.first]
	c, p, s := t.place(g, mix(slotHash))
	c.uses[p] |= 1 << s
	e := (*slot[K, V])(t.at(c, p, s))
	*e = slot[K, V]{}
	if tab.copyKey == nil {
		e.key = *key
	} else {
		tab.copyKey(&e.key, key)
	}
	return &e.val
}
