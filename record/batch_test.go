package record_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cairnstream/cairn/record"
)

func TestBatchLen(t *testing.T) {
	b := record.PoolOf[int64]().Get()
	for i := range int64(5) {
		b.Append(i, i)
	}
	if b.Len() != 5 {
		t.Errorf("len %d", b.Len())
	}
	b.Sel = append(b.Selection(), 1, 3)
	if b.Len() != 2 {
		t.Errorf("len %d of two selected rows", b.Len())
	}
	b.Sel = b.Selection()[:0]
	if b.Len() != 0 {
		t.Errorf("len %d of no selected row", b.Len())
	}
	b.Release()
}

// Of watermarks at one place the last one counts; idle and active stay.
func TestMarksMerge(t *testing.T) {
	b := record.PoolOf[int64]().Get()
	b.Mark(record.Watermark, 1)
	b.Mark(record.Watermark, 2)
	b.Mark(record.Idle, 0)
	b.Mark(record.Watermark, 3)
	b.Append(1, 1)
	b.Mark(record.Watermark, 4)
	if s := fmt.Sprint(b.Marks); s != "[{2 0 0} {0 0 1} {3 0 0} {4 1 0}]" {
		t.Error(s)
	}
	b.Release()
}

// A filter behind a filter reads the selection that it overwrites.
func TestSelectionInPlace(t *testing.T) {
	b := record.PoolOf[int64]().Get()
	for i := range int64(20) {
		b.Append(i, i)
	}
	filter := func(keep func(int64) bool) {
		sel := b.Selection()
		if b.Sel == nil {
			for i, v := range b.Rows {
				if keep(v) {
					sel = append(sel, int32(i))
				}
			}
		}
		for _, i := range b.Sel {
			if keep(b.Rows[i]) {
				sel = append(sel, i)
			}
		}
		b.Sel = sel
	}
	filter(func(v int64) bool { return v%2 == 0 })
	filter(func(v int64) bool { return v%3 == 0 })
	if !slices.Equal(b.Sel, []int32{0, 6, 12, 18}) {
		t.Error(b.Sel)
	}
	b.Release()
}

// A batch comes out of its pool as good as new, and what it pointed to can be collected.
func TestPoolGivesEmptyBatches(t *testing.T) {
	type pointed struct{ p *int }
	pool := record.PoolOf[pointed]()
	for range 10 {
		b := pool.Get()
		if len(b.Rows)+len(b.Times)+len(b.Marks)+len(b.Hash) > 0 || b.Sel != nil {
			t.Fatalf("not empty: %+v", b)
		}
		for _, r := range b.Rows[:cap(b.Rows)] {
			if r.p != nil {
				t.Fatal("a released row is still pointed to")
			}
		}
		b.Append(pointed{new(int)}, 1)
		b.Mark(record.Watermark, 1)
		b.Hash = append(b.Hash, 1)
		b.Sel = b.Selection()
		b.Release()
	}
}

func TestRowsFor(t *testing.T) {
	if n := record.RowsFor[int64](); n != 1024 {
		t.Errorf("%d rows of 8 bytes", n)
	}
	if n := record.RowsFor[[128]byte](); n != 256 {
		t.Errorf("%d rows of 128 bytes", n)
	}
	if n := record.RowsFor[[1 << 20]byte](); n != 16 {
		t.Errorf("%d rows of 1 MiB", n)
	}
	if n := record.RowsFor[struct{}](); n != 1024 {
		t.Errorf("%d rows of no bytes", n)
	}
}

func TestHasPointers(t *testing.T) {
	for _, c := range []struct {
		v    any
		want bool
	}{
		{1, false}, {true, false}, {1.5, false}, {complex(1, 1), false}, {uintptr(1), false},
		{[3]int{}, false}, {[0]*int{}, false}, {struct {
			A int
			B [2]struct{ C uint8 }
		}{}, false},
		{"s", true}, {[]int{}, true}, {map[int]int{}, true}, {new(int), true}, {[1]string{}, true},
		{struct {
			A int
			B struct{ C string }
		}{}, true},
		{time.Time{}, true}, {func() {}, true}, {make(chan int), true},
	} {
		if got := record.HasPointers(reflect.TypeOf(c.v)); got != c.want {
			t.Errorf("%T: %v", c.v, got)
		}
	}
	if !record.HasPointers(reflect.TypeFor[error]()) {
		t.Error("an interface has no pointers")
	}
}

func TestControlString(t *testing.T) {
	for want, c := range map[string]record.Control{
		"barrier c7":        {Kind: record.Barrier, Checkpoint: 7},
		"cancel-barrier c8": {Kind: record.CancelBarrier, Checkpoint: 8},
		"end-of-data":       {Kind: record.EndOfData},
		"close":             {Kind: record.Close},
		"control(9)":        {Kind: 9},
	} {
		if got := c.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func BenchmarkPool(b *testing.B) {
	pool := record.PoolOf[int64]()
	b.ReportAllocs()
	for b.Loop() {
		pool.Get().Release()
	}
}
