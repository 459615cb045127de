package table

import (
	"fmt"
	"unsafe"
)

// Check verifies the table's structure: every page is reachable, free, retired or never used, and one of
// these only; counts, depths and epochs agree.
func (t *Core) Check() error {
	seen := map[uint32]string{}
	claim := func(id uint32, by string) error {
		if other, ok := seen[id]; ok {
			return fmt.Errorf("page %d is %s and %s", id, other, by)
		}
		seen[id] = by
		return nil
	}
	total := 0
	for i := range t.groups {
		g := &t.groups[i]
		n := 0
		dir := g.entries()
		for at := 0; at < len(dir); {
			id := dir[at]
			span := 1 << (g.depth() - t.depthOf(id))
			for j := range span {
				if dir[at+j] != id {
					return fmt.Errorf("group %d: directory entry %d is %d, not %d", i, at+j, dir[at+j], id)
				}
			}
			for first := id; id != 0; {
				if err := claim(id, "in use"); err != nil {
					return err
				}
				c, p := t.page(id)
				hd := &c.heads[p]
				if a, b := t.page(first); (hd.epoch <= t.frozen) != (a.heads[b].epoch <= t.frozen) {
					return fmt.Errorf("group %d: chain of page %d is partly frozen", i, first)
				}
				used := 0
				var err error
				c.each(p, func(s int) bool {
					used++
					group, slot := t.types.hash(unsafe.Add(t.at(c, p, s), t.key))
					h := mix(slot)
					if int(t.k.of(group)) != t.first+i || int(g.index(h)) < at || int(g.index(h)) >= at+span {
						err = fmt.Errorf("group %d: page %d holds a key that belongs elsewhere", i, id)
					}
					return true
				})
				if err != nil {
					return err
				}
				if used > capacity(c.class) {
					return fmt.Errorf("page %d has %d entries, its capacity is %d", id, used, capacity(c.class))
				}
				if used != int(hd.used) {
					return fmt.Errorf("page %d has %d entries, not %d", id, used, hd.used)
				}
				n += used
				id = hd.next
			}
			at += span
		}
		if n != g.n {
			return fmt.Errorf("group %d has %d entries, not %d", i, n, g.n)
		}
		total += n
	}
	if total != t.n {
		return fmt.Errorf("%d entries, not %d", total, t.n)
	}
	last := uint32(0)
	for _, r := range t.retired {
		if r.epoch <= last {
			return fmt.Errorf("retired lists out of order: %d after %d", r.epoch, last)
		}
		last = r.epoch
		for _, id := range r.pages {
			if err := claim(id, "retired"); err != nil {
				return err
			}
			if c, p := t.page(id); c.heads[p].epoch > r.epoch {
				return fmt.Errorf("page %d of epoch %d retired for %d", id, c.heads[p].epoch, r.epoch)
			}
		}
	}
	for class, f := range t.free {
		for _, id := range f {
			if err := claim(id, "free"); err != nil {
				return err
			}
			if c, _ := t.page(id); c.class != class {
				return fmt.Errorf("page %d of class %d is on the list of class %d", id, c.class, class)
			}
		}
	}
	pages := 0
	for i := 1; i < len(t.chunks); i++ {
		pages += len(t.chunks[i].heads)
	}
	for class := range t.next {
		pages -= int(t.end[class] - t.next[class])
	}
	slots := 0
	for id, by := range seen {
		if c, _ := t.page(id); by == "in use" {
			slots += c.size()
		}
	}
	if slots != t.slots {
		return fmt.Errorf("%d slots in use, not %d", slots, t.slots)
	}
	if pages != len(seen) {
		return fmt.Errorf("%d pages in use, retired or free, %d were handed out", len(seen), pages)
	}
	return nil
}

// Retired is the number of pages that wait for Merge.
func (t *Core) Retired() int {
	n := 0
	for _, r := range t.retired {
		n += len(r.pages)
	}
	return n
}

// MaxDepth is the depth of the deepest directory.
func (t *Core) MaxDepth() int {
	d := 0
	for i := range t.groups {
		d = max(d, t.groups[i].depth())
	}
	return d
}

// Mod is the remainder of a by d.
func Mod(a, d uint64) uint64 { m := newModulus(d); return m.of(a) }

// Slots is the room for entries in the pages in use.
func (t *Core) Slots() int { return t.slots }
