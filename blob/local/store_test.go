package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/blobtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string) *Store {
	t.Helper()
	loc, err := blob.ParseLocation("file://" + dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(loc)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store { return open(t, t.TempDir()) })
}

func TestUnusableDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, file + "/below", "/proc/none", "/proc"} {
		_, err := Open(blob.Location{Scheme: blob.SchemeFile, Path: dir})
		if err == nil || !strings.Contains(err.Error(), "open file://"+dir+": directory is not usable") {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if _, err := Open(blob.Location{Scheme: blob.SchemeS3, Bucket: "abc"}); err == nil {
		t.Error("an s3 location was opened as a directory")
	}
}

func TestReopen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "dir")
	if err := blob.PutBytes(t.Context(), open(t, dir), "a/b", []byte("x")); err != nil {
		t.Fatal(err)
	}
	data, err := blob.ReadAll(t.Context(), open(t, dir), "a/b", 10)
	if err != nil || string(data) != "x" {
		t.Errorf("got %q, %v", data, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

// A store whose directory was taken away says so: it must not look like one without objects, or a sweep would
// believe that everything is gone.
func TestListWithoutDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	s := open(t, dir)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, err := range s.List(t.Context(), "") {
		if errors.Is(err, blob.ErrNotExist) {
			return
		}
	}
	t.Error("list of a directory that is gone gave no error")
}

// When the disk is full, at writing or at fsync, the error says so, is permanent, and nothing is left.
func TestDiskFull(t *testing.T) {
	s := open(t, t.TempDir())
	s.sync = func(f *os.File) error { return &os.PathError{Op: "sync", Path: f.Name(), Err: syscall.ENOSPC} }
	wantFull(t, s, []byte("data"))
}

func TestDiskFullForReal(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	defer syscall.Unmount(dir, 0)
	wantFull(t, open(t, dir), make([]byte, 1<<20))
}

func wantFull(t *testing.T, s *Store, data []byte) {
	t.Helper()
	for op, err := range map[string]error{
		"put":           blob.PutBytes(t.Context(), s, "dir/k", data),
		"put-if-absent": s.PutIfAbsent(t.Context(), "dir/k", data),
	} {
		if !errors.Is(err, blob.ErrFull) || blob.IsTransient(err) || !strings.Contains(err.Error(), op+" file://") {
			t.Errorf("%s: %v", op, err)
		}
	}
	if _, err := s.Stat(t.Context(), "dir/k"); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("stat: %v", err)
	}
	if names := namesIn(t, s.path("dir")); len(names) > 0 {
		t.Errorf("left: %q", names)
	}
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// What a crashed writer left is removed by the next listing; what a living one holds is not, however old.
func TestTemporaryFilesOfTheDead(t *testing.T) {
	s := open(t, t.TempDir())
	if err := blob.PutBytes(t.Context(), s, "dir/k", []byte("x")); err != nil {
		t.Fatal(err)
	}
	dead, err := createTemp(s.path("dir"))
	if err != nil {
		t.Fatal(err)
	}
	dead.file.Close() // as the kernel does for a process that is killed
	living, err := createTemp(s.path("dir"))
	if err != nil {
		t.Fatal(err)
	}
	defer living.discard()
	young, err := createTemp(s.path("dir"))
	if err != nil {
		t.Fatal(err)
	}
	young.file.Close()
	long := time.Now().Add(-time.Hour)
	for _, f := range []*temp{dead, living} {
		if err := os.Chtimes(f.file.Name(), long, long); err != nil {
			t.Fatal(err)
		}
	}
	for info, err := range s.List(t.Context(), "dir/") {
		if err != nil || info.Key != "dir/k" {
			t.Errorf("listed %v, %v", info, err)
		}
	}
	for f, there := range map[*temp]bool{dead: false, living: true, young: true} {
		if _, err := os.Stat(f.file.Name()); (err == nil) != there {
			t.Errorf("%s: %v, want there %v", f.file.Name(), err, there)
		}
	}
}

func TestDeleteLeavesNoDirectories(t *testing.T) {
	s := open(t, t.TempDir())
	if err := blob.PutBytes(t.Context(), s, "a/b/c/d", nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "a/b/c/d"); err != nil {
		t.Fatal(err)
	}
	if names := namesIn(t, s.root); len(names) > 0 {
		t.Errorf("left: %q", names)
	}
}
