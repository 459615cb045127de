package codec

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// edit is a new type with what becomes of an old value.
type edit struct {
	typ     reflect.Type
	convert func(old reflect.Value) reflect.Value
}

func keep(t reflect.Type) edit { return edit{t, func(v reflect.Value) reflect.Value { return v }} }

// convertTo is an edit to another type without parts.
func convertTo[T any]() edit {
	t := reflect.TypeFor[T]()
	return edit{t, func(v reflect.Value) reflect.Value { return v.Convert(t) }}
}

// wider are the types that those without parts may become.
var wider = map[reflect.Type][]edit{
	reflect.TypeFor[int8]():          {convertTo[int16](), convertTo[int32](), convertTo[int64](), convertTo[int]()},
	reflect.TypeFor[int16]():         {convertTo[int32](), convertTo[int64]()},
	reflect.TypeFor[int32]():         {convertTo[int64]()},
	reflect.TypeFor[uint8]():         {convertTo[uint16](), convertTo[uint64](), convertTo[int16](), convertTo[int64]()},
	reflect.TypeFor[uint16]():        {convertTo[uint32](), convertTo[int32]()},
	reflect.TypeFor[uint32]():        {convertTo[uint64](), convertTo[int]()},
	reflect.TypeFor[status]():        {convertTo[int32]()},
	reflect.TypeFor[float32]():       {convertTo[float64]()},
	reflect.TypeFor[complex64]():     {convertTo[complex128]()},
	reflect.TypeFor[time.Duration](): {convertTo[int64]()},
	reflect.TypeFor[int64]():         {convertTo[time.Duration]()},
	reflect.TypeFor[string]():        {convertTo[customerID]()},
}

// drawEdit changes a type in a way that is allowed. In the key of a map less is.
func drawEdit(t *rapid.T, typ reflect.Type, key bool) edit {
	if !key && typ.Kind() != reflect.Pointer && rapid.IntRange(0, 9).Draw(t, "wrap") == 0 {
		e := drawEdit(t, typ, key)
		return edit{reflect.PointerTo(e.typ), func(v reflect.Value) reflect.Value {
			p := reflect.New(e.typ)
			p.Elem().Set(e.convert(v))
			return p
		}}
	}
	if typ == timeType {
		return keep(typ)
	}
	if options := wider[typ]; len(options) > 0 {
		if rapid.Bool().Draw(t, "widen") {
			return rapid.SampledFrom(options).Draw(t, "to")
		}
		return keep(typ)
	}
	switch typ.Kind() {
	case reflect.Pointer:
		e := drawEdit(t, typ.Elem(), key)
		to := reflect.PointerTo(e.typ)
		return edit{to, func(v reflect.Value) reflect.Value {
			if v.IsNil() {
				return reflect.Zero(to)
			}
			p := reflect.New(e.typ)
			p.Elem().Set(e.convert(v.Elem()))
			return p
		}}
	case reflect.Slice:
		if typ.Elem().Kind() == reflect.Uint8 {
			return keep(typ)
		}
		e := drawElement(t, typ.Elem())
		if e.typ.Kind() == reflect.Uint8 {
			e = keep(typ.Elem())
		}
		to := reflect.SliceOf(e.typ)
		return edit{to, func(v reflect.Value) reflect.Value {
			if v.IsNil() {
				return reflect.Zero(to)
			}
			s := reflect.MakeSlice(to, v.Len(), v.Len())
			for i := range v.Len() {
				s.Index(i).Set(e.convert(v.Index(i)))
			}
			return s
		}}
	case reflect.Array:
		e := drawElement(t, typ.Elem())
		if key {
			e = drawEdit(t, typ.Elem(), true)
		}
		to := reflect.ArrayOf(typ.Len(), e.typ)
		return edit{to, func(v reflect.Value) reflect.Value {
			a := reflect.New(to).Elem()
			for i := range v.Len() {
				a.Index(i).Set(e.convert(v.Index(i)))
			}
			return a
		}}
	case reflect.Map:
		k, e := drawEdit(t, typ.Key(), true), drawEdit(t, typ.Elem(), false)
		to := reflect.MapOf(k.typ, e.typ)
		return edit{to, func(v reflect.Value) reflect.Value {
			if v.IsNil() {
				return reflect.Zero(to)
			}
			m := reflect.MakeMap(to)
			for it := v.MapRange(); it.Next(); {
				m.SetMapIndex(k.convert(it.Key()), e.convert(it.Value()))
			}
			return m
		}}
	case reflect.Struct:
		return drawFields(t, typ, key)
	}
	return keep(typ)
}

// drawElement is drawEdit of what a slice or array holds, which must not become nothing.
func drawElement(t *rapid.T, typ reflect.Type) edit {
	e := drawEdit(t, typ, false)
	if p, _, err := compile(e.typ, true); err != nil || p.min == 0 {
		return keep(typ)
	}
	return e
}

func drawFields(t *rapid.T, typ reflect.Type, key bool) edit {
	if typ.PkgPath() != "" && rapid.Bool().Draw(t, "keep") {
		return keep(typ)
	}
	type source struct {
		field reflect.StructField
		from  int // -1 for a new one.
		edit
	}
	var fields []source
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Tag.Get("cairn") == "-" || f.Name == "_" {
			continue
		}
		what := rapid.SampledFrom([]string{"keep", "edit", "edit", "rename", "drop"}).Draw(t, "field")
		if what == "drop" && !key {
			continue
		}
		e := keep(f.Type)
		if what != "keep" {
			e = drawEdit(t, f.Type, key)
		}
		to := reflect.StructField{Name: f.Name, Type: e.typ}
		if what == "rename" {
			to.Name = "Renamed" + f.Name
			to.Tag = reflect.StructTag(fmt.Sprintf(`cairn:",alias=Never%s,alias=%s"`, f.Name, f.Name))
		}
		fields = append(fields, source{to, i, e})
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "added") {
		added := drawType(t, 1)
		if key {
			added = reflect.TypeFor[int32]()
		}
		fields = append(fields, source{reflect.StructField{Name: fmt.Sprintf("Added%d", i), Type: added}, -1, edit{}})
	}
	fields = rapid.Permutation(fields).Draw(t, "order")
	list := make([]reflect.StructField, len(fields))
	for i, f := range fields {
		list[i] = f.field
	}
	to := reflect.StructOf(list)
	return edit{to, func(v reflect.Value) reflect.Value {
		s := reflect.New(to).Elem()
		for i, f := range fields {
			if f.from >= 0 {
				s.Field(i).Set(f.convert(v.Field(f.from)))
			}
		}
		return s
	}}
}

// Whatever the type, its value, and the changes that are allowed: what is decoded is the old value,
// converted, in any order of memory and over anything that was there; and no bytes make it panic.
func TestAnyEditIsCarried(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := drawType(t, 3)
		old := reflect.New(typ)
		drawValue(t, old.Elem())
		e := drawEdit(t, typ, false)
		was, oldSchema, err := structOf(typ, littleEndian)
		if err != nil {
			t.Skip(err.Error())
		}
		now, newSchema, err := structOf(e.typ, littleEndian)
		if err != nil {
			t.Skip(err.Error()) // A widened element of a slice may be one of bytes, and so on.
		}
		src, err := was.appendOne(nil, old.UnsafePointer())
		if err != nil {
			t.Skip(err.Error())
		}
		want := e.convert(old.Elem())
		for _, native := range []bool{littleEndian, false} {
			p, err := evolveSchema(e.typ, oldSchema, newSchema, native)
			if err != nil {
				t.Fatalf("%v to %v: %v", typ, e.typ, err)
			}
			if p == nil {
				p = now
			}
			got := reflect.New(e.typ)
			dirty(got.Elem())
			n, err := p.decodeOne(src, got.UnsafePointer())
			if err != nil || n != len(src) || !reflect.DeepEqual(got.Elem().Interface(), want.Interface()) {
				t.Fatalf("%v to %v: %+v became %+v, want %+v: %d of %d bytes, %v", typ, e.typ, old.Elem(), got.Elem(), want, n, len(src), err)
			}
			rubbish := append([]byte(nil), src...)
			if len(rubbish) > 0 {
				rubbish[rapid.IntRange(0, len(rubbish)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
				rubbish = rubbish[:rapid.IntRange(0, len(rubbish)).Draw(t, "cut")]
			}
			if n, err := p.decodeOne(rubbish, got.UnsafePointer()); err == nil && n > len(rubbish) {
				t.Fatalf("took %d bytes of %d", n, len(rubbish))
			}
		}
		changes, err := Changes(oldSchema, newSchema)
		if err != nil {
			t.Fatal(err)
		}
		is, _ := newSchema.Type()
		asItWas, _ := oldSchema.Type()
		if (len(changes) == 0) != is.like(asItWas) {
			t.Fatalf("%v to %v: changes %v", oldSchema, newSchema, changes)
		}
		for _, c := range changes {
			if c.What == "" || strings.HasPrefix(c.Path, ".") {
				t.Fatalf("change %+v", c)
			}
		}
	})
}
