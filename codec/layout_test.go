package codec

import (
	"bytes"
	"encoding/binary"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"
)

// throughJSON checks that the bytes of a value come out of its JSON again, and returns the JSON.
func throughJSON(t rapid.TB, l *Layout, b []byte) string {
	t.Helper()
	n, err := l.Len(append(b[:len(b):len(b)], 0xff))
	if err != nil || n != len(b) {
		t.Fatalf("%v of %x: length %d of %d, %v", l, b, n, len(b), err)
	}
	v, n, err := l.Decode(b)
	if err != nil || n != len(b) {
		t.Fatalf("%v of %x: took %d of %d, %v", l, b, n, len(b), err)
	}
	text, err := AppendJSON(nil, v)
	if err != nil {
		t.Fatalf("%v of %x: %v", l, b, err)
	}
	again, err := l.Encode([]byte("before"), text)
	if err != nil || !bytes.Equal(again, append([]byte("before"), b...)) {
		t.Fatalf("%v: %x is %s, which is %x: %v", l, b, text, again, err)
	}
	return string(text)
}

func layout(t rapid.TB, schema string) *Layout {
	t.Helper()
	s, err := ParseSchema(schema)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Layout()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Any value of any type goes to JSON and back without its Go type.
func TestAnyValueGoesThroughJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := drawType(t, 3)
		p, shape, err := compile(typ, littleEndian)
		if err != nil {
			t.Fatal(err)
		}
		v := reflect.New(typ)
		drawValue(t, v.Elem())
		b, err := p.append(nil, v.UnsafePointer())
		if err != nil {
			t.Fatal(err)
		}
		throughJSON(t, layout(t, "struct:"+shape.String()), b)
	})
}

func TestNumbersKeepTheirBits(t *testing.T) {
	for _, bits := range []uint64{
		0, 1, 1 << 63, math.Float64bits(math.Inf(-1)), math.Float64bits(math.NaN()), 0x7ff8000000000000, 0xfff0000000000001,
		math.Float64bits(1e300), math.Float64bits(0.1), math.MaxInt64, 1<<53 + 1, math.MaxUint64,
	} {
		b := binary.LittleEndian.AppendUint64(nil, bits)
		for _, schema := range []string{"float64", "int64", "uint64", `struct:{"struct":[{"name":"A","type":"float32"},{"name":"B","type":"int32"}]}`, `struct:"complex64"`, `struct:"duration"`} {
			throughJSON(t, layout(t, schema), b)
		}
		throughJSON(t, layout(t, "float32"), b[4:])
		throughJSON(t, layout(t, "time"), append(b, 1, 2, 3, 0))
	}
	throughJSON(t, layout(t, "string"), []byte("\x03a\xff<"))
	throughJSON(t, layout(t, "string"), []byte("\x04<&>\""))
	throughJSON(t, layout(t, "json"), []byte("\x0b[\"<\\u003c\"]"))
	for _, depth := range []string{"\x00", "\x01\x00", "\x01\x01\x00", "\x01\x01\x01", "\x01\x01\x02\x08$pointer\x00", "\x01\x01\x02\x08$pointer\x02x"} {
		throughJSON(t, layout(t, `struct:{"pointer":{"pointer":{"map":"bytes","key":"string"}}}`), []byte(depth))
	}
	m, err := structpb.NewStruct(map[string]any{"a": "b<", "c": []any{1.5, nil}})
	if err != nil {
		t.Fatal(err)
	}
	c := Proto[structpb.Struct]()
	b, err := c.Append(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Schema().Layout()
	if err != nil {
		t.Fatal(err)
	}
	throughJSON(t, l, b)
}

// compositeSamples are encodings of each composite codec with their JSON.
var compositeSamples = []struct{ schema, bytes, json string }{
	{"aged:string", "\xe8\x03\x00\x00\x00\x00\x00\x00\x01v", `{"from":"1970-01-01T00:00:01Z","value":"v"}`},
	{"key-time:string", "\x01k\x01\x00\x00\x00\x00\x00\x00\x80", `{"key":"k","time":-9223372036854775807}`},
	{"map-key:string,uint8", "\x01k\x07", `{"key":"k","map_key":7}`},
	{"map-head:string", "\x02\x00\x00\x00\x00\x00\x00\x00\x01a", `{"entries":2,"first":"a"}`},
	{"map-entry:string,uint8", "\x00\x09", `{"value":9}`},
	{"map-entry:string,uint8", "\x03\x01a\x01b\x09", `{"prev":"a","next":"b","value":9}`},
	{"aged:map-entry:string,struct:{\"slice\":\"bool\"}", "\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x02\x01", `{"from":"1970-01-01T00:00:00Z","value":{"next":"","value":[true]}}`},
	{"list-head:uint8", "\x01\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x05\x06", `{"first":1,"next":3,"elements":[5,6]}`},
	{"list-head:uint8", "\x01\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x00\x00\x00\x00\x05", `{"first":1,"next":9,"elements":[5]}`},
	{"list-part:uint8", "\x01\x02\x03\x04", `{"gone":1,"elements":[2,3,4]}`},
	{"list-item:string", "\x01k\x03\x80\x01", `{"key":"k","list":-2,"part":128}`},
	{"session:uint8", "\xe8\x03\x00\x00\x00\x00\x00\x00\xd0\x07\x00\x00\x00\x00\x00\x00\x0a\x05\x09", `{"first":"1970-01-01T00:00:01Z","last":"1970-01-01T00:00:01.01Z","next":"1970-01-01T00:00:02Z","more":2,"fired":true,"acc":9}`},
	{"panes:8x3600000ms:uint8", "\x81\x01\x02", `{"has":129,"panes":[1,2]}`},
	{"firing:uint8", "\x01\x00\x00\x00\x00\x00\x00\x00\xe8\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03\x09", `{"count":1,"last":"1970-01-01T00:00:01Z","next":"1970-01-01T00:00:00Z","fired":true,"acc":9}`},
	{"firing:uint8", "\x01\x00\x00\x00\x00\x00\x00\x00\xe8\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", `{"count":1,"last":"1970-01-01T00:00:01Z","next":"1970-01-01T00:00:00Z","fired":false}`},
	{"list:string", "\x02\x01a\x00", `{"elements":["a",""]}`},
	{"combined:string,uint8", "\x01k\x05\x80\x01\x09", `{"key":"k","span":5,"count":128,"acc":9}`},
}

func TestCompositeCodecs(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range compositeSamples {
		l := layout(t, c.schema)
		seen[l.schema.Codec] = true
		if got := throughJSON(t, l, []byte(c.bytes)); got != c.json {
			t.Errorf("%s: %s, want %s", c.schema, got, c.json)
		}
		var p Parts
		n, err := l.Split([]byte(c.bytes), &p)
		if err != nil || n != len(c.bytes) {
			t.Fatalf("%s: %d, %v", c.schema, n, err)
		}
		if b, err := l.Join(nil, p); err != nil || string(b) != c.bytes {
			t.Errorf("%s: split and joined: %x, %v", c.schema, b, err)
		}
		for i := range len(c.bytes) {
			if _, _, err := l.Decode([]byte(c.bytes)[:i]); err == nil {
				t.Errorf("%s: decoded %d bytes of %d", c.schema, i, len(c.bytes))
			}
		}
	}
	for name := range composites {
		if !seen[name] {
			t.Errorf("no sample of %s", name)
		}
	}
}

func TestEncoderRefuses(t *testing.T) {
	point := `struct:{"struct":[{"name":"X","type":"int8"},{"name":"Tags","type":{"slice":"string"}}]}`
	for _, c := range []struct{ schema, json, want string }{
		{point, `{"X":1}`, `Tags missing`},
		{point, `{"X":300,"Tags":null}`, `at /X: want a whole number of 8 bits with a sign, not 300`},
		{point, `{"X":1.0,"Tags":null}`, `at /X: want a whole number`},
		{point, `{"X":1,"Tags":["a",2]}`, `at /Tags/1: want a text`},
		{point, `{"X":1,"Tags":null,"Y":2}`, `at /Y: there is no "Y": want X, Tags`},
		{point, `{"X":1,"X":2,"Tags":null}`, `duplicate object member name`},
		{point, `[1]`, `want an object, not [1]`},
		{point, `{"X":1,"Tags":null} 1`, `there is something behind the value`},
		{point, `{"X":1,`, `ends too soon`},
		{"string", `1`, `want a text`},
		{"string", ``, `ends too soon`},
		{"bytes", `"%"`, `want bytes in base64`},
		{"time", `"yesterday"`, `want a time such as`},
		{"float64", `"nan"`, `want a number`},
		{"bool", `1`, `want true or false, not 1`},
		{`struct:{"map":"bool","key":"string"}`, `[["a",true],["a",false]]`, `a key of the map is there twice`},
		{`struct:{"map":"bool","key":"int8"}`, `{"1":true}`, `want a list of [key, value], since the keys are int8`},
		{`struct:{"array":"bool","len":2}`, `[true]`, `want a list of 2, not of 1`},
		{`struct:{"pointer":` + point[7:] + `}`, `{"X":true,"Tags":null}`, `at /X: want a whole number`},
		{"key-time:string", `{"key":"k","time":"soon"}`, `at /time: want a time`},
		{"list-part:uint8", `{"gone":1,"elements":[1]}`, `want 4 in all`},
		{"panes:1x60ms:uint8", `{"has":2,"panes":[1]}`, `panes 10 of 1`},
	} {
		if b, err := layout(t, c.schema).Encode(nil, []byte(c.json)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %s: %x, %v; want %q", c.schema, c.json, b, err, c.want)
		}
	}
	for in, want := range map[string]string{`"1h30m"`: "1h30m0s", `5`: "5ns"} {
		b, err := layout(t, `struct:"duration"`).Encode(nil, []byte(in))
		if err != nil || time.Duration(binary.LittleEndian.Uint64(b)).String() != want {
			t.Errorf("%s: %x, %v", in, b, err)
		}
	}
	a := layout(t, point)
	x, err := a.Encode(nil, []byte(`{"X":1,"Tags":["a"]}`))
	y, err2 := a.Encode(nil, []byte(` {"Tags" : ["a"], "X":1}`))
	if err != nil || err2 != nil || !bytes.Equal(x, y) {
		t.Errorf("the order of members counts: %x, %x, %v, %v", x, y, err, err2)
	}
}

func TestLayouts(t *testing.T) {
	order := `struct:{"struct":[{"name":"a,}\"{","type":"int64"},{"name":"b","type":{"slice":"string"}}]}`
	for schema, want := range map[string]string{
		order:                                  "{a,}\"{ int64, b []string}",
		"map-key:string,int64":                 "map-key(string, int64)",
		`struct:{"map":"time","key":"string"}`: "map[string]time",
		"json":                                 "json",
	} {
		if got := layout(t, schema).String(); got != want {
			t.Errorf("%s is %s, want %s", schema, got, want)
		}
	}
	if l := layout(t, "map-key:string,int64"); l.User().String() != "string" {
		t.Error(l.User())
	}
	for _, bad := range []string{"map-key:string", "aged:string,string", "aged:nobody", "panes:9x1ms:string", "string/2", "aged:"} {
		if s, err := ParseSchema(bad); err == nil {
			if l, err := s.Layout(); err == nil {
				t.Errorf("%s has the layout %v", bad, l)
			}
		}
	}
}

// FuzzLayout feeds schemas, bytes and JSON: no panic, and what is decoded goes to JSON and back.
func FuzzLayout(f *testing.F) {
	for _, c := range compositeSamples {
		f.Add(c.schema, []byte(c.bytes), c.json)
	}
	s := MustStruct[everything]()
	v := everythingSample()
	b, err := s.Append(nil, &v)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s.Schema().String(), b, "{}")
	f.Add("proto:{}", []byte{1}, "null")
	f.Fuzz(func(t *testing.T, schema string, src []byte, text string) {
		s, err := ParseSchema(schema)
		if err != nil {
			return
		}
		l, err := s.Layout()
		if err != nil {
			return
		}
		if b, err := l.Encode(nil, []byte(text)); err == nil {
			v, n, err := l.Decode(b)
			if err != nil || n != len(b) {
				t.Fatalf("%s is %x, of which %d bytes are taken: %v", text, b, n, err)
			}
			_ = v
		}
		v, n, err := l.Decode(src)
		if err != nil {
			return
		}
		if m, err := l.Len(src); err != nil || m != n {
			t.Fatalf("%x: %d bytes decoded, length %d, %v", src, n, m, err)
		}
		if s.Codec == "proto" || strings.Contains(schema, "proto") || strings.Contains(schema, "json") {
			return // Has other encodings than the one it is written in.
		}
		out, err := AppendJSON(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := l.Encode(nil, out); err != nil || !bytes.Equal(again, src[:n]) {
			t.Fatalf("%x is %s, which is %x: %v", src[:n], out, again, err)
		}
	})
}
