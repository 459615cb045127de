package segment

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/job"
)

var decoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(MaxBlock), zstd.WithDecoderLowmem(true))
	if err != nil {
		panic(fmt.Sprintf("zstd decoder: %v", err)) // The options are constants.
	}
	return d
})

// Index is the trailer of a segment.
type Index struct {
	Descriptor
	Blocks  []Block // In the order of key groups.
	Entries int64   // Of the segment itself.
	Removed int64
	Hash    string // As in Summary.Index.
}

// TailGuess is how much of a segment's end to fetch at first: it nearly always holds the trailer.
const TailGuess = 64 << 10

// ParseTail reads the index from tail, the last bytes of a segment of length bytes. If tail does not hold all
// of it, need is how many bytes are wanted, and the index is nil.
func ParseTail(tail []byte, length int64) (ix *Index, need int64, err error) {
	if length < int64(headLen+footerLen) {
		return nil, 0, corrupt("a segment of %d bytes is too short", length)
	}
	if int64(len(tail)) > length {
		return nil, 0, corrupt("%d bytes of a segment of %d", len(tail), length)
	}
	if len(tail) < footerLen {
		return nil, int64(footerLen), nil
	}
	footer := tail[len(tail)-footerLen:]
	if string(footer[20:]) != magicEnd {
		return nil, 0, corrupt("the segment does not end in %q but in %q", magicEnd, footer[20:])
	}
	n := int64(binary.LittleEndian.Uint32(footer))
	if n > maxTrailer || n > length-int64(headLen+footerLen) {
		return nil, 0, corrupt("a trailer of %d bytes does not fit into a segment of %d", n, length)
	}
	need = n + int64(footerLen)
	if int64(len(tail)) < need {
		return nil, need, nil
	}
	t := tail[int64(len(tail))-need : len(tail)-footerLen]
	if h := xxh3.Hash128(t).Bytes(); !bytes.Equal(h[:], footer[4:20]) {
		return nil, 0, corrupt("the hash of the segment's trailer is %s, not %s", hex.EncodeToString(h[:]), hex.EncodeToString(footer[4:20]))
	}
	ix, err = parseTrailer(t, length-need)
	if err != nil {
		return nil, 0, err
	}
	ix.Hash = HashText(t)
	return ix, need, nil
}

// parseTrailer reads a trailer that begins at offset end of its segment.
func parseTrailer(t []byte, end int64) (*Index, error) {
	c := cursor{data: t}
	desc := c.bytes(c.uvarint(maxTrailer))
	blocks := c.uvarint(maxTrailer)
	if c.bad {
		return nil, corrupt("the segment's trailer is cut short")
	}
	ix := &Index{}
	if err := json.Unmarshal(desc, &ix.Descriptor); err != nil {
		return nil, corrupt("the segment's descriptor: %v", err)
	}
	switch {
	case ix.Version < 0 || ix.Version > VersionChanges:
		return nil, fmt.Errorf("segment of state %q is of version %d: this program reads up to %d, a later version of Cairn wrote it", ix.State, ix.Version, VersionChanges)
	case (ix.Version == VersionChanges) != (ix.Base != ""), ix.Total < 0:
		return nil, corrupt("the segment is of version %d, holds changes to %q, and the state has %d entries", ix.Version, ix.Base, ix.Total)
	case ix.K < 1 || ix.K > job.MaxMaxParallelism || ix.First < 0 || ix.Last < ix.First-1 || ix.Last >= ix.K:
		return nil, corrupt("the segment covers key groups [%d,%d] of %d", ix.First, ix.Last, ix.K)
	}
	changes := ix.Base != ""
	const least = 7 + 8 // Bytes of a block's line at least.
	if blocks > int64(len(c.data)/least) {
		return nil, corrupt("the segment's trailer lists %d blocks in %d bytes", blocks, len(c.data))
	}
	ix.Blocks = make([]Block, blocks)
	offset, last := int64(headLen), ix.First
	for i := range ix.Blocks {
		b := &ix.Blocks[i]
		b.Offset = offset
		b.First = int(c.uvarint(job.MaxMaxParallelism))
		b.Last = b.First + int(c.uvarint(job.MaxMaxParallelism))
		b.Entries = c.uvarint(1 << 56)
		if changes {
			b.Removed = c.uvarint(1 << 56)
		}
		b.Changes = changes
		b.Stored = c.uvarint(MaxBlock)
		b.Raw = c.uvarint(MaxBlock)
		flags := c.bytes(1)
		b.Plain = c.uvarint(MaxBlock)
		hash := c.bytes(8)
		if c.bad || flags[0] > 1 || b.Plain > b.Stored || b.First < last || b.Last > ix.Last || b.Stored > end-offset {
			return nil, corrupt("line %d of the segment's index", i)
		}
		b.Zstd, b.Hash = flags[0] == 1, binary.LittleEndian.Uint64(hash)
		if !b.Zstd && b.Raw != b.Stored-b.Plain {
			return nil, corrupt("line %d of the segment's index: an uncompressed block of %d bytes that takes %d", i, b.Raw, b.Stored-b.Plain)
		}
		offset += b.Stored
		last = b.Last
		ix.Entries += b.Entries
		ix.Removed += b.Removed
		if ix.Entries < 0 || ix.Removed < 0 {
			return nil, corrupt("line %d of the segment's index: number of entries", i)
		}
	}
	if len(c.data) > 0 || offset != end {
		return nil, corrupt("the segment's blocks end at byte %d, its trailer begins at %d, and %d bytes of it are left over", offset, end, len(c.data))
	}
	return ix, nil
}

// Overlapping is the blocks that have entries of the groups. They lie one behind the other.
func (ix *Index) Overlapping(groups job.GroupRange) []Block {
	from, to := len(ix.Blocks), 0
	for i, b := range ix.Blocks {
		if b.First <= groups.Last && b.Last >= groups.First {
			from, to = min(from, i), i+1
		}
	}
	if from >= to {
		return nil
	}
	return ix.Blocks[from:to]
}

// Content is what a block holds.
type Content struct{ packed, plain []byte }

// Decode verifies the stored bytes of b and gives what they hold, which may use the memory of stored and of *buf.
func (b Block) Decode(stored []byte, buf *[]byte) (Content, error) {
	if int64(len(stored)) != b.Stored {
		return Content{}, corrupt("block at byte %d has %d bytes, not %d", b.Offset, len(stored), b.Stored)
	}
	if h := xxh3.Hash(stored); h != b.Hash {
		return Content{}, corrupt("the hash of the block at byte %d is %016x, not %016x", b.Offset, h, b.Hash)
	}
	c := Content{stored[:b.Stored-b.Plain], stored[b.Stored-b.Plain:]}
	if !b.Zstd {
		return c, nil
	}
	raw, err := decoder().DecodeAll(c.packed, (*buf)[:0])
	if err != nil {
		return Content{}, corrupt("block at byte %d: %v", b.Offset, err)
	}
	*buf = raw
	if int64(len(raw)) != b.Raw {
		return Content{}, corrupt("block at byte %d unpacks to %d bytes, not %d", b.Offset, len(raw), b.Raw)
	}
	c.packed = raw
	return c, nil
}

// Runs calls visit with each run in a block, in the order in which they apply. The data is valid during the call only.
func (b Block) Runs(content Content, visit func(Run) error) error {
	c, plain := cursor{data: content.packed}, cursor{data: content.plain}
	left := [2]int64{b.Entries, b.Removed}
	var rows []byte
	last := b.First
	for len(c.data) > 0 {
		group, removed := int(c.uvarint(2*job.MaxMaxParallelism)), 0
		if b.Changes {
			group, removed = group>>1, group&1
		}
		n := c.uvarint(1 << 56)
		size := c.uvarint(MaxBlock)
		stride := int(c.uvarint(maxStride))
		var data []byte
		switch {
		case stride == 0:
			data = c.bytes(size)
		case size != n*int64(stride) || n > left[removed]:
			c.bad = true // Before memory is asked for: columns of one byte say little of how many entries there are.
		default:
			rows = c.rows(&plain, rows, size, stride)
			data = rows
		}
		if c.bad || plain.bad || group < last || group > b.Last || n > left[removed] {
			return corrupt("block at byte %d: its runs of entries do not add up", b.Offset)
		}
		last = group
		left[removed] -= n
		if err := visit(Run{group, removed == 1, n, data}); err != nil {
			return err
		}
	}
	if left != [2]int64{} || len(plain.data) > 0 {
		return corrupt("block at byte %d lacks %d entries and %d removed keys, and has %d bytes more", b.Offset, left[0], left[1], len(plain.data))
	}
	return nil
}

// rows puts columns together again; it may use the memory of dst.
func (c *cursor) rows(plain *cursor, dst []byte, size int64, stride int) []byte {
	n := size / int64(stride)
	dst = slices.Grow(dst[:0], int(size))[:size]
	for i := range stride {
		kind := c.bytes(1)
		if c.bad {
			return nil
		}
		var column []byte
		switch kind[0] {
		case columnConstant:
			one := c.bytes(1)
			if c.bad {
				return nil
			}
			for at := i; at < len(dst); at += stride {
				dst[at] = one[0]
			}
			continue
		case columnPacked:
			column = c.bytes(n)
		case columnPlain:
			column = plain.bytes(n)
		default:
			c.bad = true
		}
		if c.bad || plain.bad {
			return nil
		}
		for k, at := 0, i; k < len(column); k, at = k+1, at+stride {
			dst[at] = column[k]
		}
	}
	return dst
}

// cursor reads from the front of data; after a failure bad is set and everything is empty.
type cursor struct {
	data []byte
	bad  bool
}

func (c *cursor) uvarint(limit uint64) int64 {
	v, n := binary.Uvarint(c.data)
	if n <= 0 || v > limit {
		c.bad, c.data = true, nil
		return 0
	}
	c.data = c.data[n:]
	return int64(v)
}

func (c *cursor) bytes(n int64) []byte {
	if c.bad || n > int64(len(c.data)) {
		c.bad, c.data = true, nil
		return nil
	}
	b := c.data[:n]
	c.data = c.data[n:]
	return b
}
