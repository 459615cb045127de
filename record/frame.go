package record

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/cairnstream/cairn/codec"
)

// Frames encodes and decodes the batches of one stream for the network. It is safe for concurrent
// use.
type Frames interface {
	// Append appends the frame of b to dst. b stays with the caller.
	Append(dst []byte, b Any) ([]byte, error)
	// Decode makes a batch of a frame. It keeps nothing of src.
	Decode(src []byte) (Any, error)
}

// Frame layout, version 1:
//
//	byte     version
//	byte     flags: 1 = rows have times, 2 = the times are offsets
//	uvarint  rows
//	uvarint  marks
//	marks    uvarint position, byte kind, varint time
//	times    8 bytes each; or, when they are offsets, 8 bytes for the lowest and then 4 bytes each
//	         for how much later a row is; all little-endian
//	rows     encoded by the stream's codec, one behind the other
const (
	frameVersion  = 1
	frameHasTimes = 1
	frameOffsets  = 2
)

// maxEmptyRows bounds the rows of a frame whose rows take no bytes.
const maxEmptyRows = 4 * maxRows

type frames[T any] struct {
	codec codec.Codec[T]
	bulk  codec.Bulk[T] // nil when the codec has none.
	pool  *Pool[T]
}

// NewFrames returns the frame codec of a stream of T.
func NewFrames[T any](c codec.Codec[T]) Frames {
	f := &frames[T]{codec: c, pool: PoolOf[T]()}
	f.bulk, _ = c.(codec.Bulk[T])
	return f
}

func (f *frames[T]) Append(dst []byte, a Any) ([]byte, error) {
	b, ok := a.(*Batch[T])
	if !ok {
		return dst, fmt.Errorf("encode frame: batch is %T, the edge carries %T", a, (*Batch[T])(nil))
	}
	b.CheckLive()
	if b.Sel != nil {
		b.Compact()
	}
	flags := byte(0)
	if len(b.Times) > 0 && len(b.Times) == len(b.Rows) {
		flags |= frameHasTimes
		if low, high := span(b.Times); uint64(high)-uint64(low) <= math.MaxUint32 {
			flags |= frameOffsets
		}
	}
	dst = append(dst, frameVersion, flags)
	dst = binary.AppendUvarint(dst, uint64(len(b.Rows)))
	dst = binary.AppendUvarint(dst, uint64(len(b.Marks)))
	for _, m := range b.Marks {
		dst = binary.AppendUvarint(dst, uint64(m.Pos))
		dst = append(dst, byte(m.Kind))
		dst = binary.AppendVarint(dst, m.Time)
	}
	if flags&frameHasTimes != 0 {
		dst = appendTimes(dst, b.Times, flags&frameOffsets != 0)
	}
	if f.bulk != nil {
		return f.bulk.AppendAll(dst, b.Rows)
	}
	var err error
	for i := range b.Rows {
		if dst, err = f.codec.Append(dst, &b.Rows[i]); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func (f *frames[T]) Decode(src []byte) (Any, error) {
	b := f.pool.Get()
	if err := f.decode(src, b); err != nil {
		b.Release()
		return nil, fmt.Errorf("decode frame of %d bytes: %w", len(src), err)
	}
	return b, nil
}

func (f *frames[T]) decode(src []byte, b *Batch[T]) error {
	if len(src) < 2 || src[0] != frameVersion {
		return fmt.Errorf("not a version %d frame", frameVersion)
	}
	hasTimes := src[1]&frameHasTimes != 0
	pos := 2
	uvarint := func() (uint64, error) {
		v, n := binary.Uvarint(src[pos:])
		if n <= 0 {
			return 0, fmt.Errorf("truncated at offset %d", pos)
		}
		pos += n
		return v, nil
	}
	rows, err := uvarint()
	if err != nil {
		return err
	}
	marks, err := uvarint()
	if err != nil {
		return err
	}
	// A mark takes three bytes at least, a row one, unless its type has no content.
	if left := uint64(len(src) - pos); rows > max(left, maxEmptyRows) || marks > left/3 {
		return fmt.Errorf("claims %d rows and %d marks in %d bytes", rows, marks, left)
	}
	last := int32(0)
	for range marks {
		p, err := uvarint()
		if err != nil {
			return err
		}
		if p > rows || int32(p) < last || pos >= len(src) {
			return fmt.Errorf("bad mark at offset %d", pos)
		}
		last = int32(p)
		kind := MarkKind(src[pos])
		pos++
		t, n := binary.Varint(src[pos:])
		if n <= 0 || kind > Active {
			return fmt.Errorf("bad mark at offset %d", pos)
		}
		pos += n
		b.Marks = append(b.Marks, Mark{Time: t, Pos: last, Kind: kind})
	}
	if hasTimes {
		took, err := decodeTimes(src[pos:], b, int(rows), src[1]&frameOffsets != 0)
		if err != nil {
			return fmt.Errorf("%w at offset %d", err, pos)
		}
		pos += took
	}
	n := int(rows)
	if cap(b.Rows) < n {
		b.Rows = make([]T, 0, n)
	}
	b.Rows = b.Rows[:n]
	if f.bulk != nil {
		took, err := f.bulk.DecodeAll(src[pos:], b.Rows)
		if err != nil {
			return err
		}
		pos += took
	} else {
		for i := range b.Rows {
			took, err := f.codec.Decode(src[pos:], &b.Rows[i])
			if err != nil {
				return fmt.Errorf("row %d: %w", i, err)
			}
			pos += took
		}
	}
	if pos != len(src) {
		return fmt.Errorf("%d bytes left over", len(src)-pos)
	}
	return nil
}

// span returns the lowest and the highest of times, which are not empty.
func span(times []int64) (low, high int64) {
	low, high = times[0], times[0]
	for _, t := range times[1:] {
		low, high = min(low, t), max(high, t)
	}
	return low, high
}

func appendTimes(dst []byte, times []int64, offsets bool) []byte {
	at := len(dst)
	if !offsets {
		dst = slices.Grow(dst, 8*len(times))[:at+8*len(times)]
		for i, t := range times {
			binary.LittleEndian.PutUint64(dst[at+8*i:], uint64(t))
		}
		return dst
	}
	low, _ := span(times)
	dst = slices.Grow(dst, 8+4*len(times))[:at+8+4*len(times)]
	binary.LittleEndian.PutUint64(dst[at:], uint64(low))
	at += 8
	for i, t := range times {
		binary.LittleEndian.PutUint32(dst[at+4*i:], uint32(t-low))
	}
	return dst
}

// decodeTimes reads n times from the front of src into b and returns the bytes taken.
func decodeTimes[T any](src []byte, b *Batch[T], n int, offsets bool) (int, error) {
	size := 8 * n
	if offsets {
		size = 8 + 4*n
	}
	if len(src) < size {
		return 0, fmt.Errorf("truncated")
	}
	times := slices.Grow(b.Times[:0], n)[:n]
	b.Times = times
	if !offsets {
		for i := range times {
			times[i] = int64(binary.LittleEndian.Uint64(src[8*i:]))
		}
		return size, nil
	}
	low := int64(binary.LittleEndian.Uint64(src))
	src = src[8:size]
	for i := range times {
		times[i] = low + int64(binary.LittleEndian.Uint32(src[4*i:]))
	}
	return size, nil
}

// Compact moves the selected rows to the front and drops the others and the selection. Marks move
// with the rows that they follow.
func (b *Batch[T]) Compact() {
	if b.Sel == nil {
		return
	}
	hasTimes, hasHash := len(b.Times) > 0, len(b.Hash) > 0
	m := 0
	for to, from := range b.Sel {
		for m < len(b.Marks) && b.Marks[m].Pos <= from {
			b.Marks[m].Pos = int32(to)
			m++
		}
		b.Rows[to] = b.Rows[from]
		if hasTimes {
			b.Times[to] = b.Times[from]
		}
		if hasHash {
			b.Hash[to] = b.Hash[from]
		}
	}
	n := len(b.Sel)
	for ; m < len(b.Marks); m++ {
		b.Marks[m].Pos = int32(n)
	}
	if b.pool != nil && b.pool.pointers {
		clear(b.Rows[n:])
	}
	b.Rows = b.Rows[:n]
	if hasTimes {
		b.Times = b.Times[:n]
	}
	if hasHash {
		b.Hash = b.Hash[:n]
	}
	b.Sel = nil
}
