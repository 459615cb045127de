package codec

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"
)

func roundTrip[T any](t *testing.T, c Codec[T], v T) T {
	t.Helper()
	b, err := c.Append([]byte("before"), &v)
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	b = b[len("before"):]
	var got T
	n, err := c.Decode(append(bytes.Clone(b), "behind"...), &got)
	if err != nil || n != len(b) {
		t.Fatalf("decode took %d of %d bytes: %v", n, len(b), err)
	}
	for i := range b {
		var w T
		if _, err := c.Decode(b[:i:i], &w); err == nil {
			t.Fatalf("decoded from %d of %d bytes", i, len(b))
		} else if !errors.Is(err, ErrTruncated) {
			t.Fatalf("decode of %d of %d bytes: %v, want %v", i, len(b), err, ErrTruncated)
		}
	}
	var copied T
	c.Copy(&copied, &v)
	if !reflect.DeepEqual(copied, got) {
		t.Fatalf("copy differs from what is decoded:\n%+v\n%+v", copied, got)
	}
	return got
}

func TestStructRoundTrip(t *testing.T) {
	v := everythingSample()
	if got := roundTrip(t, MustStruct[everything](), v); !reflect.DeepEqual(got, v) {
		t.Errorf("got  %+v\nwant %+v", got, v)
	}
	var zero everything
	if got := roundTrip(t, MustStruct[everything](), zero); !reflect.DeepEqual(got, zero) {
		t.Errorf("got  %+v\nwant %+v", got, zero)
	}
	empty := everything{Bytes: []byte{}, Numbers: []int64{}, Structs: []inner{}, Counts: map[string]int64{}}
	if got := roundTrip(t, MustStruct[everything](), empty); !reflect.DeepEqual(got, empty) {
		t.Errorf("empty and nil are mixed up: %+v", got)
	}
	for _, v := range [][]string{nil, {}, {"a"}} {
		if got := roundTrip(t, MustStruct[[]string](), v); !reflect.DeepEqual(got, v) {
			t.Errorf("got %#v, want %#v", got, v)
		}
	}
	roundTrip(t, MustStruct[struct{}](), struct{}{})
	roundTrip(t, MustStruct[[40]bool](), [40]bool{7: true})
	roundTrip(t, MustStruct[[300]bool](), [300]bool{299: true})
	roundTrip(t, MustStruct[[300]struct{ A, B bool }](), [300]struct{ A, B bool }{299: {true, true}})
	roundTrip(t, MustStruct[map[struct{}]struct{}](), map[struct{}]struct{}{{}: {}})
	roundTrip(t, MustStruct[[0]string](), [0]string{})
}

// A decoded value does not depend on what was in the variable before.
func TestDecodeOverwrites(t *testing.T) {
	c := MustStruct[everything]()
	var zero everything
	b, err := c.Append(nil, &zero)
	if err != nil {
		t.Fatal(err)
	}
	v := everythingSample()
	v.Skipped = func() {}
	numbers := v.Numbers
	if _, err := c.Decode(b, &v); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(v, zero) {
		t.Errorf("left over: %+v", v)
	}
	if numbers[0] != 1 {
		t.Error("memory of the former value was reused")
	}
}

func TestTimesKeepTheInstant(t *testing.T) {
	zone := time.FixedZone("east", 3600)
	type stamped struct{ At time.Time }
	c := MustStruct[stamped]()
	for _, at := range []time.Time{
		{}, time.Unix(0, 0), time.Unix(-1, 999999999), time.Date(9999, 12, 31, 23, 59, 59, 1, zone),
		time.Date(-44, 3, 15, 0, 0, 0, 0, time.UTC), time.Unix(1700000000, 5).In(zone),
	} {
		if got := roundTrip(t, c, stamped{at}); !got.At.Equal(at) || got.At.Location() != time.UTC {
			t.Errorf("%v became %v", at, got.At)
		}
		if got := roundTrip(t, Time(), at); !got.Equal(at) || got.Location() != time.UTC {
			t.Errorf("%v became %v", at, got)
		}
	}
	if got := roundTrip(t, c, stamped{}); got != (stamped{}) {
		t.Errorf("the zero time became %#v", got)
	}
}

type node struct {
	Value int
	Next  *node
}

func TestStructRefusals(t *testing.T) {
	type private struct {
		A int
		b int //nolint:unused // It is there to be refused.
	}
	type outer struct {
		In private
		F  func()
	}
	type twice struct {
		A int `cairn:"x"`
		B int `cairn:"x"`
	}
	type badTag struct {
		A int `cairn:"x,omitempty"`
	}
	type tree struct{ Kids []tree }
	type hidden struct{ *inner }
	refuse(t, structErr[private](), "private", "field b (int)", "not exported")
	refuse(t, structErr[outer](), "outer", "field In.b (int)", "field F (func())")
	refuse(t, structErr[node](), "field Next (codec.node)", "contains itself")
	refuse(t, structErr[tree](), "field Kids", "contains itself")
	refuse(t, structErr[struct{ C chan int }](), "field C (chan int)")
	refuse(t, structErr[struct{ E error }](), "field E (error)")
	refuse(t, structErr[struct{ P uintptr }](), "field P (uintptr)")
	refuse(t, structErr[twice](), "field B", "same name \"x\"")
	refuse(t, structErr[badTag](), "field A", "omitempty")
	refuse(t, structErr[struct{ M map[float64]int }](), "field M", "float64")
	refuse(t, structErr[struct{ M map[*int]int }](), "field M", "ptr")
	refuse(t, structErr[struct{ S []struct{} }](), "field S", "no bytes")
	refuse(t, structErr[struct{ S [4]struct{} }](), "field S", "no bytes")
	refuse(t, structErr[struct{ S [70 << 20]byte }](), "limit")
	refuse(t, structErr[hidden](), "field inner", "not exported")
	refuse(t, structErr[any](), "interface")
	_, err := Default[node]()
	refuse(t, err, "contains itself")
	defer func() {
		if recover() == nil {
			t.Error("MustStruct did not panic")
		}
	}()
	MustStruct[node]()
}

func structErr[T any]() error {
	_, err := Struct[T]()
	return err
}

func refuse(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("accepted, want an error with %q", words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not say %q", err, w)
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	type flags struct{ A, B bool }
	for _, x := range []struct {
		name  string
		err   error
		words []string
	}{
		{"bool", decodeErr[flags]([]byte{1, 2}), []string{"byte 2 at offset 1"}},
		{"bool in bulk", decodeAllErr(MustStruct[flags](), []byte{0, 1, 1, 7}, 2), []string{"byte 7 at offset 3"}},
		{"long string", decodeErr[line]([]byte{99, 'a'}), []string{"field SKU", "needs 99 bytes, 1 are left", "offset 1"}},
		{"huge string", decodeErr[line]([]byte{255, 255, 255, 255, 127}), []string{"field SKU", "limit is 67108864"}},
		{"padded length", decodeErr[line]([]byte{0x81, 0}), []string{"malformed length at offset 0"}},
		{"overlong length", decodeErr[line](bytes.Repeat([]byte{255}, 12)), []string{"malformed length"}},
		{"many elements", decodeErr[[]int64]([]byte{255, 255, 255, 127}), []string{"claims 268435454 elements"}},
		{"many entries", decodeErr[map[string]int64]([]byte{4, 0, 0}), []string{"claims 3 entries"}},
		{"two empty keys", decodeErr[map[struct{}]struct{}]([]byte{3}), []string{"claims 2 entries"}},
		{"entries out of order", decodeErr[map[uint8]uint8]([]byte{3, 2, 0, 1, 0}), []string{"out of order at offset 3"}},
		{"entry twice", decodeErr[map[uint8]uint8]([]byte{3, 1, 0, 1, 0}), []string{"out of order"}},
		{"pointer", decodeErr[*int64]([]byte{2}), []string{"byte 2"}},
		{"nanoseconds", decodeErr[struct{ At time.Time }]([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 202, 154, 59}), []string{"field At", "1000000000 nanoseconds"}},
		{"nested", decodeErr[struct{ In []inner }]([]byte{3, 1, 0, 2, 9}), []string{"field In.B", "needs 9 bytes"}},
		{"row", decodeAllErr(MustStruct[line](), []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5}, 2), []string{"row 1", "SKU"}},
	} {
		t.Run(x.name, func(t *testing.T) { refuse(t, x.err, x.words...) })
	}
}

func decodeErr[T any](b []byte) error {
	var v T
	_, err := MustStruct[T]().Decode(b, &v)
	return err
}

func decodeAllErr[T any](c Codec[T], b []byte, n int) error {
	_, err := c.(Bulk[T]).DecodeAll(b, make([]T, n))
	return err
}

func TestTooLarge(t *testing.T) {
	type pair struct{ A, B []byte }
	half := make([]byte, MaxValue/2)
	c := MustStruct[pair]()
	v := pair{half, half}
	if _, err := c.Append(nil, &v); !errors.Is(err, ErrTooLarge) {
		t.Errorf("append: %v", err)
	}
	if _, err := c.(Bulk[pair]).AppendAll(nil, []pair{v}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("append all: %v", err)
	}
	v.B = half[:len(half)-16]
	b, err := c.Append(nil, &v)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Decode(b, &v); err != nil {
		t.Error(err)
	}
	// The bytes of a value beyond the limit, made by hand.
	one, _ := MustStruct[struct{ A []byte }]().Append(nil, &struct{ A []byte }{half})
	if _, err := c.Decode(append(one, one...), &v); !errors.Is(err, ErrTooLarge) {
		t.Errorf("decode: %v", err)
	}
	s := string(make([]byte, MaxValue+1))
	if _, err := String().Append(nil, &s); !errors.Is(err, ErrTooLarge) {
		t.Errorf("string: %v", err)
	}
	if _, err := MustStruct[struct{ S string }]().Append(nil, &struct{ S string }{s}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("string field: %v", err)
	}
}

func TestMapKeysThatCollide(t *testing.T) {
	type m struct{ M map[time.Time]int }
	at := time.Unix(5, 0)
	v := m{map[time.Time]int{at.UTC(): 1, at.In(time.FixedZone("x", 60)): 2}}
	if _, err := MustStruct[m]().Append(nil, &v); err == nil || !strings.Contains(err.Error(), "same encoding") {
		t.Errorf("two keys of one instant: %v", err)
	}
}

// Copy and Decode share no memory with what they were given.
func TestCopySharesNothing(t *testing.T) {
	c := MustStruct[everything]()
	v := everythingSample()
	var dst, decoded everything
	c.Copy(&dst, &v)
	if !reflect.DeepEqual(dst, v) {
		t.Fatalf("copy differs: %+v", dst)
	}
	b, err := c.Append(nil, &v)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Decode(b, &decoded); err != nil {
		t.Fatal(err)
	}
	mine, encoded := map[uintptr]bool{}, map[uintptr]bool{}
	walk(reflect.ValueOf(&v).Elem(), mine)
	for i := range b {
		encoded[uintptr(unsafe.Pointer(&b[i]))] = true
	}
	if len(mine) < 20 {
		t.Fatalf("the walk found %d pieces of memory only", len(mine))
	}
	for name, w := range map[string]*everything{"copy": &dst, "decoded": &decoded} {
		theirs := map[uintptr]bool{}
		walk(reflect.ValueOf(w).Elem(), theirs)
		for p := range theirs {
			if mine[p] || encoded[p] {
				t.Errorf("%s shares memory at %#x", name, p)
			}
		}
	}
	for i := range b {
		b[i] = 0xDB
	}
	if !reflect.DeepEqual(decoded, v) {
		t.Error("the decoded value changed with its source")
	}
}

// walk collects the addresses of all memory that v refers to.
func walk(v reflect.Value, seen map[uintptr]bool) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == timeType {
			return
		}
		for i := range v.NumField() {
			walk(v.Field(i), seen)
		}
	case reflect.Array:
		for i := range v.Len() {
			walk(v.Index(i), seen)
		}
	case reflect.Slice:
		if v.Len() > 0 {
			seen[v.Pointer()] = true
		}
		for i := range v.Len() {
			walk(v.Index(i), seen)
		}
	case reflect.String:
		if s := v.String(); len(s) > 0 {
			seen[uintptr(unsafe.Pointer(unsafe.StringData(s)))] = true
		}
	case reflect.Pointer:
		if !v.IsNil() {
			seen[v.Pointer()] = true
			walk(v.Elem(), seen)
		}
	case reflect.Map:
		if v.IsNil() {
			return
		}
		seen[v.Pointer()] = true
		for _, k := range v.MapKeys() {
			walk(k, seen)
			walk(v.MapIndex(k), seen)
		}
	}
}

func TestBulk(t *testing.T) {
	testBulk(t, MustStruct[tick](), []tick{{1, 2, 3}, {}, {-1, 5, 0.5}})
	testBulk(t, MustStruct[quote](), []quote{{At: 1, Open: true}, {Last: 3}})
	testBulk(t, MustStruct[line](), []line{{"a", 1, 2}, {}, {"bc", 3, 4}})
	testBulk(t, Int64(), []int64{1, -1, 1 << 60})
	testBulk(t, Float64(), []float64{1, -1, 0.5})
	testBulk(t, MustStruct[struct{}](), make([]struct{}, 5))
	testBulk(t, MustStruct[everything](), []everything{everythingSample(), {}})
}

func testBulk[T any](t *testing.T, c Codec[T], vs []T) {
	t.Helper()
	bulk := c.(Bulk[T])
	var one []byte
	for i := range vs {
		one, _ = c.Append(one, &vs[i])
	}
	all, err := bulk.AppendAll([]byte{1}, vs)
	if err != nil || !bytes.Equal(all[1:], one) {
		t.Fatalf("%T: all at once %x, one by one %x: %v", vs, all, one, err)
	}
	got := make([]T, len(vs))
	n, err := bulk.DecodeAll(all[1:], got)
	if err != nil || n != len(one) || !reflect.DeepEqual(got, vs) {
		t.Fatalf("%T: got %v after %d bytes: %v", vs, got, n, err)
	}
	for i := range one {
		if _, err := bulk.DecodeAll(one[:i:i], got); !errors.Is(err, ErrTruncated) {
			t.Fatalf("%T: %d of %d bytes: %v", vs, i, len(one), err)
		}
	}
}

func TestDense(t *testing.T) {
	for _, x := range []struct {
		p    *program
		want bool
	}{
		{MustStruct[tick]().(*structCodec[tick]).program, true},
		{MustStruct[quote]().(*structCodec[quote]).program, unsafe.Sizeof(quote{}) == 80},
		{MustStruct[[7]int32]().(*structCodec[[7]int32]).program, true},
		{MustStruct[struct{ A, B, C bool }]().(*structCodec[struct{ A, B, C bool }]).program, true},
		{MustStruct[struct {
			A int64
			B int32
		}]().(*structCodec[struct {
			A int64
			B int32
		}]).program, false}, // Padding behind B.
		{MustStruct[line]().(*structCodec[line]).program, false},
	} {
		if x.p.dense != x.want && littleEndian {
			t.Errorf("%v: dense is %v", x.p.typ, x.p.dense)
		}
	}
}
