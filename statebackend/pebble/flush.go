package pebble

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"sync"
	"unsafe"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cairnstream/cairn/internal/table"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// flush is what is to be written of the caches at one moment, and what came of it.
type flush struct {
	states []frozenState
	link   string // Folder for the files of the tree after it; empty when nobody wants them.
	done   chan struct{}
	// Valid once done is closed:
	err     error
	written int // Entries, removed ones included.
	version int // Of the tree's content: how many flushes that wrote something there were. A restored tree has 0.
}

type frozenState struct {
	s          *state
	main, gone *table.Frozen
	tag        byte
	size       float64 // Bytes of an encoded entry; 0 when none was written.
	newest     int64   // Of a state whose values age: the latest time in what was written.
}

// release lets the caches use the memory again.
func (f *flush) release() {
	for _, s := range f.states {
		s.main.Release()
		if s.gone != nil {
			s.gone.Release()
		}
	}
}

// flusher writes flushes into the tree, one by one.
type flusher struct {
	b    *Backend
	wg   sync.WaitGroup
	jobs chan *flush
	n    int // Files written.
	made int // The newest version.
	rows rows
}

// outFile is where a file for the tree ends. Between them the tree can move files down without rewriting them.
const outFile = 16 << 20

func (f *flusher) run() {
	for j := range f.jobs {
		j.err = f.guard(j)
		j.release()
		close(j.done)
	}
}

// guard turns what the library panics with into an error.
func (f *flusher) guard(j *flush) (err error) {
	defer func() {
		if r := recover(); r != nil {
			lost, ok := r.(fatal)
			if !ok {
				panic(r)
			}
			err = lost
		}
	}()
	if err := f.b.troubles.err(); err != nil {
		return err
	}
	if f.b.fs.free.Load() {
		if err := f.b.fs.refill(); err != nil {
			f.b.troubles.note(err) // What comes now may still fit.
		}
	}
	if err := f.write(j); err != nil {
		return err
	}
	if j.written > 0 {
		f.made++
	}
	j.version = f.made
	if j.link == "" {
		return nil
	}
	if err := f.b.tree.db.Checkpoint(j.link); err != nil {
		return fmt.Errorf("link the files of the tree: %w", err)
	}
	return nil
}

// write encodes what changed in the caches, in the order of the tree's keys, and gives it to the tree.
func (f *flusher) write(j *flush) (err error) {
	out := &sorted{b: f.b, prefix: "flush", n: &f.n}
	defer func() {
		if err != nil {
			out.drop()
		}
	}()
	sizes := make([]struct{ bytes, rows int }, len(j.states))
	g := f.b.p.Groups
	for group := g.First; group <= g.Last; group++ {
		for i := range j.states {
			s := &j.states[i]
			f.rows.reset()
			if err := f.collect(s, group, group-g.First); err != nil {
				return err
			}
			if len(f.rows.at) == 0 {
				continue
			}
			f.rows.sort()
			if err := f.rows.put(out); err != nil {
				return err
			}
			s.newest = max(s.newest, f.rows.newest)
			sizes[i].bytes += len(f.rows.buf)
			sizes[i].rows += len(f.rows.at)
			j.written += len(f.rows.at)
		}
	}
	if err := out.ingest(); err != nil {
		return err
	}
	for i := range j.states {
		if n := sizes[i].rows; n > 0 {
			j.states[i].size = float64(sizes[i].bytes) / float64(n)
		}
	}
	return nil
}

// collect is that of rows. Codecs may be the user's: what they panic with must not end the process.
func (f *flusher) collect(s *frozenState, group, i int) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("state %q: encode an entry: %w", s.s.name, statebackend.Recovered(v))
		}
	}()
	return f.rows.collect(s, group, i)
}

// rows are encoded entries of one state and key group.
type rows struct {
	buf []byte
	at  []row
	err error
	// newest is the latest time from which one of the values ages.
	newest int64
}

// row is an entry in the buffer of rows: the tree's key and, but for removed entries, its value.
type row struct {
	head         uint64 // The first bytes of the user's key, for comparisons.
	off, key, to uint32 // Where it begins, where its key ends, where it ends.
	gone         bool
}

func (r *rows) reset() { r.buf, r.at, r.err, r.newest = r.buf[:0], r.at[:0], nil, 0 }

func (r *rows) add(s *state, group int, tag byte, key, value unsafe.Pointer) bool {
	off := len(r.buf)
	b, err := s.cache.Key.Append(appendPrefix(r.buf, group, s.id), key)
	if err != nil {
		r.err = fmt.Errorf("state %q: encode a key: %w", s.name, err)
		return false
	}
	end := len(b)
	if value != nil {
		if b, err = s.cache.Value.Append(append(b, tag), value); err != nil {
			r.err = fmt.Errorf("state %q: encode the value of key %v: %w", s.name, reflect.NewAt(s.cache.Key.Type, key).Elem(), err)
			return false
		}
	}
	if limit := s.b.p.MaxValue; value != nil && limit > 0 && int64(len(b)-end-1) > limit {
		r.err = &job.Error{Class: job.ClassUser, Err: s.cache.TooLarge(key, int64(len(b)-end-1))}
		return false
	}
	if len(b) > 1<<31 {
		r.err = fmt.Errorf("state %q: the changes of key group %d have more than %d bytes", s.name, group, 1<<31)
		return false
	}
	if tag&agedFlag != 0 && value != nil {
		age, _ := ageOf(b[end:])
		r.newest = max(r.newest, age)
	}
	r.buf = b
	r.push(off, end, value == nil)
	return true
}

// push notes an entry that was appended to the buffer.
func (r *rows) push(off, keyEnd int, gone bool) {
	var head [8]byte
	copy(head[:], r.buf[off+prefixLen:keyEnd])
	r.at = append(r.at, row{binary.BigEndian.Uint64(head[:]), uint32(off), uint32(keyEnd), uint32(len(r.buf)), gone})
}

func (r *rows) collect(s *frozenState, group, i int) error {
	s.main.EachChanged(i, func(k, v unsafe.Pointer) bool { return r.add(s.s, group, s.tag, k, v) })
	if s.gone != nil {
		s.gone.EachChanged(i, func(k, _ unsafe.Pointer) bool { return r.add(s.s, group, s.tag, k, nil) })
	}
	return r.err
}

// sort orders the rows, which are of one state and group, by key.
func (r *rows) sort() {
	slices.SortFunc(r.at, func(a, b row) int {
		if c := cmp.Compare(a.head, b.head); c != 0 {
			return c
		}
		return bytes.Compare(r.buf[a.off:a.key], r.buf[b.off:b.key])
	})
}

// compact leaves one row of each key, one that is not gone where there are both. The rows are sorted.
func (r *rows) compact() {
	same := func(a, b row) bool { return bytes.Equal(r.buf[a.off:a.key], r.buf[b.off:b.key]) }
	for i := 1; i < len(r.at); i++ {
		if same(r.at[i-1], r.at[i]) && r.at[i-1].gone {
			r.at[i-1] = r.at[i]
		}
	}
	r.at = slices.CompactFunc(r.at, same)
}

// sortAll is sort for rows of several states of one group.
func (r *rows) sortAll() {
	slices.SortFunc(r.at, func(a, b row) int { return bytes.Compare(r.buf[a.off:a.key], r.buf[b.off:b.key]) })
}

func (r *rows) put(out *sorted) error {
	for _, e := range r.at {
		if err := out.add(r.buf[e.off:e.key], r.buf[e.key:e.to], e.gone); err != nil {
			return err
		}
	}
	return nil
}

// sorted writes files for the tree: entries come in the order of their keys.
type sorted struct {
	b      *Backend
	prefix string
	n      *int
	paths  []string
	w      *sstable.Writer
	bytes  int // Of the file at hand, before compression.
}

func (o *sorted) add(key, value []byte, gone bool) error {
	if o.bytes += len(key) + len(value); o.w != nil && o.bytes > outFile {
		if err := o.close(); err != nil {
			return err
		}
	}
	if o.w == nil {
		if err := o.create(); err != nil {
			return err
		}
	}
	if gone {
		return o.w.Delete(key)
	}
	return o.w.Set(key, value)
}

func (o *sorted) create() error {
	*o.n++
	path := o.b.fs.PathJoin(o.b.dir, fmt.Sprintf("%s-%d.new", o.prefix, *o.n))
	f, err := o.b.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	o.paths = append(o.paths, path)
	opts := o.b.opts.MakeWriterOptions(0, formatVersion.MaxTableFormat())
	o.bytes = 0
	o.w = sstable.NewWriter(objstorageprovider.NewFileWritable(f), opts)
	return nil
}

func (o *sorted) close() error {
	err := o.w.Close()
	o.w = nil
	return err
}

// ingest gives the files to the tree, all at once.
func (o *sorted) ingest() error {
	if o.w != nil {
		if err := o.close(); err != nil {
			return err
		}
	}
	if len(o.paths) == 0 {
		return nil
	}
	if err := o.b.tree.db.Ingest(context.Background(), o.paths); err != nil {
		return fmt.Errorf("give sorted entries to the tree: %w", err)
	}
	o.paths = nil
	return nil
}

// drop removes the files after an error.
func (o *sorted) drop() {
	if o.w != nil {
		_ = o.w.Close()
	}
	for _, p := range o.paths {
		if err := o.b.fs.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			o.b.troubles.note(err)
		}
	}
}
