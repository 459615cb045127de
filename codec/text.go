package codec

import (
	"encoding/json"
	"unicode/utf8"
)

// Text is an encoded value for people: what s's Dynamic makes of src, strings as they are and others as JSON, cut at limit
// bytes. What cannot be decoded is empty.
func (s Schema) Text(src []byte, limit int) string {
	decode, err := s.Dynamic()
	if err != nil {
		return ""
	}
	v, _, err := decode(src)
	if err != nil {
		return ""
	}
	text, ok := v.(string)
	if !ok {
		b, err := json.Marshal(v)
		if err != nil {
			return ""
		}
		text = string(b)
	}
	return cut(text, limit)
}

const ellipsis = "…"

// cut shortens s to at most n bytes, between two characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n -= len(ellipsis)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:max(n, 0)] + ellipsis
}
