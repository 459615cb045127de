//go:build cairndebug

package record_test

import (
	"strings"
	"testing"

	"github.com/cairnstream/cairn/record"
)

func expectPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		if r := recover(); r == nil || !strings.Contains(r.(string), what) {
			t.Errorf("panic is %v, want %q", r, what)
		}
	}()
	f()
}

// A reader of a released batch sees nonsense, whatever it looks at first.
func TestReleasedBatchIsPoisoned(t *testing.T) {
	b := record.PoolOf[uint64]().Get()
	b.Append(42, 1)
	rows := b.Rows
	b.Release()
	if rows[0] != 0xDBDBDBDBDBDBDBDB {
		t.Errorf("a released row reads %x", rows[0])
	}
	expectPanic(t, "use of a released batch", b.CheckLive)
	expectPanic(t, "batch released twice", b.Release)
}

func TestReleasedBatchIsNotEncoded(t *testing.T) {
	b := record.PoolOf[row]().Get()
	b.Append(row{1, "a"}, 1)
	b.Release()
	expectPanic(t, "use of a released batch", func() { _, _ = rowFrames.Append(nil, b) })
}
