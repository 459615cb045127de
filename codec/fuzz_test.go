package codec

import (
	"bytes"
	"encoding/json"
	"reflect"
	"runtime"
	"testing"
)

// hostile decodes src and checks what holds for any bytes: no panic, no more bytes taken than there
// are, memory in proportion to the input, and an accepted value encodes to the bytes it came from.
func hostile[T any](t *testing.T, c Codec[T], src []byte, canonical bool) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var v T
	n, err := c.Decode(src, &v)
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20+uint64(len(src))*1024 {
		t.Fatalf("%d bytes of input made Decode allocate %d", len(src), grown)
	}
	if err != nil {
		return
	}
	if n < 0 || n > len(src) {
		t.Fatalf("took %d of %d bytes", n, len(src))
	}
	again, err := c.Append(nil, &v)
	if err != nil {
		t.Fatalf("append what was decoded: %v", err)
	}
	if canonical && !bytes.Equal(again, src[:n]) {
		t.Fatalf("decoded from %x, encoded as %x", src[:n], again)
	}
	var w T
	if m, err := c.Decode(again, &w); err != nil || m != len(again) {
		t.Fatalf("decode again: took %d of %d: %v", m, len(again), err)
	}
	twice, err := c.Append(nil, &w)
	if err != nil || !bytes.Equal(twice, again) {
		t.Fatalf("%x, then %x: %v", again, twice, err)
	}
}

func FuzzStruct(f *testing.F) {
	c := MustStruct[everything]()
	shape, err := ParseShape(c.Schema().Shape)
	if err != nil {
		f.Fatal(err)
	}
	portable, err := newStruct[everything](false)
	if err != nil {
		f.Fatal(err)
	}
	for _, v := range []everything{{}, everythingSample()} {
		b, err := c.Append(nil, &v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		hostile(t, c, src, true)
		var v, w everything
		n, err := c.Decode(src, &v)
		m, perr := portable.Decode(src, &w)
		_, k, derr := shape.Decode(src)
		if (err == nil) != (perr == nil) || (err == nil) != (derr == nil) || err == nil && (n != m || n != k) {
			t.Fatalf("took %d, %d and %d bytes: %v; %v; %v", n, m, k, err, perr, derr)
		}
	})
}

func FuzzString(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte{3, 'a', 'b', 'c'})
	f.Add([]byte{0x80, 1})
	f.Fuzz(func(t *testing.T, src []byte) {
		hostile(t, String(), src, true)
		hostile(t, Bytes(), src, true)
		hostile(t, Time(), src, true)
		hostile(t, Bool(), src, true)
		hostile(t, Int64(), src, true)
	})
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte("\x02{}"))
	f.Add([]byte(`<{"ID":7,"Customer":"c","Lines":[{"SKU":"x","Quantity":2}]}  `))
	f.Add([]byte("\x04nullx"))
	f.Fuzz(func(t *testing.T, src []byte) {
		hostile(t, JSON[order](), src, false)
		hostile(t, JSON[any](), src, false)
	})
}

func FuzzShape(f *testing.F) {
	f.Add(MustStruct[everything]().Schema().Shape, []byte{1, 2, 3})
	f.Add(`{"slice":{"array":"bool","len":3}}`, []byte{3, 0, 1, 0, 1, 1, 1})
	f.Add(`{"map":{"pointer":"time"},"key":"string"}`, []byte{2, 0, 0})
	f.Fuzz(func(t *testing.T, text string, src []byte) {
		shape, err := ParseShape(text)
		if err != nil {
			return
		}
		canonical := shape.String()
		again, err := ParseShape(canonical)
		if err != nil || !reflect.DeepEqual(again, shape) {
			t.Fatalf("%s became %s: %v", text, canonical, err)
		}
		v, n, err := shape.Decode(src)
		if err != nil {
			return
		}
		if n > len(src) {
			t.Fatalf("took %d of %d bytes", n, len(src))
		}
		if _, err := json.Marshal(v); err != nil {
			t.Fatal(err)
		}
	})
}

// The decoders of older types take any bytes, and of those that are a value of the old type as many as
// that takes.
func FuzzEvolved(f *testing.F) {
	type nothing struct{ Left [2]int64 }
	type wide struct {
		New   string
		Int64 *int64
		Bool  bool
		Lines []struct {
			Price    float64
			Quantity int64
		}
		Tags map[string]struct{ A int32 }
	}
	type narrow struct {
		Bool  bool
		Lines []line
		Int64 int32
		Tags  map[string]inner
		Gone  []map[string]*[3]string
		Bits  map[[2]bool]struct{}
	}
	evolved := func(c Codec[nothing], err error) Codec[nothing] {
		if err != nil {
			f.Fatal(err)
		}
		return c
	}
	everythingGone := evolved(Evolve(MustStruct[nothing](), MustStruct[everything]().Schema()))
	everythingShape, err := MustStruct[everything]().Schema().Type()
	if err != nil {
		f.Fatal(err)
	}
	widened, err := Evolve(MustStruct[wide](), MustStruct[narrow]().Schema())
	if err != nil {
		f.Fatal(err)
	}
	narrowShape, err := MustStruct[narrow]().Schema().Type()
	if err != nil {
		f.Fatal(err)
	}
	for _, v := range []everything{{}, everythingSample()} {
		b, err := MustStruct[everything]().Append(nil, &v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	v := narrow{true, []line{{"a", 1, 2}}, 3, map[string]inner{"k": {1, "b"}}, []map[string]*[3]string{{"x": {"y"}, "z": nil}, nil}, map[[2]bool]struct{}{{}: {}}}
	b, err := MustStruct[narrow]().Append(nil, &v)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, src []byte) {
		var gone nothing
		n, err := everythingGone.Decode(src, &gone)
		check := func(shape *Type) {
			if err == nil && (n < 0 || n > len(src)) {
				t.Fatalf("took %d of %d bytes", n, len(src))
			}
			if _, k, derr := shape.Decode(src); derr == nil && (err != nil || k != n) {
				t.Fatalf("a value of %d bytes: took %d, %v", k, n, err)
			}
		}
		check(everythingShape)
		var w wide
		n, err = widened.Decode(src, &w)
		check(narrowShape)
		if err == nil {
			if _, err := MustStruct[wide]().Append(nil, &w); err != nil {
				t.Fatal(err)
			}
		}
	})
}
