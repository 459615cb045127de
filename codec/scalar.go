package codec

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"
)

// The codecs of integers and floats: little-endian, as wide as the type. Int and Uint take 8 bytes
// and share the schema of Int64 and Uint64.

// Int64 is the codec of int64.
func Int64() Codec[int64] { return word8[int64]{"int64"} }

// Uint64 is the codec of uint64.
func Uint64() Codec[uint64] { return word8[uint64]{"uint64"} }

// Int is the codec of int, the same as that of int64.
func Int() Codec[int] { return word8[int]{"int64"} }

// Uint is the codec of uint, the same as that of uint64.
func Uint() Codec[uint] { return word8[uint]{"uint64"} }

// Int32 is the codec of int32.
func Int32() Codec[int32] { return word4[int32]{"int32"} }

// Uint32 is the codec of uint32.
func Uint32() Codec[uint32] { return word4[uint32]{"uint32"} }

// Int16 is the codec of int16.
func Int16() Codec[int16] { return word2[int16]{"int16"} }

// Uint16 is the codec of uint16.
func Uint16() Codec[uint16] { return word2[uint16]{"uint16"} }

// Int8 is the codec of int8.
func Int8() Codec[int8] { return word1[int8]{"int8"} }

// Uint8 is the codec of uint8.
func Uint8() Codec[uint8] { return word1[uint8]{"uint8"} }

// Float64 is the codec of float64. It is not for keys: see CheckKey.
func Float64() Codec[float64] { return word8[float64]{"float64"} }

// Float32 is the codec of float32. It is not for keys: see CheckKey.
func Float32() Codec[float32] { return word4[float32]{"float32"} }

// Bool is the codec of bool: one byte, 0 or 1.
func Bool() Codec[bool] { return flag{} }

// String is the codec of string: the length in bytes as uvarint, then the bytes, of any content.
func String() Codec[string] { return text{} }

// Bytes is the codec of []byte: 0 for nil, else the length + 1 as uvarint and the bytes.
func Bytes() Codec[[]byte] { return blob{} }

// Time is the codec of time.Time: the whole seconds since 1970 UTC as int64, then the nanoseconds
// within the second as uint32. The location and the monotonic reading are left out: what is
// decoded or copied is in UTC.
func Time() Codec[time.Time] { return instant{} }

// The type parameters below let one implementation serve all types of one layout in memory, which its
// name says. Named types have a program: see Default.

type word8[T any] struct{ name string }

func (c word8[T]) Schema() Schema   { return Schema{Codec: c.name, Version: 1} }
func (c word8[T]) Copy(dst, src *T) { *dst = *src }

func (c word8[T]) Evolve(old Schema) (Codec[T], error) { return evolveTo(Codec[T](c), old) }

func (c word8[T]) Append(dst []byte, v *T) ([]byte, error) {
	return binary.LittleEndian.AppendUint64(dst, *(*uint64)(unsafe.Pointer(v))), nil
}

func (c word8[T]) Decode(src []byte, v *T) (int, error) {
	if len(src) < 8 {
		return 0, c.short(0, len(src))
	}
	*(*uint64)(unsafe.Pointer(v)) = binary.LittleEndian.Uint64(src)
	return 8, nil
}

func (c word8[T]) AppendAll(dst []byte, vs []T) ([]byte, error) {
	if littleEndian {
		return append(dst, memory(vs)...), nil
	}
	dst = slices.Grow(dst, 8*len(vs))
	for i := range vs {
		dst, _ = c.Append(dst, &vs[i])
	}
	return dst, nil
}

func (c word8[T]) DecodeAll(src []byte, vs []T) (int, error) {
	if len(src)/8 < len(vs) {
		return 0, c.short(len(src)/8*8, len(src)%8)
	}
	if littleEndian {
		return copy(memory(vs), src), nil
	}
	for i := range vs {
		_, _ = c.Decode(src[8*i:], &vs[i])
	}
	return 8 * len(vs), nil
}

func (c word8[T]) short(pos, have int) error {
	return fmt.Errorf("decode %s: %w", c.name, truncated(pos, 8, have))
}

type word4[T any] struct{ name string }

func (c word4[T]) Schema() Schema   { return Schema{Codec: c.name, Version: 1} }
func (c word4[T]) Copy(dst, src *T) { *dst = *src }

func (c word4[T]) Evolve(old Schema) (Codec[T], error) { return evolveTo(Codec[T](c), old) }

func (c word4[T]) Append(dst []byte, v *T) ([]byte, error) {
	return binary.LittleEndian.AppendUint32(dst, *(*uint32)(unsafe.Pointer(v))), nil
}

func (c word4[T]) Decode(src []byte, v *T) (int, error) {
	if len(src) < 4 {
		return 0, fmt.Errorf("decode %s: %w", c.name, truncated(0, 4, len(src)))
	}
	*(*uint32)(unsafe.Pointer(v)) = binary.LittleEndian.Uint32(src)
	return 4, nil
}

type word2[T any] struct{ name string }

func (c word2[T]) Schema() Schema   { return Schema{Codec: c.name, Version: 1} }
func (c word2[T]) Copy(dst, src *T) { *dst = *src }

func (c word2[T]) Evolve(old Schema) (Codec[T], error) { return evolveTo(Codec[T](c), old) }

func (c word2[T]) Append(dst []byte, v *T) ([]byte, error) {
	return binary.LittleEndian.AppendUint16(dst, *(*uint16)(unsafe.Pointer(v))), nil
}

func (c word2[T]) Decode(src []byte, v *T) (int, error) {
	if len(src) < 2 {
		return 0, fmt.Errorf("decode %s: %w", c.name, truncated(0, 2, len(src)))
	}
	*(*uint16)(unsafe.Pointer(v)) = binary.LittleEndian.Uint16(src)
	return 2, nil
}

type word1[T any] struct{ name string }

func (c word1[T]) Schema() Schema   { return Schema{Codec: c.name, Version: 1} }
func (c word1[T]) Copy(dst, src *T) { *dst = *src }

func (c word1[T]) Evolve(old Schema) (Codec[T], error) { return evolveTo(Codec[T](c), old) }

func (c word1[T]) Append(dst []byte, v *T) ([]byte, error) {
	return append(dst, *(*byte)(unsafe.Pointer(v))), nil
}

func (c word1[T]) Decode(src []byte, v *T) (int, error) {
	if len(src) < 1 {
		return 0, fmt.Errorf("decode %s: %w", c.name, truncated(0, 1, 0))
	}
	*(*byte)(unsafe.Pointer(v)) = src[0]
	return 1, nil
}

type flag struct{}

func (flag) Schema() Schema                           { return Schema{Codec: "bool", Version: 1} }
func (c flag) Evolve(old Schema) (Codec[bool], error) { return evolveTo(Codec[bool](c), old) }
func (flag) Copy(dst, src *bool)                      { *dst = *src }

func (flag) Append(dst []byte, v *bool) ([]byte, error) {
	return append(dst, *(*byte)(unsafe.Pointer(v))), nil
}

func (flag) Decode(src []byte, v *bool) (int, error) {
	if len(src) < 1 {
		return 0, fmt.Errorf("decode bool: %w", truncated(0, 1, 0))
	}
	if src[0] > 1 {
		return 0, fmt.Errorf("decode bool: byte %d at offset 0 is neither 0 nor 1", src[0])
	}
	*(*byte)(unsafe.Pointer(v)) = src[0]
	return 1, nil
}

type text struct{}

func (text) Schema() Schema                             { return Schema{Codec: "string", Version: 1} }
func (c text) Evolve(old Schema) (Codec[string], error) { return evolveTo(Codec[string](c), old) }

func (text) Copy(dst, src *string) {
	*dst = strings.Clone(*src)
}

func (text) share(dst, src *string) { *dst = *src }

func (text) Append(dst []byte, v *string) ([]byte, error) {
	s := *v
	if len(s) > MaxValue-lenSize {
		return dst, fmt.Errorf("encode string: %w", tooLarge(uint64(len(s))))
	}
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...), nil
}

func (text) Decode(src []byte, v *string) (int, error) {
	n, pos, err := readLen(src, 0)
	if err != nil {
		return 0, fmt.Errorf("decode string: %w", err)
	}
	*v = string(src[pos : pos+n])
	return pos + n, nil
}

func (text) AppendPayload(dst []byte, v *string) ([]byte, error) {
	return append(dst, *v...), nil
}

func (text) DecodePayload(src []byte, v *string) error {
	*v = string(src)
	return nil
}

type blob struct{}

func (blob) Schema() Schema                             { return Schema{Codec: "bytes", Version: 1} }
func (c blob) Evolve(old Schema) (Codec[[]byte], error) { return evolveTo(Codec[[]byte](c), old) }

func (blob) Copy(dst, src *[]byte) {
	*dst = cloneBytes(*src)
}

func (blob) Append(dst []byte, v *[]byte) ([]byte, error) {
	b := *v
	if b == nil {
		return append(dst, 0), nil
	}
	if len(b) > MaxValue-lenSize {
		return dst, fmt.Errorf("encode bytes: %w", tooLarge(uint64(len(b))))
	}
	return append(binary.AppendUvarint(dst, uint64(len(b))+1), b...), nil
}

func (blob) Decode(src []byte, v *[]byte) (int, error) {
	n, pos, present, err := readOptionalLen(src, 0)
	if err != nil {
		return 0, fmt.Errorf("decode bytes: %w", err)
	}
	if !present {
		*v = nil
		return pos, nil
	}
	*v = cloneBytes(src[pos : pos+n])
	return pos + n, nil
}

func (blob) AppendPayload(dst []byte, v *[]byte) ([]byte, error) {
	return append(dst, *v...), nil
}

func (blob) DecodePayload(src []byte, v *[]byte) error {
	*v = cloneBytes(src)
	return nil
}

type instant struct{}

func (instant) Schema() Schema { return Schema{Codec: "time", Version: 1} }
func (c instant) Evolve(old Schema) (Codec[time.Time], error) {
	return evolveTo(Codec[time.Time](c), old)
}
func (instant) Copy(dst, src *time.Time) { *dst = src.Round(0).UTC() }

func (instant) Append(dst []byte, v *time.Time) ([]byte, error) { return appendTime(dst, *v), nil }

func (instant) Decode(src []byte, v *time.Time) (int, error) {
	t, pos, err := readTime(src, 0)
	if err != nil {
		return 0, fmt.Errorf("decode time: %w", err)
	}
	*v = t
	return pos, nil
}

// timeSize is the encoded size of a time.Time.
const timeSize = 12

func appendTime(dst []byte, t time.Time) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(t.Unix()))
	return binary.LittleEndian.AppendUint32(dst, uint32(t.Nanosecond()))
}

func readTime(src []byte, pos int) (time.Time, int, error) {
	if len(src)-pos < timeSize {
		return time.Time{}, pos, truncated(pos, timeSize, len(src)-pos)
	}
	sec := int64(binary.LittleEndian.Uint64(src[pos:]))
	nsec := binary.LittleEndian.Uint32(src[pos+8:])
	if nsec >= 1e9 {
		return time.Time{}, pos, fmt.Errorf("%d nanoseconds in a second at offset %d", nsec, pos+8)
	}
	return time.Unix(sec, int64(nsec)).UTC(), pos + timeSize, nil
}

// lenSize is the room that a length takes at most in a value within MaxValue.
const lenSize = 4

// memory is vs as raw bytes. T holds no pointers.
func memory[T any](vs []T) []byte {
	var v T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(vs))), int(unsafe.Sizeof(v))*len(vs))
}

// cloneBytes copies b with no room to spare, keeping nil apart from empty.
func cloneBytes(b []byte) []byte {
	if b == nil {
		return nil
	}
	c := make([]byte, len(b))
	copy(c, b)
	return c
}
