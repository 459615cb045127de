package table

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// memory is where a table's chunks of pointer-free pages come from: regions outside the garbage collector's
// heap, so that they do not count when it decides how much garbage may pile up. A table and each of its
// snapshots hold a share; the last to let go gives the regions back. The zero value has none yet.
type memory struct{ a *arena }

type arena struct {
	shares  atomic.Int32
	regions *regions
	room    []byte // What is left of the newest region. The owner's.
	cleanup runtime.Cleanup
}

// regions is apart from its arena, so that they can be given back after the arena was found unreachable.
type regions struct{ all [][]byte }

func (r *regions) release() {
	for _, b := range r.all {
		mapped.Add(-int64(len(b)))
		unmap(b)
	}
	r.all = nil
}

// mapped is the number of bytes in regions of all tables.
var mapped atomic.Int64

// Mapped is the memory that tables of this process hold outside the garbage collector's heap, in bytes.
func Mapped() int64 { return mapped.Load() }

// A region is as large as all before together, within these bounds: little for small tables, whole huge pages
// for large ones.
const (
	minRegion = 64 << 10
	maxRegion = 4 << 20
	lineSize  = 64
)

// allocate returns zeroed memory for size bytes without pointers, aligned to a cache line, or nil where the heap has
// to do.
func (m *memory) allocate(size int) unsafe.Pointer {
	if !canMap || size == 0 {
		return nil
	}
	size = (size + lineSize - 1) &^ (lineSize - 1)
	if m.a == nil {
		m.a = &arena{regions: &regions{}}
		m.a.shares.Store(1)
		// A table that nobody closed.
		m.a.cleanup = runtime.AddCleanup(m.a, (*regions).release, m.a.regions)
	}
	a := m.a
	if len(a.room) < size {
		total := 0
		for _, b := range a.regions.all {
			total += len(b)
		}
		b := mapRegion(max(min(max(total, minRegion), maxRegion), (size+4095)&^4095))
		if b == nil {
			return nil
		}
		mapped.Add(int64(len(b)))
		a.regions.all = append(a.regions.all, b)
		a.room = b
	}
	b := a.room[:size:size]
	a.room = a.room[size:]
	return unsafe.Pointer(unsafe.SliceData(b))
}

// share gives another holder a share.
func (m *memory) share() memory {
	if m.a != nil {
		m.a.shares.Add(1)
	}
	return *m
}

// release gives up a share. It may be called from any goroutine.
func (m *memory) release() {
	if a := m.a; a != nil {
		m.a = nil
		if a.shares.Add(-1) == 0 {
			a.cleanup.Stop()
			a.regions.release()
		}
	}
}
