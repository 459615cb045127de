package tables

import (
	"slices"
	"unsafe"

	"github.com/cairnstream/cairn/statebackend"
)

const (
	// maxChain is the most segments that a state in a checkpoint consists of, so that a restore reads a bounded number of
	// objects. Of a state that changes by a hundredth between checkpoints, chains of 16 write 7 % of what full ones would, and
	// of 8 13 %; longer ones save little more, while each segment is an object to keep and a read or two at a restore.
	maxChain = 16
	// DefaultFullBelow and smallBytes: a state of fewer entries whose segment is smaller is written in full each time. That
	// takes a millisecond, and such a state pays nothing for noting changes.
	DefaultFullBelow = 16 << 10
	smallBytes       = 256 << 10
	// maxSkip bounds for how many snapshots a state is written in full without a further look after its changes turned out
	// not to be worth a segment of their own.
	maxSkip = 15
	// keysPerRun bounds the bytes of a run of removed keys.
	keysPerRun = 1 << 20
)

// changes are the keys that were removed from a state since the snapshot that the next one may build on. Of the other
// changes the table takes note itself.
type changes struct {
	table  statebackend.Table
	since  uint32     // Changes are noted from this Freeze of the table on.
	open   *removed   // Since the last Freeze.
	sealed []*removed // Up to each Freeze since the base, in ascending order.

	keys, bytes       int64 // Of all.
	maxKeys, maxBytes int64
	over              bool // It was too much; changes are not noted any more.
	groups            int
}

// removed are the keys that were removed between two Freezes. Once sealed they do not change.
type removed struct {
	epoch  uint32 // Of the Freeze that ended it.
	keys   int64
	groups []removedKeys // From the first group of the table on; nil while there are none.
}

// removedKeys are those of one key group, encoded.
type removedKeys struct {
	data   []byte
	keys   int64
	before []removedKeys
}

// track begins to note changes after the Freeze of that epoch.
func track(t statebackend.Table, groups int, epoch uint32) *changes {
	c := &changes{table: t, since: epoch, open: &removed{}, groups: groups}
	c.limit()
	t.Track(true, c.add)
	return c
}

// limit sets how much is noted at most. With a quarter of the entries gone the rest is as well written in full, and the log
// is to take a fraction of what the state takes.
func (c *changes) limit() {
	c.maxKeys = max(64, int64(c.table.Len())/4)
	c.maxBytes = max(64<<10, c.table.Bytes()/4)
}

// add is called by the table for each key that is removed.
func (c *changes) add(group int, key unsafe.Pointer) {
	if c.open.groups == nil {
		c.open.groups = make([]removedKeys, c.groups)
	}
	r := &c.open.groups[group]
	if len(r.data) >= keysPerRun {
		*r = removedKeys{before: append(r.before, removedKeys{data: r.data, keys: r.keys})}
	}
	size := len(r.data)
	data, err := c.table.AppendKey(r.data, key)
	if err != nil {
		c.stop() // Whether it matters the next full snapshot tells.
		return
	}
	r.data = data
	r.keys++
	c.open.keys++
	c.keys++
	c.bytes += int64(len(data) - size)
	if c.keys > c.maxKeys || c.bytes > c.maxBytes {
		c.stop()
	}
}

// stop gives up noting changes.
func (c *changes) stop() {
	c.table.Track(false, nil)
	c.over, c.open, c.sealed = true, &removed{}, nil
}

// seal ends what was noted before the Freeze of that epoch.
func (c *changes) seal(epoch uint32) {
	if c.open.keys > 0 {
		c.open.epoch = epoch
		c.sealed = append(c.sealed, c.open)
		c.open = &removed{}
	}
}

// rebase drops what was noted up to the Freeze of that epoch.
func (c *changes) rebase(epoch uint32) {
	c.table.Rebase(epoch)
	c.sealed = slices.DeleteFunc(slices.Clone(c.sealed), func(r *removed) bool { return r.epoch <= epoch }) // A snapshot may use the old list.
	c.keys, c.bytes = 0, 0
	for _, r := range append(slices.Clone(c.sealed), c.open) {
		c.keys += r.keys
		for _, g := range r.groups {
			c.bytes += int64(len(g.data) + len(g.before)*keysPerRun)
		}
	}
	c.limit()
}

// encode calls write with the removed keys of the group'th group of the table.
func (r *removed) encode(group int, write func(keys int64, data []byte) error) error {
	if r.groups == nil {
		return nil
	}
	g := r.groups[group]
	for _, b := range g.before {
		if err := write(b.keys, b.data); err != nil {
			return err
		}
	}
	return write(g.keys, g.data)
}
