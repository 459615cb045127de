package pebble

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sort"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cairnstream/cairn/internal/gcfloor"
)

// files finds single keys in the files of a tree. In front of the tree is a cache of decoded entries, so what is looked for here
// was not used for a while, and neither was the block that it is in: a cache of blocks would be memory that finds little. Instead
// the index and the filter of each file that is open are in memory, a block is read into a buffer that the next one of its file
// takes over, and the rest of the budget is the cache's. Files that compactions have replaced are as good as those that took
// their place, which is why the list need not be a new one.
type files struct {
	listed bool      // Nothing of interest was written since.
	levels [][]*file // Those that may have a key: the first level from the newest on, they overlap; others in the order of keys.
	open   []*file   // From the oldest on.
	bytes  int64     // Of indexes and filters.
}

// file is a file of the tree.
type file struct {
	num               uint64
	smallest, largest []byte
	level             int
	r                 *sstable.Reader // Nil when it is not open, like the others below.
	it                sstable.Iterator
	filter            []byte
	pool              block.BufferPool
	bytes             int64
}

const (
	// lookupFiles is how many files are kept open for look-ups, and lookupPart what their indexes and filters may take of a
	// backend's share of the budget.
	lookupFiles = 512
	lookupPart  = 0.12
	// fileBuffers is what an iterator holds, index, block and the compressed one, and one to spare.
	fileBuffers = 4
)

// filterPolicy is the only one; its name is in the files.
var filterPolicy = bloom.FilterPolicy(bloomBits)

// get finds the value of a key. It is valid until the next call.
func (f *files) get(t *tree, key []byte) (value []byte, found bool, err error) {
	for range 10 {
		if !f.listed {
			if err = f.list(t); err != nil {
				break
			}
		}
		value, found, err = f.find(t, key)
		if !errors.Is(err, fs.ErrNotExist) {
			return value, found, err
		}
		f.listed = false // It was replaced before it was opened for the first time.
	}
	return nil, false, fmt.Errorf("files of the tree: %w", err)
}

func (f *files) find(t *tree, key []byte) (value []byte, found bool, err error) {
	for level, all := range f.levels {
		if level > 0 {
			i := sort.Search(len(all), func(i int) bool { return bytes.Compare(all[i].largest, key) >= 0 })
			all = all[i:min(i+1, len(all))]
		}
		for _, e := range all {
			if bytes.Compare(key, e.smallest) < 0 || bytes.Compare(key, e.largest) > 0 {
				continue
			}
			if e.it == nil {
				if err := f.openFile(t, e); err != nil {
					return nil, false, err
				}
			}
			if e.filter != nil && !filterPolicy.MayContain(pebbledb.TableFilter, e.filter, key) {
				continue
			}
			kv := e.it.SeekGE(key, 0)
			if kv == nil {
				if err := e.it.Error(); err != nil {
					return nil, false, err
				}
				continue
			}
			if !bytes.Equal(kv.K.UserKey, key) {
				continue
			}
			switch kind := kv.K.Kind(); kind {
			case pebbledb.InternalKeyKindSet, pebbledb.InternalKeyKindSetWithDelete:
				value, _, err = kv.Value(nil)
				return value, err == nil, err
			case pebbledb.InternalKeyKindDelete, pebbledb.InternalKeyKindDeleteSized:
				return nil, false, nil
			default:
				return nil, false, fmt.Errorf("file %d has an entry of kind %v, which nobody writes", e.num, kind)
			}
		}
	}
	return nil, false, nil
}

// list takes note of the files that there are now.
func (f *files) list(t *tree) error {
	all, err := t.db.SSTables()
	if err != nil {
		return err
	}
	known := make(map[uint64]*file, len(f.open))
	for _, e := range f.open {
		known[e.num] = e
	}
	f.levels = f.levels[:0]
	for level, infos := range all {
		if len(infos) == 0 && level > 0 {
			continue
		}
		if level == 0 {
			slices.SortFunc(infos, func(a, b pebbledb.SSTableInfo) int {
				return cmp.Or(cmp.Compare(b.LargestSeqNum, a.LargestSeqNum), cmp.Compare(b.SmallestSeqNum, a.SmallestSeqNum), cmp.Compare(b.FileNum, a.FileNum))
			})
		}
		entries := make([]*file, len(infos))
		for i, info := range infos {
			num := uint64(info.FileNum)
			e := known[num]
			delete(known, num)
			if e == nil {
				e = &file{num: num, smallest: info.Smallest.UserKey, largest: info.Largest.UserKey}
			}
			e.level = level
			entries[i] = e
		}
		f.levels = append(f.levels, entries)
	}
	f.open = slices.DeleteFunc(f.open, func(e *file) bool {
		if known[e.num] == nil {
			return false
		}
		f.closeFile(e)
		return true
	})
	f.listed = true
	return nil
}

func (f *files) openFile(t *tree, e *file) (err error) {
	limit := f.trim(t, lookupFiles-1)
	handle, err := t.b.fs.Open(t.b.fs.PathJoin(t.b.treeDir(), fmt.Sprintf("%06d.sst", e.num)), vfs.RandomReadsOption)
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(handle)
	if err != nil {
		return errors.Join(err, handle.Close())
	}
	r, err := sstable.NewReader(context.Background(), readable, sstable.ReaderOptions{})
	if err != nil {
		return errors.Join(fmt.Errorf("open file %d of the tree: %w", e.num, err), readable.Close())
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open file %d of the tree: %w", e.num, err), r.Close())
		}
	}()
	layout, err := r.Layout()
	if err != nil {
		return err
	}
	// The last level has nearly all entries, and nearly all that is looked for: filters that are never wrong about it.
	last := e.level == len(t.b.opts.Levels)-1
	if len(layout.Filter) == 1 && !(last && f.bytes+int64(layout.Filter[0].Length) > limit/2) {
		h := layout.Filter[0].Handle
		b := make([]byte, h.Length+block.TrailerLen)
		if err := readable.ReadAt(context.Background(), b, int64(h.Offset)); err != nil {
			return err
		}
		if err := block.ValidateChecksum(r.BlockReader().ChecksumType(), b, h); err != nil {
			return err
		}
		e.filter = b[:h.Length]
	}
	e.pool.Init(fileBuffers)
	it, err := r.NewPointIter(context.Background(), sstable.IterOptions{
		Env: sstable.ReadEnv{Block: block.ReadEnv{BufferPool: &e.pool}}, ReaderProvider: sstable.MakeTrivialReaderProvider(r),
	})
	if err != nil {
		return err
	}
	e.r, e.it = r, it
	e.bytes = int64(len(e.filter)) + int64(layout.TopIndex.Length) + 3*blockSize
	for _, h := range layout.Index {
		e.bytes += int64(h.Length)
	}
	f.bytes += e.bytes
	gcfloor.AddCached(e.bytes)
	f.open = append(f.open, e)
	return nil
}

// trim closes files until no more than n are open, and what they take is within their part of the budget, which it returns.
func (f *files) trim(t *tree, n int) (limit int64) {
	limit = int64(lookupPart * float64(t.b.p.Budget.Share()))
	for len(f.open) > 0 && (len(f.open) > n || f.bytes > limit) {
		f.closeFile(f.open[0])
		f.open = f.open[1:]
	}
	return limit
}

// closeFile leaves it to the caller to take e from the list of open files. Errors of closing what was read are of no interest.
func (f *files) closeFile(e *file) {
	_ = e.it.Close()
	e.pool.Release()
	_ = e.r.Close()
	f.bytes -= e.bytes
	gcfloor.AddCached(-e.bytes)
	e.it, e.r, e.filter, e.bytes = nil, nil, nil, 0
}

func (f *files) close() {
	for _, e := range f.open {
		f.closeFile(e)
	}
	*f = files{}
}
