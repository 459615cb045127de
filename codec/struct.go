package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"github.com/zeebo/xxh3"
)

// Struct returns the compact codec of T, which is usually a struct but may be any type without
// interfaces, functions, channels and recursion. It encodes the exported fields in the order of
// their declaration, without names: FORMAT.md has the bytes, Schema().Shape the names.
//
// The tag `cairn:"name,alias=old"` gives a field another name in the schema and the names that it
// had before; `cairn:"-"` leaves a field out, which is then zero in what is decoded or copied. An
// unexported field without that tag is refused, so that none is lost unnoticed. A time.Time keeps
// its instant, not its location. nil and empty slices and maps stay apart.
//
// The error names every field that cannot be encoded.
func Struct[T any]() (Codec[T], error) {
	c, err := newStruct[T](littleEndian)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// MustStruct is Struct for tests: it panics where Struct returns an error.
func MustStruct[T any]() Codec[T] {
	c, err := Struct[T]()
	if err != nil {
		panic(err)
	}
	return c
}

// structCodec is the program of T, with T's name on it: all that is compiled for each type.
type structCodec[T any] struct {
	program *program // No embedding: its methods would be compiled for each type too.
	schema  Schema
}

func newStruct[T any](native bool) (*structCodec[T], error) {
	p, schema, err := structOf(reflect.TypeFor[T](), native)
	if err != nil {
		return nil, err
	}
	return &structCodec[T]{p, schema}, nil
}

func structOf(t reflect.Type, native bool) (*program, Schema, error) {
	p, shape, err := compile(t, native)
	if err != nil {
		return nil, Schema{}, fmt.Errorf("struct codec of %v: %w", t, err)
	}
	return p, Schema{Codec: "struct", Version: 1, Shape: shape.String()}, nil
}

func (c *structCodec[T]) Schema() Schema { return c.schema }

func (c *structCodec[T]) Copy(dst, src *T) {
	if c.program.plain {
		*dst = *src
		return
	}
	c.program.copy(unsafe.Pointer(dst), unsafe.Pointer(src), false)
}

func (c *structCodec[T]) share(dst, src *T) {
	c.program.copy(unsafe.Pointer(dst), unsafe.Pointer(src), true)
}

// Evolve reads old values by the names of their fields: see FORMAT.md for what may change.
func (c *structCodec[T]) Evolve(old Schema) (Codec[T], error) { return evolveTo(Codec[T](c), old) }

func (c *structCodec[T]) Append(dst []byte, v *T) ([]byte, error) {
	return c.program.appendOne(dst, unsafe.Pointer(v))
}

func (c *structCodec[T]) Decode(src []byte, v *T) (int, error) {
	return c.program.decodeOne(src, unsafe.Pointer(v))
}

func (c *structCodec[T]) AppendAll(dst []byte, vs []T) ([]byte, error) {
	return c.program.appendRows(dst, unsafe.Pointer(unsafe.SliceData(vs)), len(vs))
}

func (c *structCodec[T]) DecodeAll(src []byte, vs []T) (int, error) {
	return c.program.decodeRows(src, unsafe.Pointer(unsafe.SliceData(vs)), len(vs))
}

func (c *structCodec[T]) AppendPayload(dst []byte, v *T) ([]byte, error) {
	return c.program.appendPayload(dst, unsafe.Pointer(v), c.schema.Codec)
}

func (c *structCodec[T]) DecodePayload(src []byte, v *T) error {
	return c.program.decodePayload(src, unsafe.Pointer(v), c.schema.Codec)
}

func (c *structCodec[T]) newHasher() Hasher[T] {
	h := c.program.hasher()
	return *(*Hasher[T])(unsafe.Pointer(&h)) // A pointer is passed the same way whatever it points to.
}

func (p *program) appendOne(dst []byte, v unsafe.Pointer) ([]byte, error) {
	if p.dense {
		return append(dst, unsafe.Slice((*byte)(v), p.size)...), nil
	}
	start := len(dst)
	out, err := p.append(dst, v)
	if err == nil && len(out)-start > MaxValue {
		err = fmt.Errorf("encode: %w", tooLarge(uint64(len(out)-start)))
	}
	if err != nil {
		return dst, fmt.Errorf("%v: %w", p.typ, err)
	}
	return out, nil
}

func (p *program) decodeOne(src []byte, v unsafe.Pointer) (int, error) {
	if p.dense && len(src) >= p.size && badBool(src, p.bools) < 0 {
		return copy(unsafe.Slice((*byte)(v), p.size), src), nil
	}
	return p.decodeAt(src, 0, v)
}

// decodeAt decodes the value at pos and returns the position behind it.
func (p *program) decodeAt(src []byte, pos int, v unsafe.Pointer) (int, error) {
	window := src
	if len(src)-pos > MaxValue {
		window = src[:pos+MaxValue]
	}
	next, err := p.decode(window, pos, v)
	if err != nil {
		if len(window) < len(src) && errors.Is(err, ErrTruncated) {
			err = fmt.Errorf("decode: %w: more than %d bytes", ErrTooLarge, MaxValue)
		}
		return 0, fmt.Errorf("%v: %w", p.typ, err)
	}
	return next, nil
}

// appendRows is AppendAll of the n values from v on.
func (p *program) appendRows(dst []byte, v unsafe.Pointer, n int) ([]byte, error) {
	if p.dense {
		return append(dst, unsafe.Slice((*byte)(v), n*p.size)...), nil
	}
	out := slices.Grow(dst, p.min*n)
	var err error
	for i := range n {
		start := len(out)
		out, err = p.append(out, unsafe.Add(v, i*p.size))
		if err == nil && len(out)-start > MaxValue {
			err = fmt.Errorf("encode: %w", tooLarge(uint64(len(out)-start)))
		}
		if err != nil {
			return dst, fmt.Errorf("row %d: %v: %w", i, p.typ, err)
		}
	}
	return out, nil
}

// decodeRows is DecodeAll of the n values from v on.
func (p *program) decodeRows(src []byte, v unsafe.Pointer, n int) (int, error) {
	if p.dense {
		return p.decodeAll(src, 0, v, n)
	}
	pos := 0
	var err error
	for i := range n {
		if pos, err = p.decodeAt(src, pos, unsafe.Add(v, i*p.size)); err != nil {
			return 0, fmt.Errorf("row %d: %w", i, err)
		}
	}
	return pos, nil
}

// appendPayload encodes the whole content of a message: strings and bytes need no length.
func (p *program) appendPayload(dst []byte, v unsafe.Pointer, codec string) ([]byte, error) {
	switch codec {
	case "string":
		return append(dst, *(*string)(v)...), nil
	case "bytes":
		return append(dst, *(*[]byte)(v)...), nil
	}
	return p.appendOne(dst, v)
}

func (p *program) decodePayload(src []byte, v unsafe.Pointer, codec string) error {
	switch codec {
	case "string":
		*(*string)(v) = string(src)
		return nil
	case "bytes":
		*(*[]byte)(v) = cloneBytes(src)
		return nil
	}
	n, err := p.decodeOne(src, v)
	if err == nil && n != len(src) {
		err = leftOver(codec, len(src)-n, n)
	}
	return err
}

// hasher is a Hasher of values that can be hashed where they are, else nil.
func (p *program) hasher() func(unsafe.Pointer) uint64 {
	switch {
	case len(p.ops) == 1 && p.ops[0].kind == opString && p.ops[0].off == 0:
		h := newStringHasher()
		return func(v unsafe.Pointer) uint64 { return h((*string)(v)) }
	case !p.dense:
		return nil
	case p.size == 1:
		return func(v unsafe.Pointer) uint64 { return hash1At((*byte)(v)) }
	case p.size == 8:
		return func(v unsafe.Pointer) uint64 { return hash8(binary.LittleEndian.Uint64((*[8]byte)(v)[:])) }
	}
	size := p.size
	return func(v unsafe.Pointer) uint64 { return xxh3.Hash(unsafe.Slice((*byte)(v), size)) }
}
