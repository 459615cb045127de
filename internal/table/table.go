package table

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"reflect"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/cairnstream/cairn/record"
)

// Config describes a Table.
type Config[K comparable, V any] struct {
	// First and Count are the key groups that the table holds, of K in all.
	First, Count, K int
	// Hash gives the group hash and the slot hash of a key. It must agree with what callers pass.
	Hash func(key *K) (group, slot uint64)
	// CopyKey and CopyValue make a copy that shares no memory with the original. *dst is zero before.
	// They are not called for types that are free of pointers.
	CopyKey   func(dst, src *K)
	CopyValue func(dst, src *V)
	// MaxFrozen is the most snapshots alive at a time. Zero means 2.
	MaxFrozen int
}

// Validate lists what is wrong with c.
func (c Config[K, V]) Validate() error {
	var errs []error
	if c.K < 1 {
		errs = append(errs, fmt.Errorf("number of key groups is %d", c.K))
	}
	if c.First < 0 || c.Count < 0 || c.First+c.Count > c.K {
		errs = append(errs, fmt.Errorf("groups from %d, %d of them, are not within %d", c.First, c.Count, c.K))
	}
	if c.Hash == nil {
		errs = append(errs, errors.New("no hash function"))
	}
	if c.CopyKey == nil && record.HasPointers(reflect.TypeFor[K]()) {
		errs = append(errs, fmt.Errorf("no function to copy keys of type %v", reflect.TypeFor[K]()))
	}
	if c.CopyValue == nil && record.HasPointers(reflect.TypeFor[V]()) {
		errs = append(errs, fmt.Errorf("no function to copy values of type %v", reflect.TypeFor[V]()))
	}
	return errors.Join(errs...)
}

// Table maps keys to values. Only its owner's goroutine calls its methods.
type Table[K comparable, V any] struct {
	groups []group
	k      modulus
	first  int
	chunks []chunk[K, V]
	frozen uint32 // Epoch of the newest snapshot alive: pages up to it are copied before a change. 0: none.
	epoch  uint32 // Of pages made now.
	n      int

	keyPointers, valPointers bool
	classes                  int // How many of the classes are in use: fewer for large entries.
	hash                     func(*K) (uint64, uint64)
	copyKey                  func(dst, src *K)
	copyValue                func(dst, src *V)

	memory  memory
	free    [numClasses][]uint32
	next    [numClasses]uint32 // The next page never used yet, and
	end     [numClasses]uint32 // the end of its chunk.
	alive   []*Frozen[K, V]    // In ascending order of epoch.
	max     int
	retired []retired // In ascending order of epoch.
	scratch V         // What Get returns in place of a value that others see.
	fetched byte      // See Fetch.
	moves   []move
}

// group is the directory of one key group: 32 bytes, so that two share a cache line.
type group struct {
	dir   *uint32 // Page numbers, 1<<depth of them; nil at depth 0.
	n     int
	root  uint32 // The only page number at depth 0.
	epoch uint32 // When dir was made: like a page it is copied before a change if a snapshot sees it.
	shift uint8  // 63 - depth
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

// New makes an empty table. It panics on a bad configuration: callers validate.
func New[K comparable, V any](c Config[K, V]) *Table[K, V] {
	if err := c.Validate(); err != nil {
		panic(fmt.Sprintf("table: %v", err))
	}
	if c.MaxFrozen == 0 {
		c.MaxFrozen = 2
	}
	t := &Table[K, V]{
		groups: make([]group, c.Count), k: newModulus(uint64(c.K)), first: c.First, epoch: 1,
		keyPointers: record.HasPointers(reflect.TypeFor[K]()), valPointers: record.HasPointers(reflect.TypeFor[V]()),
		hash: c.Hash, copyKey: c.CopyKey, copyValue: c.CopyValue, max: c.MaxFrozen, classes: numClasses,
	}
	for i := range t.groups {
		t.groups[i].reset()
	}
	size := int(unsafe.Sizeof(slot[K, V]{}))
	for t.classes > 1 && 8*int(classWords[t.classes-1])*size > pageBytes {
		t.classes--
	}
	t.chunks = []chunk[K, V]{newChunk(1, 0, []head{{ctrl: emptyCtrl}}, make([]slot[K, V], 8))}
	if t.valPointers {
		t.chunks[0].shared = make([]uint64, 1)
	}
	return t
}

// Len is the number of keys.
func (t *Table[K, V]) Len() int { return t.n }

// Upsert returns the value of key for changing in place, created as the zero V when there is none, which
// fresh tells. The pointer is valid until the next call.
func (t *Table[K, V]) Upsert(groupHash, slotHash uint64, key *K) (v *V, fresh bool) {
	g := &t.groups[int(t.k.of(groupHash))-t.first]
	h := mix(slotHash)
	id := g.lookup(h)
	c := &t.chunks[id>>chunkBits]
	p := id & (chunkPages - 1)
	hd := c.headOf(p)
	tag := tagOf(h)
	w := wordOf(h, c.words)
	for range c.words {
		ctrl := hd.ctrl[w]
		for m := matchTag(ctrl, tag); m != 0; m &= m - 1 {
			s := w<<3 + bits.TrailingZeros64(m)>>3
			if e := c.slotOf(p, s); e.key == *key {
				if hd.epoch > t.frozen && !t.valPointers {
					return &e.val, false
				}
				return t.own(g, h, id, s), false
			}
		}
		if matchEmpty(ctrl) != 0 {
			break
		}
		if w++; w == c.words {
			w = 0
		}
	}
	if hd.next != 0 {
		if id, s := t.find(hd.next, h, key); s >= 0 {
			return t.own(g, h, id, s), false
		}
	}
	return t.insert(g, h, key), true
}

// Get returns the value of key for reading, or nil. The pointer is valid until the next call.
func (t *Table[K, V]) Get(groupHash, slotHash uint64, key *K) *V {
	g := &t.groups[int(t.k.of(groupHash))-t.first]
	h := mix(slotHash)
	id, s := t.find(g.lookup(h), h, key)
	if s < 0 {
		return nil
	}
	return t.view(id, s)
}

// Set stores a copy of *v.
func (t *Table[K, V]) Set(groupHash, slotHash uint64, key *K, v *V) {
	if !t.valPointers {
		dst, _ := t.Upsert(groupHash, slotHash, key)
		*dst = *v
		return
	}
	var val V
	t.copyValue(&val, v)
	g := &t.groups[int(t.k.of(groupHash))-t.first]
	h := mix(slotHash)
	id, s := t.find(g.lookup(h), h, key)
	if s < 0 {
		*t.insert(g, h, key) = val
		return
	}
	id = t.ownPage(g, h, id)
	c, p := t.page(id)
	c.shared[p] &^= 1 << s
	c.at(p, s).val = val
}

// Delete removes key; it tells whether there was a value.
func (t *Table[K, V]) Delete(groupHash, slotHash uint64, key *K) bool {
	g := &t.groups[int(t.k.of(groupHash))-t.first]
	h := mix(slotHash)
	id, s := t.find(g.lookup(h), h, key)
	if s < 0 {
		return false
	}
	id = t.ownPage(g, h, id)
	c, p := t.page(id)
	if t.keyPointers || t.valPointers {
		*c.at(p, s) = slot[K, V]{}
	}
	c.drop(p, s)
	g.n--
	t.n--
	t.shrink(g, h)
	return true
}

// All goes over the keys and values in no order. The table must not be changed meanwhile, and what is
// yielded is valid until the next step.
func (t *Table[K, V]) All() iter.Seq2[*K, *V] {
	return func(yield func(*K, *V) bool) {
		for i := range t.groups {
			for id := range t.groups[i].pages(t.depthOf) {
				for id != 0 {
					c, p := t.page(id)
					if !c.each(p, func(s int) bool { return yield(&c.at(p, s).key, t.view(id, s)) }) {
						return
					}
					id = c.heads[p].next
				}
			}
		}
		runtime.KeepAlive(t) // Its memory is given back when t is found unreachable.
	}
}

// Close drops everything; nothing but Close may be called after it, and no pointer that a call returned may be
// used. Snapshots alive stay readable until they are released.
func (t *Table[K, V]) Close() {
	t.groups, t.chunks, t.alive, t.retired, t.moves = nil, nil, nil, nil, nil
	t.free, t.next, t.end = [numClasses][]uint32{}, [numClasses]uint32{}, [numClasses]uint32{}
	t.n = 0
	t.memory.release()
}

func (t *Table[K, V]) page(id uint32) (*chunk[K, V], int) {
	return &t.chunks[id>>chunkBits], int(id & (chunkPages - 1))
}

func (t *Table[K, V]) depthOf(id uint32) int {
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

// find looks for key in page id and those chained to it.
func (t *Table[K, V]) find(id uint32, h uint64, key *K) (uint32, int) {
	for {
		c, p := t.page(id)
		if s := c.find(p, h, key); s >= 0 {
			return id, s
		}
		if id = c.heads[p].next; id == 0 {
			return 0, -1
		}
	}
}

// view returns the value in a slot for reading. A value with pointers that a snapshot sees too is copied,
// so that a caller who changes it all the same does not change the snapshot.
func (t *Table[K, V]) view(id uint32, s int) *V {
	c, p := t.page(id)
	v := &c.at(p, s).val
	if t.valPointers && (c.heads[p].epoch <= t.frozen || c.shared[p]>>s&1 != 0) {
		var fresh V
		t.copyValue(&fresh, v)
		t.scratch = fresh
		return &t.scratch
	}
	if !t.valPointers && c.heads[p].epoch <= t.frozen {
		t.scratch = *v
		return &t.scratch
	}
	return v
}

// own returns the value in a slot for changing.
func (t *Table[K, V]) own(g *group, h uint64, id uint32, s int) *V {
	id = t.ownPage(g, h, id)
	c, p := t.page(id)
	v := &c.at(p, s).val
	if t.valPointers && c.shared[p]>>s&1 != 0 {
		var fresh V
		t.copyValue(&fresh, v)
		*v = fresh
		c.shared[p] &^= 1 << s
	}
	return v
}

// ownPage makes the page, one of the chain that h leads to, changeable, and returns its number after that.
// A chain is copied as a whole, so that all its pages have one epoch.
func (t *Table[K, V]) ownPage(g *group, h uint64, id uint32) uint32 {
	c, p := t.page(id)
	if c.heads[p].epoch > t.frozen {
		return id
	}
	first := g.lookup(h)
	depth := int(c.heads[p].depth)
	var owned, start, prev uint32
	for old := first; old != 0; {
		c, p := t.page(old)
		class := c.class
		next := c.heads[p].next
		fresh := t.alloc(class)
		c, p = t.page(old) // alloc may have moved t.chunks.
		d, q := t.page(fresh)
		d.heads[q] = c.heads[p]
		d.heads[q].epoch = t.epoch
		copy(d.slots[q*d.size():(q+1)*d.size()], c.slots[p*c.size():(p+1)*c.size()])
		if t.valPointers {
			d.shared[q] = ^uint64(0)
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
func (t *Table[K, V]) point(g *group, h uint64, depth int, id uint32) {
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

// insert adds key, which is not there, and returns its value, the zero V.
func (t *Table[K, V]) insert(g *group, h uint64, key *K) *V {
	id := g.lookup(h)
	if id == 0 {
		id = t.alloc(0)
		t.point(g, h, 0, id)
	}
	id = t.room(g, h, id)
	c, p := t.page(id)
	s := c.take(p, h)
	e := c.at(p, s)
	var zero V
	e.val = zero
	if t.keyPointers {
		var k K
		t.copyKey(&k, key)
		e.key = k
	} else {
		e.key = *key
	}
	if t.valPointers {
		c.shared[p] &^= 1 << s
	}
	g.n++
	t.n++
	return &e.val
}

// room returns a changeable page with a free slot on the chain that h leads to, which begins with id.
func (t *Table[K, V]) room(g *group, h uint64, id uint32) uint32 {
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
}

// collect lists the entries of a chain in t.moves.
func (t *Table[K, V]) collect(ids ...uint32) {
	t.moves = t.moves[:0]
	for _, id := range ids {
		for id != 0 {
			c, p := t.page(id)
			seen := c.heads[p].epoch <= t.frozen
			c.each(p, func(s int) bool {
				_, slotHash := t.hash(&c.at(p, s).key)
				shared := t.valPointers && (seen || c.shared[p]>>s&1 != 0)
				t.moves = append(t.moves, move{id, uint32(s), mix(slotHash), shared})
				return true
			})
			id = c.heads[p].next
		}
	}
}

// replace makes a new page, or chain, of the moves, with room for one more, and points h's part of the
// directory at it. The old pages are the caller's to discard.
func (t *Table[K, V]) replace(g *group, h uint64, depth int, moves []move) {
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
			*c.at(p, s) = *from.at(q, int(m.slot))
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
func (t *Table[K, V]) split(g *group, h uint64, id uint32) {
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
func (t *Table[K, V]) overflow(g *group, h uint64, last uint32) uint32 {
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
func (t *Table[K, V]) shrink(g *group, h uint64) {
	if g.n == 0 {
		for id := range g.pages(t.depthOf) {
			t.discard(id)
		}
		g.reset()
		return
	}
	i := g.index(h)
	id := g.lookup(h)
	c, p := t.page(id)
	hd := &c.heads[p]
	if int(hd.used) > c.size()/6 {
		return
	}
	depth := int(hd.depth)
	if depth == 0 {
		if c.class > 0 && hd.next == 0 {
			t.collect(id)
			t.replace(g, h, depth, t.moves)
			t.discard(id)
		}
		return
	}
	buddy := g.entries()[i^1<<(g.depth()-depth)]
	b, q := t.page(buddy)
	bh := &b.heads[q]
	if int(bh.depth) != depth || hd.next != 0 || bh.next != 0 || int(hd.used)+int(bh.used) > 4*int(classWords[t.classes-1]) {
		return
	}
	t.collect(id, buddy)
	t.replace(g, h, depth-1, t.moves)
	t.discard(id)
	t.discard(buddy)
}

// discard gives up a chain that the directory no longer leads to.
func (t *Table[K, V]) discard(id uint32) {
	for id != 0 {
		c, p := t.page(id)
		next := c.heads[p].next
		if c.heads[p].epoch <= t.frozen {
			t.retire(id)
		} else {
			t.recycle(id)
		}
		id = next
	}
}

func (t *Table[K, V]) retire(id uint32) {
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
func (t *Table[K, V]) recycle(id uint32) {
	c, p := t.page(id)
	if t.keyPointers || t.valPointers {
		clear(c.slots[p*c.size() : (p+1)*c.size()])
	}
	t.free[c.class] = append(t.free[c.class], id)
}

// alloc returns an empty page of a class. It may move t.chunks.
func (t *Table[K, V]) alloc(class int) uint32 {
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
	return id
}

// addChunk makes room for pages: as many as there are already, within limits, so that small tables stay small.
func (t *Table[K, V]) addChunk(class int) {
	have := 0
	for i := 1; i < len(t.chunks); i++ {
		if t.chunks[i].class == class {
			have += len(t.chunks[i].heads)
		}
	}
	pages := min(max(have, 8), chunkPages)
	words := int(classWords[class])
	c := newChunk(words, class, allocate[head](&t.memory, pages, false),
		allocate[slot[K, V]](&t.memory, 8*words*pages, t.keyPointers || t.valPointers))
	if t.valPointers {
		c.shared = make([]uint64, pages)
	}
	t.next[class] = uint32(len(t.chunks)) << chunkBits
	t.end[class] = t.next[class] + uint32(pages)
	t.chunks = append(t.chunks, c)
}

// Freeze returns the content as of now. It is an error if MaxFrozen snapshots are alive.
func (t *Table[K, V]) Freeze() (*Frozen[K, V], error) {
	t.poll()
	if len(t.alive) >= t.max {
		return nil, fmt.Errorf("%w: %d", ErrTooManyFrozen, len(t.alive))
	}
	f := &Frozen[K, V]{groups: slices.Clone(t.groups), chunks: t.chunks, n: t.n, memory: t.memory.share()}
	f.epoch = t.epoch
	t.frozen = t.epoch
	t.epoch++
	t.alive = append(t.alive, f)
	return f, nil
}

// ErrTooManyFrozen is what Freeze returns when MaxFrozen snapshots are alive.
var ErrTooManyFrozen = errors.New("too many snapshots alive")

// poll takes note of released snapshots.
func (t *Table[K, V]) poll() {
	t.alive = slices.DeleteFunc(t.alive, func(f *Frozen[K, V]) bool { return f.released.Load() })
	t.frozen = 0
	if n := len(t.alive); n > 0 {
		t.frozen = t.alive[n-1].epoch
	}
}

// mergeStep is how many pages are handled between two looks at the clock: well under 0.1 ms.
const mergeStep = 64

// Merge makes the pages that only released snapshots needed available again, for about as long as budget
// allows; it tells whether work is left.
func (t *Table[K, V]) Merge(budget time.Duration) bool {
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
func (t *Table[K, V]) mergePages(i int, need uint32) int {
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
func (t *Table[K, V]) Bytes() int64 {
	var n int64
	for i := range t.chunks {
		c := &t.chunks[i]
		n += int64(len(c.heads))*int64(unsafe.Sizeof(head{})) + int64(len(c.slots))*int64(unsafe.Sizeof(slot[K, V]{})) + 8*int64(len(c.shared))
	}
	for i := range t.groups {
		n += 4<<t.groups[i].depth() + int64(unsafe.Sizeof(group{}))
	}
	return n
}
