package pebble

import (
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// treeFS is the file system of a tree. Nothing is synced: what is on the disk is of no use to a process that starts anew,
// which has its checkpoint. And there is a reserve for the tree's log of files, since a tree that cannot write that is lost,
// while it survives that other files cannot be written.
type treeFS struct {
	vfs.FS
	ballast string
	free    atomic.Bool // The ballast is gone.
}

// ballastSize is more than a log of files grows to, and its successor.
const ballastSize = 4 * manifestSize

func newTreeFS(base vfs.FS, dir string) (*treeFS, error) {
	fs := &treeFS{FS: base, ballast: base.PathJoin(dir, "ballast")}
	return fs, fs.refill()
}

// refill makes the reserve, again after it was needed.
func (fs *treeFS) refill() error {
	f, err := fs.FS.Create(fs.ballast, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, ballastSize))
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, fs.FS.Remove(fs.ballast))
	}
	fs.free.Store(false)
	return nil
}

// release gives the reserve up; it tells whether there was one.
func (fs *treeFS) release() bool {
	return fs.free.CompareAndSwap(false, true) && fs.FS.Remove(fs.ballast) == nil
}

func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// vital tells whether the tree cannot do without a file.
func vital(name string) bool {
	base := filepath.Base(name)
	return strings.HasPrefix(base, "MANIFEST-") || strings.HasPrefix(base, "marker.")
}

func (fs *treeFS) open(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &treeFile{File: f, fs: fs, vital: vital(name)}, nil
}

func (fs *treeFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	if full(err) && vital(name) && fs.release() {
		f, err = fs.FS.Create(name, c)
	}
	return fs.open(name, f, err)
}

func (fs *treeFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.OpenReadWrite(name, c, opts...)
	return fs.open(name, f, err)
}

func (fs *treeFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(oldname, newname, c)
	return fs.open(newname, f, err)
}

func (fs *treeFS) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	return fs.open("", f, err)
}

func (fs *treeFS) Unwrap() vfs.FS { return fs.FS }

type treeFile struct {
	vfs.File
	fs    *treeFS
	vital bool
}

func (f *treeFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	if full(err) && f.vital && f.fs.release() {
		var m int
		m, err = f.File.Write(p[n:])
		n += m
	}
	return n, err
}

func (f *treeFile) Sync() error                            { return nil }
func (f *treeFile) SyncData() error                        { return nil }
func (f *treeFile) SyncTo(int64) (bool, error)             { return true, nil }
func (f *treeFile) Preallocate(offset, length int64) error { return nil }
func (f *treeFile) Fd() uintptr                            { return vfs.InvalidFd }
