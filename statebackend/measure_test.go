package statebackend

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
)

type flat struct {
	A, B int64
	T    time.Time
	C    [4]uint16
}

type person struct {
	ID         int64
	Name, City string
}

type tree struct {
	Name string
	Kids []*tree
}

type everything struct {
	flat
	Note    string
	Tags    []string
	Numbers []uint32
	People  []person
	Counts  map[string]int64
	Raw     []byte
	One     *person
	Lists   [][]string
}

func estimate[T any](v T) int64 {
	size := sizeOf(reflect.TypeFor[T]())
	if size == nil {
		return -1
	}
	return size(unsafe.Pointer(&v))
}

func TestSizeOfFlatTypes(t *testing.T) {
	for name, n := range map[string]int64{
		"int64": estimate(int64(1)), "time": estimate(time.Now()), "struct": estimate(flat{}), "array": estimate([3]flat{}),
		"empty": estimate(struct{}{}), "array of no strings": estimate([0]string{}),
	} {
		if n != -1 {
			t.Errorf("%s: is measured: %d", name, n)
		}
	}
}

// An estimate is never less than half of the encoding where all that a value points to is looked at.
func TestEstimates(t *testing.T) {
	c, err := codec.Default[everything]()
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringN(0, 30, -1)
		people := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) person {
			return person{rapid.Int64().Draw(t, "id"), word.Draw(t, "name"), word.Draw(t, "city")}
		}), 0, 8)
		v := everything{
			flat: flat{A: rapid.Int64().Draw(t, "a"), C: [4]uint16{65535, 65535}}, Note: word.Draw(t, "note"),
			Tags: rapid.SliceOfN(word, 0, 8).Draw(t, "tags"), Numbers: rapid.SliceOfN(rapid.Uint32(), 0, 100).Draw(t, "numbers"),
			People: people.Draw(t, "people"), Raw: []byte(word.Draw(t, "raw")),
			Lists: rapid.SliceOfN(rapid.SliceOfN(word, 0, 2), 0, 4).Draw(t, "lists"),
		}
		if rapid.Bool().Draw(t, "one") {
			v.One = &person{Name: word.Draw(t, "one's name")}
		}
		data, err := c.Append(nil, &v)
		if err != nil {
			t.Fatal(err)
		}
		if n := estimate(v); 2*n < int64(len(data)) {
			t.Fatalf("%+v: estimate %d, encoded %d", v, n, len(data))
		}
	})
}

// Long slices of things that point to more are sampled, the newest element always.
func TestEstimateOfMany(t *testing.T) {
	tags := make([]string, 10_000)
	for i := range tags {
		tags[i] = "0123456789"
	}
	if n, want := estimate(tags), int64(24+10_000*(16+10)); n != want {
		t.Errorf("%d, want %d", n, want)
	}
	tags[len(tags)-1] = strings.Repeat("x", 1_000_000)
	if n := estimate(tags); n < 1_000_000 {
		t.Errorf("the newest element is not looked at: %d", n)
	}
	if n := estimate(map[string]int64{"a": 1, "b": 2}); n != 8+2*(24+32) {
		t.Errorf("map: %d", n)
	}
	deep := &tree{}
	deep.Kids = []*tree{deep} // Does not end.
	if n := estimate(*deep); n <= 0 || n > 1000 {
		t.Errorf("recursive: %d", n)
	}
}

// one is a backend of one table.
type one struct {
	Backend
	t Table
	p TableParams
}

func (o *one) Open(t Type) (Table, error) {
	tab, err := t.NewTable(o.p)
	o.t = tab
	return tab, err
}

func open[V any](t testing.TB, limit int64) (*one, Value[string, V]) {
	t.Helper()
	c, err := codec.Default[V]()
	if err != nil {
		t.Fatal(err)
	}
	o := &one{p: TableParams{Count: 4, K: 4, MaxFrozen: 2, Operator: "totals", MaxValue: limit}}
	v, err := OpenValue(o, ValueDesc[string, V]{Name: "seen", Key: codec.String(), Value: c, Hash: func(k *string) (uint64, uint64) {
		h := codec.NewHasher(codec.String())(k)
		return h, h
	}})
	if err != nil {
		t.Fatal(err)
	}
	return o, v
}

func upsert[V any](v Value[string, V], key string) *V {
	h := codec.NewHasher(codec.String())(&key)
	p, _ := v.Upsert(h, h, &key)
	return p
}

// thrown is the fault that f throws.
func thrown(f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = Recovered(v)
		}
	}()
	f()
	return nil
}

func wantTooLarge(t *testing.T, err error, key string, size, limit int64) {
	t.Helper()
	var e *ValueError
	if !errors.As(err, &e) || e.Operator != "totals" || e.State != "seen" || e.Key != key || e.Size != size || e.Limit != limit {
		t.Fatalf("%v: %+v, want key %q, %d bytes of %d", err, e, key, size, limit)
	}
	f := job.FailureOf("totals/0", "", err)
	if f.Class != job.ClassUser || f.Stack != "" {
		t.Errorf("%v", f)
	}
	for _, want := range []string{`operator "totals", state "seen": the value of key "` + key + `"`, fmt.Sprint(size), fmt.Sprint(limit), "List or Map", "state.max-value"} {
		if !strings.Contains(f.Message, want) {
			t.Errorf("%q does not say %q", f.Message, want)
		}
	}
}

// A value that has grown in place is found when the next one is used, and is found again by who goes on all the same.
func TestValueGrowsTooLarge(t *testing.T) {
	const limit = 10_000
	o, v := open[[]string](t, limit)
	for i := range 100 {
		p := upsert(v, fmt.Sprint("k", i%10))
		*p = append(*p, strings.Repeat("x", 50))
	}
	p := upsert(v, "large")
	*p = []string{strings.Repeat("x", limit)} // A length of 2 bytes before it, and the slice's own.
	for range 2 {
		wantTooLarge(t, thrown(func() { upsert(v, "k1") }), "large", limit+3, limit)
	}
	wantTooLarge(t, thrown(func() { o.t.Merge(time.Millisecond) }), "large", limit+3, limit)
	_, err := o.t.Freeze()
	wantTooLarge(t, err, "large", limit+3, limit)
	*p = nil
	if err := thrown(func() { upsert(v, "k1") }); err != nil {
		t.Error(err)
	}
	if f, err := o.t.Freeze(); err != nil {
		t.Error(err)
	} else {
		f.Release()
	}
}

func TestValueSetTooLarge(t *testing.T) {
	const limit = 10_000
	_, v := open[string](t, limit)
	key, large, small := "k", strings.Repeat("x", limit), "small"
	h := codec.NewHasher(codec.String())(&key)
	v.Set(h, h, &key, &small)
	wantTooLarge(t, thrown(func() { v.Set(h, h, &key, &large) }), "k", limit+2, limit)
	if got := v.Get(h, h, &key); *got != small {
		t.Errorf("it is kept all the same: %d bytes", len(*got))
	}
}

// What the estimate cannot see the snapshot does.
func TestValueTooLargeInSnapshot(t *testing.T) {
	const limit = 10_000
	o, v := open[[]string](t, limit)
	p := upsert(v, "hidden")
	*p = make([]string, 100)
	(*p)[1] = strings.Repeat("x", limit)
	if err := thrown(func() { upsert(v, "other") }); err != nil {
		t.Fatalf("the estimate sees it: %v", err)
	}
	f, err := o.t.Freeze()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Release()
	for g := range 4 {
		if _, _, gerr := f.Encode(g, nil, 1<<20, nil); gerr != nil {
			err = gerr
		}
	}
	wantTooLarge(t, err, "hidden", limit+2+99+1, limit)
}

// A value near the limit is not encoded at every write, and is found soon after it has passed it.
func TestValueNearLimit(t *testing.T) {
	const limit = 100_000
	c, err := codec.Default[[]byte]()
	if err != nil {
		t.Fatal(err)
	}
	encodings := &counting[[]byte]{Codec: c}
	o := &one{p: TableParams{Count: 1, K: 1, MaxFrozen: 2, Operator: "totals", MaxValue: limit}}
	v, err := OpenValue(o, ValueDesc[string, []byte]{Name: "seen", Key: codec.String(), Value: encodings, Hash: func(*string) (uint64, uint64) { return 0, 0 }})
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	n := 0
	for ; failed == nil && n < 2*limit; n += 10 {
		failed = thrown(func() {
			p := upsert(v, "k")
			*p = append(*p, bytes.Repeat([]byte("x"), 10)...)
		})
	}
	if n < limit || n > limit*103/100 {
		t.Errorf("found at %d bytes of %d: %v", n, limit, failed)
	}
	if encodings.n > 40 {
		t.Errorf("%d encodings in %d writes", encodings.n, n/10)
	}
}

type counting[T any] struct {
	codec.Codec[T]
	n int
}

func (c *counting[T]) Append(dst []byte, v *T) ([]byte, error) {
	c.n++
	return c.Codec.Append(dst, v)
}

// No limit, or values of one size: nothing is measured.
func TestNotMeasured(t *testing.T) {
	_, free := open[string](t, 0)
	if _, ok := free.(*measured[string, string]); ok {
		t.Error("measured without a limit")
	}
	_, same := open[flat](t, 1000)
	if _, ok := same.(*measured[string, flat]); ok {
		t.Error("values of one size are measured")
	}
	_, some := open[string](t, 1000)
	if _, ok := some.(Ahead); !ok {
		t.Error("what is measured cannot be fetched ahead")
	}
}
