package window

import (
	"encoding/binary"
	"fmt"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/operator"
)

// All is the one key of windows over all records of a stream.
type All uint8

// Reduce defines windows that fold their records into one: f folds in into acc, which is of the same
// or earlier times. The first record of a window is its own result.
func Reduce[K comparable, T any](w Windows, key func(*T) K, kc codec.Codec[K], c codec.Codec[T], f func(acc, in *T)) operator.WindowAggregate[K, T, T, T] {
	d := Define(w, key, kc, c, Functions[K, T, T, T]{AddTo: f, MergeOf: f, ResultOf: func(_ Pane[K], acc *T) T { return *acc }})
	d.First = func(acc, in *T) { *acc = *in }
	d.Keeps = d.Gap == 0 && d.Slide.Size == 0 // f need not be associative where windows do not merge.
	return d
}

// Apply defines windows that keep all of their records and give them to f, which may emit any number.
// The records are in the order of their arrival, pane by pane where windows overlap. f may keep the
// slice.
func Apply[K comparable, T, R any](w Windows, key func(*T) K, kc codec.Codec[K], c codec.Codec[T], f func(p Pane[K], records []T, out *operator.Collector[R])) operator.WindowAggregate[K, T, []T, R] {
	d := Define(w, key, kc, List(c), Functions[K, T, []T, R]{
		AddTo:   func(acc *[]T, in *T) { *acc = append(*acc, *in) },
		MergeOf: func(into, from *[]T) { *into = append(*into, *from...) },
	})
	d.Keeps = true
	d.Emit = func(k K, start, end int64, firing Firing, acc *[]T, out *operator.Collector[R]) {
		f(Pane[K]{k, start, end, firing}, *acc, out)
	}
	return d
}

// Then defines windows whose aggregate is given to f, which may emit any number.
func Then[K comparable, T, A, R, U any](w Windows, key func(*T) K, kc codec.Codec[K], c codec.Codec[A], agg Aggregator[K, T, A, R], f func(p Pane[K], r *R, out *operator.Collector[U])) operator.WindowAggregate[K, T, A, U] {
	d := Define(w, key, kc, c, agg)
	return operator.WindowAggregate[K, T, A, U]{
		Key: d.Key, KeyCodec: d.KeyCodec, AccCodec: d.AccCodec,
		Assign: d.Assign, EndOf: d.EndOf, Endless: d.Endless, Gap: d.Gap, Slide: d.Slide,
		Zero: d.Zero, Add: d.Add, Merge: d.Merge,
		Emit: func(k K, start, end int64, firing Firing, acc *A, out *operator.Collector[U]) {
			p := Pane[K]{k, start, end, firing}
			r := agg.Result(p, acc)
			f(p, &r, out)
		},
	}
}

// List is the codec of slices of what c encodes: their number, and one behind the other.
func List[T any](c codec.Codec[T]) codec.Codec[[]T] { return listCodec[T]{c} }

type listCodec[T any] struct{ item codec.Codec[T] }

func (c listCodec[T]) Append(dst []byte, v *[]T) ([]byte, error) {
	dst = binary.AppendUvarint(dst, uint64(len(*v)))
	var err error
	for i := range *v {
		if dst, err = c.item.Append(dst, &(*v)[i]); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func (c listCodec[T]) Decode(src []byte, v *[]T) (int, error) {
	n, pos := binary.Uvarint(src)
	if pos <= 0 {
		return 0, fmt.Errorf("list at byte 0: its length is not a number")
	}
	list := make([]T, 0, min(n, uint64(len(src)-pos)))
	for range n {
		var item T
		m, err := c.item.Decode(src[pos:], &item)
		if err != nil {
			return pos + m, err
		}
		pos += m
		list = append(list, item)
	}
	*v = list
	return pos, nil
}

func (c listCodec[T]) Copy(dst, src *[]T) {
	list := make([]T, len(*src))
	for i := range *src {
		c.item.Copy(&list[i], &(*src)[i])
	}
	*dst = list
}

func (c listCodec[T]) Schema() codec.Schema {
	return codec.Schema{Codec: "list", Version: 1, Shape: c.item.Schema().String()}
}

// Evolve reads lists of older items.
func (c listCodec[T]) Evolve(old codec.Schema) (codec.Codec[[]T], error) {
	parts, err := codec.PartsOf(old, c.Schema(), 1)
	if err != nil {
		return nil, err
	}
	if c.item, err = codec.Evolve(c.item, parts[0]); err != nil {
		return nil, err
	}
	return c, nil
}
