package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

// drawType makes a type that the struct codec takes.
func drawType(t *rapid.T, depth int) reflect.Type {
	scalars := []any{
		false, int(0), int8(0), int16(0), int32(0), int64(0), uint(0), uint8(0), uint16(0), uint32(0), uint64(0),
		float32(0), float64(0), complex64(0), complex128(0), "", []byte{}, time.Time{}, time.Duration(0),
		status(0), customerID(""), inner{}, tick{}, quote{},
	}
	kind := "scalar"
	if depth > 0 {
		kind = rapid.SampledFrom([]string{"scalar", "struct", "struct", "array", "slice", "pointer", "map"}).Draw(t, "kind")
	}
	switch kind {
	case "struct":
		n := rapid.IntRange(1, 6).Draw(t, "fields")
		fields := make([]reflect.StructField, n)
		for i := range fields {
			fields[i] = reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: drawType(t, depth-1)}
			if rapid.IntRange(0, 9).Draw(t, "skip") == 0 {
				fields[i].Tag = `cairn:"-"`
			}
		}
		return reflect.StructOf(fields)
	case "array":
		elem := drawType(t, depth-1)
		if p, _, err := compile(elem, true); err != nil || p.min == 0 {
			return elem
		}
		return reflect.ArrayOf(rapid.IntRange(0, 5).Draw(t, "len"), elem)
	case "slice":
		elem := drawType(t, depth-1)
		if p, _, err := compile(elem, true); err != nil || p.min == 0 {
			return elem
		}
		return reflect.SliceOf(elem)
	case "pointer":
		return reflect.PointerTo(drawType(t, depth-1))
	case "map":
		keys := []any{int8(0), uint64(0), "", customerID(""), true, [2]int16{}, struct{ A, B string }{}, inner{}}
		return reflect.MapOf(reflect.TypeOf(rapid.SampledFrom(keys).Draw(t, "key")), drawType(t, depth-1))
	}
	return reflect.TypeOf(rapid.SampledFrom(scalars).Draw(t, "scalar"))
}

// drawValue fills v. No float is NaN, so that reflect.DeepEqual holds.
func drawValue(t *rapid.T, v reflect.Value) {
	if v.Type() == timeType {
		at := time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "sec"), rapid.Int64Range(0, 999999999).Draw(t, "nsec"))
		v.Set(reflect.ValueOf(at.UTC()))
		return
	}
	length := func() int { return rapid.IntRange(-1, 4).Draw(t, "length") }
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, "int"))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, "uint"))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(rapid.Float64().Draw(t, "float"))
	case reflect.Complex64, reflect.Complex128:
		v.SetComplex(complex(rapid.Float64().Draw(t, "real"), rapid.Float64().Draw(t, "imaginary")))
	case reflect.String:
		n := rapid.SampledFrom([]int{0, 1, 5, 127, 128, 200}).Draw(t, "length")
		v.SetString(string(rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "string")))
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "present") {
			v.Set(reflect.New(v.Type().Elem()))
			drawValue(t, v.Elem())
		}
	case reflect.Array:
		for i := range v.Len() {
			drawValue(t, v.Index(i))
		}
	case reflect.Slice:
		if n := length(); n >= 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range v.Len() {
			drawValue(t, v.Index(i))
		}
	case reflect.Map:
		n := length()
		if n >= 0 {
			v.Set(reflect.MakeMap(v.Type()))
		}
		for range n {
			key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			drawValue(t, key)
			drawValue(t, elem)
			v.SetMapIndex(key, elem)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("cairn") != "-" {
				drawValue(t, v.Field(i))
			}
		}
	}
}

// Whatever the type and the value: decoding gives the value back, copying equals it, the order of
// memory plays no part, the type survives its text, and decoding without it takes the same bytes.
func TestAnyTypeRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := drawType(t, 3)
		native, shape, err := compile(typ, littleEndian)
		if err != nil {
			t.Fatalf("%v: %v", typ, err)
		}
		portable, _, err := compile(typ, false)
		if err != nil {
			t.Fatalf("%v: %v", typ, err)
		}
		v := reflect.New(typ)
		drawValue(t, v.Elem())
		at := v.UnsafePointer()

		b, err := native.append(nil, at)
		if err != nil {
			t.Fatalf("%v: %v", typ, err)
		}
		if len(b) < native.min {
			t.Fatalf("%v: %d bytes, at least %d were promised", typ, len(b), native.min)
		}
		for i := range 3 { // Maps are walked in another order each time.
			again, err := portable.append(nil, at)
			if err != nil || !bytes.Equal(again, b) {
				t.Fatalf("%v, attempt %d: %x, then %x: %v", typ, i, b, again, err)
			}
		}
		for _, p := range []*program{native, portable} {
			got := reflect.New(typ)
			n, err := p.decode(b, 0, got.UnsafePointer())
			if err != nil || n != len(b) {
				t.Fatalf("%v: took %d of %d bytes: %v", typ, n, len(b), err)
			}
			if !reflect.DeepEqual(got.Elem().Interface(), v.Elem().Interface()) {
				t.Fatalf("%v:\ngot  %+v\nwant %+v", typ, got.Elem(), v.Elem())
			}
			copied := reflect.New(typ)
			p.copy(copied.UnsafePointer(), at, rapid.Bool().Draw(t, "share"))
			if !reflect.DeepEqual(copied.Elem().Interface(), v.Elem().Interface()) {
				t.Fatalf("%v: copy:\ngot  %+v\nwant %+v", typ, copied.Elem(), v.Elem())
			}
			if len(b) > 0 {
				if n, err := p.decode(b[:len(b)-1], 0, got.UnsafePointer()); err == nil {
					t.Fatalf("%v: decoded without the last byte, took %d", typ, n)
				}
			}
		}
		text := shape.String()
		parsed, err := ParseShape(text)
		if err != nil || parsed.String() != text {
			t.Fatalf("%v: %s became %v: %v", typ, text, parsed, err)
		}
		dyn, n, err := parsed.Decode(b)
		if err != nil || n != len(b) {
			t.Fatalf("%v: without the type: took %d of %d bytes: %v", typ, n, len(b), err)
		}
		if _, err := json.Marshal(dyn); err != nil {
			t.Fatalf("%v: %v", typ, err)
		}
	})
}

func TestArrayOfValuesRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := drawType(t, 1)
		p, _, err := compile(typ, littleEndian)
		if err != nil || p.size == 0 {
			t.Skip(err)
		}
		n := rapid.IntRange(0, 5).Draw(t, "n")
		vs, got := reflect.New(reflect.ArrayOf(n, typ)), reflect.New(reflect.ArrayOf(n, typ))
		drawValue(t, vs.Elem())
		b, err := p.appendAll(nil, vs.UnsafePointer(), n)
		if err != nil {
			t.Fatal(err)
		}
		if took, err := p.decodeAll(b, 0, got.UnsafePointer(), n); err != nil || took != len(b) {
			t.Fatalf("took %d of %d bytes: %v", took, len(b), err)
		}
		if !reflect.DeepEqual(got.Elem().Interface(), vs.Elem().Interface()) {
			t.Fatalf("got %v, want %v", got.Elem(), vs.Elem())
		}
	})
}

// Equal values have equal encodings and different ones different encodings.
func TestKeysAreCanonical(t *testing.T) {
	type key struct {
		A string
		B string
		C int16
		D [2]uint8
	}
	c := MustStruct[key]()
	draw := rapid.Custom(func(t *rapid.T) key {
		s := rapid.StringMatching("[ab]{0,2}")
		return key{s.Draw(t, "a"), s.Draw(t, "b"), rapid.Int16Range(0, 1).Draw(t, "c"), [2]uint8{rapid.Uint8Range(0, 1).Draw(t, "d"), 0}}
	})
	rapid.Check(t, func(t *rapid.T) {
		x, y := draw.Draw(t, "x"), draw.Draw(t, "y")
		bx, _ := c.Append(nil, &x)
		by, _ := c.Append(nil, &y)
		if (x == y) != bytes.Equal(bx, by) {
			t.Fatalf("%+v is %x, %+v is %x", x, bx, y, by)
		}
	})
}

// hashes checks the fast path against Hash of the encoding.
func hashes[K any](t *testing.T, c Codec[K], key K, wantFast bool) {
	t.Helper()
	f, fast := c.(interface{ newHasher() Hasher[K] })
	if fast = fast && f.newHasher() != nil; fast != wantFast {
		t.Errorf("%T: a fast path: %v, want %v", key, fast, wantFast)
	}
	h := NewHasher(c)
	b, err := c.Append(nil, &key)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, want := h(&key), Hash(b); got != want {
			t.Errorf("%T %.40x: hash %#x, of the encoding %#x", key, b, got, want)
		}
	}
	if size := unsafe.Sizeof(key); size > 0 {
		if n := testing.AllocsPerRun(20, func() { h(&key) }); n != 0 {
			t.Errorf("%T: %v allocations", key, n)
		}
	}
}
