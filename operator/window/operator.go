package window

import (
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/operator"
)

// Define joins the windows w with an aggregation of records keyed by key.
func Define[K comparable, T, A, R any](w TumblingWindows, key func(*T) K, kc codec.Codec[K], ac codec.Codec[A], agg Aggregator[K, T, A, R]) operator.WindowAggregate[K, T, A, R] {
	size, offset := int64(w.size/time.Millisecond), int64(w.offset/time.Millisecond)
	return operator.WindowAggregate[K, T, A, R]{
		Key: key, KeyCodec: kc, AccCodec: ac,
		Assign: func(t int64) (int64, int64) {
			s := startOf(t, size, offset)
			return s, s + size
		},
		EndOf: func(start int64) int64 { return start + size },
		Zero:  agg.Zero,
		Add:   agg.Add,
		Result: func(k K, start, end int64, acc *A) R {
			return agg.Result(Pane[K]{Key: k, Start: start, End: end}, acc)
		},
	}
}
