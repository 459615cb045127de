package pebble

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// formatVersion is of the trees and their files, and so of snapshots. A later version of the library reads it; raising it
// makes snapshots that earlier versions of Cairn cannot read.
const formatVersion = pebbledb.FormatMajorVersion(24)

const (
	// blockSize is what a look-up reads and unpacks. Entries of state are small, and read one by one in no order: with 4 KiB it
	// costs half of what it costs with the library's 32 KiB. Without compression it would cost a sixth less, and files be
	// twice as large.
	blockSize = 4 << 10
	// bloomBits is per key: one lookup of a hundred that finds nothing in a file reads it all the same.
	bloomBits = 10
	// fileSize is of files at the top of the tree; each level below has files twice as large. Small files are what makes an
	// incremental snapshot small: a file is uploaded anew when a compaction has rewritten any of it.
	fileSize = 2 << 20
	// maxFile is where that ends.
	maxFile = 32 << 20
	// l0Files is how many flushes are merged at a time. Fewer make look-ups cheaper, each asks one filter more; more make merges
	// and snapshots cheaper: each merge rewrites files that are uploaded anew.
	l0Files = 8
	// manifestSize bounds what a snapshot uploads of the tree's own log of files.
	manifestSize = 256 << 10
)

// options are those of the tree of one backend.
func options(s *shared, fs vfs.FS, t *troubles) *pebbledb.Options {
	o := &pebbledb.Options{
		Cache: s.blocks, FileCache: s.files, FS: fs, FormatMajorVersion: formatVersion,
		DisableWAL: true, MemTableSize: 64 << 10, MaxManifestFileSize: manifestSize,
		NoSyncOnClose: true, Logger: logger{t},
		EventListener: &pebbledb.EventListener{
			BackgroundError: t.note,
			DataCorruption:  func(i pebbledb.DataCorruptionInfo) { t.fail(fmt.Errorf("%s: %w", i.Path, i.Details)) },
		},
		DisableTableStats:          true,
		CompactionConcurrencyRange: func() (int, int) { return 1, 1 },
		LBaseMaxBytes:              64 << 20,
		L0CompactionThreshold:      l0Files,
		L0CompactionFileThreshold:  64,
		L0StopWritesThreshold:      64,
	}
	for i := range o.Levels {
		o.Levels[i].BlockSize = blockSize
		o.Levels[i].IndexBlockSize = math.MaxInt32 // One block: see files.
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBits)
		o.Levels[i].Compression = func() *block.CompressionProfile { return block.SnappyCompression }
		o.TargetFileSizes[i] = min(int64(fileSize)<<i, maxFile)
	}
	o.EnsureDefaults()
	return o
}

// readOptions are those of a tree of another subtask, of which some files may not be here.
func readOptions(s *shared, fs vfs.FS, t *troubles) *pebbledb.Options {
	o := options(s, fs, t)
	o.ReadOnly, o.DisableConsistencyCheck, o.DisableAutomaticCompactions = true, true, true
	return o
}

// troubles are what went wrong in a tree outside of the calls to it.
type troubles struct {
	lost atomic.Pointer[error] // The tree is of no use any more.
	last atomic.Pointer[error] // Something failed that the tree tries again.
}

func (t *troubles) fail(err error) { t.lost.CompareAndSwap(nil, &err) }
func (t *troubles) note(err error) { t.last.Store(&err) }

// err is why the tree is lost, nil while it is not.
func (t *troubles) err() error {
	if p := t.lost.Load(); p != nil {
		return *p
	}
	return nil
}

// logger keeps what the tree says to itself.
type logger struct{ t *troubles }

func (logger) Infof(string, ...any)  {}
func (logger) Errorf(string, ...any) {}

// fatal is what Fatalf panics with on goroutines that expect it.
type fatal struct{ err error }

func (f fatal) Error() string { return f.err.Error() }
func (f fatal) Unwrap() error { return f.err }

// told is what the tree says of an error, which it has made a text of.
type told struct {
	text string
	args []any
}

func (t told) Error() string { return t.text }

func (t told) Unwrap() (causes []error) {
	for _, a := range t.args {
		if err, ok := a.(error); ok {
			causes = append(causes, err)
		}
	}
	return causes
}

// Fatalf is where other programs end. Here the tree is lost and with it the task, which starts again from its checkpoint. When the log
// of files cannot be written the library gives the error to its caller if this returns, and the tree can be closed. All else is not meant
// to go on: the backend's own callers get a panic that they expect, and a goroutine of the tree ends, perhaps with locks held.
func (l logger) Fatalf(format string, args ...any) {
	err := error(told{fmt.Sprintf(format, args...), args})
	l.t.fail(err)
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for first, more := true, true; more; first = false {
		var f runtime.Frame
		f, more = frames.Next()
		if first && strings.HasSuffix(f.Function, ".(*versionSet).UpdateVersionLocked") {
			return
		}
		if strings.Contains(f.Function, "statebackend/pebble.(*") {
			panic(fatal{err})
		}
	}
	runtime.Goexit()
}
