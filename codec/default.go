package codec

import (
	"reflect"
	"time"
)

// Default returns the codec of T when none is given: that of its kind for booleans, integers,
// floats, strings and []byte (named types like the unnamed), Time for time.Time, else Struct.
func Default[T any]() (Codec[T], error) {
	t := reflect.TypeFor[T]()
	switch t.Kind() {
	case reflect.Bool:
		return flag[T]{}, nil
	case reflect.Int, reflect.Int64:
		return word8[T]{"int64"}, nil
	case reflect.Uint, reflect.Uint64:
		return word8[T]{"uint64"}, nil
	case reflect.Int32, reflect.Uint32, reflect.Float32:
		return word4[T]{t.Kind().String()}, nil
	case reflect.Int16, reflect.Uint16:
		return word2[T]{t.Kind().String()}, nil
	case reflect.Int8, reflect.Uint8:
		return word1[T]{t.Kind().String()}, nil
	case reflect.Float64:
		return word8[T]{"float64"}, nil
	case reflect.String:
		return text[T]{}, nil
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return blob[T]{}, nil
		}
	}
	if t == reflect.TypeFor[time.Time]() {
		return any(Time()).(Codec[T]), nil
	}
	return Struct[T]()
}
