package statebackend

import "sync/atomic"

// DefaultBudget is the memory for state of a process that says nothing, in bytes.
const DefaultBudget = 256 << 20

// Budget is memory that the backends of a process share, for those of them that can do with less than their state
// takes: caches and buffers, not tables in memory. It counts nothing: each backend keeps to its share. It is safe for
// concurrent use. A nil Budget is DefaultBudget for one backend alone.
type Budget struct {
	bytes   int64
	members atomic.Int64
}

// NewBudget makes a budget; 0 bytes means DefaultBudget.
func NewBudget(bytes int64) *Budget {
	if bytes <= 0 {
		bytes = DefaultBudget
	}
	return &Budget{bytes: bytes}
}

// Bytes is the whole of it.
func (b *Budget) Bytes() int64 {
	if b == nil {
		return DefaultBudget
	}
	return b.bytes
}

// Join makes the caller one more that shares b, until leave, which may be called again to no effect.
func (b *Budget) Join() (leave func()) {
	if b == nil {
		return func() {}
	}
	b.members.Add(1)
	var left atomic.Bool
	return func() {
		if left.CompareAndSwap(false, true) {
			b.members.Add(-1)
		}
	}
}

// Share is what each of those that joined may use at the moment. It changes as others come and go, so it is asked for
// again from time to time.
func (b *Budget) Share() int64 {
	if b == nil {
		return DefaultBudget
	}
	return b.bytes / max(1, b.members.Load())
}
