package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"go.uber.org/zap"
)

// What is in the folder of TaskManagers (--dir):
//
//	state/lock     held for a moment while a process looks through state/
//	state/ID/      of one process, which holds ID/lock for as long as it lives
//	state/ID/ops   the state backends' own
//	state/ID/spool snapshots on their way to the blob store
//	local/         copies of snapshots, for this process and later ones
//
// The locks are the kernel's and end with the process, however that ends.
const (
	stateName = "state"
	localName = "local"
	lockName  = "lock"
)

// stateDir is the folder of this process below state/.
type stateDir struct {
	path  string
	local string // The folder of copies.
	lock  *os.File
}

func (d *stateDir) ops() string   { return filepath.Join(d.path, "ops") }
func (d *stateDir) spool() string { return filepath.Join(d.path, "spool") }

// openStateDir makes the folder of the process named id in dir, and removes those of processes that are gone.
func openStateDir(dir, id string, log *zap.Logger) (*stateDir, error) {
	fail := func(err error) (*stateDir, error) {
		return nil, fmt.Errorf("folder of local state: %w (--dir names another one)", err)
	}
	all := filepath.Join(dir, stateName)
	d := &stateDir{path: filepath.Join(all, id), local: filepath.Join(dir, localName)}
	for _, path := range []string{all, d.local} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			return fail(err)
		}
	}
	// Nobody else makes a folder meanwhile, so one without a lock is of a process that is gone.
	look, err := lockFile(filepath.Join(all, lockName), syscall.LOCK_EX)
	if err != nil {
		return fail(err)
	}
	dead, err := deadFolders(all)
	if err == nil {
		err = d.make()
	}
	look.Close()
	for _, g := range dead {
		if rerr := g.remove(); rerr != nil {
			log.Warn("remove the state of a process that is gone", zap.String("path", g.path), zap.Error(rerr))
			continue
		}
		log.Info("removed the state of a process that is gone", zap.String("path", g.path))
	}
	if err != nil {
		return fail(err)
	}
	return d, nil
}

func (d *stateDir) make() error {
	if err := os.Mkdir(d.path, 0o700); err != nil {
		return err
	}
	var err error
	if d.lock, err = lockFile(filepath.Join(d.path, lockName), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	for _, path := range []string{d.ops(), d.spool()} {
		if err := os.Mkdir(path, 0o700); err != nil {
			d.lock.Close()
			return err
		}
	}
	return nil
}

// remove removes the folder and its content, the lock last: whoever looks in between sees it as held or as gone.
func (d *stateDir) remove() error {
	entries, err := os.ReadDir(d.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.Name() != lockName {
			errs = append(errs, os.RemoveAll(filepath.Join(d.path, e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		d.lock.Close()
		return err
	}
	err = os.RemoveAll(d.path)
	d.lock.Close()
	return err
}

// deadFolders are those of processes that are gone, with their locks held.
func deadFolders(all string) ([]*stateDir, error) {
	entries, err := os.ReadDir(all)
	if err != nil {
		return nil, err
	}
	var dead []*stateDir
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		path := filepath.Join(all, e.Name())
		lock, err := lockFile(filepath.Join(path, lockName), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil {
			continue // It lives, or was removed just now, or is not ours to remove.
		}
		dead = append(dead, &stateDir{path: path, lock: lock})
	}
	return dead, nil
}

// lockFile opens a file, which is made if need be, and locks it until it is closed.
func lockFile(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// defaultDir is where local state goes when nothing is said: a folder of this user's in the system's one for temporary
// files, where others must not be able to put something else in its place.
func defaultDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("cairn-%d", os.Getuid()))
}

// makeDefaultDir makes sure that the default folder is this user's.
func makeDefaultDir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("folder of local state: %w (--dir names another one)", err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("folder of local state: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || ok && int(st.Uid) != os.Getuid() {
		return fmt.Errorf("folder of local state: %s is not a folder of this user: remove it, or name another one with --dir", path)
	}
	return nil
}
