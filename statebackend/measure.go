package statebackend

import (
	"reflect"
	"time"
	"unsafe"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/internal/table"
	"github.com/cairnstream/cairn/job"
)

// A value that is too large is found when it is written, and not by the checkpoints that it makes fail. In memory it is
// not encoded, and to encode it at every write would cost more than all else. So its size is estimated from the lengths of
// what it points to, and only when that comes near the limit is it encoded, which tells. What the estimate misses, such as
// text in the fields of elements that it did not look at, the next snapshot finds.
//
// A value is changed in place behind the call that gave the pointer to it. So it is looked at when the next change of the
// table begins, or a snapshot, whichever is first.

// gauge watches the values of a state whose size depends on what they point to.
type gauge struct {
	size      func(v unsafe.Pointer) int64 // An estimate, cheap.
	threshold int64                        // An estimate above it is worth an encoding.
	pending   unsafe.Pointer               // The value that was given out last, for changing; nil if it was looked at.

	limit  int64
	encode func(v unsafe.Pointer) (int64, error)   // The true size.
	fail   func(v, key unsafe.Pointer, size int64) // Panics. A nil key it looks for.
}

// settle looks at the value that was given out last.
func (g *gauge) settle() {
	if p := g.pending; p != nil {
		if g.size(p) > g.threshold {
			g.look(p, nil)
		}
		g.pending = nil
	}
}

// look encodes a value that may be too large.
func (g *gauge) look(v, key unsafe.Pointer) {
	n, err := g.encode(v)
	if err != nil || n > g.limit {
		g.fail(v, key, n)
	}
	// It has room. The next look is when it has grown into a part of that, so that a value that stays near the limit is
	// not encoded at every write.
	estimate := float64(g.size(v))
	room := float64(g.limit-n) / float64(max(n, 1)) / 2
	g.threshold = max(g.threshold, int64(estimate*(1+min(max(room, 0.02), 0.25))))
}

// measured is a table in memory under a gauge.
type measured[K comparable, V any] struct {
	*table.Table[K, V]
	gauge
}

func (m *measured[K, V]) Upsert(group, slot uint64, key *K) (*V, bool) {
	if p := m.pending; p != nil && m.size(p) > m.threshold {
		m.look(p, nil)
	}
	v, fresh := m.Table.Upsert(group, slot, key)
	m.pending = unsafe.Pointer(v)
	return v, fresh
}

func (m *measured[K, V]) Set(group, slot uint64, key *K, v *V) {
	m.settle()
	if p := unsafe.Pointer(v); m.size(p) > m.threshold {
		m.look(p, unsafe.Pointer(key))
	}
	m.Table.Set(group, slot, key, v)
}

func (m *measured[K, V]) Delete(group, slot uint64, key *K) bool {
	m.settle()
	return m.Table.Delete(group, slot, key)
}

// measure puts t under a gauge, unless its values have one size, which shape has seen to, or there is no limit.
func measure[K comparable, V any](t *table.Table[K, V], d ValueDesc[K, V], typ *valueType, p TableParams) Value[K, V] {
	if g := newGauge(d, typ, p, t); g != nil {
		m := &measured[K, V]{t, *g}
		typ.settle = m.settle
		return m
	}
	return t
}

// newGauge makes the gauge of the values in t; nil when none is needed.
func newGauge[K comparable, V any](d ValueDesc[K, V], typ *valueType, p TableParams, t *table.Table[K, V]) *gauge {
	size := sizeOf(reflect.TypeFor[V]())
	if size == nil || p.MaxValue <= 0 {
		return nil
	}
	g := &gauge{
		size: size, limit: p.MaxValue,
		// Numbers may take more bytes encoded than in memory, but never twice as many, one-byte ones aside.
		threshold: p.MaxValue / 2,
		encode: func(v unsafe.Pointer) (int64, error) {
			data, err := d.Value.Append(nil, (*V)(v))
			return int64(len(data)), err
		},
		fail: func(v, key unsafe.Pointer, n int64) {
			if key == nil {
				for k, x := range t.All() {
					if unsafe.Pointer(x) == v {
						key = unsafe.Pointer(k)
						break
					}
				}
			}
			panic(Fault{Err: &job.Error{Class: job.ClassUser, Err: typ.tooLarge(p, key, n)}})
		},
	}
	typ.settle = g.settle
	return g
}

// tooLarge is the error of a value of n bytes. A key that is not known is nil.
func (t *valueType) tooLarge(p TableParams, key unsafe.Pointer, n int64) error {
	e := &ValueError{Operator: p.Operator, State: t.name, Size: n, Limit: p.MaxValue}
	if key != nil {
		e.Key = keyText(t.key, key)
	}
	return e
}

// keyTextLimit is how much of a key messages show, in bytes.
const keyTextLimit = 64

// keyText is a key for messages.
func keyText(c codec.Raw, key unsafe.Pointer) string {
	data, err := c.Append(nil, key)
	if err != nil {
		return ""
	}
	return c.Schema.Text(data, keyTextLimit)
}

// sizeOf compiles what estimates the bytes of a value of type t with all that it points to; nil when that is always the
// same. The estimate looks at a few elements of a slice whose elements point to more.
func sizeOf(t reflect.Type) func(unsafe.Pointer) int64 {
	var p pointers
	p.add(t, 0, maxSizeDepth)
	return p.compile(int64(t.Size()))
}

const (
	// maxSizeDepth is how deep the estimate looks into slices and pointers. It ends the walk through recursive types too.
	maxSizeDepth = 3
	// maxPlaces is how many places of a value are looked at: of a large array only the first ones are.
	maxPlaces = 64
	// mapGuess is what a map's key or value is taken to point to. To get at one costs more than an estimate may.
	mapGuess = 32
)

// sampledElems is how many elements of a slice are looked at, by the depth that is left.
var sampledElems = [maxSizeDepth]int{2, 4, 8}

var timeType = reflect.TypeFor[time.Time]()

// pointers are the places in a value from which it points to other memory.
type pointers struct {
	lens   []lengths // Strings, and slices whose elements point nowhere: these are the most, and cost no call.
	others []place
}

type lengths struct {
	at   uintptr // Of the word that has the number of elements,
	size int64   // which are of this size.
}

type place struct {
	at   uintptr
	size func(unsafe.Pointer) int64
}

const word = unsafe.Sizeof(uintptr(0))

// add adds the places of a value of type t that lies at an offset.
func (p *pointers) add(t reflect.Type, at uintptr, depth int) {
	if t == timeType || depth == 0 || len(p.lens)+len(p.others) >= maxPlaces { // Zones are few.
		return
	}
	switch t.Kind() {
	case reflect.String:
		p.lens = append(p.lens, lengths{at + word, 1})
	case reflect.Slice:
		size := int64(t.Elem().Size())
		if inner := pointersOf(t.Elem(), depth-1); inner != nil {
			p.others = append(p.others, place{at, sliceSize(size, sampledElems[depth-1], inner)})
		} else if size > 0 {
			p.lens = append(p.lens, lengths{at + word, size})
		}
	case reflect.Pointer:
		p.others = append(p.others, place{at, pointerSize(int64(t.Elem().Size()), pointersOf(t.Elem(), depth-1))})
	case reflect.Map:
		size := int64(t.Key().Size() + t.Elem().Size())
		for _, part := range []reflect.Type{t.Key(), t.Elem()} {
			if pointersOf(part, 1) != nil {
				size += mapGuess
			}
		}
		p.others = append(p.others, place{at, func(v unsafe.Pointer) int64 { return int64(reflect.NewAt(t, v).Elem().Len()) * size }})
	case reflect.Array:
		for i := range t.Len() {
			if p.add(t.Elem(), at+uintptr(i)*t.Elem().Size(), depth); len(p.lens)+len(p.others) == 0 {
				return
			}
		}
	case reflect.Struct:
		for i := range t.NumField() {
			p.add(t.Field(i).Type, at+t.Field(i).Offset, depth)
		}
	}
}

// pointersOf compiles what estimates the bytes that a value points to; nil when it points nowhere.
func pointersOf(t reflect.Type, depth int) func(unsafe.Pointer) int64 {
	var p pointers
	p.add(t, 0, depth)
	return p.compile(0)
}

// compile gives what adds up own and the bytes at all places; nil when there are none.
func (p pointers) compile(own int64) func(unsafe.Pointer) int64 {
	switch {
	case len(p.lens)+len(p.others) == 0:
		return nil
	case len(p.lens) == 1 && len(p.others) == 0:
		l := p.lens[0]
		return func(v unsafe.Pointer) int64 { return own + l.size*int64(*(*int)(unsafe.Add(v, l.at))) }
	}
	return func(v unsafe.Pointer) int64 {
		sum := own
		for _, l := range p.lens {
			sum += l.size * int64(*(*int)(unsafe.Add(v, l.at)))
		}
		for _, o := range p.others {
			sum += o.size(unsafe.Add(v, o.at))
		}
		return sum
	}
}

// sliceSize estimates what a slice points to whose elements point to more.
func sliceSize(size int64, sampled int, inner func(unsafe.Pointer) int64) func(unsafe.Pointer) int64 {
	return func(v unsafe.Pointer) int64 {
		elems := *(*[]byte)(v) // Its length counts elements of any type.
		n := len(elems)
		if n == 0 {
			return 0
		}
		// Evenly spread, and the last one, which is the newest, always.
		first, k := unsafe.Pointer(unsafe.SliceData(elems)), min(n, sampled)
		var sum int64
		for i := range k {
			sum += inner(unsafe.Add(first, int64(n-1-i*n/k)*size))
		}
		return int64(n)*size + sum*int64(n)/int64(k)
	}
}

func pointerSize(size int64, inner func(unsafe.Pointer) int64) func(unsafe.Pointer) int64 {
	return func(v unsafe.Pointer) int64 {
		p := *(*unsafe.Pointer)(v)
		switch {
		case p == nil:
			return 0
		case inner == nil:
			return size
		}
		return size + inner(p)
	}
}
