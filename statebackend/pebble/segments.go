package pebble

import (
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/segment"
)

// loadChain adds what a segment and those with changes to it hold for our groups to the tree.
func (x *restore) loadChain(s *state, c statebackend.Chain) error {
	for _, h := range c {
		if err := x.loadSegment(s, h); err != nil {
			return err
		}
	}
	if len(c) == 1 {
		return nil
	}
	// How many entries there are is known of all key groups of the chain together: they are counted.
	groups := c[0].Groups.Intersect(s.b.p.Groups)
	for g := groups.First; g <= groups.Last; g++ {
		at := &s.counts[g-s.b.p.Groups.First]
		s.n -= *at
		*at = 0
	}
	var n int64
	s.eachIn(groups, func(group int, _, _ []byte) bool {
		s.counts[group-s.b.p.Groups.First]++
		n++
		return true
	})
	s.n += n
	if h := c.Newest(); groups == h.Groups && n != h.Entries {
		return fmt.Errorf("%w: %s makes %d entries, the checkpoint has %d", statebackend.ErrCorrupt, snapshot.Place(h), n, h.Entries)
	}
	return nil
}

// loadSegment adds the entries of our groups in a segment, which another backend or a savepoint wrote, to the tree.
func (x *restore) loadSegment(s *state, h job.StateHandle) error {
	b := x.b
	ix, _, err := segment.Open(x.ctx, x.reader, h, b.p.K)
	if err != nil {
		return fmt.Errorf("%s: %w", snapshot.Place(h), err)
	}
	if err := s.check(ix.Key, []string{ix.Value}); err != nil {
		return err
	}
	number, err := s.addSchema(ix.Value)
	if err != nil {
		return err
	}
	s.stale = s.stale || number != s.now
	blocks := ix.Overlapping(b.p.Groups)
	if len(blocks) == 0 {
		return nil
	}
	first, last := blocks[0], blocks[len(blocks)-1]
	body, err := x.reader.Range(x.ctx, h, first.Offset, last.Offset+last.Stored-first.Offset)
	if err != nil {
		return err
	}
	defer body.Close()
	l := segmentLoader{s: s, tag: number, out: &sorted{b: b, prefix: "restore", n: &b.restoredFiles}, group: -1, changes: h.Base != ""}
	if s.cache.Aged {
		l.tag |= agedFlag
	}
	var stored, raw []byte
	for _, bl := range blocks {
		if int64(cap(stored)) < bl.Stored {
			stored = make([]byte, bl.Stored)
		}
		stored = stored[:bl.Stored]
		_, err := io.ReadFull(body, stored)
		var content segment.Content
		if err == nil {
			content, err = bl.Decode(stored, &raw)
		}
		if err == nil {
			err = bl.Runs(content, l.run)
		}
		if err != nil {
			l.out.drop()
			return fmt.Errorf("%s: block at byte %d: %w", snapshot.Place(h), bl.Offset, err)
		}
	}
	if err := errors.Join(l.flush(), l.out.ingest()); err != nil {
		l.out.drop()
		return err
	}
	b.tree.renew()
	b.tree.empty = false
	return nil
}

// segmentLoader puts the entries of a segment into files for the tree. A segment is in the order of key groups, and in none within.
type segmentLoader struct {
	s       *state
	tag     byte
	out     *sorted
	rows    rows
	group   int
	changes bool // The segment holds changes to what was loaded before.
}

// run takes entries of one key group, or keys that were removed from it.
func (l *segmentLoader) run(r segment.Run) error {
	s, group, entries, data := l.s, r.Group, r.Entries, r.Data
	if !s.b.p.Groups.Contains(group) {
		return nil
	}
	if group != l.group {
		if err := l.flush(); err != nil {
			return err
		}
		l.group = group
	}
	pos := 0
	for i := range entries {
		key := reflect.NewAt(s.cache.Key.Type, s.keyOf).Elem()
		value := reflect.NewAt(s.cache.Value.Type, s.valOf).Elem()
		key.SetZero()
		value.SetZero()
		k, err := s.cache.Key.Decode(data[pos:], s.keyOf)
		if err != nil {
			return fmt.Errorf("%w: key group %d: key of entry %d: %w", statebackend.ErrCorrupt, group, i, err)
		}
		v := 0
		if !r.Removed {
			if v, err = s.decode[l.tag&^agedFlag](data[pos+k:], s.valOf); err != nil {
				return fmt.Errorf("%w: key group %d: value of entry %d: %w", statebackend.ErrCorrupt, group, i, err)
			}
		}
		if h, _ := s.cache.Hash(s.keyOf); int(h%uint64(s.b.p.K)) != group {
			return fmt.Errorf("%w: entry %d: its key belongs to key group %d, not %d: the key's hash has changed", statebackend.ErrCorrupt, i, h%uint64(s.b.p.K), group)
		}
		rows := &l.rows
		off := len(rows.buf)
		rows.buf = append(appendPrefix(rows.buf, group, s.id), data[pos:pos+k]...)
		end := len(rows.buf)
		if !r.Removed {
			rows.buf = append(append(rows.buf, l.tag), data[pos+k:pos+k+v]...)
			age, _ := ageOf(rows.buf[end:])
			s.newest = max(s.newest, age)
		}
		rows.push(off, end, r.Removed)
		pos += k + v
	}
	if pos != len(data) {
		return fmt.Errorf("%w: key group %d: %d entries take %d bytes of %d", statebackend.ErrCorrupt, group, entries, pos, len(data))
	}
	if !l.changes {
		s.counts[group-s.b.p.Groups.First] += entries
		s.n += entries
	}
	return nil
}

func (l *segmentLoader) flush() error {
	l.rows.sort()
	if l.changes { // A key may have been removed and made again: what it has now counts.
		l.rows.compact()
	}
	err := l.rows.put(l.out)
	l.rows.reset()
	return err
}
