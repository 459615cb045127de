package codec

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// carried tells that what was encoded as old is read as want, with these changes, however the bytes
// lie and whatever was in the memory before.
func carried[Old, New any](t *testing.T, old Old, want New, changes ...string) {
	t.Helper()
	was, now := mustDefault[Old](), mustDefault[New]()
	src, err := was.Append(nil, &old)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Evolve(now, was.Schema())
	if err != nil {
		t.Fatal(err)
	}
	if c.Schema() != now.Schema() {
		t.Errorf("the schema is %v, want the new one", c.Schema())
	}
	var got New
	dirty(reflect.ValueOf(&got).Elem())
	if n, err := c.Decode(append(src, 0xaa), &got); err != nil || n != len(src) || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v became %+v, want %+v; %d bytes of %d, %v", old, got, want, n, len(src), err)
	}
	for n := range src {
		if _, err := c.Decode(src[:n], &got); !errors.Is(err, ErrTruncated) {
			t.Errorf("%d bytes of %d: %v", n, len(src), err)
		}
	}
	p, err := evolveSchema(reflect.TypeFor[New](), was.Schema(), now.Schema(), false)
	if err != nil {
		t.Fatal(err)
	}
	if p != nil {
		var portable New
		dirty(reflect.ValueOf(&portable).Elem())
		if n, err := p.decodeOne(src, unsafe.Pointer(&portable)); err != nil || n != len(src) || !reflect.DeepEqual(portable, want) {
			t.Errorf("portable: %+v became %+v, want %+v; %v", old, portable, want, err)
		}
	}
	anew, err := c.Append(nil, &want)
	if err != nil {
		t.Fatal(err)
	}
	var again New
	if _, err := now.Decode(anew, &again); err != nil || !reflect.DeepEqual(again, want) {
		t.Errorf("%+v was encoded as %+v: %v", want, again, err)
	}
	list, err := Changes(was.Schema(), now.Schema())
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, c := range list {
		texts = append(texts, c.String())
	}
	if !reflect.DeepEqual(texts, changes) {
		t.Errorf("changes are %q, want %q", texts, changes)
	}
}

func mustDefault[T any]() Codec[T] {
	c, err := Default[T]()
	if err != nil {
		panic(err)
	}
	return c
}

// dirty fills v with something else than zeroes.
func dirty(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(-1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(99)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(-0.5)
	case reflect.String:
		v.SetString("dirt")
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Array:
		for i := range v.Len() {
			dirty(v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == timeType {
			v.Set(reflect.ValueOf(time.Unix(99, 0).UTC()))
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				dirty(v.Field(i))
			}
		}
	}
}

// refused tells that old values are refused with the path, the two types, and these words.
func refused[Old, New any](t *testing.T, path, old, now string, words ...string) {
	t.Helper()
	was, is := mustDefault[Old]().Schema(), mustDefault[New]().Schema()
	_, err := Evolve(mustDefault[New](), was)
	var e *IncompatibleError
	if !errors.As(err, &e) || len(e.Problems) != 1 {
		t.Errorf("%v read as %v: %v", was, is, err)
		return
	}
	if p := e.Problems[0]; p.Path != path || p.Old != old || p.New != now || p.Why == "" || p.Do == "" {
		t.Errorf("problem is %+v", p)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %v does not say %q", err, w)
		}
	}
	if _, cerr := Changes(was, is); cerr == nil || cerr.Error() != err.Error() {
		t.Errorf("Changes gives %v, Evolve %v", cerr, err)
	}
}

type pair struct {
	A int32
	B string
}

type pairWide struct {
	B string
	A int64
	C *bool
}

func TestEvolveStruct(t *testing.T) {
	three := struct {
		A int64
		B string
		C []int16
	}{7, "b", []int16{1}}
	at := time.Unix(5, 6).UTC()
	t.Run("add", func(t *testing.T) {
		carried(t, pair{1, "x"}, struct {
			New  int64
			A    int32
			Text string
			B    string
			At   time.Time
			M    map[string]int
			P    *int
			Last [3]uint16
			Left chan int `cairn:"-"`
		}{A: 1, B: "x"}, "field New added", "field Text added", "field At added", "field M added", "field P added", "field Last added")
		carried(t, struct{}{}, pair{}, "field A added", "field B added")
	})
	t.Run("drop", func(t *testing.T) {
		carried(t, three, struct{ B string }{"b"}, "field A dropped", "field C dropped")
		carried(t, three, struct{}{}, "field A dropped", "field B dropped", "field C dropped")
		carried(t, everythingSample(), struct{ Int64 int64 }{everythingSample().Int64}, dropped("Int64")...)
	})
	t.Run("reorder", func(t *testing.T) {
		carried(t, pair{1, "x"}, struct {
			B string
			A int32
		}{"x", 1}, "value with its fields in another order")
		carried(t, struct{ A, B, C int64 }{1, 2, 3}, struct{ A, C, B int64 }{1, 3, 2}, "value with its fields in another order")
	})
	t.Run("rename", func(t *testing.T) {
		carried(t, pair{1, "x"}, struct {
			Amount int32 `cairn:"amount,alias=Sum,alias=A"`
			B      string
		}{1, "x"}, "field amount renamed from A")
		carried(t, struct{ A, Old int }{1, 2}, struct {
			A   int
			New int64 `cairn:",alias=Old"`
		}{1, 2}, "field New renamed from Old")
		// An alias does not count where the name is there.
		carried(t, struct{ A, Old int }{1, 2}, struct {
			A int `cairn:",alias=Old"`
		}{1}, "field Old dropped")
	})
	t.Run("aliases alone change nothing", func(t *testing.T) {
		carried(t, pair{1, "x"}, struct {
			A int32 `cairn:",alias=Z"`
			B string
		}{1, "x"})
	})
	t.Run("widen", func(t *testing.T) {
		carried(t, struct {
			A int8
			B int16
			C int32
			D uint8
			E uint16
			F uint32
			G float32
			H complex64
			I uint8
		}{-1, -2, -3, 200, 60000, 4e9, 0.5, complex(1, -2), 255}, struct {
			A int16
			B int64
			C int
			D uint16
			E uint32
			F int64
			G float64
			H complex128
			I int16
		}{-1, -2, -3, 200, 60000, 4e9, 0.5, complex(1, -2), 255},
			"field A widened from int8 to int16", "field B widened from int16 to int64", "field C widened from int32 to int64",
			"field D widened from uint8 to uint16", "field E widened from uint16 to uint32", "field F widened from uint32 to int64",
			"field G widened from float32 to float64", "field H widened from complex64 to complex128", "field I widened from uint8 to int16")
	})
	t.Run("same bytes", func(t *testing.T) {
		carried(t, struct {
			D time.Duration
			I int64
		}{5, 6}, struct {
			D int64
			I time.Duration
		}{5, 6}, "field D made int64 of duration", "field I made duration of int64")
		carried(t, struct {
			S string
			B []byte
			N []byte
		}{"s", []byte("b"), nil}, struct {
			S []byte
			B string
			N string
		}{[]byte("s"), "b", ""}, "field S made bytes of a string", "field B made a string of bytes: nil becomes empty", "field N made a string of bytes: nil becomes empty")
	})
	t.Run("nested", func(t *testing.T) {
		carried(t, struct {
			X pair
			Y []pair
			Z [2]pair
			M map[string]pair
			P *pair
			Q *pair
			N []pair
		}{
			pair{1, "x"}, []pair{{2, "y"}, {3, "z"}}, [2]pair{{4, ""}, {5, "a"}}, map[string]pair{"k": {6, "m"}, "l": {7, "n"}}, &pair{8, "p"}, nil, nil,
		}, struct {
			X pairWide
			Y []pairWide
			Z [2]pairWide
			M map[string]pairWide
			P *pairWide
			Q *pairWide
			N []pairWide
		}{
			pairWide{"x", 1, nil}, []pairWide{{"y", 2, nil}, {"z", 3, nil}}, [2]pairWide{{"", 4, nil}, {"a", 5, nil}},
			map[string]pairWide{"k": {"m", 6, nil}, "l": {"n", 7, nil}}, &pairWide{"p", 8, nil}, nil, nil,
		},
			"field X.A widened from int32 to int64", "field X.C added", "field X with its fields in another order",
			"field Y[].A widened from int32 to int64", "field Y[].C added", "field Y[] with its fields in another order",
			"field Z[].A widened from int32 to int64", "field Z[].C added", "field Z[] with its fields in another order",
			"field M[].A widened from int32 to int64", "field M[].C added", "field M[] with its fields in another order",
			"field P.A widened from int32 to int64", "field P.C added", "field P with its fields in another order",
			"field Q.A widened from int32 to int64", "field Q.C added", "field Q with its fields in another order",
			"field N[].A widened from int32 to int64", "field N[].C added", "field N[] with its fields in another order")
	})
	t.Run("pointers", func(t *testing.T) {
		one, two := int64(1), pairWide{A: 2}
		carried(t, struct {
			A int32
			B pair
			T time.Time
		}{1, pair{A: 2}, at}, struct {
			A *int64
			B *pairWide
			T *time.Time
		}{&one, &two, &at},
			"field A made a pointer", "field A widened from int32 to int64", "field B made a pointer",
			"field B.A widened from int32 to int64", "field B.C added", "field B with its fields in another order", "field T made a pointer")
	})
	t.Run("elements", func(t *testing.T) {
		carried(t, struct {
			S []int32
			E []int32
			N []int32
			A [3]uint8
			B []byte
			M map[int8]float32
			Z [0]int8
		}{[]int32{1, -1}, []int32{}, nil, [3]uint8{1, 2, 3}, []byte{9, 255}, map[int8]float32{-1: 1, 1: 2}, [0]int8{}}, struct {
			S []int64
			E []int64
			N []int64
			A [3]int32
			B []uint32
			M map[int64]float64
			Z [0]int64
		}{[]int64{1, -1}, []int64{}, nil, [3]int32{1, 2, 3}, []uint32{9, 255}, map[int64]float64{-1: 1, 1: 2}, [0]int64{}},
			"field S[] widened from int32 to int64", "field E[] widened from int32 to int64", "field N[] widened from int32 to int64",
			"field A[] widened from uint8 to int32", "field B[] widened from uint8 to uint32",
			"field M[key] widened from int8 to int64", "field M[] widened from float32 to float64", "field Z[] widened from int8 to int64")
		carried(t, map[pair]pair{{1, "k"}: {2, "v"}}, map[struct {
			B string
			A int64
			N bool
		}]struct{ B string }{{"k", 1, false}: {"v"}},
			"field [key].A widened from int32 to int64", "field [key].N added", "field [key] with its fields in another order", "field [].A dropped")
	})
	t.Run("alone", func(t *testing.T) {
		carried(t, int32(-5), int64(-5), "value widened from int32 to int64")
		carried(t, uint8(5), int16(5), "value widened from uint8 to int16")
		carried(t, float32(0.5), float64(0.5), "value widened from float32 to float64")
		carried(t, "text", []byte("text"), "value made bytes of a string")
		carried(t, []byte{1}, "\x01", "value made a string of bytes: nil becomes empty")
		carried(t, customerID("c"), "c")
		carried(t, status(3), int64(3), changeOf[status, int64]()...)
		carried(t, []int8{1}, []int16{1}, "field [] widened from int8 to int16")
	})
}

// dropped are the changes when only one field of everything stays.
func dropped(but string) (changes []string) {
	typ, err := ParseShape(MustStruct[everything]().Schema().Shape)
	if err != nil {
		panic(err)
	}
	for _, f := range typ.Fields {
		if f.Name != but {
			changes = append(changes, "field "+f.Name+" dropped")
		}
	}
	return changes
}

func changeOf[Old, New any]() (changes []string) {
	list, _ := Changes(mustDefault[Old]().Schema(), mustDefault[New]().Schema())
	for _, c := range list {
		changes = append(changes, c.String())
	}
	return changes
}

func TestEvolveRefusals(t *testing.T) {
	refused[int64, int32](t, "", "int64", "int32", "int32 does not hold every int64", "keep the old type")
	refused[struct{ A int64 }, struct{ A int32 }](t, "A", "int64", "int32", "field A", "another name")
	refused[struct{ A int32 }, struct{ A uint64 }](t, "A", "int32", "uint64", "does not hold")
	refused[struct{ A uint64 }, struct{ A int64 }](t, "A", "uint64", "int64", "does not hold")
	refused[struct{ A uint16 }, struct{ A int16 }](t, "A", "uint16", "int16", "does not hold")
	refused[struct{ A float64 }, struct{ A float32 }](t, "A", "float64", "float32", "does not hold")
	refused[struct{ A complex128 }, struct{ A complex64 }](t, "A", "complex128", "complex64", "does not hold")
	refused[struct{ A int32 }, struct{ A float64 }](t, "A", "int32", "float64", "whole number")
	refused[struct{ A float64 }, struct{ A int64 }](t, "A", "float64", "int64", "sorts")
	refused[struct{ A bool }, struct{ A int8 }](t, "A", "bool", "int8", "sorts")
	refused[struct{ A string }, struct{ A int64 }](t, "A", "string", "int64", "sorts")
	refused[struct{ A int64 }, struct{ A time.Time }](t, "A", "int64", "time", "sorts")
	refused[struct{ A int32 }, struct{ A time.Duration }](t, "A", "int32", "duration", "sorts")
	refused[struct{ A *int64 }, struct{ A int64 }](t, "A", "*int64", "int64", "nil would be lost")
	refused[struct{ A [2]int8 }, struct{ A [3]int8 }](t, "A", "[2]int8", "[3]int8", "length")
	refused[struct{ A [2]int8 }, struct{ A []int16 }](t, "A", "[2]int8", "[]int16", "sorts")
	refused[struct{ A []int16 }, struct{ A []byte }](t, "A", "[]int16", "bytes", "sorts")
	refused[struct{ A pair }, struct{ A string }](t, "A", "struct{A, B}", "string", "sorts")
	refused[pair, string](t, "", "struct{A, B}", "string", "sorts")
	refused[struct {
		A []struct{ X struct{ Y int64 } }
	}, struct {
		A []struct{ X struct{ Y int8 } }
	}](t, "A[].X.Y", "int64", "int8")
	refused[struct{ A map[string]*int64 }, struct{ A map[string]*int8 }](t, "A[]", "int64", "int8")
	refused[struct{ A map[int64]bool }, struct{ A map[int32]bool }](t, "A[key]", "int64", "int32", "does not hold")
	refused[map[pair]bool, map[struct{ A int32 }]bool](t, "[key].B", "string", "not there", "would become one")
	refused[struct{ X, Y int }, struct {
		Z int `cairn:",alias=Y,alias=X"`
	}](t, "Z", "Y and X", "int64", "aliases", "remove the alias")

	both, err := Evolve(MustStruct[struct{ A, B int8 }](), MustStruct[struct{ A, B int16 }]().Schema())
	if both != nil || err == nil || !strings.Contains(err.Error(), "field A was") || !strings.Contains(err.Error(), "field B was") {
		t.Errorf("two problems: %v", err)
	}
}

func TestEvolveCodecs(t *testing.T) {
	for _, c := range []struct {
		old, word string
	}{
		{"json", "codecs differ"}, {"proto:{}", "codecs differ"}, {"struct/2:{}", "newer than the program's, 1"}, {"aged:int64", "had a TTL"},
		{"struct:{", "unexpected"}, {"struct:null", "want one of"},
		{`struct:{"struct":[{"name":"A","type":"int64"},{"name":"A","type":"int64"}]}`, "damaged"},
	} {
		old, err := ParseSchema(c.old)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Evolve(MustStruct[struct{ A int64 }](), old)
		var e *IncompatibleError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: %v, want %q", c.old, err, c.word)
		}
	}
	// Texts that no codec made.
	old, now := Schema{Codec: "struct", Shape: `{"struct":[{"name":"X","type":"bool"}]}`}, Schema{Codec: "struct", Shape: `{"struct":[{"name":"A","alias":["X"],"type":"bool"},{"name":"B","alias":["X"],"type":"bool"}]}`}
	if _, err := Changes(old, now); err == nil || !strings.Contains(err.Error(), "field A was that one too") {
		t.Errorf("two fields from one: %v", err)
	}
	j := JSON[pair]()
	if c, err := Evolve(j, JSON[everything]().Schema()); err != nil || c != j {
		t.Errorf("json: %v, %v", c, err)
	}
	if _, err := Evolve(j, Schema{Codec: "json", Version: 2}); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("json of a newer version: %v", err)
	}
	if _, err := Evolve(j, MustStruct[pair]().Schema()); err == nil {
		t.Error("json reads struct")
	}
	same := Int64()
	if c, err := Evolve(same, Schema{Codec: "int64"}); err != nil || c != same {
		t.Errorf("the same schema without a version: %v, %v", c, err)
	}
	wide, err := Evolve(Int64(), Int32().Schema())
	if err != nil {
		t.Fatal(err)
	}
	if narrow, err := Evolve(wide, Int16().Schema()); err != nil {
		t.Errorf("evolved twice: %v, %v", narrow, err)
	}
	raw := Erase(Int64())
	if d, err := raw.Evolve(Int64().Schema()); d != nil || err != nil {
		t.Errorf("raw, unchanged: %v", err)
	}
	d, err := raw.Evolve(Int32().Schema())
	var v int64
	if n, derr := d([]byte{0xfe, 0xff, 0xff, 0xff}, unsafe.Pointer(&v)); err != nil || derr != nil || n != 4 || v != -2 {
		t.Errorf("raw: %d, %v, %v", v, err, derr)
	}
	if d, err := raw.Evolve(String().Schema()); d != nil || err == nil {
		t.Error("raw reads text as a number")
	}
}

func TestAliasesOfTwoFields(t *testing.T) {
	for _, c := range []struct {
		err  error
		word string
	}{
		{errOf(Struct[struct {
			A int
			B int `cairn:",alias=A"`
		}]()), `field B`},
		{errOf(Struct[struct {
			A int `cairn:",alias=X"`
			B int `cairn:",alias=X"`
		}]()), `alias "X", which field A claims too`},
		{errOf(Struct[struct {
			N struct {
				A int `cairn:",alias=B"`
				B int
			}
		}]()), `field N.A`},
		{errOf(Struct[struct {
			A int `cairn:",alias=A,alias=X,alias=X"`
		}]()), ""},
	} {
		if (c.err == nil) != (c.word == "") || c.err != nil && !strings.Contains(c.err.Error(), c.word) {
			t.Errorf("%v, want %q", c.err, c.word)
		}
	}
}

func errOf[T any](_ Codec[T], err error) error { return err }

// money is a codec of somebody's own: version 1 had whole units, version 2 has cents.
type money struct{ version int }

func (m money) Schema() Schema { return Schema{Codec: "acme/money", Version: m.version, Shape: "a,b"} }

func (m money) Append(dst []byte, v *int64) ([]byte, error) { return Int64().Append(dst, v) }
func (m money) Decode(src []byte, v *int64) (int, error)    { return Int64().Decode(src, v) }
func (m money) Copy(dst, src *int64)                        { *dst = *src }

type migratingMoney struct{ money }

func (m migratingMoney) Migrate(from Schema) (func([]byte, *int64) (int, error), error) {
	if from.Shape != "a,b" {
		return nil, fmt.Errorf("shape %q is unknown", from.Shape)
	}
	return func(src []byte, v *int64) (int, error) {
		n, err := Int64().Decode(src, v)
		*v *= 100
		return n, err
	}, nil
}

func TestMigrator(t *testing.T) {
	old := money{1}
	units := int64(7)
	src, _ := old.Append(nil, &units)
	c, err := Evolve[int64](migratingMoney{money{2}}, old.Schema())
	if err != nil {
		t.Fatal(err)
	}
	var cents int64
	if n, err := c.Decode(src, &cents); n != 8 || err != nil || cents != 700 || c.Schema().Version != 2 {
		t.Errorf("%d cents, %v", cents, err)
	}
	for _, x := range []struct {
		c    Codec[int64]
		old  Schema
		word string
	}{
		{migratingMoney{money{2}}, money{3}.Schema(), "version 3 of the codec is newer than the program's, 2"},
		{migratingMoney{money{2}}, Schema{Codec: "acme/money", Version: 1, Shape: "c"}, `shape "c" is unknown`},
		{migratingMoney{money{2}}, Schema{Codec: "other", Version: 1}, "codecs differ"},
		{money{2}, old.Schema(), "codec.Migrator"},
	} {
		if _, err := Evolve(x.c, x.old); err == nil || !strings.Contains(err.Error(), x.word) {
			t.Errorf("%v: %v, want %q", x.old, err, x.word)
		}
	}
	if list, err := Changes(old.Schema(), money{2}.Schema()); err != nil || len(list) != 1 || !strings.Contains(list[0].String(), "version 2 was 1") {
		t.Errorf("changes %v, %v", list, err)
	}
}
