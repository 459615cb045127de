package codec

import (
	"fmt"
	"reflect"
)

// CheckKey tells whether K, encoded by c, can be a key: equal keys must have equal encodings and
// different ones different encodings, since keys are hashed and compared as bytes.
//
// Refused are floats (NaN is not equal to itself, -0 is equal to 0 and differs in its bytes),
// pointers and interfaces (equal by address), types that are not comparable, struct codecs that
// leave a field out, and JSON, which drops fields and replaces what is not UTF-8. A time.Time is
// allowed: its key is the instant.
func CheckKey[K any](c Codec[K]) error {
	t := reflect.TypeFor[K]()
	if why := keyProblem(t); why != "" {
		return fmt.Errorf("%v cannot be a key: it %s", t, why)
	}
	if s, ok := c.(*structCodec[K]); ok && s.program.lossy {
		return fmt.Errorf("%v cannot be a key: its codec leaves a field out, so different keys would be one", t)
	}
	if name := c.Schema().Codec; name == "json" {
		return fmt.Errorf("%v cannot be a key with the codec %s, which may encode different keys the same way: use codec.Default", t, name)
	}
	return nil
}

// keyProblem says why values of t cannot be keys.
func keyProblem(t reflect.Type) string {
	if t == timeType {
		return ""
	}
	switch t.Kind() {
	case reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return "holds a " + t.Kind().String() + ", whose NaN and -0 have no canonical form: use an integer, or math.Float64bits"
	case reflect.Pointer, reflect.UnsafePointer, reflect.Chan, reflect.Interface, reflect.Uintptr:
		return "holds a " + t.Kind().String() + ", which means something in one process only"
	case reflect.Array:
		return keyProblem(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Name == "_" {
				continue
			}
			if why := keyProblem(f.Type); why != "" {
				return "has a field " + f.Name + " that " + why
			}
		}
	}
	if !t.Comparable() {
		return "is not comparable"
	}
	return ""
}
