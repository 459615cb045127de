package codec

import (
	"reflect"
	"time"
)

// Default returns the codec of T when none is given: that of its kind for booleans, integers,
// floats, strings and []byte (named types like the unnamed), Time for time.Time, else Struct.
func Default[T any]() (Codec[T], error) {
	t := reflect.TypeFor[T]()
	if c, ok := scalars[t]; ok {
		return c.(Codec[T]), nil
	}
	p, schema, err := defaultOf(t)
	if err != nil {
		return nil, err
	}
	return &structCodec[T]{p, schema}, nil
}

// scalars are the codecs of the types that have one of their own.
var scalars = map[reflect.Type]any{
	reflect.TypeFor[bool]():      Bool(),
	reflect.TypeFor[int]():       Int(),
	reflect.TypeFor[int64]():     Int64(),
	reflect.TypeFor[int32]():     Int32(),
	reflect.TypeFor[int16]():     Int16(),
	reflect.TypeFor[int8]():      Int8(),
	reflect.TypeFor[uint]():      Uint(),
	reflect.TypeFor[uint64]():    Uint64(),
	reflect.TypeFor[uint32]():    Uint32(),
	reflect.TypeFor[uint16]():    Uint16(),
	reflect.TypeFor[uint8]():     Uint8(),
	reflect.TypeFor[float64]():   Float64(),
	reflect.TypeFor[float32]():   Float32(),
	reflect.TypeFor[string]():    String(),
	reflect.TypeFor[[]byte]():    Bytes(),
	reflect.TypeFor[time.Time](): Time(),
}

// defaultOf is the program of a type that has no codec of its own. Of a named type like the unnamed it
// makes the same bytes as the unnamed one's codec, whose schema it bears.
func defaultOf(t reflect.Type) (*program, Schema, error) {
	p, schema, err := structOf(t, littleEndian)
	if name := scalarName(t); err == nil && name != "" {
		schema = Schema{Codec: name, Version: 1}
	}
	return p, schema, err
}

// scalarName is the name of the codec of a kind; empty where that is Struct.
func scalarName(t reflect.Type) string {
	switch k := t.Kind(); k {
	case reflect.Int:
		return "int64"
	case reflect.Uint:
		return "uint64"
	case reflect.Bool, reflect.String, reflect.Float32, reflect.Float64,
		reflect.Int64, reflect.Int32, reflect.Int16, reflect.Int8,
		reflect.Uint64, reflect.Uint32, reflect.Uint16, reflect.Uint8:
		return k.String()
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
	}
	return ""
}
