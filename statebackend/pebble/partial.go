package pebble

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cairnstream/cairn/job"
)

// partial is a file system with files of a tree of which some are not here: who opens a tree sees them all, and reads those
// that are. Nothing can be written.
type partial struct {
	vfs.FS
	sizes map[string]int64
}

func newPartial(disk vfs.FS, files []job.StateHandle) *partial {
	p := &partial{disk, map[string]int64{}}
	for _, h := range files {
		p.sizes[h.Name] = h.Length
	}
	return p
}

func (p *partial) List(dir string) ([]string, error) {
	names, err := p.FS.List(dir)
	for name := range p.sizes {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, err
}

func (p *partial) Stat(name string) (vfs.FileInfo, error) {
	info, err := p.FS.Stat(name)
	if size, ok := p.sizes[filepath.Base(name)]; err != nil && ok {
		return &absent{filepath.Base(name), size}, nil
	}
	return info, err
}

// Lock implements vfs.FS: the folder is this restore's alone.
func (p *partial) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (p *partial) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, fmt.Errorf("create %s: %w", name, fs.ErrPermission)
}

func (p *partial) Unwrap() vfs.FS { return p.FS }

// absent is what is known of a file that is not here.
type absent struct {
	name string
	size int64
}

func (a *absent) Name() string           { return a.name }
func (a *absent) Size() int64            { return a.size }
func (a *absent) Mode() fs.FileMode      { return 0o444 }
func (a *absent) ModTime() time.Time     { return time.Time{} }
func (a *absent) IsDir() bool            { return false }
func (a *absent) Sys() any               { return nil }
func (a *absent) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
