package stored

import (
	"bufio"
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// The sizes of a sorter.
const (
	defaultSortMemory = 64 << 20
	// fanIn is how many files are read at a time; where there are more, that many become one.
	fanIn = 64
	// sortBuffer is for each file that is read.
	sortBuffer = 64 << 10
	// refSize is about what a sorter needs for an entry beside its bytes.
	refSize = 48
)

// sorter puts entries in the order of their keys, as bytes. What is more than fits into its memory lies in temporary files. An
// entry's key and value are below 4 GiB, as everything that comes out of a segment is.
type sorter struct {
	dir    string // Of the files; empty for the system's.
	memory int
	buf    []byte
	at     []ref
	levels [][]*sortedFile // Files of a level are as large as fanIn of the level below.
}

// ref is where an entry lies in the buffer of a sorter.
type ref struct {
	head         uint64 // The first bytes of its key, for comparisons.
	off, key, to int
}

func newSorter(dir string, memory int) *sorter {
	return &sorter{dir: dir, memory: cmp.Or(memory, defaultSortMemory)}
}

// add adds an entry, of which it makes copies. prefix and key together are what it is sorted by.
func (s *sorter) add(ctx context.Context, prefix, key, value []byte) error {
	if size := len(prefix) + len(key) + len(value) + refSize; len(s.at) > 0 && len(s.buf)+len(s.at)*refSize+size > s.memory {
		if err := s.spill(ctx); err != nil {
			return err
		}
	}
	off := len(s.buf)
	s.buf = append(append(s.buf, prefix...), key...)
	end := len(s.buf)
	var head [8]byte
	copy(head[:], s.buf[off:end])
	s.buf = append(s.buf, value...)
	s.at = append(s.at, ref{binary.BigEndian.Uint64(head[:]), off, end, len(s.buf)})
	return nil
}

func (s *sorter) sort() {
	slices.SortFunc(s.at, func(a, b ref) int {
		if c := cmp.Compare(a.head, b.head); c != 0 {
			return c
		}
		return bytes.Compare(s.buf[a.off:a.key], s.buf[b.off:b.key])
	})
}

// spill writes what is in memory to a file.
func (s *sorter) spill(ctx context.Context) error {
	s.sort()
	f, err := s.write(ctx, &inMemory{s: s})
	if err != nil {
		return err
	}
	s.buf, s.at = s.buf[:0], s.at[:0]
	for level := 0; ; level++ {
		if level == len(s.levels) {
			s.levels = append(s.levels, nil)
		}
		s.levels[level] = append(s.levels[level], f)
		if len(s.levels[level]) < fanIn {
			return nil
		}
		full := s.levels[level]
		m, err := merge(files(full))
		if err == nil {
			f, err = s.write(ctx, m)
		}
		if err != nil {
			return err
		}
		s.levels[level] = nil
		for _, old := range full {
			old.close()
		}
	}
}

// write makes a file of entries that are in order.
func (s *sorter) write(ctx context.Context, in entries) (out *sortedFile, err error) {
	f, err := os.CreateTemp(s.dir, "cairn-sort-")
	if err != nil {
		return nil, fmt.Errorf("sort entries: %w", err)
	}
	_ = os.Remove(f.Name()) // Where a file in use cannot be removed, close does it.
	out = &sortedFile{f: f}
	defer func() {
		if err != nil {
			out.close()
			out, err = nil, fmt.Errorf("sort entries in %s: %w", f.Name(), err)
		}
	}()
	w := bufio.NewWriterSize(f, sortBuffer)
	for n := 0; ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return out, ctx.Err()
		}
		key, value, err := in.next()
		if errors.Is(err, io.EOF) {
			return out, w.Flush()
		}
		if err != nil {
			return out, err
		}
		var head [8]byte
		binary.LittleEndian.PutUint32(head[:], uint32(len(key)))
		binary.LittleEndian.PutUint32(head[4:], uint32(len(value)))
		for _, b := range [][]byte{head[:], key, value} {
			if _, err := w.Write(b); err != nil { // Flush gives it again, but what comes may be long.
				return out, err
			}
		}
	}
}

// sorted gives all entries in order, once; nothing is added after that.
func (s *sorter) sorted() (entries, error) {
	s.sort()
	all := []entries{&inMemory{s: s}}
	for _, level := range s.levels {
		all = append(all, files(level)...)
	}
	return merge(all)
}

// close removes the files.
func (s *sorter) close() {
	for _, level := range s.levels {
		for _, f := range level {
			f.close()
		}
	}
	s.levels = nil
}

// entries are visited one by one.
type entries interface {
	// next gives the next entry, io.EOF behind the last one. It is valid until the next call.
	next() (key, value []byte, err error)
}

// inMemory are those of a sorter that are not in files.
type inMemory struct {
	s *sorter
	i int
}

func (m *inMemory) next() (key, value []byte, err error) {
	if m.i == len(m.s.at) {
		return nil, nil, io.EOF
	}
	r := m.s.at[m.i]
	m.i++
	return m.s.buf[r.off:r.key:r.key], m.s.buf[r.key:r.to], nil
}

// sortedFile is a temporary file without a name.
type sortedFile struct {
	f   *os.File
	r   *bufio.Reader // Nil before the first entry.
	buf []byte
}

func files(list []*sortedFile) []entries {
	out := make([]entries, len(list))
	for i, f := range list {
		out[i] = f
	}
	return out
}

func (f *sortedFile) next() (key, value []byte, err error) {
	if f.r == nil {
		if _, err := f.f.Seek(0, io.SeekStart); err != nil {
			return nil, nil, err
		}
		f.r = bufio.NewReaderSize(f.f, sortBuffer)
	}
	var head [8]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return nil, nil, err
	}
	k, v := int(binary.LittleEndian.Uint32(head[:])), int(binary.LittleEndian.Uint32(head[4:]))
	f.buf = slices.Grow(f.buf[:0], k+v)[:k+v]
	if _, err := io.ReadFull(f.r, f.buf); err != nil {
		return nil, nil, fmt.Errorf("an entry of %d bytes in %s: %w", k+v, f.f.Name(), io.ErrUnexpectedEOF)
	}
	return f.buf[:k:k], f.buf[k:], nil
}

func (f *sortedFile) close() {
	_ = f.f.Close() // It is of no use any more.
	_ = os.Remove(f.f.Name())
}

// merged gives the entries of several sources, each in order, in order.
type merged struct {
	heads heads
	read  bool // The first of heads has been given: its source is to go on.
}

// heads are the next entries of sources; the least key comes first.
type heads []*head

type head struct {
	in         entries
	key, value []byte
}

func (h heads) Len() int           { return len(h) }
func (h heads) Less(i, j int) bool { return bytes.Compare(h[i].key, h[j].key) < 0 }
func (h heads) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *heads) Push(x any)        { *h = append(*h, x.(*head)) }
func (h *heads) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func merge(in []entries) (entries, error) {
	m := &merged{}
	for _, e := range in {
		k, v, err := e.next()
		if errors.Is(err, io.EOF) {
			continue
		}
		if err != nil {
			return nil, err
		}
		m.heads = append(m.heads, &head{e, k, v})
	}
	heap.Init(&m.heads)
	return m, nil
}

func (m *merged) next() (key, value []byte, err error) {
	if m.read {
		h := m.heads[0]
		h.key, h.value, err = h.in.next()
		switch {
		case errors.Is(err, io.EOF):
			heap.Pop(&m.heads)
		case err != nil:
			return nil, nil, err
		default:
			heap.Fix(&m.heads, 0)
		}
		m.read = false
	}
	if len(m.heads) == 0 {
		return nil, nil, io.EOF
	}
	m.read = true
	return m.heads[0].key, m.heads[0].value, nil
}
