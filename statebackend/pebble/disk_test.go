package pebble_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/pebble"
	"github.com/cairnstream/cairn/statebackend/statetest"
)

// shaky is a real disk of which some operations fail, by chance and a seed.
type shaky struct {
	vfs.FS
	mu struct {
		sync.Mutex
		rand   *rand.Rand
		chance float64
		only   string // Part of what fails, such as "write .sst"; empty for everything.
		err    error
		hits   int
	}
}

func newShaky(seed uint64) *shaky {
	d := &shaky{FS: vfs.Default}
	d.mu.rand = rand.New(rand.NewPCG(seed, 7))
	return d
}

// set has operations fail from now on.
func (d *shaky) set(chance float64, only string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.chance, d.mu.only, d.mu.err = chance, only, err
}

func (d *shaky) hits() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.hits
}

func (d *shaky) fail(op, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	what, ext, _ := strings.Cut(d.mu.only, " ")
	if d.mu.chance == 0 || what != "" && what != op || !strings.Contains(filepath.Base(name), ext) || d.mu.rand.Float64() >= d.mu.chance {
		return nil
	}
	d.mu.hits++
	return &fs.PathError{Op: op, Path: name, Err: d.mu.err}
}

func (d *shaky) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := d.fail("create", name); err != nil {
		return nil, err
	}
	return d.file(name)(d.FS.Create(name, c))
}

func (d *shaky) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := d.fail("open", name); err != nil {
		return nil, err
	}
	return d.file(name)(d.FS.Open(name, opts...))
}

func (d *shaky) Link(oldname, newname string) error {
	if err := d.fail("link", oldname); err != nil {
		return err
	}
	return d.FS.Link(oldname, newname)
}

func (d *shaky) Remove(name string) error {
	if err := d.fail("remove", name); err != nil {
		return err
	}
	return d.FS.Remove(name)
}

func (d *shaky) Rename(oldname, newname string) error {
	if err := d.fail("rename", oldname); err != nil {
		return err
	}
	return d.FS.Rename(oldname, newname)
}

func (d *shaky) Unwrap() vfs.FS { return d.FS }

func (d *shaky) file(name string) func(vfs.File, error) (vfs.File, error) {
	return func(f vfs.File, err error) (vfs.File, error) {
		if err != nil {
			return nil, err
		}
		return &shakyFile{f, d, name}, nil
	}
}

type shakyFile struct {
	vfs.File
	d    *shaky
	name string
}

func (f *shakyFile) Write(p []byte) (int, error) {
	if err := f.d.fail("write", f.name); err != nil {
		n, _ := f.File.Write(p[:len(p)/2]) // As a disk that becomes full does.
		return n, err
	}
	return f.File.Write(p)
}

func (f *shakyFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.d.fail("read", f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *shakyFile) Close() error {
	err := f.d.fail("close", f.name)
	return errors.Join(err, f.File.Close())
}

// try gives what f panics with as the error of the task.
func try(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = statebackend.Recovered(r)
		}
	}()
	f()
	return nil
}

// Whatever fails on the local disk, the task has the right state or a fault of class external; a snapshot that is written is right;
// and nothing is left but of a tree that is lost.
func TestShakyDisk(t *testing.T) {
	defer pebble.SetLeastShare(pebble.SetLeastShare(64 << 10))
	runs := uint64(8)
	if testing.Short() {
		runs = 3
	}
	total, faults, snapshots, refused := 0, 0, 0, 0
	for seed := range runs {
		for _, c := range []struct {
			only   string
			chance float64
		}{
			{"", 0.02}, {"", 0.0005}, {"write .new", 0.05}, {"write .sst", 0.2}, {"read", 0.002}, {"create", 0.1}, {"link", 0.1}, {"close", 0.05}, {"remove", 0.3},
			{"write MANIFEST", 0.02},
		} {
			r := runShaky(t, seed, c.only, c.chance)
			total, faults, snapshots, refused = total+r.hits, faults+r.faults, snapshots+r.written, refused+r.refused
		}
	}
	t.Logf("%d failures of the disk: %d faults of the task, %d snapshots refused, %d written", total, faults, refused, snapshots)
	if total < 100 || faults == 0 || snapshots == 0 || refused == 0 {
		t.Error("that shows nothing")
	}
}

type shakyRun struct{ hits, faults, written, refused int }

func runShaky(t *testing.T, seed uint64, only string, chance float64) (out shakyRun) {
	t.Helper()
	errno := syscall.EIO
	if seed%2 == 1 {
		errno = syscall.ENOSPC
	}
	what := fmt.Sprintf("seed %d, %q fails with %v", seed, only, errno)
	d, f, o, dir := newShaky(seed), &pebble.Factory{}, statetest.NewObjects(), t.TempDir()
	f.SetDisk(d)
	r := rand.New(rand.NewPCG(seed, 3))
	c := start(t, f, statebackend.Params{Dir: dir, Budget: statebackend.NewBudget(1)})
	want := map[int64]int64{}
	var id job.CheckpointID
	type checkpoint struct {
		handles []job.StateHandle
		want    map[int64]int64
	}
	var last checkpoint
	change := func() {
		from := r.Int64N(8000)
		for k := from; k < from+800; k++ {
			g, s := at(k)
			if r.IntN(5) == 0 {
				_, there := want[k]
				if c.v.Delete(g, s, &k) != there {
					t.Fatalf("%s: Delete of key %d disagrees", what, k)
				}
				delete(want, k)
				continue
			}
			v, fresh := c.v.Upsert(g, s, &k)
			if w, there := want[k]; fresh == there || *v != w {
				t.Fatalf("%s: key %d is %d, fresh %v, want %d", what, k, *v, fresh, w)
			}
			n := r.Int64()
			*v = n
			want[k] = n
		}
	}
	snapshot := func() error {
		id++
		before := clone(want)
		handles, err := c.snapshot(id, o)
		if err != nil {
			out.refused++
			return err
		}
		out.written++
		c.b.Committed(id)
		last = checkpoint{handles, before}
		return nil
	}
	if err := try(func() { change(); change() }); err != nil {
		t.Fatal(err)
	}
	if err := snapshot(); err != nil {
		t.Fatal(err)
	}
	d.set(chance, only, errno)
	var fault error
	for range 25 {
		var err error
		if r.IntN(3) == 0 {
			err = try(func() { err = snapshot() })
			if err == nil {
				continue
			}
		} else if err = try(change); err == nil {
			err = try(func() { c.b.Merge(time.Millisecond) })
		}
		if err == nil {
			continue
		}
		fault = err
		break
	}
	d.set(0, "", nil)
	out.hits = d.hits()
	if fault != nil {
		out.faults++
		var je *job.Error
		if !errors.As(fault, &je) || je.Class != job.ClassExternal || !errors.Is(fault, errno) || !strings.Contains(fault.Error(), `"sum"`) {
			t.Fatalf("%s: the task ends with %v", what, fault)
		}
		if _, err := c.b.Freeze(999); err == nil {
			t.Fatalf("%s: a snapshot is taken after a fault", what)
		}
	} else if err := try(func() { same(t, c.all(), want) }); err != nil {
		t.Fatalf("%s: a disk that is well: %v", what, err)
	} else if err := snapshot(); err != nil && !errors.Is(err, errno) {
		t.Fatalf("%s: a disk that is well: %v", what, err)
	}
	_ = c.b.Close() // Of a tree that could not write to its disk.
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Fatalf("%s: %d folders are left, %v", what, len(left), err)
	}
	same(t, restored(t, o, last.handles), last.want)
	return out
}

func clone(m map[int64]int64) map[int64]int64 {
	out := make(map[int64]int64, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// While there is no room for what compactions write, the state stays right and checkpoints go on, with ever more files, and so
// they do afterwards. The library tries again after half a minute, for which the test does not wait.
func TestFullDiskInACompaction(t *testing.T) {
	d, f, o := newShaky(1), &pebble.Factory{}, statetest.NewObjects()
	f.SetDisk(d)
	c := start(t, f, statebackend.Params{})
	want := map[int64]int64{}
	var id job.CheckpointID
	round := func() (handles []job.StateHandle, files int) {
		id++
		for k := range int64(4000) {
			if i := int64(id); (k+i)%3 == 0 {
				c.set(k, k*i)
				want[k] = k * i
			}
		}
		handles, err := c.snapshot(id, o)
		if err != nil {
			t.Fatal(err)
		}
		c.b.Committed(id)
		for _, h := range handles {
			if strings.HasSuffix(h.Name, ".sst") {
				files++
			}
		}
		return handles, files
	}
	round()
	d.set(1, "write .sst", syscall.ENOSPC)
	var handles []job.StateHandle
	var crowded int
	for range 20 {
		handles, crowded = round()
	}
	if d.hits() == 0 || crowded < 10 {
		t.Fatalf("%d files, %d failures", crowded, d.hits())
	}
	same(t, c.all(), want)
	same(t, restored(t, o, handles), want)
	d.set(0, "", nil)
	handles, _ = round()
	same(t, c.all(), want)
	same(t, restored(t, o, handles), want)
}
