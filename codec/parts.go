package codec

import (
	"fmt"
	"strconv"
	"strings"
)

// JoinSchemas makes the shape of a codec that is made of others: their schemas, separated by commas.
// Of all but the last, which takes the rest, a text whose end would not be found is put in quotes.
func JoinSchemas(parts ...Schema) string {
	var b strings.Builder
	for i, p := range parts {
		text := p.String()
		if i == len(parts)-1 {
			b.WriteString(text)
			break
		}
		if firstPart(text) != len(text) || strings.HasPrefix(text, `"`) {
			text = strconv.Quote(text)
		}
		b.WriteString(text)
		b.WriteByte(',')
	}
	return b.String()
}

// SplitSchemas reads the n schemas of which JoinSchemas made shape.
func SplitSchemas(shape string, n int) ([]Schema, error) {
	parts := make([]Schema, 0, n)
	rest := shape
	for i := range n {
		text := rest
		if i < n-1 {
			var end int
			if strings.HasPrefix(rest, `"`) {
				q, err := strconv.QuotedPrefix(rest)
				if err != nil {
					return nil, fmt.Errorf("shape %.80q: schema %d: its quotes have no end", shape, i+1)
				}
				end = len(q)
				text, _ = strconv.Unquote(q)
			} else if end = firstPart(rest); end >= 0 {
				text = rest[:end]
			}
			if end < 0 || end == len(rest) || rest[end] != ',' {
				return nil, fmt.Errorf("shape %.80q: want %d schemas separated by commas", shape, n)
			}
			rest = rest[end+1:]
		}
		s, err := ParseSchema(text)
		if err != nil {
			return nil, fmt.Errorf("shape %.80q: schema %d: %w", shape, i+1, err)
		}
		parts = append(parts, s)
	}
	return parts, nil
}

// firstPart is where the first comma of s is that is in no brackets and no string, len(s) if there
// is none, and -1 if brackets or strings do not end.
func firstPart(s string) int {
	depth, inString := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth < 0 {
				return -1
			}
		case c == ',' && depth == 0:
			return i
		}
	}
	if depth != 0 || inString {
		return -1
	}
	return len(s)
}

// PartsOf returns the n schemas that the shape of old consists of, once it is sure that old is one of
// the same codec as now, of no newer version. It is for the Evolve of codecs that are made of others.
func PartsOf(old, now Schema, n int) ([]Schema, error) {
	switch {
	case old.Codec != now.Codec:
		return nil, codecsDiffer(old, now)
	case old.version() > now.version():
		return nil, newer(old, now)
	case old.version() < now.version():
		return nil, incompatible(old, now, "the versions of the codec differ", "go back to the old one")
	}
	parts, err := SplitSchemas(old.Shape, n)
	if err != nil {
		return nil, incompatible(old, now, err.Error(), "restore another checkpoint")
	}
	return parts, nil
}

// Unchanged refuses any difference between two schemas of a part, which what names, that other bytes
// refer to: a key.
func Unchanged(what string, old, now Schema) error {
	if old.equal(now) {
		return nil
	}
	return &IncompatibleError{[]Incompatibility{{
		Path: what, Old: short(old.String()), New: short(now.String()),
		Why: "it is found by its bytes", Do: "keep its type, and the names of its fields by the tag `cairn:\"name\"`",
	}}}
}
