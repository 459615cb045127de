package local

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cairnstream/cairn/blob"
)

// List implements blob.Store. One directory at a time is in memory. On its way it removes temporary files whose
// writers are gone.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		w := walker{store: s, ctx: ctx, prefix: prefix, yield: yield, now: time.Now()}
		dir, _ := splitLast(prefix)
		if err := w.walk(dir); err != nil && !errors.Is(err, errStopped) {
			yield(blob.Info{}, s.fail("list", prefix, err))
		}
	}
}

// errStopped: the caller wants no more.
var errStopped = errors.New("stopped")

type walker struct {
	store  *Store
	ctx    context.Context
	prefix string
	yield  func(blob.Info, error) bool
	now    time.Time
}

// walk yields what is in the directory dir (a key's beginning up to a slash, or empty).
func (w *walker) walk(dir string) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if dir != "" && blob.CheckKey(strings.TrimSuffix(dir, "/")) != nil {
		return nil // no key can begin like this
	}
	entries, err := os.ReadDir(w.store.path(dir))
	switch {
	case errors.Is(err, fs.ErrNotExist) && dir == "":
		return err // the store itself is gone: that is not the same as an empty one
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil
	case err != nil:
		return err
	}
	// In the order of keys a directory sorts as its name and a slash: "a-b" comes before "a/b".
	order := func(e fs.DirEntry) string {
		if e.IsDir() {
			return e.Name() + "/"
		}
		return e.Name()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(order(a), order(b)) })
	for _, e := range entries {
		if err := w.visit(dir, e); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) visit(dir string, e fs.DirEntry) error {
	key := dir + e.Name()
	if e.IsDir() {
		key += "/"
		if hidden(e.Name()) || !strings.HasPrefix(key, w.prefix) && !strings.HasPrefix(w.prefix, key) {
			return nil
		}
		return w.walk(key)
	}
	temporary := strings.HasPrefix(e.Name(), tempPrefix)
	if !temporary && (!strings.HasPrefix(key, w.prefix) || blob.CheckKey(key) != nil) {
		return nil
	}
	fi, err := e.Info()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // deleted meanwhile
	case err != nil:
		return err
	case temporary:
		cleanTemp(filepath.Join(w.store.path(dir), e.Name()), fi, w.now)
		return nil
	case !fi.Mode().IsRegular():
		return nil
	}
	if !w.yield(infoOf(key, fi), nil) {
		return errStopped
	}
	return nil
}

// splitLast cuts after the last slash.
func splitLast(s string) (dir, rest string) {
	i := strings.LastIndexByte(s, '/') + 1
	return s[:i], s[i:]
}
