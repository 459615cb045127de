package window

import "errors"

import "time"

// Pane is a window of one key.
type Pane[K comparable] struct {
	Key   K
	Start int64 // Milliseconds since 1970 UTC, included.
	End   int64 // Not included.
	// Firing is OnTime unless a trigger or the allowed lateness has windows emitted several times.
	Firing Firing
}

// Aggregator folds the records of a window into an accumulator. Callbacks get pointers that are
// valid, and for in and from read-only, during the call.
type Aggregator[K comparable, T, A, R any] interface {
	// Zero is the accumulator of an empty window. Where accumulators are merged there are several for
	// one window, so that Zero must not change what it is merged with.
	Zero() A
	// Add folds one record into acc.
	Add(acc *A, in *T)
	// Merge folds the accumulator from into into. Of two panes of a sliding window, or two parts of a session, from is the
	// later one; what senders have combined of one pane comes in any order, as its records do.
	Merge(into, from *A)
	// Result makes the record that the window emits.
	Result(p Pane[K], acc *A) R
}

// Functions is an Aggregator made of functions. ZeroOf may be nil for the zero A; MergeOf may be
// nil where windows never merge.
type Functions[K comparable, T, A, R any] struct {
	ZeroOf   func() A
	AddTo    func(acc *A, in *T)
	MergeOf  func(into, from *A)
	ResultOf func(p Pane[K], acc *A) R
}

// Validate says which of the functions that cannot be left out are nil.
func (f Functions[K, T, A, R]) Validate() error {
	switch {
	case f.AddTo == nil && f.ResultOf == nil:
		return errors.New("the aggregation has no AddTo and no ResultOf function")
	case f.AddTo == nil:
		return errors.New("the aggregation has no AddTo function")
	case f.ResultOf == nil:
		return errors.New("the aggregation has no ResultOf function")
	}
	return nil
}

// Zero implements Aggregator.
func (f Functions[K, T, A, R]) Zero() (a A) {
	if f.ZeroOf != nil {
		return f.ZeroOf()
	}
	return a
}

// Add implements Aggregator.
func (f Functions[K, T, A, R]) Add(acc *A, in *T) { f.AddTo(acc, in) }

// Merge implements Aggregator.
func (f Functions[K, T, A, R]) Merge(into, from *A) {
	if f.MergeOf == nil {
		panic("this aggregation has no MergeOf function")
	}
	f.MergeOf(into, from)
}

// Result implements Aggregator.
func (f Functions[K, T, A, R]) Result(p Pane[K], acc *A) R { return f.ResultOf(p, acc) }

// StartTime is Start as a time in UTC.
func (p Pane[K]) StartTime() time.Time { return time.UnixMilli(p.Start).UTC() }

// EndTime is End as a time in UTC.
func (p Pane[K]) EndTime() time.Time { return time.UnixMilli(p.End).UTC() }
