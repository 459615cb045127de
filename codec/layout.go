package codec

import (
	"fmt"
	"strconv"
	"strings"
)

// Layout knows an encoding by its schema alone: it finds the end of a value, decodes it, and encodes one from JSON, without
// the Go type. It is immutable. There is one for the codecs of this package and for those that operators keep their states
// with (composite.go); codecs of users have none.
type Layout struct {
	schema Schema
	typ    *Type      // Of scalars and structs,
	fixed  int        // and how many bytes all their values take, -1 if not all the same.
	comp   *composite // Of a composite codec,
	count  int        // with its number, of panes,
	parts  []*Layout  // and the layouts of its shape.
	msg    *protoLayout
}

// Layout finds the layout of what s describes.
func (s Schema) Layout() (*Layout, error) {
	l, err := layoutOf(s, 0)
	if err != nil {
		return nil, fmt.Errorf("codec %s: %w", s.Codec, err)
	}
	return l, nil
}

func layoutOf(s Schema, depth int) (*Layout, error) {
	l := &Layout{schema: s, fixed: -1}
	if s.Version > 1 {
		return nil, fmt.Errorf("version %d is unknown: this build knows version 1", s.Version)
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("schemas are nested more than %d deep", maxDepth)
	}
	switch {
	case s.Codec == "json":
		return l, nil
	case s.Codec == "proto":
		var err error
		l.msg, err = newProtoLayout(s.Shape)
		return l, err
	case composites[s.Codec] != nil:
		return l, l.compose(depth)
	}
	t, err := s.Type()
	if err != nil {
		return nil, err
	}
	l.typ = t
	if n, ok := t.fixed(); ok {
		l.fixed = n
	}
	return l, nil
}

// compose reads the shape of a composite codec.
func (l *Layout) compose(depth int) error {
	l.comp = composites[l.schema.Codec]
	shape := l.schema.Shape
	if l.comp.prefix != nil {
		var err error
		if l.count, shape, err = l.comp.prefix(shape); err != nil {
			return err
		}
	}
	parts, err := SplitSchemas(shape, l.comp.parts)
	if err != nil {
		return err
	}
	for _, s := range parts {
		p, err := layoutOf(s, depth+1)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Codec, err)
		}
		l.parts = append(l.parts, p)
	}
	return nil
}

// Schema is what the layout was made of.
func (l *Layout) Schema() Schema { return l.schema }

// Parts are the layouts that the shape of a composite codec names, such as those of key and map key.
func (l *Layout) Parts() []*Layout { return l.parts }

// Is tells whether l is of one of these codecs.
func (l *Layout) Is(codecs ...string) bool {
	for _, c := range codecs {
		if l.schema.Codec == c {
			return true
		}
	}
	return false
}

// User is the layout of the user's key in what l is of: the key of a state's entries. The keys of timers, windows, lists and
// maps begin with the user's key, which alone decides their key group.
func (l *Layout) User() *Layout {
	if l.comp != nil && l.comp.key {
		return l.parts[0]
	}
	return l
}

// UserLen is how many of the bytes of an encoded key, from the first on, are the user's key.
func (l *Layout) UserLen(key []byte) (int, error) { return l.User().Len(key) }

// Len is how many bytes the value at the front of src takes. It looks at lengths only: what Decode would refuse may have one.
func (l *Layout) Len(src []byte) (int, error) {
	switch {
	case l.fixed >= 0:
		if len(src) < l.fixed {
			return 0, fmt.Errorf("%s: %w", l.schema.Codec, truncated(0, l.fixed, len(src)))
		}
		return l.fixed, nil
	case l.typ != nil:
		d := dynamic{src: src}
		d.skip(l.typ)
		if d.err != nil {
			return 0, fmt.Errorf("%s: %w", l.schema.Codec, d.err)
		}
		return d.pos, nil
	case l.comp != nil:
		var p Parts
		return l.split(src, &p)
	}
	n, pos, err := readLen(src, 0)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", l.schema.Codec, err)
	}
	return pos + n, nil
}

// Decode is a Dynamic.
func (l *Layout) Decode(src []byte) (any, int, error) {
	switch {
	case l.typ != nil:
		return l.typ.Decode(src)
	case l.comp != nil:
		return l.decodeParts(src)
	case l.msg != nil:
		return l.msg.decode(src)
	}
	return dynamicJSON(src)
}

// Dynamic returns a decoder of what s describes, for the codecs that have a Layout.
func (s Schema) Dynamic() (Dynamic, error) {
	l, err := s.Layout()
	if err != nil {
		return nil, err
	}
	return l.Decode, nil
}

// String says for people what values there are: `string`, `[]int64`, `{Flights int64, Total int64}`.
func (l *Layout) String() string {
	switch {
	case l.typ != nil:
		return string(l.typ.short(nil))
	case l.comp != nil:
		var names []string
		for _, p := range l.parts {
			names = append(names, p.String())
		}
		return l.schema.Codec + "(" + strings.Join(names, ", ") + ")"
	case l.msg != nil:
		return "proto " + string(l.msg.desc.FullName())
	}
	return l.schema.Codec
}

func (t *Type) short(b []byte) []byte {
	switch t.Kind {
	case KindPointer:
		return t.Elem.short(append(b, '*'))
	case KindSlice:
		return t.Elem.short(append(b, "[]"...))
	case KindArray:
		return t.Elem.short(append(strconv.AppendInt(append(b, '['), int64(t.Len), 10), ']'))
	case KindMap:
		return t.Elem.short(append(t.Key.short(append(b, "map["...)), ']'))
	case KindStruct:
		b = append(b, '{')
		for i, f := range t.Fields {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = f.Type.short(append(append(b, f.Name...), ' '))
		}
		return append(b, '}')
	}
	return append(b, t.Kind...)
}

// fixed is how many bytes a value takes, if all of them take as many.
func (t *Type) fixed() (int, bool) {
	switch t.Kind {
	case KindPointer, KindSlice, KindMap, KindString, KindBytes:
		return 0, false
	case KindArray:
		_, ok := t.Elem.fixed()
		return t.width(), ok || t.Len == 0
	case KindStruct:
		for _, f := range t.Fields {
			if _, ok := f.Type.fixed(); !ok {
				return 0, false
			}
		}
	}
	return t.width(), true
}

// skip passes over a value.
func (d *dynamic) skip(t *Type) {
	if d.err != nil {
		return
	}
	switch t.Kind {
	case KindString:
		n, pos, err := readLen(d.src, d.pos)
		d.pos, d.err = pos+n, err
	case KindBytes:
		n, pos, _, err := readOptionalLen(d.src, d.pos)
		d.pos, d.err = pos+n, err
	case KindPointer:
		if d.flag() {
			d.skip(t.Elem)
		}
	case KindArray:
		d.skipAll(t.Elem, t.Len)
	case KindSlice:
		if n, ok := d.count(t.Elem.width()); ok {
			d.skipAll(t.Elem, n)
		}
	case KindMap:
		n, _ := d.count(t.Key.width() + t.Elem.width())
		for i := 0; i < n && d.err == nil; i++ {
			d.skip(t.Key)
			d.skip(t.Elem)
		}
	case KindStruct:
		for _, f := range t.Fields {
			d.skip(f.Type)
		}
	default:
		d.pass(scalarWidth[t.Kind])
	}
}

func (d *dynamic) skipAll(elem *Type, n int) {
	if w, ok := elem.fixed(); ok {
		if w > 0 && n > (len(d.src)-d.pos)/w {
			d.err = truncated(d.pos, n*w, len(d.src)-d.pos)
			return
		}
		d.pass(n * w)
		return
	}
	for i := 0; i < n && d.err == nil; i++ {
		d.skip(elem)
	}
}

// pass passes over n bytes.
func (d *dynamic) pass(n int) {
	if d.err == nil && len(d.src)-d.pos < n {
		d.err = truncated(d.pos, n, len(d.src)-d.pos)
	}
	if d.err == nil {
		d.pos += n
	}
}
