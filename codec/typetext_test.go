package codec

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What a Layout says of a type is read back to the same schema.
func TestTypeTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := drawType(t, 3)
		_, shape, err := compile(typ, littleEndian)
		if err != nil {
			t.Fatal(err)
		}
		l := layout(t, "struct:"+shape.String())
		s, err := ParseTypeText(l.String())
		if err != nil {
			t.Fatalf("%v is %s: %v", typ, l, err)
		}
		if typ == durationType {
			return // Its own codec is that of int64.
		}
		if again, err := s.Layout(); err != nil || again.String() != l.String() {
			t.Fatalf("%s is read as %s, %v", l, s, err)
		}
	})
	for text, want := range map[string]string{
		"string": "string", " int64 ": "int64", "json": "json", "time": "time", "duration": "int64", "complex64": `struct:"complex64"`,
		"[ 3 ] *bytes":                `struct:{"array":{"pointer":"bytes"},"len":3}`,
		"{ A int64,B []string }":      `struct:{"struct":[{"name":"A","type":"int64"},{"name":"B","type":{"slice":"string"}}]}`,
		`struct:{"slice":"string"}`:   `struct:{"slice":"string"}`,
		"map[string]map[int8]float32": `struct:{"map":{"map":"float32","key":"int8"},"key":"string"}`,
	} {
		if s, err := ParseTypeText(text); err != nil || s.String() != want {
			t.Errorf("%s: %s, %v; want %s", text, s, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "want a type", "text": "want a type", "[]": "want a type", "{A}": "want a type", "{A int64 B int64}": "want ,",
		"{A int64, A bool}": "another name than A", "[x]bool": "the length of an array", "string string": "want the end",
		"[]{}": "slice of elements that take no bytes", strings.Repeat("*", 300) + "bool": "nested less",
	} {
		if s, err := ParseTypeText(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v; want %q", text, s, err, want)
		}
	}
}
