package table

import "unsafe"

// Reserve makes room for n entries in the i-th group of the table, if that is empty, so that it need not grow step by step. If
// fewer come, or their hashes are alike, it costs memory only.
func (t *Core) Reserve(i, n int) {
	g := &t.groups[i]
	// Pages of a group that grew are filled to between a half and all of that.
	full := capacity(t.classes-1) * 4 / 5
	depth := 0
	for n>>depth > full && depth < maxReserve {
		depth++
	}
	if depth == 0 || g.n > 0 || g.root != 0 || g.dir != nil {
		return
	}
	dir := make([]uint32, 1<<depth)
	for j := range dir {
		dir[j] = t.alloc(t.classes - 1)
		c, p := t.page(dir[j])
		c.heads[p].depth = uint8(depth)
	}
	*g = group{dir: unsafe.SliceData(dir), epoch: t.epoch, touched: t.epoch, shift: uint8(63 - depth)}
}

// maxReserve bounds the directory that Reserve makes: for 100 M entries and more in one group.
const maxReserve = 22
