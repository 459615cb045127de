package window

import (
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/operator"
)

// Firing says why a window is emitted.
type Firing = operator.Firing

// The firings of a window.
const (
	OnTime = operator.OnTime // The watermark has reached the window's end.
	Early  = operator.Early  // Before that, as its Trigger says.
	Late   = operator.Late   // Behind that, for late records within the allowed lateness.
)

// CanMerge tells whether agg has Merge. It has, unless it is a Functions without MergeOf.
func CanMerge[K comparable, T, A, R any](agg Aggregator[K, T, A, R]) bool {
	if f, ok := agg.(Functions[K, T, A, R]); ok {
		return f.MergeOf != nil
	}
	return true
}

// Define joins the windows w with an aggregation of records keyed by key. w is valid.
func Define[K comparable, T, A, R any](w Windows, key func(*T) K, kc codec.Codec[K], ac codec.Codec[A], agg Aggregator[K, T, A, R]) operator.WindowAggregate[K, T, A, R] {
	s := w.shape()
	d := operator.WindowAggregate[K, T, A, R]{
		Key: key, KeyCodec: kc, AccCodec: ac,
		Assign: s.assign, EndOf: s.endOf, Endless: s.endless, Gap: s.gap,
		Slide: operator.Slide{Size: s.size, Step: s.step, Offset: s.offset},
		Zero:  agg.Zero,
		Add:   agg.Add,
		Merge: agg.Merge,
		Result: func(k K, start, end int64, acc *A) R {
			return agg.Result(Pane[K]{Key: k, Start: start, End: end}, acc)
		},
	}
	d.Fired = func(k K, start, end int64, firing Firing, acc *A) R {
		return agg.Result(Pane[K]{k, start, end, firing}, acc)
	}
	if f, ok := agg.(Functions[K, T, A, R]); ok { // Without a detour through its methods.
		d.Add, d.Merge = f.AddTo, f.MergeOf
	}
	return d
}
