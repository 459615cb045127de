package codec

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseTypeText reads what a Layout's String says of types, such as `string`, `[]int64`, `map[string]time` or
// `{Flights int64, Total int64}`, and json. It gives the schema of the codec that Default has for such a type. The text of a
// schema is read too.
func ParseTypeText(text string) (Schema, error) {
	text = strings.TrimSpace(text)
	switch Kind(text) {
	case KindDuration:
		return Schema{Codec: "int64", Version: 1}, nil
	case KindComplex64, KindComplex128:
		return Schema{Codec: "struct", Version: 1, Shape: strconv.Quote(text)}, nil
	}
	if s, err := ParseSchema(text); err == nil {
		if _, err := s.Layout(); err == nil {
			return s, nil
		}
	}
	p := typeParser{text: text}
	t := p.typ(0)
	p.space()
	if p.err == nil && p.pos < len(text) {
		p.fail("the end")
	}
	if p.err != nil {
		return Schema{}, p.err
	}
	if len(t.Fields) == 0 && t.Elem == nil && t.Kind != KindStruct {
		return Schema{Codec: string(t.Kind), Version: 1}, nil
	}
	s := Schema{Codec: "struct", Version: 1, Shape: t.String()}
	if _, err := s.Layout(); err != nil {
		return Schema{}, fmt.Errorf("type %.80q: %w", text, err)
	}
	return s, nil
}

// typeParser reads a type from the front of text.
type typeParser struct {
	text string
	pos  int
	err  error
}

func (p *typeParser) fail(want string) {
	if p.err == nil {
		p.err = fmt.Errorf("type %.80q: want %s at byte %d", p.text, want, p.pos)
	}
}

func (p *typeParser) space() {
	for p.pos < len(p.text) && (p.text[p.pos] == ' ' || p.text[p.pos] == '\t') {
		p.pos++
	}
}

// take takes a token that is there.
func (p *typeParser) take(token string) bool {
	p.space()
	if p.err == nil && strings.HasPrefix(p.text[p.pos:], token) {
		p.pos += len(token)
		return true
	}
	return false
}

func (p *typeParser) need(token string) {
	if !p.take(token) {
		p.fail(token)
	}
}

// word takes what is up to a space or a character with a meaning.
func (p *typeParser) word() string {
	p.space()
	n := strings.IndexAny(p.text[p.pos:], " \t,{}[]*")
	if n < 0 {
		n = len(p.text) - p.pos
	}
	w := p.text[p.pos : p.pos+n]
	p.pos += n
	return w
}

func (p *typeParser) typ(depth int) *Type {
	t := &Type{}
	switch {
	case depth > maxDepth:
		p.fail("a type that is nested less")
	case p.take("*"):
		t.Kind, t.Elem = KindPointer, p.typ(depth+1)
	case p.take("[]"):
		t.Kind, t.Elem = KindSlice, p.typ(depth+1)
	case p.take("map["):
		t.Kind, t.Key = KindMap, p.typ(depth+1)
		p.need("]")
		t.Elem = p.typ(depth + 1)
	case p.take("["):
		n, err := strconv.Atoi(p.word())
		if err != nil || n < 0 {
			p.fail("the length of an array")
		}
		p.need("]")
		t.Kind, t.Len, t.Elem = KindArray, n, p.typ(depth+1)
	case p.take("{"):
		t.Kind, t.Fields = KindStruct, []Field{}
		for p.err == nil && !p.take("}") {
			if len(t.Fields) > 0 {
				p.need(",")
			}
			name := p.word()
			if name == "" {
				p.fail("the name of a field")
			}
			for _, f := range t.Fields {
				if f.Name == name {
					p.fail("another name than " + name + ", which is there already,")
				}
			}
			t.Fields = append(t.Fields, Field{Name: name, Type: p.typ(depth + 1)})
		}
	default:
		at := p.pos
		if t.Kind = Kind(p.word()); scalarWidth[t.Kind] == 0 {
			p.pos = at
			p.fail("a type: bool, int64, float64, string, bytes, time, ..., []T, map[K]V, *T or {Name T, ...}")
		}
	}
	return t
}
