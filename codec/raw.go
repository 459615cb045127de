package codec

import (
	"reflect"
	"unsafe"
)

// Raw is a Codec of a type that is known at run time only. Its pointers are to values of that type.
type Raw struct {
	Type   reflect.Type
	Append func(dst []byte, v unsafe.Pointer) ([]byte, error)
	Decode func(src []byte, v unsafe.Pointer) (int, error)
	Schema Schema
	// Evolve is Evolver's, without the rest of the codec: decode is nil where old is Schema.
	Evolve func(old Schema) (decode func(src []byte, v unsafe.Pointer) (int, error), err error)
}

// Erase gives c as a Raw. Code that is written for it is compiled once, not for every type.
func Erase[T any](c Codec[T]) Raw {
	encode, decode := c.Append, c.Decode
	// A pointer is passed the same way whatever it points to.
	return Raw{
		Type:   reflect.TypeFor[T](),
		Append: *(*func([]byte, unsafe.Pointer) ([]byte, error))(unsafe.Pointer(&encode)),
		Decode: *(*func([]byte, unsafe.Pointer) (int, error))(unsafe.Pointer(&decode)),
		Schema: c.Schema(),
		Evolve: func(old Schema) (func([]byte, unsafe.Pointer) (int, error), error) {
			if old.equal(c.Schema()) {
				return nil, nil
			}
			e, err := Evolve(c, old)
			if err != nil {
				return nil, err
			}
			decode := e.Decode
			return *(*func([]byte, unsafe.Pointer) (int, error))(unsafe.Pointer(&decode)), nil
		},
	}
}
