package table

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"runtime"
	"slices"
	"time"
	"unsafe"
)

// Core is what of a table does not depend on the types of keys and values: everything but the ways that a record
// takes. It is compiled once, not for every state of every program. Only its owner's goroutine calls its methods.
type Core struct {
	layout
	types  types
	groups []group
	k      modulus
	first  int
	chunks []chunk
	frozen uint32 // Epoch of the newest snapshot alive: pages up to it are copied before a change. 0: none.
	epoch  uint32 // Of pages made now.
	fast   uint32 // Pages of a higher epoch are changed in place, with nothing more to note than the slot.
	base   uint32 // See Track.
	track  bool
	n      int

	removed func(group int, key unsafe.Pointer) // See Track.

	live    int64                  // Bytes of the pages that are in use or retired.
	slots   int                    // Of the pages in use.
	caching bool                   // See Cache.
	hand    place                  // Where Evict goes on,
	broom   place                  // and where Tidy does.
	swept   bool                   // Tidy found something to do since it began with the first group.
	stuck   struct{ n, slots int } // When it last found nothing.

	pointers, valPointers bool // Slots have pointers; values have.
	classes               int  // How many of the classes are in use: fewer for large entries.

	memory  memory
	free    [numClasses][]uint32
	next    [numClasses]uint32 // The next page never used yet, and
	end     [numClasses]uint32 // the end of its chunk.
	alive   []*Frozen          // In ascending order of epoch.
	max     int
	retired []retired      // In ascending order of epoch.
	zero    unsafe.Pointer // A slot without content.
	scratch unsafe.Pointer // What view returns in place of a value that others see.
	fetched byte           // See Fetch.
	moves   []move
}

// place is a page in the order of groups and of their directories.
type place struct{ group, index int }

// layout is where the parts of a slot lie: the value at its beginning.
type layout struct {
	size int     // Of a slot, and
	key  uintptr // where in it the key is.
}

// at is slot s of page p.
func (l *layout) at(c *chunk, p, s int) unsafe.Pointer {
	return unsafe.Add(c.slot0, (p*c.words<<3+s)*l.size)
}

// types is what is done with keys, values and slots of types that Core does not know.
type types struct {
	hash func(key unsafe.Pointer) (group, slot uint64)
	// copyValue makes a copy that shares no memory with the original. dst may be src.
	copyValue func(dst, src unsafe.Pointer)
	// move copies n slots as they are, with what the garbage collector has to know of it. Nil when they are free of
	// pointers.
	move   func(dst, src unsafe.Pointer, n int)
	slot   reflect.Type
	upsert func(group, slot uint64, key unsafe.Pointer) (unsafe.Pointer, bool)
	remove func(group, slot uint64, key unsafe.Pointer) bool
}

// newCore makes the core of an empty table. c is valid.
func newCore(first, count, k, maxFrozen int, l layout, ts types, pointers, valPointers bool) Core {
	if maxFrozen == 0 {
		maxFrozen = 2
	}
	t := Core{
		layout: l, types: ts, groups: make([]group, count), k: newModulus(uint64(k)), first: first, epoch: 1,
		pointers: pointers, valPointers: valPointers, max: maxFrozen, classes: numClasses,
	}
	for i := range t.groups {
		t.groups[i].reset()
	}
	for t.classes > 1 && 8*int(classWords[t.classes-1])*t.size > pageBytes {
		t.classes--
	}
	t.zero, t.scratch = reflect.New(ts.slot).UnsafePointer(), reflect.New(ts.slot).UnsafePointer()
	t.chunks = []chunk{newChunk(1, 0, []head{{ctrl: emptyCtrl}}, reflect.MakeSlice(reflect.SliceOf(ts.slot), 8, 8).UnsafePointer())}
	if valPointers {
		t.chunks[0].shared = make([]uint64, 1)
	}
	return t
}

// allocate returns memory for n slots, zeroed.
func (t *Core) allocate(n int) unsafe.Pointer {
	if !t.pointers {
		if p := t.memory.allocate(n * t.size); p != nil {
			return p
		}
	}
	return reflect.MakeSlice(reflect.SliceOf(t.types.slot), n, n).UnsafePointer()
}

// move copies n slots as they are.
func (t *Core) move(dst, src unsafe.Pointer, n int) {
	if t.pointers {
		t.types.move(dst, src, n)
		return
	}
	if n == 1 && t.size == 16 { // Two numbers: not worth a call.
		*(*[16]byte)(dst) = *(*[16]byte)(src)
		return
	}
	copy(unsafe.Slice((*byte)(dst), n*t.size), unsafe.Slice((*byte)(src), n*t.size))
}

// Each calls visit with all keys and values in no order until it returns false. The table must not be changed meanwhile,
// and what visit is given is valid during the call.
func (t *Core) Each(visit func(key, value unsafe.Pointer) bool) {
	for i := range t.groups {
		for id := range t.groups[i].pages(t.depthOf) {
			for id != 0 {
				c, p := t.page(id)
				if !c.each(p, func(s int) bool { return visit(unsafe.Add(t.at(c, p, s), t.key), t.view(id, s)) }) {
					return
				}
				id = c.heads[p].next
			}
		}
	}
	runtime.KeepAlive(t) // Its memory is given back when t is found unreachable.
}

// Upsert is Table.Upsert for who does not know the types.
func (t *Core) Upsert(groupHash, slotHash uint64, key unsafe.Pointer) (v unsafe.Pointer, fresh bool) {
	return t.types.upsert(groupHash, slotHash, key)
}

// Delete is Table.Delete for who does not know the types.
func (t *Core) Delete(groupHash, slotHash uint64, key unsafe.Pointer) bool {
	return t.types.remove(groupHash, slotHash, key)
}

// group is the directory of one key group: 32 bytes, so that two share a cache line.
type group struct {
	dir   *uint32 // Page numbers, 1<<depth of them; nil at depth 0.
	n     int
	root  uint32 // The only page number at depth 0.
	epoch uint32 // When dir was made: like a page it is copied before a change if a snapshot sees it.
	// touched is not below the epoch of any page of the group, as far as changes are noted.
	touched uint32
	shift   uint8 // 63 - depth
}

func (g *group) reset()                { *g = group{shift: 63} }
func (g *group) depth() int            { return 63 - int(g.shift) }
func (g *group) index(h uint64) uint64 { return h >> 1 >> (g.shift & 63) }

// lookup is the first page of the chain that h leads to.
func (g *group) lookup(h uint64) uint32 {
	if g.dir == nil {
		return g.root
	}
	return *(*uint32)(unsafe.Add(unsafe.Pointer(g.dir), g.index(h)<<2)) // index is below 1<<depth by construction.
}

// entries is the directory as a slice, which at depth 0 is g's own memory.
func (g *group) entries() []uint32 {
	if g.dir == nil {
		return unsafe.Slice(&g.root, 1)
	}
	return unsafe.Slice(g.dir, 1<<g.depth())
}

// retired are pages that were replaced while the snapshot of that epoch was the newest one alive.
type retired struct {
	epoch uint32
	pages []uint32
}

// pageBytes is what a page of the largest class may take, so that copying one stays cheap.
const pageBytes = 2048

// Len is the number of keys.
func (t *Core) Len() int { return t.n }

// Close drops everything; nothing but Close may be called after it, and no pointer that a call returned may be
// used. Snapshots alive stay readable until they are released.
func (t *Core) Close() {
	t.groups, t.chunks, t.alive, t.retired, t.moves = nil, nil, nil, nil, nil
	t.free, t.next, t.end = [numClasses][]uint32{}, [numClasses]uint32{}, [numClasses]uint32{}
	t.n = 0
	t.memory.release()
}

func (t *Core) page(id uint32) (*chunk, int) {
	return &t.chunks[id>>chunkBits], int(id & (chunkPages - 1))
}

func (t *Core) depthOf(id uint32) int {
	c, p := t.page(id)
	return int(c.heads[p].depth)
}

// pages yields each page of the group once, chained ones aside.
func (g *group) pages(depthOf func(uint32) int) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		dir := g.entries()
		for i := 0; i < len(dir); {
			if !yield(dir[i]) {
				return
			}
			i += 1 << (g.depth() - depthOf(dir[i]))
		}
	}
}

// view returns the value in a slot for reading. One that a snapshot sees too is copied, so that a caller who changes
// it all the same does not change the snapshot.
func (t *Core) view(id uint32, s int) unsafe.Pointer {
	c, p := t.page(id)
	v := t.at(c, p, s)
	if c.heads[p].epoch <= t.frozen || t.valPointers && c.shared[p]>>s&1 != 0 {
		t.types.copyValue(t.scratch, v)
		return t.scratch
	}
	return v
}

// own returns the value in a slot for changing.
func (t *Core) own(g *group, h uint64, id uint32, s int) unsafe.Pointer {
	id = t.ownPage(g, h, id)
	c, p := t.page(id)
	c.heads[p].changed.set(s)
	v := t.at(c, p, s)
	if t.valPointers && c.shared[p]>>s&1 != 0 {
		t.types.copyValue(v, v)
		c.shared[p] &^= 1 << s
	}
	return v
}

// set makes the value in a slot a copy of the one at v, without a copy of the one before.
func (t *Core) set(g *group, h uint64, id uint32, s int, v unsafe.Pointer) {
	id = t.ownPage(g, h, id)
	c, p := t.page(id)
	c.heads[p].changed.set(s)
	t.types.copyValue(t.at(c, p, s), v)
	c.shared[p] &^= 1 << s
}

// remove empties a slot.
func (t *Core) remove(g *group, h uint64, id uint32, s int) {
	if t.track && t.removed != nil {
		c, p := t.page(id)
		i := (uintptr(unsafe.Pointer(g)) - uintptr(unsafe.Pointer(unsafe.SliceData(t.groups)))) / unsafe.Sizeof(group{})
		t.removed(int(i), unsafe.Add(t.at(c, p, s), t.key))
	}
	id = t.ownPage(g, h, id)
	c, p := t.page(id)
	if t.pointers {
		t.types.move(t.at(c, p, s), t.zero, 1)
	}
	c.drop(p, s)
	g.n--
	t.n--
	t.shrink(g, h)
}

// ownPage makes the page, one of the chain that h leads to, changeable, and returns its number after that.
// A chain is copied as a whole, so that all its pages have one epoch.
func (t *Core) ownPage(g *group, h uint64, id uint32) uint32 {
	c, p := t.page(id)
	hd := &c.heads[p]
	if hd.epoch > t.frozen {
		if t.track && hd.epoch < t.epoch {
			c.renew(p, t.epoch, c, p, t.base)
			g.touched = t.epoch
		}
		return id
	}
	first := g.lookup(h)
	depth := int(hd.depth)
	var owned, start, prev uint32
	for old := first; old != 0; {
		c, p := t.page(old)
		class := c.class
		next := c.heads[p].next
		fresh := t.alloc(class)
		c, p = t.page(old) // alloc may have moved t.chunks.
		d, q := t.page(fresh)
		d.heads[q] = c.heads[p]
		if t.track {
			d.renew(q, t.epoch, c, p, t.base)
		} else {
			d.heads[q].epoch = t.epoch
		}
		t.move(t.at(d, q, 0), t.at(c, p, 0), c.size())
		if t.valPointers {
			d.shared[q] = ^uint64(0)
		}
		if t.caching {
			d.uses[q] = c.uses[p]
		}
		if prev != 0 {
			b, r := t.page(prev)
			b.heads[r].next = fresh
		} else {
			start = fresh
		}
		if old == id {
			owned = fresh
		}
		t.retire(old)
		prev, old = fresh, next
	}
	t.point(g, h, depth, start)
	return owned
}

// point makes the directory lead from every hash that shares the first depth bits of h to page id.
func (t *Core) point(g *group, h uint64, depth int, id uint32) {
	g.touched = t.epoch
	if g.dir == nil { // root is copied with the group.
		g.root = id
		return
	}
	if g.epoch <= t.frozen {
		g.dir = unsafe.SliceData(slices.Clone(g.entries()))
		g.epoch = t.epoch
	}
	span := g.depth() - depth
	i := g.index(h) >> span << span
	dir := g.entries()
	for j := range uint64(1) << span {
		dir[i+j] = id
	}
}

// insert makes a slot for a key with that hash, which is not there. What is in it is left over from an earlier use.
func (t *Core) insert(g *group, h uint64) unsafe.Pointer {
	c, p, s := t.place(g, h)
	c.heads[p].changed.set(s)
	return t.at(c, p, s)
}

// place is insert without a note of the change.
func (t *Core) place(g *group, h uint64) (*chunk, int, int) {
	id := g.lookup(h)
	if id == 0 {
		id = t.alloc(0)
		t.point(g, h, 0, id)
	}
	id = t.room(g, h, id)
	c, p := t.page(id)
	s := c.take(p, h)
	if t.valPointers {
		c.shared[p] &^= 1 << s
	}
	g.n++
	t.n++
	return c, p, s
}

// room returns a changeable page with a free slot on the chain that h leads to, which begins with id.
func (t *Core) room(g *group, h uint64, id uint32) uint32 {
	for {
		last := id
		for i := id; i != 0; {
			c, p := t.page(i)
			if int(c.heads[p].used) < capacity(c.class) {
				return t.ownPage(g, h, i)
			}
			last, i = i, c.heads[p].next
		}
		c, p := t.page(id)
		depth := int(c.heads[p].depth)
		switch {
		case c.class+1 < t.classes:
			t.collect(id)
			t.replace(g, h, depth, t.moves)
			t.discard(id)
		case depth < 32 && uint64(1)<<depth <= uint64(g.n):
			t.split(g, h, id)
		default:
			// The hashes agree in more bits than the number of keys explains: splitting would only make the
			// directory larger. It takes a bad hash function to get here.
			return t.overflow(g, h, last)
		}
		id = g.lookup(h)
	}
}

// move is an entry on its way from one page to another.
type move struct {
	page   uint32
	slot   uint32
	hash   uint64
	shared bool
	since  uint32 // See chunk.since.
}

// collect lists the entries of a chain in t.moves.
func (t *Core) collect(ids ...uint32) {
	t.moves = t.moves[:0]
	for _, id := range ids {
		for id != 0 {
			c, p := t.page(id)
			seen := c.heads[p].epoch <= t.frozen
			c.each(p, func(s int) bool {
				_, slotHash := t.types.hash(unsafe.Add(t.at(c, p, s), t.key))
				shared := t.valPointers && (seen || c.shared[p]>>s&1 != 0)
				t.moves = append(t.moves, move{id, uint32(s), mix(slotHash), shared, c.since(p, s, t.base)})
				return true
			})
			id = c.heads[p].next
		}
	}
}

// replace makes a new page, or chain, of the moves, with room for one more, and points h's part of the
// directory at it. The old pages are the caller's to discard.
func (t *Core) replace(g *group, h uint64, depth int, moves []move) {
	limit := capacity(t.classes - 1)
	var first, prev uint32
	for {
		n := min(len(moves), limit)
		id := t.alloc(classFor(n+1, t.classes))
		c, p := t.page(id)
		c.heads[p].depth = uint8(depth)
		for _, m := range moves[:n] {
			from, q := t.page(m.page)
			s := c.take(p, m.hash)
			t.move(t.at(c, p, s), t.at(from, q, int(m.slot)), 1)
			if m.since == t.epoch {
				c.heads[p].changed.set(s)
			} else if m.since > 0 && t.track {
				c.past[p].changed.set(s)
				c.past[p].epoch = max(c.past[p].epoch, m.since)
			}
			if t.caching && from.uses[q]>>m.slot&1 != 0 {
				c.uses[p] |= 1 << s
			}
			if t.valPointers {
				c.shared[p] &^= 1 << s
				if m.shared {
					c.shared[p] |= 1 << s
				}
			}
		}
		if prev == 0 {
			first = id
		} else {
			b, q := t.page(prev)
			b.heads[q].next = id
		}
		prev = id
		if moves = moves[n:]; len(moves) == 0 {
			break
		}
	}
	t.point(g, h, depth, first)
}

// split divides a chain in two by the next bit of the hash.
func (t *Core) split(g *group, h uint64, id uint32) {
	depth := t.depthOf(id)
	if depth == g.depth() {
		old := g.entries()
		dir := make([]uint32, 2*len(old))
		for i, id := range old {
			dir[2*i], dir[2*i+1] = id, id
		}
		g.dir, g.epoch = unsafe.SliceData(dir), t.epoch
		g.shift--
	}
	t.collect(id)
	bit := uint64(1) << (63 - depth)
	ones := 0 // Those with the bit set go to the front.
	for i, m := range t.moves {
		if m.hash&bit != 0 {
			t.moves[i], t.moves[ones] = t.moves[ones], m
			ones++
		}
	}
	t.replace(g, h|bit, depth+1, t.moves[:ones])
	t.replace(g, h&^bit, depth+1, t.moves[ones:])
	t.discard(id)
}

// overflow chains an empty page to the end of the chain that h leads to.
func (t *Core) overflow(g *group, h uint64, last uint32) uint32 {
	last = t.ownPage(g, h, last)
	depth := t.depthOf(last)
	id := t.alloc(t.classes - 1)
	c, p := t.page(id)
	c.heads[p].depth = uint8(depth)
	c, p = t.page(last)
	c.heads[p].next = id
	return id
}

// shrink makes one page of two that became sparse, and a smaller one of a large one, after a deletion.
func (t *Core) shrink(g *group, h uint64) {
	if g.n == 0 {
		t.empty(g)
		return
	}
	id := g.lookup(h)
	c, p := t.page(id)
	if hd := &c.heads[p]; int(hd.used) <= c.size()/6 {
		t.narrow(g, h, 4)
	}
}

// empty gives up the pages of a group without entries.
func (t *Core) empty(g *group) {
	for id := range g.pages(t.depthOf) {
		t.discard(id)
	}
	g.reset()
}

// narrow puts what is on the page that h leads to together with what is on the one beside it, if that leaves no more than fill
// entries to a word of a large page; the only page of a group it makes smaller. It tells whether it did.
func (t *Core) narrow(g *group, h uint64, fill int) bool {
	i := g.index(h)
	id := g.lookup(h)
	c, p := t.page(id)
	hd := &c.heads[p]
	depth := int(hd.depth)
	if depth == 0 {
		if hd.next != 0 || classFor(int(hd.used)*8/fill+1, t.classes) >= c.class {
			return false
		}
		t.collect(id)
		t.replace(g, h, depth, t.moves)
		t.discard(id)
		return true
	}
	buddy := g.entries()[i^1<<(g.depth()-depth)]
	b, q := t.page(buddy)
	bh := &b.heads[q]
	if int(bh.depth) != depth || hd.next != 0 || bh.next != 0 || int(hd.used)+int(bh.used) > fill*int(classWords[t.classes-1]) {
		return false
	}
	t.collect(id, buddy)
	t.replace(g, h, depth-1, t.moves)
	t.discard(id)
	t.discard(buddy)
	return true
}

// discard gives up a chain that the directory no longer leads to.
func (t *Core) discard(id uint32) {
	for id != 0 {
		c, p := t.page(id)
		next := c.heads[p].next
		if c.heads[p].epoch <= t.frozen {
			t.retire(id)
		} else {
			t.slots -= c.size()
			t.recycle(id)
		}
		id = next
	}
}

func (t *Core) retire(id uint32) {
	c, _ := t.page(id)
	t.slots -= c.size()
	if n := len(t.retired); n == 0 || t.retired[n-1].epoch != t.frozen {
		i, found := slices.BinarySearchFunc(t.retired, t.frozen, func(r retired, e uint32) int { return int(r.epoch) - int(e) })
		if !found {
			t.retired = slices.Insert(t.retired, i, retired{epoch: t.frozen})
		}
		t.retired[i].pages = append(t.retired[i].pages, id)
		return
	}
	r := &t.retired[len(t.retired)-1]
	r.pages = append(r.pages, id)
}

// recycle puts a page that nothing refers to on the list of free ones.
func (t *Core) recycle(id uint32) {
	c, p := t.page(id)
	if t.pointers {
		for s := range c.size() {
			t.types.move(t.at(c, p, s), t.zero, 1)
		}
	}
	t.free[c.class] = append(t.free[c.class], id)
	t.live -= t.bytesOf(c.class)
}

// bytesOf is the size of a page of a class.
func (t *Core) bytesOf(class int) int64 {
	return int64(unsafe.Sizeof(head{})) + 8*int64(classWords[class])*int64(t.size)
}

// alloc returns an empty page of a class. It may move t.chunks.
func (t *Core) alloc(class int) uint32 {
	var id uint32
	if f := t.free[class]; len(f) > 0 {
		id = f[len(f)-1]
		t.free[class] = f[:len(f)-1]
	} else {
		if t.next[class] == t.end[class] {
			t.addChunk(class)
		}
		id = t.next[class]
		t.next[class]++
	}
	c, p := t.page(id)
	c.heads[p] = head{ctrl: emptyCtrl, epoch: t.epoch}
	if t.caching {
		c.uses[p] = 0
	}
	if c.past != nil {
		c.past[p] = past{}
	}
	t.live += t.bytesOf(class)
	t.slots += c.size()
	return id
}

// addChunk makes room for pages: as many as there are already, within limits, so that small tables stay small.
func (t *Core) addChunk(class int) {
	have := 0
	for i := 1; i < len(t.chunks); i++ {
		if t.chunks[i].class == class {
			have += len(t.chunks[i].heads)
		}
	}
	pages := min(max(have, 8), chunkPages)
	words := int(classWords[class])
	heads := t.memory.allocate(pages * int(unsafe.Sizeof(head{})))
	if heads == nil {
		heads = unsafe.Pointer(unsafe.SliceData(make([]head, pages)))
	}
	c := newChunk(words, class, unsafe.Slice((*head)(heads), pages), t.allocate(8*words*pages))
	if t.valPointers {
		c.shared = make([]uint64, pages)
	}
	if t.caching {
		c.uses = make([]uint64, pages)
	}
	if t.track {
		c.past = make([]past, pages)
	}
	t.next[class] = uint32(len(t.chunks)) << chunkBits
	t.end[class] = t.next[class] + uint32(pages)
	t.chunks = append(t.chunks, c)
}

// Freeze returns the content as of now. It is an error if MaxFrozen snapshots are alive.
func (t *Core) Freeze() (*Frozen, error) {
	t.poll()
	if len(t.alive) >= t.max {
		return nil, fmt.Errorf("%w: %d", ErrTooManyFrozen, len(t.alive))
	}
	f := &Frozen{layout: t.layout, groups: slices.Clone(t.groups), chunks: t.chunks, n: t.n, memory: t.memory.share()}
	f.epoch, f.base, f.tracked = t.epoch, t.base, t.track
	t.frozen = t.epoch
	t.epoch++
	t.alive = append(t.alive, f)
	t.hasten()
	return f, nil
}

// Track turns on or off that the table notes which entries change, so that a later snapshot can tell what is new: see
// Frozen.EachChanged. It is called after a Freeze, or while the table is empty; turned on, the base is that Freeze. removed is
// called, if not nil, with each key that is removed while tracking is on, before it is gone; group counts from the table's first.
func (t *Core) Track(on bool, removed func(group int, key unsafe.Pointer)) {
	if on && !t.track {
		t.base = t.epoch - 1
		t.chunks = slices.Clone(t.chunks) // Snapshots look at the others.
		for i := range t.chunks {
			t.chunks[i].past = make([]past, len(t.chunks[i].heads))
		}
	}
	t.track, t.removed = on, removed
	t.hasten()
}

// Rebase makes the snapshot of that epoch the base: what changed up to it is no longer of interest. The base never goes back.
func (t *Core) Rebase(epoch uint32) { t.base = max(t.base, epoch) }

// hasten sets which pages Upsert changes without a further look.
func (t *Core) hasten() {
	t.fast = t.frozen
	if t.track {
		t.fast = t.epoch - 1
	}
}

// ErrTooManyFrozen is what Freeze returns when MaxFrozen snapshots are alive.
var ErrTooManyFrozen = errors.New("too many snapshots alive")

// poll takes note of released snapshots.
func (t *Core) poll() {
	t.alive = slices.DeleteFunc(t.alive, func(f *Frozen) bool { return f.released.Load() })
	t.frozen = 0
	if n := len(t.alive); n > 0 {
		t.frozen = t.alive[n-1].epoch
	}
	t.hasten()
}

// mergeStep is how many pages are handled between two looks at the clock: well under 0.1 ms.
const mergeStep = 64

// Merge makes the pages that only released snapshots needed available again, for about as long as budget
// allows; it tells whether work is left.
func (t *Core) Merge(budget time.Duration) bool {
	if len(t.alive) == 0 && len(t.retired) == 0 {
		return false
	}
	t.poll()
	start := time.Now()
	for i := len(t.retired) - 1; i >= 0; i-- {
		epoch := t.retired[i].epoch
		need := uint32(0) // The newest snapshot alive that may see these pages.
		for _, f := range t.alive {
			if f.epoch <= epoch {
				need = f.epoch
			}
		}
		if need == epoch {
			continue
		}
		for len(t.retired[i].pages) > 0 {
			i = t.mergePages(i, need)
			if time.Since(start) >= budget && len(t.retired[i].pages) > 0 {
				return true
			}
		}
		t.retired = slices.Delete(t.retired, i, i+1)
	}
	return false
}

// mergePages takes a few pages off list i: those that need does not see are free, the others join its
// list. It returns the list's index after that.
func (t *Core) mergePages(i int, need uint32) int {
	pages := t.retired[i].pages
	rest := max(0, len(pages)-mergeStep)
	t.retired[i].pages = pages[:rest]
	for _, id := range pages[rest:] {
		if c, p := t.page(id); c.heads[p].epoch > need {
			t.recycle(id)
			continue
		}
		j, found := slices.BinarySearchFunc(t.retired, need, func(r retired, e uint32) int { return int(r.epoch) - int(e) })
		if !found {
			t.retired = slices.Insert(t.retired, j, retired{epoch: need})
			i++
		}
		t.retired[j].pages = append(t.retired[j].pages, id)
	}
	return i
}

// Bytes is the memory of all pages, those that are free included.
func (t *Core) Bytes() int64 {
	var n int64
	for i := range t.chunks {
		c := &t.chunks[i]
		n += int64(len(c.heads))*int64(unsafe.Sizeof(head{})) + int64(len(c.heads)*c.size())*int64(t.size) + 8*int64(len(c.shared)+len(c.uses)) + int64(len(c.past))*int64(unsafe.Sizeof(past{}))
	}
	for i := range t.groups {
		n += 4<<t.groups[i].depth() + int64(unsafe.Sizeof(group{}))
	}
	return n
}
