package file

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// disk is what the sink needs of a file system. Errors are those of package os: they name the file.
type disk interface {
	// MakeDir creates a directory with its parents, durably.
	MakeDir(dir string) error
	// Create makes a file that was not there.
	Create(path string) (outputFile, error)
	Open(path string) (inputFile, error)
	// List gives the names in a directory, in no order.
	List(dir string) ([]string, error)
	Rename(from, to string) error
	Remove(path string) error
	// SyncDir makes durable which names a directory has.
	SyncDir(dir string) error
}

// outputFile is a file being written.
type outputFile interface {
	io.Writer
	io.Closer
	Sync() error
}

// osDisk is the operating system's.
type osDisk struct{}

func (d osDisk) MakeDir(dir string) error {
	switch info, err := os.Stat(dir); {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(dir)
	if err := d.MakeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return d.SyncDir(parent)
}

func (osDisk) Create(path string) (outputFile, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
}

func (osDisk) Open(path string) (inputFile, error) { return os.Open(path) }

func (osDisk) List(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}

func (osDisk) Rename(from, to string) error { return os.Rename(from, to) }

func (osDisk) Remove(path string) error { return os.Remove(path) }

func (osDisk) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) { // Some file systems do not sync directories, and need not.
		err = nil
	}
	return errors.Join(err, d.Close())
}
