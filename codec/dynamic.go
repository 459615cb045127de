package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Dynamic decodes one value from the front of src without its Go type, and returns how many bytes
// it took. It never panics. The value marshals to JSON and is one of
//
//	bool, int64, uint64, float64, string, []byte, time.Time, time.Duration
//	[]any            a slice, an array, or the parts of a complex number
//	Object, Map      a struct, a map
//	json.RawMessage  what the codecs json and proto encode
//	nil              a pointer, slice or map that is nil
//
// What JSON does not have is a string: not-a-number, with its bits behind a colon if they are not the usual ones, the
// infinities, and times outside of the years 0 to 9999 as @SECONDS.NANOSECONDS since 1970. A pointer to what is nil is an
// Object with the member $pointer. A composite codec's value is an Object.
type Dynamic func(src []byte) (value any, n int, err error)

// Object is a struct without its Go type, in the order of its fields.
type Object []Member

// Member is a field of an Object.
type Member struct {
	Name  string
	Value any
}

// Map is a map without its Go type, in the order of its encoded keys. Its JSON is an object if the
// keys are strings, else an array of [key, value].
type Map []Entry

// Entry is an entry of a Map.
type Entry struct{ Key, Value any }

// MarshalJSON gives an object.
func (o Object) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		v, err := json.Marshal(m.Value)
		if err != nil {
			return nil, err
		}
		b = append(append(appendJSONString(b, m.Name), ':'), v...)
	}
	return append(b, '}'), nil
}

// MarshalJSON gives an object or an array.
func (m Map) MarshalJSON() ([]byte, error) {
	o := make(Object, 0, len(m))
	for _, e := range m {
		name, ok := e.Key.(string)
		if !ok {
			break
		}
		o = append(o, Member{name, e.Value})
	}
	if len(o) == len(m) {
		return o.MarshalJSON()
	}
	pairs := make([][2]any, len(m))
	for i, e := range m {
		pairs[i] = [2]any{e.Key, e.Value}
	}
	return json.Marshal(pairs)
}

func dynamicJSON(src []byte) (any, int, error) {
	n, pos, err := readLen(src, 0)
	if err != nil {
		return nil, 0, err
	}
	text := src[pos : pos+n]
	if !json.Valid(text) {
		return nil, 0, fmt.Errorf("malformed json in %d bytes at offset %d", n, pos)
	}
	return json.RawMessage(bytes.Clone(text)), pos + n, nil
}

// Decode decodes a value of type t. It is a Dynamic.
func (t *Type) Decode(src []byte) (any, int, error) {
	d := dynamic{src: src}
	v := d.value(t)
	if d.err != nil {
		return nil, 0, fmt.Errorf("decode %s: %w", t.Kind, d.err)
	}
	return v, d.pos, nil
}

// dynamic reads src. After an error it reads nothing more.
type dynamic struct {
	src []byte
	pos int
	err error
}

// fixed takes n bytes; zeros after an error.
func (d *dynamic) fixed(n int) []byte {
	if d.err == nil && len(d.src)-d.pos < n {
		d.err = truncated(d.pos, n, len(d.src)-d.pos)
	}
	if d.err != nil {
		return make([]byte, n) // At most 16.
	}
	b := d.src[d.pos : d.pos+n]
	d.pos += n
	return b
}

func (d *dynamic) value(t *Type) any {
	if d.err != nil {
		return nil
	}
	switch t.Kind {
	case KindBool:
		return d.flag()
	case KindInt8:
		return int64(int8(d.fixed(1)[0]))
	case KindInt16:
		return int64(int16(binary.LittleEndian.Uint16(d.fixed(2))))
	case KindInt32:
		return int64(int32(binary.LittleEndian.Uint32(d.fixed(4))))
	case KindInt64:
		return int64(binary.LittleEndian.Uint64(d.fixed(8)))
	case KindUint8:
		return uint64(d.fixed(1)[0])
	case KindUint16:
		return uint64(binary.LittleEndian.Uint16(d.fixed(2)))
	case KindUint32:
		return uint64(binary.LittleEndian.Uint32(d.fixed(4)))
	case KindUint64:
		return binary.LittleEndian.Uint64(d.fixed(8))
	case KindFloat32:
		return d.float32()
	case KindFloat64:
		return d.float64()
	case KindComplex64:
		return []any{d.float32(), d.float32()}
	case KindComplex128:
		return []any{d.float64(), d.float64()}
	case KindDuration:
		return time.Duration(binary.LittleEndian.Uint64(d.fixed(8)))
	case KindTime:
		at, pos, err := readTime(d.src, d.pos)
		d.pos, d.err = pos, err
		return timeValue(at)
	case KindString:
		n, pos, err := readLen(d.src, d.pos)
		if d.err = err; err != nil {
			return nil
		}
		d.pos = pos + n
		return string(d.src[pos:d.pos])
	case KindBytes:
		n, pos, present, err := readOptionalLen(d.src, d.pos)
		if d.err = err; err != nil {
			return nil
		}
		d.pos = pos + n
		if !present {
			return nil
		}
		return cloneBytes(d.src[pos:d.pos])
	case KindPointer:
		if d.flag() {
			return pointed(d.value(t.Elem))
		}
		return nil
	case KindArray:
		return d.list(t.Elem, t.Len)
	case KindSlice:
		n, present := d.count(t.Elem.width())
		if !present {
			return nil
		}
		return d.list(t.Elem, n)
	case KindMap:
		return d.entries(t)
	case KindStruct:
		o := make(Object, 0, len(t.Fields))
		for _, f := range t.Fields {
			v := d.value(f.Type)
			if d.err != nil {
				d.err = fmt.Errorf("field %s: %w", f.Name, d.err)
				return nil
			}
			o = append(o, Member{f.Name, v})
		}
		return o
	}
	d.err = fmt.Errorf("unknown type %q", t.Kind)
	return nil
}

func (d *dynamic) flag() bool {
	at := d.pos
	b := d.fixed(1)[0]
	if b > 1 && d.err == nil {
		d.err = notBool(b, at)
	}
	return b == 1
}

func (d *dynamic) float32() any {
	bits := binary.LittleEndian.Uint32(d.fixed(4))
	f := math.Float32frombits(bits)
	if f != f {
		if bits == usualNaN32 {
			return "NaN"
		}
		return fmt.Sprintf("NaN:%08x", bits)
	}
	// The shortest decimal that gives f, not that of the float64 beside it.
	wide, _ := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', -1, 32), 64)
	return jsonFloat(wide)
}

func (d *dynamic) float64() any {
	bits := binary.LittleEndian.Uint64(d.fixed(8))
	f := math.Float64frombits(bits)
	if f != f && bits != usualNaN64 {
		return fmt.Sprintf("NaN:%016x", bits)
	}
	return jsonFloat(f)
}

// The bits of the not-a-number that Go computes with.
var (
	usualNaN64 = math.Float64bits(math.NaN())
	usualNaN32 = math.Float32bits(float32(math.NaN()))
)

func jsonFloat(f float64) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return strconv.FormatFloat(f, 'g', -1, 64)
	}
	return f
}

// timeValue is a time, or a text where JSON has none for it.
func timeValue(at time.Time) any {
	const first, last = -62167219200, 253402300799 // Of the years 0 to 9999.
	if s := at.Unix(); s < first || s > last {
		return fmt.Sprintf("@%d.%09d", s, at.Nanosecond())
	}
	return at
}

// pointerMember is the only member of the Object that stands for a pointer to nil, and for a pointer to what would look like
// such an Object.
const pointerMember = "$pointer"

// pointed is what a pointer to v is.
func pointed(v any) any {
	alike := v == nil
	switch v := v.(type) {
	case Object:
		alike = len(v) == 1 && v[0].Name == pointerMember
	case Map:
		alike = len(v) == 1 && v[0].Key == any(pointerMember)
	}
	if alike {
		return Object{{pointerMember, v}}
	}
	return v
}

// count reads the number of elements that take at least size bytes each.
func (d *dynamic) count(size int) (int, bool) {
	n, pos, err := readCount(d.src, d.pos)
	if err != nil {
		d.err = err
		return 0, false
	}
	if n == 0 {
		d.pos = pos
		return 0, false
	}
	if most := maxEntries(len(d.src)-pos, size); n-1 > most {
		d.err = fmt.Errorf("%w at offset %d: claims %d elements of at least %d bytes, %d bytes are left",
			ErrTruncated, d.pos, n-1, size, len(d.src)-pos)
		return 0, false
	}
	d.pos = pos
	return int(n - 1), true
}

func (d *dynamic) list(elem *Type, n int) []any {
	if most := maxEntries(len(d.src)-d.pos, elem.width()); n > 0 && uint64(n) > most {
		d.err = fmt.Errorf("%w at offset %d: wants %d elements, %d bytes are left", ErrTruncated, d.pos, n, len(d.src)-d.pos)
		return nil
	}
	vs := make([]any, 0, n)
	for range n {
		vs = append(vs, d.value(elem))
		if d.err != nil {
			return nil
		}
	}
	return vs
}

func (d *dynamic) entries(t *Type) any {
	n, present := d.count(t.Key.width() + t.Elem.width())
	if !present {
		return nil
	}
	m := make(Map, 0, n)
	var last []byte
	for i := range n {
		start := d.pos
		key := d.value(t.Key)
		if d.err != nil {
			return nil
		}
		if raw := d.src[start:d.pos]; i > 0 && bytes.Compare(last, raw) >= 0 {
			d.err = fmt.Errorf("the map's keys are out of order at offset %d", start)
			return nil
		} else {
			last = raw
		}
		v := d.value(t.Elem)
		if d.err != nil {
			return nil
		}
		m = append(m, Entry{key, v})
	}
	return m
}
