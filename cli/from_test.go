package cli

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/connector/collect"
)

// lockedBuffer is written to by the command and by the log of its cluster.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// interruptedRun runs the program in dir until it has made 1000 numbers, and returns the folder of the newest checkpoint.
func interruptedRun(t *testing.T, sink *collect.Sink[int64], dir string) string {
	t.Helper()
	interrupted := make(chan struct{})
	var once sync.Once
	var errs lockedBuffer
	a := &App{
		Name: "prog", Stdout: &bytes.Buffer{}, Stderr: &errs,
		Programs: &numbers{sink: sink, fail: func(n int64) {
			if n == 1000 {
				once.Do(func() { close(interrupted) })
			}
		}},
		Signals: func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(context.Background())
			go func() {
				select {
				case <-interrupted:
					cancel()
				case <-ctx.Done():
				}
			}()
			return ctx, cancel
		},
	}
	if code := a.Program([]string{"run", "numbers", "--arg", "n=2000", "--dir", dir}); code != Failed || !strings.Contains(errs.String(), "interrupted") {
		t.Fatalf("interrupted run: exit %d\n%s", code, errs.String())
	}
	all, err := filepath.Glob(filepath.Join(dir, "blob/default/jobs/*/checkpoints/*"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no checkpoint: %v", err)
	}
	return slices.MaxFunc(all, func(a, b string) int {
		var m, n int
		_, _ = fmt.Sscan(filepath.Base(a), &m)
		_, _ = fmt.Sscan(filepath.Base(b), &n)
		return m - n
	})
}

// hashOf is the hash of the names and contents of all files below dir.
func hashOf(t *testing.T, dir string) uint64 {
	t.Helper()
	h := xxh3.New()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		fmt.Fprintln(h, path, len(b))
		_, _ = h.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return h.Sum64()
}

// A run in another directory, with another parallelism, begins with the checkpoint of a cluster that is gone, reads it only, and
// goes on from its own afterwards, without it.
func TestRunFrom(t *testing.T) {
	sink := collect.New[int64]()
	old := t.TempDir()
	folder := interruptedRun(t, sink, old)
	before := sink.Len()
	hash := hashOf(t, filepath.Join(old, "blob"))
	args := []string{"prog", "run", "numbers", "--arg", "n=2000", "--dir", t.TempDir(), "--parallelism", "2"}
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"key groups": {[]string{"--from", folder, "--set", "max-parallelism=128"}, Refused, "set max-parallelism=720"},
		"claim":      {[]string{"--from", folder, "--claim"}, Refused, "only a savepoint can be claimed"},
		"nothing":    {[]string{"--from", old + "/nothing"}, NotFound, "_metadata"},
		"a job":      {[]string{"--from", filepath.Dir(filepath.Dir(folder))}, Usage, "is the folder of a job"},
		"fresh":      {[]string{"--from", folder, "--fresh"}, Usage, "want one of them"},
		"no job":     {[]string{"--from", "other/latest"}, NotFound, `"other"`},
		"map":        {[]string{"--from", folder, "--map", "none=out"}, Refused, `no operator "none"`},
		"drop":       {[]string{"--from", folder, "--drop-state", "numbers/none"}, Refused, `no state "none"`},
	} {
		r := call(&numbers{sink: sink}, nil, slices.Concat(args, c.args)...)
		if r.code != c.code || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%s: exit %d, want %d\n%s%s", name, r.code, c.code, r.stdout, r.stderr)
		}
	}
	if sink.Len() != before {
		t.Fatalf("%d rows of runs that were refused", sink.Len()-before)
	}
	r := call(&numbers{sink: sink}, nil, append(args, "--from", folder)...)
	if r.code != Done || !strings.Contains(r.stderr, "begins with checkpoint "+filepath.Base(folder)) {
		t.Fatalf("exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	rows := sink.Rows()
	slices.Sort(rows)
	if len(rows) != 2000 || rows[0] != 0 || rows[1999] != 1999 || len(slices.Compact(rows)) != 2000 {
		t.Errorf("%d rows, not each number once", len(rows))
	}
	if hashOf(t, filepath.Join(old, "blob")) != hash {
		t.Error("what the run began with has changed")
	}
}

// A second run on the folder of one that goes on says who has it.
func TestRunOfAFolderInUse(t *testing.T) {
	dir := t.TempDir()
	running, release := make(chan struct{}), make(chan struct{})
	p := &numbers{sink: collect.New[int64](), fail: func(n int64) {
		if n == 50 {
			close(running)
			<-release
		}
	}}
	first := make(chan result)
	go func() { first <- call(p, nil, "prog", "run", "numbers", "--arg", "n=100", "--dir", dir) }()
	<-running
	r := call(&numbers{sink: collect.New[int64]()}, nil, "prog", "run", "numbers", "--arg", "n=100", "--dir", dir)
	close(release)
	if r.code != Failed || !strings.Contains(r.stderr, dir) || !strings.Contains(r.stderr, "in use by another process") {
		t.Errorf("exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	if r := <-first; r.code != Done {
		t.Errorf("the first run: exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
}
