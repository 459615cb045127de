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

type structCodec[T any] struct {
	*program
	schema Schema
}

func newStruct[T any](native bool) (*structCodec[T], error) {
	t := reflect.TypeFor[T]()
	p, shape, err := compile(t, native)
	if err != nil {
		return nil, fmt.Errorf("struct codec of %v: %w", t, err)
	}
	return &structCodec[T]{p, Schema{Codec: "struct", Version: 1, Shape: shape.String()}}, nil
}

func (c *structCodec[T]) Schema() Schema { return c.schema }

func (c *structCodec[T]) Copy(dst, src *T) {
	if c.plain {
		*dst = *src
		return
	}
	c.program.copy(unsafe.Pointer(dst), unsafe.Pointer(src))
}

func (c *structCodec[T]) Append(dst []byte, v *T) ([]byte, error) {
	if c.dense {
		return append(dst, unsafe.Slice((*byte)(unsafe.Pointer(v)), c.size)...), nil
	}
	start := len(dst)
	out, err := c.append(dst, unsafe.Pointer(v))
	if err == nil && len(out)-start > MaxValue {
		err = fmt.Errorf("encode: %w", tooLarge(uint64(len(out)-start)))
	}
	if err != nil {
		return dst, fmt.Errorf("%v: %w", c.typ, err)
	}
	return out, nil
}

func (c *structCodec[T]) Decode(src []byte, v *T) (int, error) {
	if c.dense && len(src) >= c.size && badBool(src, c.bools) < 0 {
		return copy(unsafe.Slice((*byte)(unsafe.Pointer(v)), c.size), src), nil
	}
	return c.decodeAt(src, 0, v)
}

// decodeAt decodes the value at pos and returns the position behind it.
func (c *structCodec[T]) decodeAt(src []byte, pos int, v *T) (int, error) {
	window := src
	if len(src)-pos > MaxValue {
		window = src[:pos+MaxValue]
	}
	next, err := c.decode(window, pos, unsafe.Pointer(v))
	if err != nil {
		if len(window) < len(src) && errors.Is(err, ErrTruncated) {
			err = fmt.Errorf("decode: %w: more than %d bytes", ErrTooLarge, MaxValue)
		}
		return 0, fmt.Errorf("%v: %w", c.typ, err)
	}
	return next, nil
}

func (c *structCodec[T]) AppendAll(dst []byte, vs []T) ([]byte, error) {
	if c.dense {
		return append(dst, memory(vs)...), nil
	}
	out := slices.Grow(dst, c.min*len(vs))
	var err error
	for i := range vs {
		start := len(out)
		out, err = c.append(out, unsafe.Pointer(&vs[i]))
		if err == nil && len(out)-start > MaxValue {
			err = fmt.Errorf("encode: %w", tooLarge(uint64(len(out)-start)))
		}
		if err != nil {
			return dst, fmt.Errorf("row %d: %v: %w", i, c.typ, err)
		}
	}
	return out, nil
}

func (c *structCodec[T]) DecodeAll(src []byte, vs []T) (int, error) {
	if c.dense {
		return c.decodeAll(src, 0, unsafe.Pointer(unsafe.SliceData(vs)), len(vs))
	}
	pos := 0
	var err error
	for i := range vs {
		if pos, err = c.decodeAt(src, pos, &vs[i]); err != nil {
			return 0, fmt.Errorf("row %d: %w", i, err)
		}
	}
	return pos, nil
}

func (c *structCodec[T]) newHasher() Hasher[T] {
	if !c.dense {
		return nil
	}
	if c.size == 8 {
		return hasherOf[T](func(p *[8]byte) uint64 { return hash8(binary.LittleEndian.Uint64(p[:])) })
	}
	return func(key *T) uint64 { return xxh3.Hash(unsafe.Slice((*byte)(unsafe.Pointer(key)), c.size)) }
}
