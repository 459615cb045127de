package segment

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// sortedRun is how many bytes of entries a run of a sorted segment has, about. It is a part of the format: the same entries
// make the same bytes.
const sortedRun = 32 << 10

// SortedWriter writes a segment in which the entries of a key group are in the order of their encoded keys, cut into runs by
// nothing but their bytes: so the segments of the same entries under the same Descriptor are the same, whoever writes them. One
// goroutine uses it.
type SortedWriter struct {
	w       Writer
	group   int
	entries int64
	run     []byte
	last    []byte // Key of the entry before, of the same group.
}

// Reset begins a segment and keeps buffers.
func (s *SortedWriter) Reset(out io.Writer, d Descriptor) {
	d.Sorted = true
	s.w.Reset(out, d)
	s.group, s.entries, s.run, s.last = -1, 0, s.run[:0], s.last[:0]
}

// Add adds an entry. Groups come in ascending order, and within one the encoded keys do.
func (s *SortedWriter) Add(group int, key, value []byte) error {
	switch {
	case group != s.group:
		if err := s.flush(); err != nil {
			return err
		}
		s.group = group
	case bytes.Compare(key, s.last) <= 0:
		return fmt.Errorf("key group %d: key %x comes after %x: it is out of order, or there twice", group, short(key), short(s.last))
	}
	s.last = append(s.last[:0], key...)
	if len(key)+len(value) > MaxBlock-maxRunHead {
		return fmt.Errorf("%w: key group %d, key %x: %d bytes, limit is %d", ErrTooLarge, group, short(key), len(key)+len(value), MaxBlock-maxRunHead)
	}
	if len(s.run)+len(key)+len(value) > MaxBlock-maxRunHead { // Only next to a very large one.
		if err := s.flush(); err != nil {
			return err
		}
	}
	s.run = append(append(s.run, key...), value...)
	if s.entries++; len(s.run) >= sortedRun {
		return s.flush()
	}
	return nil
}

// short is as much of a key as a message has room for.
func short(key []byte) []byte { return key[:min(len(key), 32)] }

func (s *SortedWriter) flush() error {
	if s.entries == 0 {
		return nil
	}
	err := s.w.Add(s.group, s.entries, s.run)
	s.run, s.entries = s.run[:0], 0
	return err
}

// Finish ends the segment.
func (s *SortedWriter) Finish() (Summary, error) {
	if err := s.flush(); err != nil {
		return Summary{}, err
	}
	return s.w.Finish()
}

// Rows are encoded entries of one key group that are to be put in order. The zero value has none.
type Rows struct {
	buf []byte
	at  []row
}

// row is where an entry lies in the buffer of Rows.
type row struct {
	head         uint64 // The first bytes of its key, for comparisons.
	off, key, to int    // Where it begins, where its key ends, where it ends.
}

// Reset drops the entries and keeps the memory.
func (r *Rows) Reset() { r.buf, r.at = r.buf[:0], r.at[:0] }

// Add adds an entry, of which it makes copies.
func (r *Rows) Add(key, value []byte) {
	var head [8]byte
	copy(head[:], key)
	off := len(r.buf)
	r.buf = append(append(r.buf, key...), value...)
	r.at = append(r.at, row{binary.BigEndian.Uint64(head[:]), off, off + len(key), len(r.buf)})
}

// Sort puts the entries in the order of their keys.
func (r *Rows) Sort() {
	slices.SortFunc(r.at, func(a, b row) int {
		if c := cmp.Compare(a.head, b.head); c != 0 {
			return c
		}
		return bytes.Compare(r.buf[a.off:a.key], r.buf[b.off:b.key])
	})
}

// Len is the number of entries.
func (r *Rows) Len() int { return len(r.at) }

// AddTo adds the entries to a segment, in the order in which they are.
func (r *Rows) AddTo(s *SortedWriter, group int) error {
	for _, e := range r.at {
		if err := s.Add(group, r.buf[e.off:e.key], r.buf[e.key:e.to]); err != nil {
			return err
		}
	}
	return nil
}
