package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func TestScalars(t *testing.T) {
	same(t, Int64(), "int64", math.MinInt64, -1, 0, math.MaxInt64)
	same(t, Uint64(), "uint64", 0, math.MaxUint64)
	same(t, Int(), "int64", math.MinInt, 5)
	same(t, Uint(), "uint64", 0, math.MaxUint)
	same(t, Int32(), "int32", math.MinInt32, math.MaxInt32)
	same(t, Uint32(), "uint32", 0, math.MaxUint32)
	same(t, Int16(), "int16", math.MinInt16, math.MaxInt16)
	same(t, Uint16(), "uint16", 0, math.MaxUint16)
	same(t, Int8(), "int8", math.MinInt8, math.MaxInt8)
	same(t, Uint8(), "uint8", 0, math.MaxUint8)
	same(t, Float64(), "float64", 0, math.Inf(-1), math.Copysign(0, -1), 1e300)
	same(t, Float32(), "float32", 0, 1.5)
	same(t, Bool(), "bool", false, true)
	same(t, String(), "string", "", "a", "\xff", strings.Repeat("x", 127), strings.Repeat("x", 128))
	same(t, Bytes(), "bytes", nil, []byte{}, []byte{0}, make([]byte, 300))
	same(t, Time(), "time", time.Time{}, time.Unix(1, 2).UTC())
}

func same[T any](t *testing.T, c Codec[T], name string, vs ...T) {
	t.Helper()
	if got := c.Schema(); got != (Schema{Codec: name, Version: 1}) || got.String() != name {
		t.Errorf("schema %+v, want %s", got, name)
	}
	typ, err := c.Schema().Type()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vs {
		if got := roundTrip(t, c, v); !reflect.DeepEqual(got, v) {
			t.Errorf("%s: %#v became %#v", name, v, got)
		}
		b, _ := c.Append(nil, &v)
		if _, n, err := typ.Decode(b); err != nil || n != len(b) {
			t.Errorf("%s: without the type: took %d of %d bytes: %v", name, n, len(b), err)
		}
	}
}

func TestDefault(t *testing.T) {
	type (
		id    int64
		small int8
		on    bool
		raw   []byte
		ratio float32
	)
	defaulted(t, "string", customerID("c"))
	defaulted(t, "int64", id(5))
	defaulted(t, "int64", 5)
	defaulted(t, "uint64", uint(5))
	defaulted(t, "int64", time.Second)
	defaulted(t, "int32", int32(5))
	defaulted(t, "uint16", uint16(5))
	defaulted(t, "int8", small(5))
	defaulted(t, "uint8", status(2))
	defaulted(t, "float64", 0.5)
	defaulted(t, "float32", ratio(0.5))
	defaulted(t, "bool", on(true))
	defaulted(t, "bytes", []byte{1})
	defaulted(t, "bytes", raw{1})
	defaulted(t, "time", time.Unix(3, 4).UTC())
	defaulted(t, `struct:{"struct":[{"name":"A","type":"uint8"},{"name":"B","type":"string"}]}`, inner{1, "b"})
	defaulted(t, `struct:{"array":"uint8","len":16}`, [16]byte{1})
	defaulted(t, `struct:{"map":"int64","key":"string"}`, map[string]int{"a": 1})
}

func defaulted[T any](t *testing.T, schema string, v T) {
	t.Helper()
	c, err := Default[T]()
	if err != nil {
		t.Errorf("%T: %v", v, err)
		return
	}
	if got := c.Schema().String(); got != schema {
		t.Errorf("%T: schema %s, want %s", v, got, schema)
	}
	if got := roundTrip(t, c, v); !reflect.DeepEqual(got, v) {
		t.Errorf("%T: %v became %v", v, v, got)
	}
}

func TestCheckKey(t *testing.T) {
	key(t, String(), "")
	key(t, Int64(), "")
	key(t, Time(), "")
	key(t, MustStruct[inner](), "")
	key(t, MustStruct[struct {
		A [3]customerID
		_ float64
		B bool
	}](), "")
	key(t, Float64(), "float64")
	key(t, Float32(), "NaN")
	key(t, MustStruct[tick](), "field Price")
	key(t, MustStruct[[2]complex64](), "complex64")
	key(t, MustStruct[*int](), "ptr")
	key(t, Bytes(), "not comparable")
	key(t, MustStruct[map[string]int](), "not comparable")
	key(t, MustStruct[struct {
		A int
		B int `cairn:"-"`
	}](), "leaves a field out")
	key(t, JSON[inner](), "json")
	key(t, JSON[any](), "interface")
}

func key[K any](t *testing.T, c Codec[K], refusal string) {
	t.Helper()
	err := CheckKey(c)
	if (err == nil) != (refusal == "") || err != nil && !strings.Contains(err.Error(), refusal) {
		t.Errorf("%T: %v, want %q", *new(K), err, refusal)
	}
}

func TestSchema(t *testing.T) {
	for _, text := range []string{"string", "json", "struct/2", `struct:{"slice":"int64"}`, `struct/3:{"slice":"int64"}`} {
		s, err := ParseSchema(text)
		if err != nil || s.String() != text {
			t.Errorf("%s became %s: %v", text, s, err)
		}
	}
	for _, text := range []string{"", ":x", "struct/x", "struct/1", "struct/"} {
		if s, err := ParseSchema(text); err == nil {
			t.Errorf("%q was read as %+v", text, s)
		}
	}
	s := MustStruct[everything]().Schema()
	parsed, err := ParseSchema(s.String())
	if err != nil || parsed != s {
		t.Errorf("%v became %v: %v", s, parsed, err)
	}
	typ, err := s.Type()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range typ.Fields {
		if f.Name == "Renamed" || f.Name == "Skipped" || f.Name == "renamed" && !reflect.DeepEqual(f.Aliases, []string{"old", "older"}) {
			t.Errorf("field %+v", f)
		}
	}
	for _, s := range []Schema{{Codec: "struct", Version: 2}, {Codec: "json", Version: 1}, {Codec: "struct", Version: 1, Shape: "null"}} {
		if _, err := s.Type(); err == nil {
			t.Errorf("%v has a type", s)
		}
	}
}

func TestShapeErrors(t *testing.T) {
	for shape, word := range map[string]string{
		``:                                  "end of JSON",
		`null`:                              "want one of",
		`"int63"`:                           "unknown type",
		`"slice"`:                           "unknown type",
		`{}`:                                "want one of",
		`{"slice":null}`:                    "want one of",
		`{"array":"bool"}`:                  "want one of",
		`{"map":"bool"}`:                    "want one of",
		`{"list":"bool"}`:                   "unknown field",
		`{"slice":"bool","pointer":"bool"}`: "want one of",
		`{"struct":[{"name":"A"}]}`:         "no type",
		`{"slice":{"struct":[]}}`:           "no bytes",
		`{"array":{"struct":[]},"len":3}`:   "0 bytes",
		`{"array":"bool","len":-1}`:         "array of -1",
		`{"array":{"array":"int64","len":99999999},"len":999999}`:              "too large",
		strings.Repeat(`{"slice":`, 300) + `"bool"` + strings.Repeat("}", 300): "nested",
	} {
		if typ, err := ParseShape(shape); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%.60s: %v, %v, want %q", shape, typ, err, word)
		}
	}
}

func TestDynamic(t *testing.T) {
	v := struct {
		A  int8
		B  float32
		C  float64
		D  complex64
		E  map[int8]string
		F  map[string]bool
		G  *int
		H  []byte
		At time.Time
		Y  time.Time
	}{
		A: -1, B: 0.1, C: math.NaN(), D: complex(1, -2), E: map[int8]string{1: "<"}, F: map[string]bool{"k\n": true},
		H: []byte("hi"), At: time.Unix(0, 0), Y: time.Unix(1<<40, 0),
	}
	c, err := Default[struct {
		A  int8
		B  float32
		C  float64
		D  complex64
		E  map[int8]string
		F  map[string]bool
		G  *int
		H  []byte
		At time.Time
		Y  time.Time
	}]()
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Append(nil, &v)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"A":-1,"B":0.1,"C":"NaN","D":[1,-2],"E":[[1,"\u003c"]],"F":{"k\n":true},"G":null,"H":"aGk=","At":"1970-01-01T00:00:00Z","Y":"@1099511627776.000000000"}`
	if got := dynamically(t, c.Schema(), b); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	o := order{ID: 3, Customer: "<c>"}
	b, _ = JSON[order]().Append(nil, &o)
	if got := dynamically(t, JSON[order]().Schema(), b); !strings.HasPrefix(got, `{"ID":3,"Customer":"`) {
		t.Errorf("got %s", got)
	}
	for _, s := range []Schema{{Codec: "mine"}, {Codec: "proto", Shape: "{}"}, {Codec: "struct", Shape: "x"}, {Codec: "json", Version: 2}} {
		if _, err := s.Dynamic(); err == nil {
			t.Errorf("%v can be decoded", s)
		}
	}
}

func dynamically(t *testing.T, s Schema, b []byte) string {
	t.Helper()
	d, err := s.Dynamic()
	if err != nil {
		t.Fatal(err)
	}
	v, n, err := d(append(bytes.Clone(b), 1))
	if err != nil || n != len(b) {
		t.Fatalf("took %d of %d bytes: %v", n, len(b), err)
	}
	for i := range b {
		if _, _, err := d(b[:i:i]); err == nil {
			t.Fatalf("decoded %d of %d bytes", i, len(b))
		}
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestJSON(t *testing.T) {
	c := JSON[order]()
	v := order{ID: 1, Customer: "<&>", At: time.Unix(5, 0).UTC(), Lines: []line{{"x", 1, 0.5}}}
	if got := roundTrip(t, c, v); !reflect.DeepEqual(got, v) {
		t.Errorf("got %+v", got)
	}
	m := map[string]int{"b": 1, "a": 2, "c": 3}
	for range 5 {
		if b, err := JSON[map[string]int]().Append(nil, &m); err != nil || string(b) != "\x13"+`{"a":2,"b":1,"c":3}` {
			t.Fatalf("%q, %v", b, err)
		}
	}
	stale := order{Note: "left over", Lines: []line{{"left over", 1, 1}}}
	if _, err := c.Decode([]byte("\x08{\"ID\":2}"), &stale); err != nil || !reflect.DeepEqual(stale, order{ID: 2}) {
		t.Errorf("%+v, %v", stale, err)
	}
	nan := math.NaN()
	if b, err := JSON[float64]().Append([]byte("x"), &nan); err == nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	func() {
		defer func() {
			if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "copy") {
				t.Errorf("recovered %v", err)
			}
		}()
		JSON[float64]().Copy(new(float64), &nan)
	}()
	for _, bad := range []string{"", "\x05{}", "\x02{]", "\x03{}}", "\xff\xff\xff\xff\x7f"} {
		if _, err := c.Decode([]byte(bad), &v); err == nil {
			t.Errorf("decoded %q", bad)
		}
	}
}

func TestPayload(t *testing.T) {
	payload(t, JSON[inner](), inner{1, "<"}, `{"A":1,"B":"<"}`)
	payload(t, String(), "abc", "abc")
	payload(t, Bytes(), []byte("abc"), "abc")
	payload(t, Int16(), 0x4142, "BA")
	var v int16
	if err := DecodePayload(Int16(), []byte("abc"), &v); err == nil {
		t.Error("bytes left over were ignored")
	}
}

func payload[T any](t *testing.T, c Codec[T], v T, want string) {
	t.Helper()
	b, err := AppendPayload(c, []byte("-"), &v)
	if err != nil || string(b) != "-"+want {
		t.Errorf("%q, want %q: %v", b, want, err)
	}
	var got T
	if err := DecodePayload(c, b[1:], &got); err != nil || !reflect.DeepEqual(got, v) {
		t.Errorf("%v, want %v: %v", got, v, err)
	}
}

func TestProto(t *testing.T) {
	c := Proto[structpb.Struct]()
	v, err := structpb.NewStruct(map[string]any{"b": "x", "a": []any{1.5, nil, true}, "c": map[string]any{"d": "e"}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Append([]byte("x"), v)
	if err != nil {
		t.Fatal(err)
	}
	b = b[1:]
	for range 5 {
		if again, _ := c.Append(nil, v); !bytes.Equal(again, b) {
			t.Fatalf("%x, then %x", b, again)
		}
	}
	got := &structpb.Struct{Fields: map[string]*structpb.Value{"stale": nil}}
	n, err := c.Decode(append(bytes.Clone(b), 9), got)
	if err != nil || n != len(b) || !proto.Equal(got, v) {
		t.Errorf("took %d of %d: %v, %v", n, len(b), got, err)
	}
	copied := &structpb.Struct{Fields: map[string]*structpb.Value{"stale": nil}}
	c.Copy(copied, v)
	if !proto.Equal(copied, v) || copied.Fields["b"] == v.Fields["b"] {
		t.Errorf("copy %v", copied)
	}
	for i := range b {
		if _, err := c.Decode(b[:i:i], got); !errors.Is(err, ErrTruncated) {
			t.Errorf("%d of %d bytes: %v", i, len(b), err)
		}
	}
	if _, err := c.Decode([]byte{2, 0xff, 0xff}, got); err == nil {
		t.Error("decoded nonsense")
	}
	if s := c.Schema(); s.Codec != "proto" || !strings.HasPrefix(s.Shape, `{"message":"google.protobuf.Struct","files":"`) {
		t.Errorf("schema %.80s", s)
	}
	at := timestamppb.New(time.Unix(1700000000, 0))
	b, _ = Proto[timestamppb.Timestamp]().Append(nil, at)
	if got := dynamically(t, Proto[timestamppb.Timestamp]().Schema(), b); got != `"2023-11-14T22:13:20Z"` {
		t.Errorf("got %s", got)
	}
	if err := DecodePayload(c, nil, got); err != nil || len(got.Fields) > 0 {
		t.Errorf("%v, %v", got, err)
	}
}
