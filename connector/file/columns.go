package file

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// A column ties a name in CSV to a field of a struct. The name is that of the tag `csv`, else of the tag `json`, else
// the field's own; "-" leaves the field out. Behind the name in the tag `csv` may stand
//
//   - omitempty: an empty field of the file leaves the zero value, and a file may lack the column; the zero value is
//     written as an empty field;
//   - layout=LAYOUT, last: how a time is written, as in package time; without it RFC 3339.
//
// Fields of embedded structs count as the outer one's.
type column struct {
	name     string
	index    []int
	optional bool
	parse    func(f reflect.Value, text []byte) error
	append   func(dst []byte, f reflect.Value) ([]byte, error)
}

// columnsOf lists the columns of struct type t in the order of its fields.
func columnsOf(t reflect.Type) ([]column, error) {
	if t.Kind() != reflect.Struct || isScalar(t) {
		return nil, fmt.Errorf("%v is not a struct with a field for each column", t)
	}
	var list []column
	var errs []error
	seen := map[string]bool{}
	var walk func(t reflect.Type, index []int)
	walk = func(t reflect.Type, index []int) {
		for i := range t.NumField() {
			f := t.Field(i)
			at := append(index[:len(index):len(index)], i)
			tag, tagged := f.Tag.Lookup("csv")
			if f.Anonymous && !tagged && f.Type.Kind() == reflect.Struct && !isScalar(f.Type) {
				walk(f.Type, at)
				continue
			}
			if !f.IsExported() {
				continue
			}
			c, layout, err := parseTag(f, tag)
			if c.name == "-" {
				continue
			}
			if err == nil && seen[c.name] {
				err = fmt.Errorf("column %q is there twice", c.name)
			}
			if err == nil {
				c.parse, c.append, err = conversions(f.Type, layout)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("field %s of %v: %w", f.Name, t, err))
				continue
			}
			c.index = at
			seen[c.name] = true
			list = append(list, c)
		}
	}
	walk(t, nil)
	if len(list) == 0 && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("%v has no exported fields", t))
	}
	return list, errors.Join(errs...)
}

func parseTag(f reflect.StructField, tag string) (c column, layout string, err error) {
	name, options, _ := strings.Cut(tag, ",")
	if name == "" {
		name, _, _ = strings.Cut(f.Tag.Get("json"), ",")
	}
	if name == "" {
		name = f.Name
	}
	c.name = name
	for options != "" {
		if rest, ok := strings.CutPrefix(options, "layout="); ok {
			return c, rest, nil
		}
		var option string
		option, options, _ = strings.Cut(options, ",")
		if option != "omitempty" {
			return c, "", fmt.Errorf("unknown option %q in the tag csv:%q", option, tag)
		}
		c.optional = true
	}
	return c, "", nil
}

var (
	timeType        = reflect.TypeFor[time.Time]()
	durationType    = reflect.TypeFor[time.Duration]()
	unmarshalerType = reflect.TypeFor[encoding.TextUnmarshaler]()
	marshalerType   = reflect.TypeFor[encoding.TextMarshaler]()
	appenderType    = reflect.TypeFor[encoding.TextAppender]()
)

// isScalar tells whether values of a struct type are one field of CSV.
func isScalar(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(unmarshalerType) || p.Implements(marshalerType)
}

type (
	parseFunc  = func(f reflect.Value, text []byte) error
	appendFunc = func(dst []byte, f reflect.Value) ([]byte, error)
)

func conversions(t reflect.Type, layout string) (parseFunc, appendFunc, error) {
	if t.Kind() == reflect.Pointer {
		return pointerTo(t, layout)
	}
	if layout != "" && t != timeType {
		return nil, nil, fmt.Errorf("a layout is for time.Time, not for %v", t)
	}
	switch t {
	case timeType:
		parse, app := timeConversions(layout)
		return parse, app, nil
	case durationType:
		return parseDuration, appendDuration, nil
	}
	if isScalar(t) {
		return parseText, appendText(t), nil
	}
	bits := 0
	if k := t.Kind(); k >= reflect.Int && k <= reflect.Float64 {
		bits = t.Bits()
	}
	switch t.Kind() {
	case reflect.String:
		return func(f reflect.Value, text []byte) error { f.SetString(string(text)); return nil },
			func(dst []byte, f reflect.Value) ([]byte, error) { return append(dst, f.String()...), nil }, nil
	case reflect.Bool:
		return func(f reflect.Value, text []byte) error {
				v, err := strconv.ParseBool(string(text))
				f.SetBool(v)
				return err
			},
			func(dst []byte, f reflect.Value) ([]byte, error) { return strconv.AppendBool(dst, f.Bool()), nil }, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(f reflect.Value, text []byte) error {
				v, err := strconv.ParseInt(string(text), 10, bits)
				f.SetInt(v)
				return err
			},
			func(dst []byte, f reflect.Value) ([]byte, error) { return strconv.AppendInt(dst, f.Int(), 10), nil }, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return func(f reflect.Value, text []byte) error {
				v, err := strconv.ParseUint(string(text), 10, bits)
				f.SetUint(v)
				return err
			},
			func(dst []byte, f reflect.Value) ([]byte, error) { return strconv.AppendUint(dst, f.Uint(), 10), nil }, nil
	case reflect.Float32, reflect.Float64:
		return func(f reflect.Value, text []byte) error {
				v, err := strconv.ParseFloat(string(text), bits)
				f.SetFloat(v)
				return err
			},
			func(dst []byte, f reflect.Value) ([]byte, error) {
				return strconv.AppendFloat(dst, f.Float(), 'g', -1, bits), nil
			}, nil
	}
	return nil, nil, fmt.Errorf("%v is not a type that fits a field of CSV; give it MarshalText and UnmarshalText, or use your own Decode or Encode", t)
}

// pointerTo makes nil of an empty field, and an empty field of nil.
func pointerTo(t reflect.Type, layout string) (parseFunc, appendFunc, error) {
	if t.Elem().Kind() == reflect.Pointer {
		return nil, nil, fmt.Errorf("%v points to a pointer", t)
	}
	parse, app, err := conversions(t.Elem(), layout)
	if err != nil {
		return nil, nil, err
	}
	return func(f reflect.Value, text []byte) error {
			if len(text) == 0 {
				f.SetZero()
				return nil
			}
			p := reflect.New(t.Elem())
			f.Set(p)
			return parse(p.Elem(), text)
		},
		func(dst []byte, f reflect.Value) ([]byte, error) {
			if f.IsNil() {
				return dst, nil
			}
			return app(dst, f.Elem())
		}, nil
}

func timeConversions(layout string) (parseFunc, appendFunc) {
	in, out := layout, layout
	if layout == "" {
		in, out = time.RFC3339, time.RFC3339Nano // Parsing takes fractions of a second in any case.
	}
	return func(f reflect.Value, text []byte) error {
			v, err := time.Parse(in, string(text))
			*f.Addr().Interface().(*time.Time) = v
			return err
		},
		func(dst []byte, f reflect.Value) ([]byte, error) {
			return f.Addr().Interface().(*time.Time).AppendFormat(dst, out), nil
		}
}

func parseDuration(f reflect.Value, text []byte) error {
	v, err := time.ParseDuration(string(text))
	f.SetInt(int64(v))
	return err
}

func appendDuration(dst []byte, f reflect.Value) ([]byte, error) {
	return append(dst, time.Duration(f.Int()).String()...), nil
}

func parseText(f reflect.Value, text []byte) error {
	u, ok := f.Addr().Interface().(encoding.TextUnmarshaler)
	if !ok {
		return fmt.Errorf("%v has no UnmarshalText", f.Type())
	}
	return u.UnmarshalText(text)
}

func appendText(t reflect.Type) appendFunc {
	if reflect.PointerTo(t).Implements(appenderType) {
		return func(dst []byte, f reflect.Value) ([]byte, error) {
			return f.Addr().Interface().(encoding.TextAppender).AppendText(dst)
		}
	}
	return func(dst []byte, f reflect.Value) ([]byte, error) {
		m, ok := f.Addr().Interface().(encoding.TextMarshaler)
		if !ok {
			return dst, fmt.Errorf("%v has no MarshalText", f.Type())
		}
		text, err := m.MarshalText()
		return append(dst, text...), err
	}
}
