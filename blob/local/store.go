package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cairnstream/cairn/blob"
)

// Store is a blob.Store in a directory. Make one with Open.
type Store struct {
	location blob.Location
	root     string
	// sync makes a file durable; tests let it fail.
	sync func(*os.File) error
}

var _ blob.Store = (*Store)(nil)

// Open makes a store in the directory of a file location. It creates the directory if need be and proves that it
// can write there, so that a wrong path is found at start and not at the first checkpoint.
func Open(loc blob.Location) (*Store, error) {
	if loc.Scheme != blob.SchemeFile {
		return nil, fmt.Errorf("open %s as a directory: scheme is not %s", loc, blob.SchemeFile)
	}
	s := &Store{location: loc, root: filepath.FromSlash(loc.Path), sync: (*os.File).Sync}
	if err := s.probe(); err != nil {
		return nil, blob.WrapError("open", loc.String(), fmt.Errorf("directory is not usable: %w", translate(err)))
	}
	return s, nil
}

// OpenRead opens a directory that is there, to read from it: it makes nothing and needs no right to write.
func OpenRead(loc blob.Location) (*Store, error) {
	if loc.Scheme != blob.SchemeFile {
		return nil, fmt.Errorf("open %s as a directory: scheme is not %s", loc, blob.SchemeFile)
	}
	s := &Store{location: loc, root: filepath.FromSlash(loc.Path), sync: (*os.File).Sync}
	info, err := os.Stat(s.root)
	switch {
	case err != nil:
		return nil, blob.WrapError("open", loc.String(), translate(err))
	case !info.IsDir():
		return nil, blob.WrapError("open", loc.String(), errors.New("it is not a directory"))
	}
	return s, nil
}

// probe goes the way of an object, up to the rename.
func (s *Store) probe() error {
	if err := os.MkdirAll(s.root, 0o755); err != nil {
		return err
	}
	t, err := createTemp(s.root)
	if err != nil {
		return err
	}
	defer t.discard()
	if _, err := t.file.WriteString("probe"); err != nil {
		return err
	}
	return t.file.Sync()
}

// Location is where the store is.
func (s *Store) Location() blob.Location { return s.location }

// Get implements blob.Store. The open file keeps its content even if the object is replaced or deleted meanwhile.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, blob.Info, error) {
	f, info, err := s.open(ctx, key)
	if err != nil {
		return nil, blob.Info{}, s.fail("get", key, err)
	}
	return blob.NewReader(ctx, "get", s.location.Object(key), f, info.Size), info, nil
}

// GetRange implements blob.Store.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	f, info, err := s.open(ctx, key)
	if err != nil {
		return nil, s.fail("get-range", key, err)
	}
	err = blob.CheckRange(off, n, info.Size)
	if err == nil {
		_, err = f.Seek(off, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, s.fail("get-range", key, err)
	}
	return blob.NewReader(ctx, "get-range", s.location.Object(key), f, n), nil
}

func (s *Store) open(ctx context.Context, key string) (*os.File, blob.Info, error) {
	if err := check(ctx, key); err != nil {
		return nil, blob.Info{}, err
	}
	f, err := os.Open(s.path(key))
	if err != nil {
		return nil, blob.Info{}, absent(err)
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, blob.Info{}, err
	}
	return f, infoOf(key, fi), nil
}

// absent: below an object there are no objects.
func absent(err error) error {
	if errors.Is(err, syscall.ENOTDIR) {
		return fs.ErrNotExist
	}
	return err
}

// Stat implements blob.Store.
func (s *Store) Stat(ctx context.Context, key string) (blob.Info, error) {
	if err := check(ctx, key); err != nil {
		return blob.Info{}, s.fail("stat", key, err)
	}
	fi, err := os.Stat(s.path(key))
	if err == nil && !fi.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return blob.Info{}, s.fail("stat", key, absent(err))
	}
	return infoOf(key, fi), nil
}

// Delete implements blob.Store. It removes the directories that it leaves empty, but for the store's own.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := blob.CheckKey(key); err != nil {
			return s.fail("delete", key, err)
		}
	}
	var failed []error
	for _, key := range keys {
		if err := ctx.Err(); err != nil {
			return s.fail("delete", key, err)
		}
		if err := s.deleteOne(key); err != nil {
			failed = append(failed, s.fail("delete", key, err))
		}
	}
	return errors.Join(failed...)
}

func (s *Store) deleteOne(key string) error {
	path := s.path(key)
	// Not os.Remove: that takes away an empty directory too, and another object may be about to go into it.
	err := ignoringEINTR(func() error { return syscall.Unlink(path) })
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), isDirectory(path):
		return nil
	default:
		return &fs.PathError{Op: "unlink", Path: path, Err: err}
	}
	for dir := filepath.Dir(path); len(dir) > len(s.root); dir = filepath.Dir(dir) {
		// Fails if anything is left in it, or somebody else was faster: both are fine.
		if ignoringEINTR(func() error { return syscall.Rmdir(dir) }) != nil {
			break
		}
	}
	return nil
}

func isDirectory(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.IsDir()
}

func (s *Store) path(key string) string { return filepath.Join(s.root, filepath.FromSlash(key)) }

func (s *Store) fail(op, key string, err error) error {
	return blob.WrapError(op, s.location.Object(key), translate(err))
}

func check(ctx context.Context, key string) error {
	if err := blob.CheckKey(key); err != nil {
		return err
	}
	return ctx.Err()
}

func infoOf(key string, fi fs.FileInfo) blob.Info {
	return blob.Info{Key: key, Size: fi.Size(), Modified: fi.ModTime()}
}

// translate puts the contract's word for it in front of what the file system says.
func translate(err error) error {
	for _, t := range []struct{ from, to error }{
		{fs.ErrNotExist, blob.ErrNotExist},
		{fs.ErrPermission, blob.ErrDenied},
		{syscall.EROFS, blob.ErrDenied},
		{syscall.ENOSPC, blob.ErrFull},
		{syscall.EDQUOT, blob.ErrFull},
		{syscall.EFBIG, blob.ErrTooLarge},
		// Something on the way is a file, or the place itself is a directory.
		{syscall.ENOTDIR, blob.ErrConflict},
		{syscall.EISDIR, blob.ErrConflict},
		{syscall.ENOTEMPTY, blob.ErrConflict},
	} {
		if errors.Is(err, t.from) && !errors.Is(err, t.to) {
			return fmt.Errorf("%w: %w", t.to, err)
		}
	}
	return err
}

func ignoringEINTR(do func() error) error {
	for {
		if err := do(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// hidden tells whether a name is the store's own and no object's.
func hidden(name string) bool { return strings.HasPrefix(name, ".") }
