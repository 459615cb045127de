package record

import (
	"reflect"
	"slices"
	"sync"
	"unsafe"

	"github.com/cairnstream/cairn/internal/invariant"
)

// Any is a Batch of any type.
type Any interface {
	// Len is the number of selected rows.
	Len() int
	// MarkList gives the marks in ascending order of position.
	MarkList() []Mark
	// SetMarks replaces the marks.
	SetMarks([]Mark)
	// SelIndex is the index among the selected rows of the first one at or behind row pos.
	SelIndex(pos int32) int
	// Clone returns a second batch with the same content, with an owner of its own.
	Clone() Any
	// Release gives the batch back to its pool. The owner calls it once.
	Release()
}

// Batch is a run of records of one stream with the marks between them.
type Batch[T any] struct {
	// Rows are the records. Those that Sel leaves out were filtered away.
	Rows []T
	// Times are the event times of the rows in milliseconds, or nil in a stream without timestamps.
	Times []int64
	// Sel lists the selected rows in ascending order; nil selects all.
	Sel []int32
	// Marks lie between the rows, in ascending order of position.
	Marks []Mark
	// Hash holds the key hash of each row, or is nil. A hash edge fills it so that a keyed
	// operator in the same process need not hash again.
	Hash []uint64

	selBuf []int32 // Backing of Sel, kept across uses.
	pool   *Pool[T]
	live   bool // Debug builds: false once released.
}

// Len is the number of selected rows.
func (b *Batch[T]) Len() int {
	if b.Sel != nil {
		return len(b.Sel)
	}
	return len(b.Rows)
}

// MarkList gives the marks.
func (b *Batch[T]) MarkList() []Mark { return b.Marks }

// SetMarks replaces the marks.
func (b *Batch[T]) SetMarks(m []Mark) { b.Marks = m }

// Append adds a record with its time.
func (b *Batch[T]) Append(v T, time int64) {
	b.Rows = append(b.Rows, v)
	b.Times = append(b.Times, time)
}

// Mark adds a mark behind the last row. Of several watermarks at one place the last one stays.
func (b *Batch[T]) Mark(kind MarkKind, time int64) {
	pos := int32(len(b.Rows))
	if n := len(b.Marks); n > 0 && b.Marks[n-1].Pos == pos && b.Marks[n-1].Kind == Watermark && kind == Watermark {
		b.Marks[n-1].Time = time
		return
	}
	b.Marks = append(b.Marks, Mark{Time: time, Pos: pos, Kind: kind})
}

// Selection returns an empty selection vector with room for every row, for a filter to fill and
// assign to Sel. It reuses memory of b. When b has a selection already the caller may read it
// while filling the result, in ascending order, since no index is written before it is read.
func (b *Batch[T]) Selection() []int32 {
	if cap(b.selBuf) < len(b.Rows) {
		b.selBuf = make([]int32, 0, max(len(b.Rows), cap(b.Rows)))
	}
	return b.selBuf[:0]
}

// Release gives b back to the pool that it came from.
func (b *Batch[T]) Release() {
	if invariant.Enabled {
		invariant.Check(b.live || b.pool == nil, "batch released twice")
		b.live = false
	}
	if b.pool != nil {
		b.pool.put(b)
	}
}

// CheckLive panics in debug builds when b was released.
func (b *Batch[T]) CheckLive() {
	if invariant.Enabled {
		invariant.Check(b.live || b.pool == nil, "use of a released batch")
	}
}

// Pool hands out batches of one type. It is safe for concurrent use. The zero value is not usable.
type Pool[T any] struct {
	pool     sync.Pool
	rows     int  // Capacity of a new batch.
	pointers bool // Rows must be cleared so that what they point to can be collected.
}

// Rows per batch: enough to spread the cost per batch thin, few enough that a batch and its
// successor stay in the second-level cache.
const (
	maxRows    = 1024
	minRows    = 16
	batchBytes = 32 << 10
)

// RowsFor is the number of rows of T that a full batch holds.
func RowsFor[T any]() int {
	var v T
	size := max(int(unsafe.Sizeof(v)), 1)
	return min(max(batchBytes/size, minRows), maxRows)
}

// pools are all of them: reflect.Type -> *Pool[T]. Those of small batches are apart, so that a small batch never serves
// where a large one is filled, and grows.
var pools, smallPools sync.Map

// PoolOf returns the process's pool of batches of T.
func PoolOf[T any]() *Pool[T] { return poolIn[T](&pools, RowsFor[T]()) }

// SmallPoolOf returns the process's pool of batches of T that hold a sixteenth of the rows: for those who fill so many at a
// time that their memory counts for more than the cost of a batch.
func SmallPoolOf[T any]() *Pool[T] { return poolIn[T](&smallPools, max(RowsFor[T]()/16, minRows)) }

func poolIn[T any](pools *sync.Map, rows int) *Pool[T] {
	t := reflect.TypeFor[T]()
	if p, ok := pools.Load(t); ok {
		return p.(*Pool[T])
	}
	p, _ := pools.LoadOrStore(t, &Pool[T]{rows: rows, pointers: HasPointers(t)})
	return p.(*Pool[T])
}

// Rows is the number of rows that a batch of this pool is meant to hold.
func (p *Pool[T]) Rows() int { return p.rows }

// Get returns an empty batch.
func (p *Pool[T]) Get() *Batch[T] {
	if v := p.pool.Get(); v != nil {
		b := v.(*Batch[T])
		b.live = true
		return b
	}
	return &Batch[T]{Rows: make([]T, 0, p.rows), pool: p, live: true}
}

func (p *Pool[T]) put(b *Batch[T]) {
	if p.pointers {
		clear(b.Rows)
	} else if invariant.Enabled {
		poison(b.Rows)
	}
	b.Rows = b.Rows[:0]
	b.Times = b.Times[:0]
	b.Marks = b.Marks[:0]
	b.Hash = b.Hash[:0]
	b.Sel = nil
	if cap(b.Rows) > 4*p.rows {
		return // Grown by a record that expands: not worth keeping.
	}
	p.pool.Put(b)
}

// poison fills rows of pointer-free type with a pattern, so that a reader of a released batch
// sees nonsense instead of plausible values.
func poison[T any](rows []T) {
	if len(rows) == 0 {
		return
	}
	var v T
	size := int(unsafe.Sizeof(v))
	if size == 0 {
		return
	}
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(rows))), size*len(rows))
	for i := range raw {
		raw[i] = 0xDB
	}
}

// HasPointers tells whether values of t hold anything that the garbage collector follows.
func HasPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return false
	case reflect.Array:
		return t.Len() > 0 && HasPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if HasPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	default:
		return true
	}
}

// Clone returns a batch of its own with the same content. Rows are copied as they are: what they
// point to is shared and read-only, as everything that was emitted is.
func (b *Batch[T]) Clone() Any {
	b.CheckLive()
	p := b.pool
	if p == nil {
		p = PoolOf[T]()
	}
	c := p.Get()
	c.Rows = append(c.Rows, b.Rows...)
	c.Times = append(c.Times, b.Times...)
	c.Marks = append(c.Marks, b.Marks...)
	c.Hash = append(c.Hash, b.Hash...)
	if b.Sel != nil {
		c.Sel = append(c.Selection(), b.Sel...)
		c.selBuf = c.Sel
	}
	return c
}

// SelIndex is the index into the selection, or the row index when there is none, of the first
// selected row at or behind position pos.
func (b *Batch[T]) SelIndex(pos int32) int {
	if b.Sel == nil {
		return int(pos)
	}
	i, _ := slices.BinarySearch(b.Sel, pos)
	return i
}

// Time is the event time of row i, or MinTime in a stream without timestamps.
func (b *Batch[T]) Time(i int) int64 {
	if i < len(b.Times) {
		return b.Times[i]
	}
	return MinTime
}
