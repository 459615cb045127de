package codec

import (
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// drawSchema makes a schema of any codec, which may be made of others.
func drawSchema(t *rapid.T, depth int) Schema {
	name := rapid.SampledFrom([]string{"string", "int64", "json", "struct", "acme/order", "a,b", "50%", `"q"`, "a:b", "x{"}).Draw(t, "name")
	s := Schema{Codec: name, Version: rapid.IntRange(1, 12).Draw(t, "version")}
	kind := "leaf"
	if depth > 0 {
		kind = rapid.SampledFrom([]string{"leaf", "joined", "joined"}).Draw(t, "kind")
	}
	switch kind {
	case "joined":
		parts := make([]Schema, rapid.IntRange(1, 3).Draw(t, "parts"))
		for i := range parts {
			parts[i] = drawSchema(t, depth-1)
		}
		s.Shape = JoinSchemas(parts...)
	default:
		s.Shape = rapid.OneOf(
			rapid.SampledFrom([]string{"", `{"struct":[{"name":"A,}","type":"int64"},{"name":"\"","type":"int8"}]}`, "a,b", `"`, `"x"`, `\"`, "}", "[1,2]", "(,", "8x1000ms:int64", "\xff,"}),
			rapid.String(),
		).Draw(t, "shape")
	}
	return s
}

func TestSchemaTextRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchema(t, 3)
		got, err := ParseSchema(s.String())
		if err != nil || got != s {
			t.Fatalf("%+v became %q and %+v: %v", s, s, got, err)
		}
	})
}

func TestJoinedSchemasAreSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := make([]Schema, rapid.IntRange(1, 4).Draw(t, "parts"))
		for i := range parts {
			parts[i] = drawSchema(t, 2)
		}
		shape := JoinSchemas(parts...)
		got, err := SplitSchemas(shape, len(parts))
		if err != nil || !reflect.DeepEqual(got, parts) {
			t.Fatalf("%+v became %q and %+v: %v", parts, shape, got, err)
		}
	})
}

func TestSplitSchemas(t *testing.T) {
	text, number := Schema{Codec: "string", Version: 1}, Schema{Codec: "int64", Version: 1}
	for shape, want := range map[string][]Schema{
		"string,int64":            {text, number}, // As it was before quotes were thought of.
		"string,map-entry:a,b":    {text, {Codec: "map-entry", Version: 1, Shape: "a,b"}},
		`"map-key:a,b",int64`:     {{Codec: "map-key", Version: 1, Shape: "a,b"}, number},
		`struct:{"a":"b,c"},json`: {{Codec: "struct", Version: 1, Shape: `{"a":"b,c"}`}, {Codec: "json", Version: 1}},
		"":                        nil,
		"string":                  nil,
		"string,":                 nil,
		",string":                 nil,
		`"string`:                 nil,
		`"string"`:                nil,
		`"string"int64`:           nil,
		`struct:{,int64`:          nil,
		`struct:},int64`:          nil,
		`string/0,int64`:          nil,
	} {
		if got, err := SplitSchemas(shape, 2); !reflect.DeepEqual(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%s: %+v, %v", shape, got, err)
		}
	}
	one, err := SplitSchemas("map-entry:string,int64", 1)
	if err != nil || one[0].Codec != "map-entry" || one[0].Shape != "string,int64" {
		t.Errorf("one: %+v, %v", one, err)
	}
}

func TestPartsOf(t *testing.T) {
	now := Schema{Codec: "aged", Version: 1, Shape: "int64"}
	for _, s := range []Schema{
		{Codec: "int64", Version: 1}, {Codec: "aged", Version: 2, Shape: "int64"}, {Codec: "aged", Version: 1, Shape: ""},
	} {
		var e *IncompatibleError
		if _, err := PartsOf(s, now, 1); !errors.As(err, &e) {
			t.Errorf("%v: %v", s, err)
		}
	}
	if _, err := PartsOf(Schema{Codec: "aged", Shape: "int32"}, Schema{Codec: "aged", Version: 3}, 1); err == nil {
		t.Error("an older version of a codec is read as the new one")
	}
	parts, err := PartsOf(Schema{Codec: "aged", Shape: "int32"}, now, 1)
	if err != nil || len(parts) != 1 || parts[0].Codec != "int32" {
		t.Errorf("%v, %v", parts, err)
	}
	if err := Unchanged("the key", parts[0], parts[0]); err != nil {
		t.Error(err)
	}
	if err := Unchanged("the key", parts[0], now); err == nil {
		t.Error("another key is taken")
	}
}

func FuzzSplitSchemas(f *testing.F) {
	f.Add("string,int64")
	f.Add(`"map-key:a,b",struct:{"x":[1,2]}`)
	f.Fuzz(func(t *testing.T, shape string) {
		parts, err := SplitSchemas(shape, 2)
		if err != nil {
			return
		}
		again, err := SplitSchemas(JoinSchemas(parts...), 2)
		if err != nil || !reflect.DeepEqual(again, parts) {
			t.Fatalf("%q became %+v, then %+v: %v", shape, parts, again, err)
		}
	})
}
