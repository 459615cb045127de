package pebble

import (
	"context"
	"sync"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cairnstream/cairn/internal/gcfloor"
	"github.com/cairnstream/cairn/statebackend"
)

// Factory makes backends that share one cache of blocks. Its zero value is ready for use; it is not copied after that.
type Factory struct {
	disk vfs.FS // Nil for the real one.
	mu   struct {
		sync.Mutex
		shared *shared
		uses   int
	}
}

var _ statebackend.Factory = (*Factory)(nil)

// shared is what the trees of a process have in common.
type shared struct {
	blocks *pebbledb.Cache
	files  *pebbledb.FileCache
	size   int64 // Of blocks.
}

// The parts of the budget. The rest is for what is in neither: buffers of the flusher, iterators, indexes of files.
const (
	blockPart = 0.03 // For blocks of files, by all backends together: for walks, look-ups do without. See files.
	cachePart = 0.70 // For decoded values, of each backend's share, indexes and filters of its files included.
)

// openFiles is how many files the trees of a process keep open.
const openFiles = 4096

// New implements statebackend.Factory.
func (f *Factory) New(_ context.Context, p statebackend.Params) (statebackend.Backend, error) {
	return newBackend(p, f)
}

// join gives the shared parts, made for the first and dropped by the last.
func (f *Factory) join(b *statebackend.Budget) *shared {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.uses == 0 {
		s := &shared{blocks: pebbledb.NewCache(int64(blockPart * float64(b.Bytes())))}
		s.files = pebbledb.NewFileCache(4, openFiles)
		s.size = int64(blockPart * float64(b.Bytes()))
		gcfloor.AddCached(s.size) // Without cgo it is on the heap.
		f.mu.shared = s
	}
	f.mu.uses++
	return f.mu.shared
}

func (f *Factory) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.uses--; f.mu.uses == 0 {
		gcfloor.AddCached(-f.mu.shared.size)
		f.mu.shared.files.Unref()
		f.mu.shared.blocks.Unref()
		f.mu.shared = nil
	}
}
