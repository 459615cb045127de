package codec

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Kind is the kind of a Type.
type Kind string

// The kinds of types. The names of Go's numeric kinds stand for themselves: int8 to int64, uint8
// to uint64, float32, float64, complex64, complex128.
const (
	KindBool       Kind = "bool"
	KindInt8       Kind = "int8"
	KindInt16      Kind = "int16"
	KindInt32      Kind = "int32"
	KindInt64      Kind = "int64"
	KindUint8      Kind = "uint8"
	KindUint16     Kind = "uint16"
	KindUint32     Kind = "uint32"
	KindUint64     Kind = "uint64"
	KindFloat32    Kind = "float32"
	KindFloat64    Kind = "float64"
	KindComplex64  Kind = "complex64"
	KindComplex128 Kind = "complex128"
	KindString     Kind = "string"
	KindBytes      Kind = "bytes"
	KindTime       Kind = "time"
	KindDuration   Kind = "duration"
	KindPointer    Kind = "pointer" // Of Elem, or nil.
	KindSlice      Kind = "slice"   // Of Elem.
	KindArray      Kind = "array"   // Of Len times Elem.
	KindMap        Kind = "map"     // From Key to Elem.
	KindStruct     Kind = "struct"  // Of Fields.
)

// scalarWidth is the least size of an encoding by kind, for kinds without parts.
var scalarWidth = map[Kind]int{
	KindBool: 1, KindInt8: 1, KindInt16: 2, KindInt32: 4, KindInt64: 8,
	KindUint8: 1, KindUint16: 2, KindUint32: 4, KindUint64: 8,
	KindFloat32: 4, KindFloat64: 8, KindComplex64: 8, KindComplex128: 16,
	KindString: 1, KindBytes: 1, KindTime: timeSize, KindDuration: 8,
}

// Type describes what the struct codec and the scalar codecs encode, without the Go type. Its text
// is JSON: a kind without parts is its name, the others are
//
//	{"pointer":T}  {"slice":T}  {"array":T,"len":n}  {"map":T,"key":T}
//	{"struct":[{"name":"Amount","alias":["Sum"],"type":T}, ...]}
//
// with alias only where there is one. The text is canonical: no space, members in this order.
type Type struct {
	Kind   Kind
	Elem   *Type
	Key    *Type
	Len    int
	Fields []Field
}

// Field is one field of a struct.
type Field struct {
	Name    string
	Aliases []string // Names that the field had before.
	Type    *Type
}

// String is the canonical text of t, which ParseShape reads.
func (t *Type) String() string { return string(t.append(nil)) }

func (t *Type) append(b []byte) []byte {
	switch t.Kind {
	case KindPointer, KindSlice:
		b = append(b, `{"`+string(t.Kind)+`":`...)
		b = t.Elem.append(b)
	case KindArray:
		b = append(b, `{"array":`...)
		b = t.Elem.append(b)
		b = strconv.AppendInt(append(b, `,"len":`...), int64(t.Len), 10)
	case KindMap:
		b = append(b, `{"map":`...)
		b = t.Elem.append(b)
		b = t.Key.append(append(b, `,"key":`...))
	case KindStruct:
		b = append(b, `{"struct":[`...)
		for i, f := range t.Fields {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSONString(append(b, `{"name":`...), f.Name)
			for j, a := range f.Aliases {
				if j == 0 {
					b = append(b, `,"alias":[`...)
				} else {
					b = append(b, ',')
				}
				b = appendJSONString(b, a)
			}
			if len(f.Aliases) > 0 {
				b = append(b, ']')
			}
			b = append(f.Type.append(append(b, `,"type":`...)), '}')
		}
		b = append(b, ']')
	default:
		return appendJSONString(b, string(t.Kind))
	}
	return append(b, '}')
}

// MarshalJSON gives the canonical text.
func (t *Type) MarshalJSON() ([]byte, error) { return t.append(nil), nil }

// UnmarshalJSON reads the text of a type.
func (t *Type) UnmarshalJSON(b []byte) error {
	b = bytes.TrimSpace(b)
	if len(b) > 0 && b[0] == '"' {
		var k Kind
		if err := json.Unmarshal(b, &k); err != nil {
			return err
		}
		if scalarWidth[k] == 0 {
			return fmt.Errorf("unknown type %q", k)
		}
		*t = Type{Kind: k}
		return nil
	}
	if d := depth(b); d > maxDepth {
		return fmt.Errorf("type is nested %d deep: the limit is %d", d, maxDepth)
	}
	var o struct {
		Pointer, Slice, Array, Map, Key *Type
		Len                             *int
		Struct                          *[]struct {
			Name  string
			Alias []string
			Type  *Type
		}
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return err
	}
	var made []Type
	if o.Pointer != nil {
		made = append(made, Type{Kind: KindPointer, Elem: o.Pointer})
	}
	if o.Slice != nil {
		made = append(made, Type{Kind: KindSlice, Elem: o.Slice})
	}
	if o.Array != nil && o.Len != nil {
		made = append(made, Type{Kind: KindArray, Elem: o.Array, Len: *o.Len})
	}
	if o.Map != nil && o.Key != nil {
		made = append(made, Type{Kind: KindMap, Elem: o.Map, Key: o.Key})
	}
	if o.Struct != nil {
		s := Type{Kind: KindStruct, Fields: []Field{}}
		for _, f := range *o.Struct {
			if f.Type == nil {
				return fmt.Errorf("field %q has no type", f.Name)
			}
			s.Fields = append(s.Fields, Field{f.Name, f.Alias, f.Type})
		}
		made = append(made, s)
	}
	if len(made) != 1 {
		return fmt.Errorf("want one of pointer, slice, array with len, map with key, struct: %.80s", b)
	}
	*t = made[0]
	switch t.Kind {
	case KindSlice:
		if t.Elem.width() == 0 {
			return errors.New("slice of elements that take no bytes")
		}
	case KindArray:
		if t.Len < 0 || t.Len > 0 && t.Elem.width() == 0 {
			return fmt.Errorf("array of %d elements of %d bytes", t.Len, t.Elem.width())
		}
	}
	if t.width() > MaxValue {
		return tooLarge(uint64(t.width()))
	}
	return nil
}

// maxDepth bounds the nesting of the text of a type, counted in brackets.
const maxDepth = 200

// depth is how deep the brackets of a JSON text are nested.
func depth(b []byte) int {
	deepest, now := 0, 0
	inString := false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}

// width is the least number of bytes that a value takes.
func (t *Type) width() int {
	switch t.Kind {
	case KindPointer, KindSlice, KindMap:
		return 1
	case KindArray:
		elem := t.Elem.width()
		if elem > 0 && t.Len > math.MaxInt32/elem {
			return math.MaxInt32 // Far beyond MaxValue.
		}
		return t.Len * elem
	case KindStruct:
		sum := 0
		for _, f := range t.Fields {
			sum = min(sum+f.Type.width(), math.MaxInt32)
		}
		return sum
	default:
		return scalarWidth[t.Kind]
	}
}

// ParseShape reads the Shape of a schema of the struct codec.
func ParseShape(shape string) (*Type, error) {
	t := new(Type)
	if err := json.Unmarshal([]byte(shape), t); err != nil {
		return nil, fmt.Errorf("parse shape: %w", err)
	}
	return t, nil
}

// ParseSchema reads what Schema.String gives.
func ParseSchema(text string) (Schema, error) {
	name, shape, _ := strings.Cut(text, ":")
	s := Schema{Codec: name, Version: 1, Shape: shape}
	if n, version, ok := strings.Cut(name, "/"); ok {
		v, err := strconv.Atoi(version)
		if err != nil || v < 2 {
			return Schema{}, fmt.Errorf("parse schema %.80q: malformed version %q", text, version)
		}
		s.Codec, s.Version = n, v
	}
	if s.Codec = unescapeName(s.Codec); s.Codec == "" {
		return Schema{}, fmt.Errorf("parse schema %.80q: no codec name", text)
	}
	return s, nil
}

// reserved are the characters that a name may not have in the text of a schema.
const reserved = `%/:,"{}[]`

func escapeName(name string) string {
	if !strings.ContainsAny(name, reserved) {
		return name
	}
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; strings.IndexByte(reserved, c) >= 0 {
			fmt.Fprintf(&b, "%%%02x", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func unescapeName(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if c, err := hex.DecodeString(text[min(i+1, len(text)):min(i+3, len(text))]); text[i] == '%' && err == nil && len(c) == 1 {
			b.WriteByte(c[0])
			i += 2
			continue
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// Type describes what s encodes, for the struct codec and the scalar ones. Others describe
// themselves in ways of their own.
func (s Schema) Type() (*Type, error) {
	if s.Version > 1 {
		return nil, fmt.Errorf("codec %s has version %d: this build knows version 1", s.Codec, s.Version)
	}
	if s.Codec == "struct" {
		return ParseShape(s.Shape)
	}
	if k := Kind(s.Codec); scalarWidth[k] > 0 {
		return &Type{Kind: k}, nil
	}
	return nil, fmt.Errorf("codec %s does not describe its values as a type", s.Codec)
}

func appendJSONString(b []byte, s string) []byte {
	q, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("marshal string: %v", err)) // Cannot fail.
	}
	return append(b, q...)
}
