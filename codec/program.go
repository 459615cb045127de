package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// opKind says what an op does. Those before opString are plain bytes in memory.
type opKind uint8

const (
	opRun   opKind = iota // size bytes, encoded as they lie in memory.
	opWord8               // A number of 8 bytes.
	opWord4
	opWord2
	opByte
	opString
	opBytes
	opTime
	opPointer
	opSlice
	opArray
	opMap
	opClear // A field that is left out: zeroed in what is decoded or copied.
)

// op encodes what lies at off.
type op struct {
	kind    opKind
	off     uintptr
	size    int          // opRun: bytes. opArray: elements. opWiden: bytes of the wide number.
	from    number       // opWiden
	bools   []int        // opRun: positions within it that hold a bool.
	elem    *program     // Of what a pointer, slice, array or map holds.
	key     *program     // opMap
	typ     reflect.Type // Of the pointer, slice, array, map or skipped field.
	scratch *sync.Pool   // opMap: of *mapScratch.
	path    string       // Of the (first) field, for errors.
}

// program encodes, decodes and copies values of one type: its ops in order. It is immutable.
type program struct {
	typ   reflect.Type
	ops   []op
	size  int   // Of a value in memory.
	min   int   // Of an encoding.
	dense bool  // The memory of a value is its encoding.
	bools []int // dense: positions of bools.
	plain bool  // No pointers and nothing left out: assignment copies.
	lossy bool  // Some field is left out.
}

func (o *op) fail(doing string, err error) error {
	if o.path == "" {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: field %s: %w", doing, o.path, err)
}

// append appends the encoding of the value at v.
func (p *program) append(dst []byte, v unsafe.Pointer) ([]byte, error) {
	var err error
	for i := range p.ops {
		o := &p.ops[i]
		f := unsafe.Add(v, o.off)
		switch o.kind {
		case opWord8:
			dst = binary.LittleEndian.AppendUint64(dst, *(*uint64)(f))
		case opRun:
			dst = append(dst, unsafe.Slice((*byte)(f), o.size)...)
		case opString:
			s := *(*string)(f)
			if len(s) < 0x80 {
				dst = append(dst, byte(len(s)))
			} else {
				if len(s) > MaxValue {
					return dst, o.fail("encode", tooLarge(uint64(len(s))))
				}
				dst = binary.AppendUvarint(dst, uint64(len(s)))
			}
			dst = append(dst, s...)
		case opWord4:
			dst = binary.LittleEndian.AppendUint32(dst, *(*uint32)(f))
		case opWord2:
			dst = binary.LittleEndian.AppendUint16(dst, *(*uint16)(f))
		case opByte:
			dst = append(dst, *(*byte)(f))
		case opBytes:
			b := *(*[]byte)(f)
			if b == nil {
				dst = append(dst, 0)
				continue
			}
			if len(b) > MaxValue {
				return dst, o.fail("encode", tooLarge(uint64(len(b))))
			}
			dst = binary.AppendUvarint(dst, uint64(len(b))+1)
			dst = append(dst, b...)
		case opTime:
			dst = appendTime(dst, *(*time.Time)(f))
		case opPointer:
			e := *(*unsafe.Pointer)(f)
			if e == nil {
				dst = append(dst, 0)
				continue
			}
			if dst, err = o.elem.append(append(dst, 1), e); err != nil {
				return dst, err
			}
		case opArray:
			if dst, err = o.elem.appendAll(dst, f, o.size); err != nil {
				return dst, err
			}
		case opSlice:
			s := (*sliceHeader)(f)
			if s.data == nil {
				dst = append(dst, 0)
				continue
			}
			if s.len > MaxValue {
				return dst, o.fail("encode", tooLarge(uint64(s.len)))
			}
			dst = binary.AppendUvarint(dst, uint64(s.len)+1)
			if dst, err = o.elem.appendAll(dst, s.data, s.len); err != nil {
				return dst, err
			}
		case opMap:
			if dst, err = o.appendMap(dst, f); err != nil {
				return dst, err
			}
		case opClear:
		}
	}
	return dst, nil
}

// sliceHeader is the memory of a slice, to read it without its type.
type sliceHeader struct {
	data     unsafe.Pointer
	len, cap int
}

// appendAll appends the encodings of the n values that lie one behind the other from v on.
func (p *program) appendAll(dst []byte, v unsafe.Pointer, n int) ([]byte, error) {
	if p.dense {
		return append(dst, unsafe.Slice((*byte)(v), n*p.size)...), nil
	}
	start := len(dst)
	var err error
	for i := range n {
		if dst, err = p.append(dst, unsafe.Add(v, i*p.size)); err != nil {
			return dst, err
		}
		if len(dst)-start > MaxValue {
			return dst, fmt.Errorf("encode %v: %w", p.typ, tooLarge(uint64(len(dst)-start)))
		}
	}
	return dst, nil
}

// decode reads the value at pos into v and returns the position behind it.
func (p *program) decode(src []byte, pos int, v unsafe.Pointer) (int, error) {
	for i := range p.ops {
		o := &p.ops[i]
		f := unsafe.Add(v, o.off)
		switch o.kind {
		case opWord8:
			if len(src)-pos < 8 {
				return pos, o.fail("decode", truncated(pos, 8, len(src)-pos))
			}
			*(*uint64)(f) = binary.LittleEndian.Uint64(src[pos:])
			pos += 8
		case opRun:
			if len(src)-pos < o.size {
				return pos, o.fail("decode", truncated(pos, o.size, len(src)-pos))
			}
			run := src[pos : pos+o.size]
			if at := badBool(run, o.bools); at >= 0 {
				return pos, o.fail("decode", notBool(run[at], pos+at))
			}
			copy(unsafe.Slice((*byte)(f), o.size), run)
			pos += o.size
		case opString:
			n, at, err := readLen(src, pos)
			if err != nil {
				return pos, o.fail("decode", err)
			}
			*(*string)(f) = string(src[at : at+n])
			pos = at + n
		case opWord4:
			if len(src)-pos < 4 {
				return pos, o.fail("decode", truncated(pos, 4, len(src)-pos))
			}
			*(*uint32)(f) = binary.LittleEndian.Uint32(src[pos:])
			pos += 4
		case opWord2:
			if len(src)-pos < 2 {
				return pos, o.fail("decode", truncated(pos, 2, len(src)-pos))
			}
			*(*uint16)(f) = binary.LittleEndian.Uint16(src[pos:])
			pos += 2
		case opByte:
			if len(src)-pos < 1 {
				return pos, o.fail("decode", truncated(pos, 1, 0))
			}
			*(*byte)(f) = src[pos]
			pos++
		case opBytes:
			n, at, present, err := readOptionalLen(src, pos)
			if err != nil {
				return pos, o.fail("decode", err)
			}
			var b []byte
			if present {
				b = cloneBytes(src[at : at+n])
			}
			*(*[]byte)(f) = b
			pos = at + n
		case opTime:
			t, at, err := readTime(src, pos)
			if err != nil {
				return pos, o.fail("decode", err)
			}
			*(*time.Time)(f) = t
			pos = at
		case opPointer:
			if len(src)-pos < 1 {
				return pos, o.fail("decode", truncated(pos, 1, 0))
			}
			if src[pos] > 1 {
				return pos, o.fail("decode", notBool(src[pos], pos))
			}
			present := src[pos] == 1
			pos++
			*(*unsafe.Pointer)(f) = nil
			if !present {
				continue
			}
			e := reflect.New(o.elem.typ).UnsafePointer()
			var err error
			if pos, err = o.elem.decode(src, pos, e); err != nil {
				return pos, err
			}
			*(*unsafe.Pointer)(f) = e
		case opArray:
			var err error
			if pos, err = o.elem.decodeAll(src, pos, f, o.size); err != nil {
				return pos, err
			}
		case opSlice:
			var err error
			if pos, err = o.decodeSlice(src, pos, f); err != nil {
				return pos, err
			}
		case opMap:
			var err error
			if pos, err = o.decodeMap(src, pos, f); err != nil {
				return pos, err
			}
		case opClear:
			reflect.NewAt(o.typ, f).Elem().SetZero()
		default:
			var err error
			if pos, err = o.convert(src, pos, f); err != nil {
				return pos, err
			}
		}
	}
	return pos, nil
}

// decodeAll fills the n values from v on.
func (p *program) decodeAll(src []byte, pos int, v unsafe.Pointer, n int) (int, error) {
	if p.dense {
		size := n * p.size
		if len(src)-pos < size {
			return pos, fmt.Errorf("decode %v: %w", p.typ, truncated(pos, size, len(src)-pos))
		}
		run := src[pos : pos+size]
		if len(p.bools) > 0 {
			for i := 0; i < size; i += p.size {
				if at := badBool(run[i:i+p.size], p.bools); at >= 0 {
					return pos, fmt.Errorf("decode %v: %w", p.typ, notBool(run[i+at], pos+i+at))
				}
			}
		}
		copy(unsafe.Slice((*byte)(v), size), run)
		return pos + size, nil
	}
	var err error
	for i := range n {
		if pos, err = p.decode(src, pos, unsafe.Add(v, i*p.size)); err != nil {
			return pos, err
		}
	}
	return pos, nil
}

func (o *op) decodeSlice(src []byte, pos int, f unsafe.Pointer) (int, error) {
	count, next, err := readCount(src, pos)
	if err != nil {
		return pos, o.fail("decode", err)
	}
	s := reflect.NewAt(o.typ, f).Elem()
	s.SetZero()
	if count == 0 {
		return next, nil
	}
	count--
	if left := len(src) - next; count > uint64(left/o.elem.min) {
		return pos, o.fail("decode", fmt.Errorf("%w at offset %d: claims %d elements of at least %d bytes, %d bytes are left",
			ErrTruncated, pos, count, o.elem.min, left))
	}
	n := int(count)
	if n == 0 {
		s.Set(reflect.MakeSlice(o.typ, 0, 0))
		return next, nil
	}
	s.Grow(n)
	s.SetLen(n)
	return o.elem.decodeAll(src, next, s.UnsafePointer(), n)
}

// mapScratch is memory to encode or decode a map with.
type mapScratch struct {
	key, elem reflect.Value // Addressable.
	iter      reflect.MapIter
	buf       []byte
	entries   []mapEntry
}

// mapEntry is an encoded entry in mapScratch.buf: the key in start to mid, the value up to end.
type mapEntry struct{ start, mid, end int }

// keepScratch is the largest buffer that is kept from one map to the next.
const keepScratch = 1 << 20

func (o *op) release(s *mapScratch) {
	s.key.SetZero()
	s.elem.SetZero()
	s.iter.Reset(reflect.Value{})
	if cap(s.buf) > keepScratch {
		s.buf = nil
	}
	if cap(s.entries) > keepScratch/24 {
		s.entries = nil
	}
	o.scratch.Put(s)
}

func (o *op) appendMap(dst []byte, f unsafe.Pointer) ([]byte, error) {
	m := reflect.NewAt(o.typ, f).Elem()
	if m.IsNil() {
		return append(dst, 0), nil
	}
	dst = binary.AppendUvarint(dst, uint64(m.Len())+1)
	s := o.scratch.Get().(*mapScratch)
	defer o.release(s)
	s.buf, s.entries = s.buf[:0], s.entries[:0]
	s.iter.Reset(m)
	var err error
	for s.iter.Next() {
		e := mapEntry{start: len(s.buf)}
		s.key.SetIterKey(&s.iter)
		s.elem.SetIterValue(&s.iter)
		if s.buf, err = o.key.append(s.buf, s.key.Addr().UnsafePointer()); err != nil {
			return dst, err
		}
		e.mid = len(s.buf)
		if s.buf, err = o.elem.append(s.buf, s.elem.Addr().UnsafePointer()); err != nil {
			return dst, err
		}
		e.end = len(s.buf)
		if e.end > MaxValue {
			return dst, o.fail("encode", tooLarge(uint64(e.end)))
		}
		s.entries = append(s.entries, e)
	}
	slices.SortFunc(s.entries, func(a, b mapEntry) int {
		return bytes.Compare(s.buf[a.start:a.mid], s.buf[b.start:b.mid])
	})
	var last []byte
	for i, e := range s.entries {
		key := s.buf[e.start:e.mid]
		if i > 0 && bytes.Equal(key, last) {
			return dst, o.fail("encode", fmt.Errorf("two keys of the map have the same encoding %x", key))
		}
		last = key
		dst = append(dst, s.buf[e.start:e.end]...)
	}
	return dst, nil
}

func (o *op) decodeMap(src []byte, pos int, f unsafe.Pointer) (int, error) {
	count, next, err := readCount(src, pos)
	if err != nil {
		return pos, o.fail("decode", err)
	}
	m := reflect.NewAt(o.typ, f).Elem()
	m.SetZero()
	if count == 0 {
		return next, nil
	}
	count--
	if left := len(src) - next; count > maxEntries(left, o.key.min+o.elem.min) {
		return pos, o.fail("decode", fmt.Errorf("%w at offset %d: claims %d entries of at least %d bytes, %d bytes are left",
			ErrTruncated, pos, count, o.key.min+o.elem.min, left))
	}
	pos = next
	m.Set(reflect.MakeMapWithSize(o.typ, int(count)))
	s := o.scratch.Get().(*mapScratch)
	defer o.release(s)
	var last []byte
	for i := range count {
		start := pos
		if pos, err = o.key.decode(src, pos, s.key.Addr().UnsafePointer()); err != nil {
			return pos, err
		}
		key := src[start:pos]
		if i > 0 && bytes.Compare(last, key) >= 0 {
			return pos, o.fail("decode", fmt.Errorf("the map's keys are out of order at offset %d", start))
		}
		last = key
		if pos, err = o.elem.decode(src, pos, s.elem.Addr().UnsafePointer()); err != nil {
			return pos, err
		}
		m.SetMapIndex(s.key, s.elem)
	}
	return pos, nil
}

// maxEntries is how many map entries of at least size bytes fit into left bytes. Keys differ, so
// there is at most one that takes nothing.
func maxEntries(left, size int) uint64 {
	if size == 0 {
		return 1
	}
	return uint64(left / size)
}

// copy makes the value at dst equal to what encoding and decoding the value at src gives. share has it use the memory of
// src's strings, which nobody changes.
func (p *program) copy(dst, src unsafe.Pointer, share bool) {
	for i := range p.ops {
		o := &p.ops[i]
		d, s := unsafe.Add(dst, o.off), unsafe.Add(src, o.off)
		switch o.kind {
		case opRun:
			copy(unsafe.Slice((*byte)(d), o.size), unsafe.Slice((*byte)(s), o.size))
		case opWord8:
			*(*uint64)(d) = *(*uint64)(s)
		case opWord4:
			*(*uint32)(d) = *(*uint32)(s)
		case opWord2:
			*(*uint16)(d) = *(*uint16)(s)
		case opByte:
			*(*byte)(d) = *(*byte)(s)
		case opString:
			text := *(*string)(s)
			if !share {
				text = strings.Clone(text)
			}
			*(*string)(d) = text
		case opBytes:
			*(*[]byte)(d) = cloneBytes(*(*[]byte)(s))
		case opTime:
			*(*time.Time)(d) = (*time.Time)(s).Round(0).UTC()
		case opPointer:
			e := *(*unsafe.Pointer)(s)
			if e == nil {
				*(*unsafe.Pointer)(d) = nil
				continue
			}
			c := reflect.New(o.elem.typ).UnsafePointer()
			o.elem.copy(c, e, share)
			*(*unsafe.Pointer)(d) = c
		case opArray:
			o.elem.copyAll(d, s, o.size, share)
		case opSlice:
			from := (*sliceHeader)(s)
			n, data := from.len, from.data
			to := reflect.NewAt(o.typ, d).Elem()
			switch {
			case data == nil:
				to.SetZero()
			case n == 0:
				to.Set(reflect.MakeSlice(o.typ, 0, 0))
			default:
				to.SetZero()
				to.Grow(n)
				to.SetLen(n)
				o.elem.copyAll(to.UnsafePointer(), data, n, share)
			}
		case opMap:
			o.copyMap(d, s, share)
		case opClear:
			reflect.NewAt(o.typ, d).Elem().SetZero()
		}
	}
}

func (p *program) copyAll(dst, src unsafe.Pointer, n int, share bool) {
	if p.dense {
		copy(unsafe.Slice((*byte)(dst), n*p.size), unsafe.Slice((*byte)(src), n*p.size))
		return
	}
	for i := range n {
		p.copy(unsafe.Add(dst, i*p.size), unsafe.Add(src, i*p.size), share)
	}
}

func (o *op) copyMap(d, s unsafe.Pointer, share bool) {
	from, to := reflect.NewAt(o.typ, s).Elem(), reflect.NewAt(o.typ, d).Elem()
	if from.IsNil() {
		to.SetZero()
		return
	}
	m := reflect.MakeMapWithSize(o.typ, from.Len())
	x := o.scratch.Get().(*mapScratch)
	defer o.release(x)
	key, elem := reflect.New(o.typ.Key()).Elem(), reflect.New(o.typ.Elem()).Elem()
	x.iter.Reset(from)
	for x.iter.Next() {
		x.key.SetIterKey(&x.iter)
		x.elem.SetIterValue(&x.iter)
		o.key.copy(key.Addr().UnsafePointer(), x.key.Addr().UnsafePointer(), share)
		o.elem.copy(elem.Addr().UnsafePointer(), x.elem.Addr().UnsafePointer(), share)
		m.SetMapIndex(key, elem)
	}
	to.Set(m)
}

// badBool returns which of the positions holds neither 0 nor 1, or -1.
func badBool(run []byte, positions []int) int {
	for _, at := range positions {
		if run[at] > 1 {
			return at
		}
	}
	return -1
}

func notBool(b byte, pos int) error {
	return fmt.Errorf("byte %d at offset %d is neither 0 nor 1", b, pos)
}
