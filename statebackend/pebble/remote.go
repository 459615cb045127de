package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
)

// remote is a file system with the files of a tree in a checkpoint. Of tables only what is asked for is read from the store.
type remote struct {
	vfs.FS // In memory: what says which files there are.
	ctx    context.Context
	r      statebackend.Reader
	tables map[string]job.StateHandle
}

const remoteDir = "tree"

func newRemote(ctx context.Context, r statebackend.Reader, files []job.StateHandle) (*remote, error) {
	f := &remote{vfs.NewMem(), ctx, r, map[string]job.StateHandle{}}
	if err := f.FS.MkdirAll(remoteDir, 0o755); err != nil {
		return nil, err
	}
	for _, h := range files {
		if isTable(h.Name) {
			f.tables[h.Name] = h
			continue
		}
		data, err := snapshot.ReadSection(ctx, r, h, maxDescription)
		if err != nil {
			return nil, err
		}
		w, err := f.FS.Create(f.FS.PathJoin(remoteDir, h.Name), vfs.WriteCategoryUnspecified)
		if err != nil {
			return nil, err
		}
		_, err = w.Write(data)
		if err = errors.Join(err, w.Close()); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *remote) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if h, ok := f.tables[f.FS.PathBase(name)]; ok {
		return &remoteFile{fs: f, h: h}, nil
	}
	return f.FS.Open(name, opts...)
}

func (f *remote) List(dir string) ([]string, error) {
	names, err := f.FS.List(dir)
	for name := range f.tables {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, err
}

func (f *remote) Stat(name string) (vfs.FileInfo, error) {
	if h, ok := f.tables[f.FS.PathBase(name)]; ok {
		return &absent{h.Name, h.Length}, nil
	}
	return f.FS.Stat(name)
}

func (f *remote) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }
func (f *remote) Unwrap() vfs.FS                 { return f.FS }

// remoteFile reads a table by ranges. Reads that follow each other get longer ones.
type remoteFile struct {
	fs *remote
	h  job.StateHandle
	mu struct {
		sync.Mutex
		at   int64
		data []byte
		size int64 // Of the next range.
	}
}

const (
	leastRange = 16 << 10
	mostRange  = 1 << 20
)

func (f *remoteFile) ReadAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for n < len(p) {
		at := off + int64(n)
		if at >= f.h.Length {
			return n, io.EOF
		}
		if i := at - f.mu.at; i >= 0 && i < int64(len(f.mu.data)) {
			n += copy(p[n:], f.mu.data[i:])
			continue
		}
		if at == f.mu.at+int64(len(f.mu.data)) && at > 0 {
			f.mu.size = min(2*f.mu.size, mostRange)
		} else {
			f.mu.size = leastRange
		}
		size := min(max(f.mu.size, int64(len(p)-n)), f.h.Length-at)
		body, err := f.fs.r.Range(f.fs.ctx, f.h, at, size)
		if err != nil {
			return n, fmt.Errorf("%s: %w", snapshot.Place(f.h), err)
		}
		data, err := io.ReadAll(body)
		if err = errors.Join(err, body.Close()); err != nil {
			return n, fmt.Errorf("%s: %w", snapshot.Place(f.h), err)
		}
		if int64(len(data)) != size {
			return n, fmt.Errorf("%w: %s: %d bytes from %d, not %d", statebackend.ErrCorrupt, snapshot.Place(f.h), len(data), at, size)
		}
		f.mu.at, f.mu.data = at, data
	}
	return n, nil
}

func (f *remoteFile) Close() error                       { return nil }
func (f *remoteFile) Read([]byte) (int, error)           { return 0, fs.ErrInvalid }
func (f *remoteFile) Write([]byte) (int, error)          { return 0, fs.ErrPermission }
func (f *remoteFile) WriteAt([]byte, int64) (int, error) { return 0, fs.ErrPermission }
func (f *remoteFile) Preallocate(_, _ int64) error       { return nil }
func (f *remoteFile) Stat() (vfs.FileInfo, error)        { return &absent{f.h.Name, f.h.Length}, nil }
func (f *remoteFile) Sync() error                        { return nil }
func (f *remoteFile) SyncTo(int64) (bool, error)         { return true, nil }
func (f *remoteFile) SyncData() error                    { return nil }
func (f *remoteFile) Prefetch(_, _ int64) error          { return nil }
func (f *remoteFile) Fd() uintptr                        { return vfs.InvalidFd }

// openRemote opens the tree of one subtask for reading. It is closed when ctx ends.
func openRemote(ctx context.Context, r statebackend.Reader, groups job.GroupRange, files []job.StateHandle) (*pebbledb.DB, error) {
	fs, err := newRemote(ctx, r, files)
	if err != nil {
		return nil, err
	}
	s := &shared{blocks: pebbledb.NewCache(remoteBlocks), files: pebbledb.NewFileCache(1, openFiles)}
	release := func() {
		s.files.Unref()
		s.blocks.Unref()
	}
	o := readOptions(s, fs, &troubles{})
	db, err := pebbledb.Open(remoteDir, o)
	if err != nil {
		release()
		return nil, fmt.Errorf("%w: open the tree of key groups %v: %w", statebackend.ErrCorrupt, groups, err)
	}
	context.AfterFunc(ctx, func() {
		_ = db.Close() // It was read only.
		release()
	})
	return db, nil
}

// remoteBlocks is the memory for blocks of one tree that is looked into.
const remoteBlocks = 8 << 20
