package codec

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"sync"
	"unsafe"
)

// The kinds of ops that only a program has which decodes values of an older type: see
// compiler.evolve. Its min and bounds are those of the old encoding, its memory that of the new type.
const (
	opWiden opKind = iota + opClear + 1 // A number of kind from, to one of size bytes.
	opFloat                             // A float32, to a float64.
	opText                              // Bytes, to a string.
	opBlob                              // A string, to bytes.
	opWrap                              // A value, to a pointer.
	opZero                              // A new field without pointers: size bytes of zeroes.
	// What was dropped:
	opSkip         // size bytes.
	opSkipText     // A string.
	opSkipBytes    // Bytes.
	opSkipOptional // A pointer.
	opSkipSlice
	opSkipArray // size elements.
	opSkipMap
)

// number is a kind of integers that may be widened: its width, and whether it has a sign.
type number uint8

const (
	widthMask number = 15
	signed    number = 16

	fromInt8, fromUint8   = 1 | signed, number(1)
	fromInt16, fromUint16 = 2 | signed, number(2)
	fromInt32, fromUint32 = 4 | signed, number(4)
)

var widenings = map[Kind]number{
	KindInt8: fromInt8, KindInt16: fromInt16, KindInt32: fromInt32,
	KindUint8: fromUint8, KindUint16: fromUint16, KindUint32: fromUint32,
}

// evolveTo is Evolve of the codecs that a Type describes.
func evolveTo[T any](c Codec[T], old Schema) (Codec[T], error) {
	p, err := evolveSchema(reflect.TypeFor[T](), old, c.Schema(), littleEndian)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return c, nil
	}
	return &evolvedCodec[T]{c, p}, nil
}

// evolveSchema makes the program that decodes old values into a t; nil where they are like those of now.
func evolveSchema(t reflect.Type, old, now Schema, native bool) (*program, error) {
	was, is, err := types(old, now)
	if err != nil {
		return nil, err
	}
	var d differ
	if d.value(was, is, "", false); len(d.problems) > 0 {
		return nil, &IncompatibleError{d.problems}
	}
	if is.like(was) {
		return nil, nil
	}
	c := &compiler{native: native}
	return c.evolved(t, was, is, ""), nil
}

// types describes what two schemas encode.
func types(old, now Schema) (was, is *Type, err error) {
	if old.Codec == now.Codec && old.version() > now.version() {
		return nil, nil, newer(old, now)
	}
	is, err = now.Type()
	if err == nil {
		was, err = old.Type()
	}
	switch {
	case err == nil:
		return was, is, nil
	case old.Codec != now.Codec:
		return nil, nil, codecsDiffer(old, now)
	}
	return nil, nil, incompatible(old, now, err.Error(), "restore another checkpoint")
}

// evolved makes a program of its own, as compiler.program does: the differ has found nothing against it.
func (c *compiler) evolved(t reflect.Type, old, now *Type, path string) *program {
	p := &program{typ: t, size: int(t.Size()), min: old.width()}
	c.evolve(p, t, old, now, 0, path)
	c.finish(p)
	return p
}

// evolve appends to p what decodes an old value into a t, which now describes, at offset off.
func (c *compiler) evolve(p *program, t reflect.Type, old, now *Type, off uintptr, path string) {
	add := func(o op) {
		o.off, o.path = off, path
		p.ops = append(p.ops, o)
	}
	switch {
	case now.like(old):
		c.add(p, t, off, path)
	case now.Kind == KindPointer && old.Kind == KindPointer:
		add(op{kind: opPointer, typ: t, elem: c.evolved(t.Elem(), old.Elem, now.Elem, path)})
	case now.Kind == KindPointer:
		add(op{kind: opWrap, typ: t, elem: c.evolved(t.Elem(), old, now.Elem, path)})
	case now.Kind == KindSlice && old.Kind == KindBytes:
		add(op{kind: opSlice, typ: t, elem: c.evolved(t.Elem(), &byteType, now.Elem, path)})
	case now.Kind == KindSlice:
		add(op{kind: opSlice, typ: t, elem: c.evolved(t.Elem(), old.Elem, now.Elem, path)})
	case now.Kind == KindArray:
		if now.Len > 0 {
			add(op{kind: opArray, typ: t, size: now.Len, elem: c.evolved(t.Elem(), old.Elem, now.Elem, path)})
		}
	case now.Kind == KindMap:
		o := op{kind: opMap, typ: t, key: c.evolved(t.Key(), old.Key, now.Key, path), elem: c.evolved(t.Elem(), old.Elem, now.Elem, path)}
		o.scratch = &sync.Pool{New: func() any {
			return &mapScratch{key: reflect.New(t.Key()).Elem(), elem: reflect.New(t.Elem()).Elem()}
		}}
		add(o)
	case now.Kind == KindStruct:
		c.evolveFields(p, t, old, now, off, path)
	case now.Kind == KindString:
		add(op{kind: opText})
	case now.Kind == KindBytes:
		add(op{kind: opBlob})
	case renames(old.Kind, now.Kind):
		c.fixed(p, off, 8, path)
	case now.Kind == KindFloat64:
		add(op{kind: opFloat})
	case now.Kind == KindComplex128:
		add(op{kind: opFloat})
		off += 8
		add(op{kind: opFloat})
	default:
		add(op{kind: opWiden, from: widenings[old.Kind], size: int(t.Size())})
	}
}

// evolveFields goes over the old fields in their order; what is new comes last.
func (c *compiler) evolveFields(p *program, t reflect.Type, old, now *Type, off uintptr, path string) {
	fields, others := encodedFields(t)
	from, _ := origins(old.Fields, now.Fields)
	at := func(f reflect.StructField) (uintptr, string) {
		if path != "" {
			return off + f.Offset, path + "." + f.Name
		}
		return off + f.Offset, f.Name
	}
	to := make([]int, len(old.Fields))
	for i := range to {
		to[i] = -1
	}
	for i, o := range from {
		if o >= 0 {
			to[o] = i
			continue
		}
		others = append(others, fields[i])
	}
	for o, i := range to {
		if i < 0 {
			c.skip(p, old.Fields[o].Type, path)
			continue
		}
		fieldOff, fieldPath := at(fields[i])
		c.evolve(p, fields[i].Type, old.Fields[o].Type, now.Fields[i].Type, fieldOff, fieldPath)
	}
	for _, f := range others {
		fieldOff, fieldPath := at(f)
		o := op{kind: opClear, off: fieldOff, typ: f.Type, path: fieldPath}
		if flat(f.Type) {
			o.kind, o.size = opZero, int(f.Type.Size())
		}
		p.ops = append(p.ops, o)
	}
}

// encodedFields are the fields of a struct that its encoding has, in order, and those that it leaves out.
func encodedFields(t reflect.Type) (fields, others []reflect.StructField) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Name == "_" {
			continue
		}
		if tag, _ := parseTag(f.Tag.Get("cairn")); tag.skip {
			others = append(others, f)
			continue
		}
		fields = append(fields, f)
	}
	return fields, others
}

// flat tells whether values of t hold no pointers.
func flat(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return true
	case reflect.Array:
		return flat(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !flat(t.Field(i).Type) {
				return false
			}
		}
		return true
	}
	return false
}

// skip appends to p what steps over a value of type t, of which there is no memory.
func (c *compiler) skip(p *program, t *Type, path string) {
	add := func(o op) {
		o.path = path
		p.ops = append(p.ops, o)
	}
	sub := func(t *Type) *program {
		s := &program{min: t.width()}
		c.skip(s, t, path)
		return s
	}
	switch t.Kind {
	case KindString:
		add(op{kind: opSkipText})
	case KindBytes:
		add(op{kind: opSkipBytes})
	case KindPointer:
		add(op{kind: opSkipOptional, elem: sub(t.Elem)})
	case KindSlice:
		add(op{kind: opSkipSlice, elem: sub(t.Elem)})
	case KindMap:
		add(op{kind: opSkipMap, key: sub(t.Key), elem: sub(t.Elem)})
	case KindStruct:
		for _, f := range t.Fields {
			c.skip(p, f.Type, path)
		}
	case KindArray:
		switch elem := sub(t.Elem); {
		case t.Len == 0:
		case elem.fixed():
			c.skipBytes(p, t.width(), path)
		default:
			add(op{kind: opSkipArray, size: t.Len, elem: elem})
		}
	default:
		c.skipBytes(p, t.width(), path)
	}
}

// skipBytes adds n bytes to those that are stepped over last.
func (c *compiler) skipBytes(p *program, n int, path string) {
	if k := len(p.ops); k > 0 && p.ops[k-1].kind == opSkip {
		p.ops[k-1].size += n
		return
	}
	p.ops = append(p.ops, op{kind: opSkip, size: n, path: path})
}

// fixed tells whether all values that a program of skip steps over have the same length.
func (p *program) fixed() bool {
	return len(p.ops) == 0 || len(p.ops) == 1 && p.ops[0].kind == opSkip
}

// convert decodes what only an evolved program has.
func (o *op) convert(src []byte, pos int, f unsafe.Pointer) (int, error) {
	var err error
	switch o.kind {
	case opWiden:
		n := int(o.from & widthMask)
		if len(src)-pos < n {
			return pos, o.fail("decode", truncated(pos, n, len(src)-pos))
		}
		var x uint64 // In two's complement, of which the low bytes are the number at any width.
		switch o.from {
		case fromInt32:
			x = uint64(int32(binary.LittleEndian.Uint32(src[pos:])))
		case fromUint32:
			x = uint64(binary.LittleEndian.Uint32(src[pos:]))
		case fromInt16:
			x = uint64(int16(binary.LittleEndian.Uint16(src[pos:])))
		case fromUint16:
			x = uint64(binary.LittleEndian.Uint16(src[pos:]))
		case fromInt8:
			x = uint64(int8(src[pos]))
		case fromUint8:
			x = uint64(src[pos])
		}
		switch o.size {
		case 8:
			*(*uint64)(f) = x
		case 4:
			*(*uint32)(f) = uint32(x)
		case 2:
			*(*uint16)(f) = uint16(x)
		}
		return pos + n, nil
	case opFloat:
		if len(src)-pos < 4 {
			return pos, o.fail("decode", truncated(pos, 4, len(src)-pos))
		}
		*(*float64)(f) = float64(math.Float32frombits(binary.LittleEndian.Uint32(src[pos:])))
		return pos + 4, nil
	case opText:
		n, at, _, err := readOptionalLen(src, pos)
		if err != nil {
			return pos, o.fail("decode", err)
		}
		*(*string)(f) = string(src[at : at+n])
		return at + n, nil
	case opBlob:
		n, at, err := readLen(src, pos)
		if err != nil {
			return pos, o.fail("decode", err)
		}
		*(*[]byte)(f) = cloneBytes(src[at : at+n])
		return at + n, nil
	case opWrap:
		e := reflect.New(o.elem.typ).UnsafePointer()
		if pos, err = o.elem.decode(src, pos, e); err != nil {
			return pos, err
		}
		*(*unsafe.Pointer)(f) = e
	case opZero:
		clear(unsafe.Slice((*byte)(f), o.size))
	case opSkip:
		if len(src)-pos < o.size {
			return pos, o.fail("decode", truncated(pos, o.size, len(src)-pos))
		}
		return pos + o.size, nil
	case opSkipText:
		n, at, err := readLen(src, pos)
		if err != nil {
			return pos, o.fail("decode", err)
		}
		return at + n, nil
	case opSkipBytes:
		n, at, _, err := readOptionalLen(src, pos)
		if err != nil {
			return pos, o.fail("decode", err)
		}
		return at + n, nil
	case opSkipOptional:
		if len(src)-pos < 1 {
			return pos, o.fail("decode", truncated(pos, 1, 0))
		}
		if src[pos] > 1 {
			return pos, o.fail("decode", notBool(src[pos], pos))
		}
		if pos++; src[pos-1] == 1 {
			return o.elem.decode(src, pos, nil)
		}
	case opSkipArray:
		return o.elem.skipAll(src, pos, o.size)
	case opSkipSlice:
		count, next, err := readCount(src, pos)
		if err != nil {
			return pos, o.fail("decode", err)
		}
		if count == 0 {
			return next, nil
		}
		if left := len(src) - next; count-1 > uint64(left/o.elem.min) {
			return pos, o.fail("decode", tooMany(pos, count-1, o.elem.min, left))
		}
		return o.elem.skipAll(src, next, int(count-1))
	case opSkipMap:
		count, next, err := readCount(src, pos)
		if err != nil {
			return pos, o.fail("decode", err)
		}
		if count == 0 {
			return next, nil
		}
		if left := len(src) - next; count-1 > maxEntries(left, o.key.min+o.elem.min) {
			return pos, o.fail("decode", tooMany(pos, count-1, o.key.min+o.elem.min, left))
		}
		pos = next
		for range count - 1 {
			if pos, err = o.key.decode(src, pos, nil); err != nil {
				return pos, err
			}
			if pos, err = o.elem.decode(src, pos, nil); err != nil {
				return pos, err
			}
		}
	}
	return pos, nil
}

// skipAll steps over n values.
func (p *program) skipAll(src []byte, pos, n int) (int, error) {
	if p.fixed() {
		if size := n * p.min; len(src)-pos >= size {
			return pos + size, nil
		}
	}
	var err error
	for range n {
		if pos, err = p.decode(src, pos, nil); err != nil {
			return pos, err
		}
	}
	return pos, nil
}

func tooMany(pos int, n uint64, size, left int) error {
	return fmt.Errorf("%w at offset %d: claims %d elements of at least %d bytes, %d bytes are left", ErrTruncated, pos, n, size, left)
}
