package tables

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/segment"
)

const (
	// readers is how many reads of a restore are on their way at a time: to hide the way to the store, and to unpack blocks
	// while the owner fills its table.
	readers = 4
	// pieceBytes is about how much one read fetches and unpacks.
	pieceBytes = 4 << 20
	// aheadBytes bounds what is fetched and not yet in the table, unless a single block is larger.
	aheadBytes = 32 << 20
)

// link is one segment of a chain on its way into a table.
type link struct {
	job.StateHandle
	before *link // That it changes.
	index  *segment.Index
	value  statebackend.Decoder
	blocks []segment.Block // Those with entries of this subtask's groups.
	tail   []byte          // The end of the segment, which came with the index.

	start int // Entries of the table before the first link of the chain.
}

// piece is some blocks of a link that lie one behind the other.
type piece struct {
	*link
	blocks []segment.Block
	size   int64 // In memory.
	first  bool  // Of its link.
	last   bool
	done   chan unpacked
}

type unpacked struct {
	contents []segment.Content // By block.
	err      error
}

// loadLinks applies segments to the table of s, one behind the other. They are fetched and unpacked ahead by other goroutines,
// which have ended when it returns.
func (p *restore) loadLinks(s *state, links []*link) error {
	ctx, cancel := context.WithCancel(p.ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if err := p.indexes(ctx, s, links); err != nil {
		return err
	}
	var pieces []*piece
	for _, l := range links {
		pieces = append(pieces, l.pieces()...)
	}
	next, ahead := 0, int64(0)
	for i, pc := range pieces {
		for next < len(pieces) && next < i+readers && (next == i || ahead+pieces[next].size <= aheadBytes) {
			n := pieces[next]
			ahead += n.size
			next++
			wg.Go(func() { n.done <- p.fetch(ctx, n) })
		}
		u := <-pc.done
		err := u.err
		if err == nil {
			err = p.apply(s, pc, u.contents)
		}
		if err != nil {
			return p.named(s, pc.StateHandle, err)
		}
		ahead -= pc.size
	}
	return nil
}

// indexes reads the indexes of all links, some at a time, and compares them with what the checkpoint says.
func (p *restore) indexes(ctx context.Context, s *state, links []*link) error {
	var wg sync.WaitGroup
	errs := make([]error, len(links))
	slots := make(chan struct{}, readers)
	for i, l := range links {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			l.index, l.tail, errs[i] = segment.Open(ctx, p.reader, l.StateHandle, p.cfg.K)
		})
	}
	wg.Wait()
	for i, l := range links {
		err := errs[i]
		if err == nil {
			l.value, err = p.decoder(s, schemas{l.index.Key, l.index.Value})
		}
		if err != nil {
			return p.named(s, l.StateHandle, err)
		}
		l.blocks = l.index.Overlapping(p.cfg.Groups)
		if len(l.blocks) > 0 && l.blocks[0].Offset < l.Length-int64(len(l.tail)) {
			l.tail = nil // Not all of them are in it: they are read by themselves.
		}
	}
	return nil
}

// pieces cuts the blocks of a link into pieces, at least one.
func (l *link) pieces() []*piece {
	pc := &piece{link: l, first: true, done: make(chan unpacked, 1)}
	out := []*piece{pc}
	for _, b := range l.blocks {
		size := b.Stored + b.Raw
		if pc.size > 0 && pc.size+size > pieceBytes {
			pc = &piece{link: l, done: make(chan unpacked, 1)}
			out = append(out, pc)
		}
		pc.blocks = append(pc.blocks, b)
		pc.size += size
	}
	pc.last = true
	return out
}

// fetch reads and unpacks a piece.
func (p *restore) fetch(ctx context.Context, pc *piece) (u unpacked) {
	if len(pc.blocks) == 0 {
		return unpacked{}
	}
	first, last := pc.blocks[0], pc.blocks[len(pc.blocks)-1]
	var stored []byte
	if pc.tail != nil {
		from := pc.Length - int64(len(pc.tail))
		stored = pc.tail[first.Offset-from : last.Offset+last.Stored-from]
	} else {
		body, err := p.reader.Range(ctx, pc.StateHandle, first.Offset, last.Offset+last.Stored-first.Offset)
		if err != nil {
			return unpacked{err: err}
		}
		stored = make([]byte, last.Offset+last.Stored-first.Offset)
		_, err = io.ReadFull(body, stored)
		if err = errors.Join(err, body.Close()); err != nil {
			return unpacked{err: fmt.Errorf("blocks from byte %d: %w", first.Offset, err)}
		}
	}
	for _, b := range pc.blocks {
		from := b.Offset - first.Offset
		var buf []byte
		c, err := b.Decode(stored[from:from+b.Stored], &buf)
		if err != nil {
			return unpacked{err: err}
		}
		u.contents = append(u.contents, c)
	}
	return u
}

// reserve makes room in the table for the entries of a segment.
func (p *restore) reserve(s *state, blocks []segment.Block) {
	var n float64
	for i, b := range blocks {
		// An entry takes a byte at least, or it would not differ from the one before.
		each := float64(min(b.Entries, b.Raw+b.Plain)) / float64(b.Last-b.First+1)
		for g := b.First; g <= b.Last; g++ {
			n += each
			if g == b.Last && i+1 < len(blocks) && blocks[i+1].First == g {
				break // It goes on in the next block.
			}
			if p.cfg.Groups.Contains(g) {
				s.table.Reserve(g, int(n))
			}
			n = 0
		}
	}
}

// apply brings the table up to the end of a piece.
func (p *restore) apply(s *state, pc *piece, contents []segment.Content) error {
	if pc.first && pc.before == nil {
		pc.start = s.table.Len()
		p.reserve(s, pc.link.blocks)
	}
	for i, b := range pc.blocks {
		err := b.Runs(contents[i], func(r segment.Run) error {
			if !p.cfg.Groups.Contains(r.Group) {
				return nil
			}
			var err error
			if r.Removed {
				err = s.table.Remove(r.Group, r.Entries, r.Data)
			} else {
				err = s.table.Load(r.Group, r.Entries, r.Data, pc.value, pc.before != nil)
			}
			if err != nil {
				return corrupt("block at byte %d, key group %d: %v", b.Offset, r.Group, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if !pc.last {
		return nil
	}
	if pc.before != nil {
		pc.start = pc.before.start
	}
	// Of a part of the groups it is not known how many entries they have.
	if n := int64(s.table.Len() - pc.start); pc.Groups.Intersect(p.cfg.Groups) == pc.Groups && n != pc.Entries {
		return corrupt("it makes %d entries, the checkpoint has %d", n, pc.Entries)
	}
	return nil
}
