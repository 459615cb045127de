package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cairnstream/cairn/blob"
)

const (
	tempPrefix = ".tmp-"
	// tempGrace is how old a temporary file without a holder must be before it is removed: its writer takes the lock
	// right after creating it, and this is a long time between the two.
	tempGrace = time.Minute
	// placeTries bounds how often a file is placed anew because a Delete took its directory away meanwhile.
	placeTries = 100
)

// Put implements blob.Store.
func (s *Store) Put(ctx context.Context, key string, body io.Reader, size int64) error {
	if size < 0 {
		return s.fail("put", key, fmt.Errorf("size is %d: it must be known", size))
	}
	return s.fail("put", key, s.write(ctx, key, body, size, true))
}

// PutIfAbsent implements blob.Store. A hard link is what a file system makes atomically only if there is no such name.
func (s *Store) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	err := s.write(ctx, key, bytes.NewReader(data), int64(len(data)), false)
	if errors.Is(err, fs.ErrExist) && !isDirectory(s.path(key)) {
		err = blob.ErrExists
	}
	return s.fail("put-if-absent", key, err)
}

// write puts the bytes under a temporary name into the key's directory, makes them durable, and then gives them the
// object's name.
func (s *Store) write(ctx context.Context, key string, body io.Reader, size int64, replace bool) error {
	if err := check(ctx, key); err != nil {
		return err
	}
	target := s.path(key)
	t, err := s.createBeside(target)
	if err != nil {
		return err
	}
	defer t.discard()
	if err := blob.CopyBody(ctx, t.file, body, size); err != nil {
		return err
	}
	if err := s.sync(t.file); err != nil {
		return err
	}
	if isDirectory(target) {
		return fmt.Errorf("%w: there are objects below it", blob.ErrConflict)
	}
	if err := t.place(target, replace); err != nil {
		return err
	}
	return s.syncDirs(filepath.Dir(target))
}

// createBeside makes the directory of a file and a temporary file in it. A Delete may remove the directory between
// the two, as it was empty; then they are made again.
func (s *Store) createBeside(target string) (*temp, error) {
	dir := filepath.Dir(target)
	var err error
	for range placeTries {
		if err = os.MkdirAll(dir, 0o755); err == nil {
			var t *temp
			if t, err = createTemp(dir); err == nil {
				return t, nil
			}
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return nil, err
}

// syncDirs makes names durable, in dir and all directories above it up to the root: they may be new as well.
func (s *Store) syncDirs(dir string) error {
	for ; len(dir) >= len(s.root); dir = filepath.Dir(dir) {
		f, err := os.Open(dir)
		switch {
		case err == nil:
			err = s.sync(f)
			f.Close()
		case errors.Is(err, fs.ErrNotExist):
			err = nil // the object was deleted again, and the directory with it
		}
		if err != nil {
			return err
		}
		if dir == s.root {
			break
		}
	}
	return nil
}

// temp is a temporary file, locked by this process.
type temp struct {
	file  *os.File
	moved bool // its temporary name is gone
}

func createTemp(dir string) (*temp, error) {
	f, err := os.CreateTemp(dir, tempPrefix+"*")
	if err != nil {
		return nil, err
	}
	t := &temp{file: f}
	// Where a file system knows no locks, nobody can take them either, and temporary files just stay.
	lock(f)
	if err := f.Chmod(0o644); err != nil {
		t.discard()
		return nil, err
	}
	return t, nil
}

// place makes the file visible as the object.
func (t *temp) place(target string, replace bool) error {
	if !replace {
		return os.Link(t.file.Name(), target)
	}
	if err := os.Rename(t.file.Name(), target); err != nil {
		return err
	}
	t.moved = true
	return nil
}

// discard closes the file and takes its temporary name away.
func (t *temp) discard() {
	if !t.moved {
		os.Remove(t.file.Name())
	}
	t.file.Close()
}

// lock takes the lock of a file and tells whether that worked.
func lock(f *os.File) bool {
	return ignoringEINTR(func() error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }) == nil
}

// cleanTemp removes a temporary file whose writer is gone. Whatever fails here, the next one who comes by tries again.
func cleanTemp(path string, fi fs.FileInfo, now time.Time) {
	if !strings.HasPrefix(fi.Name(), tempPrefix) || now.Sub(fi.ModTime()) < tempGrace {
		return
	}
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	if lock(f) {
		os.Remove(path)
	}
}
