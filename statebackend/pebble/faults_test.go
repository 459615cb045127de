package pebble_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/pebble"
	"github.com/cairnstream/cairn/statebackend/statetest"
)

// disk is a real one that can be full, for some files or for all.
type disk struct {
	vfs.FS
	full   atomic.Bool
	only   string // Part of the names of files that there is no room for; empty for all.
	spared atomic.Int64
}

func newDisk() *disk { return &disk{FS: vfs.Default} }

func (d *disk) fails(name string) bool {
	return d.full.Load() && strings.Contains(filepath.Base(name), d.only)
}

func (d *disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, c)
	if err != nil {
		return nil, err
	}
	return &diskFile{f, d, name}, nil
}

// Remove makes room.
func (d *disk) Remove(name string) error {
	if filepath.Base(name) == "ballast" && d.full.Load() {
		d.full.Store(false)
		d.spared.Add(1)
	}
	return d.FS.Remove(name)
}

func (d *disk) Unwrap() vfs.FS { return d.FS }

type diskFile struct {
	vfs.File
	d    *disk
	name string
}

func (f *diskFile) Write(p []byte) (int, error) {
	if f.d.fails(f.name) {
		return 0, &os.PathError{Op: "write", Path: f.name, Err: syscall.ENOSPC}
	}
	return f.File.Write(p)
}

// counter is a backend with a state of counts.
type counter struct {
	b statebackend.Backend
	v statebackend.Value[int64, int64]
}

var hash = codec.NewHasher(codec.Int64())

func at(k int64) (uint64, uint64) { return hash(&k), hash(&k) }

func (c counter) set(k, n int64) {
	g, s := at(k)
	v, _ := c.v.Upsert(g, s, &k)
	*v = n
}

func (c counter) all() map[int64]int64 {
	m := map[int64]int64{}
	for k, v := range c.v.All() {
		m[*k] = *v
	}
	return m
}

func start(t *testing.T, f *pebble.Factory, p statebackend.Params) counter {
	t.Helper()
	if p.Dir == "" {
		p.Dir = t.TempDir()
	}
	p.Operator, p.K, p.Groups, p.Incremental = "sum", 16, job.GroupsOf(0, 16, 1), true
	b, err := f.New(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return counter{b, counts(t, b)}
}

func counts(t *testing.T, b statebackend.Backend) statebackend.Value[int64, int64] {
	t.Helper()
	return opened(t, b, statebackend.ValueDesc[int64, int64]{
		Name: "counts", Key: codec.Int64(), Value: codec.Int64(), Hash: func(k *int64) (uint64, uint64) { return at(*k) },
	})
}

func opened[K comparable, V any](t *testing.T, b statebackend.Backend, d statebackend.ValueDesc[K, V]) statebackend.Value[K, V] {
	t.Helper()
	v, err := statebackend.OpenValue(b, d)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (c counter) snapshot(id job.CheckpointID, w statebackend.Writer) ([]job.StateHandle, error) {
	s, err := c.b.Freeze(id)
	if err != nil {
		return nil, err
	}
	defer s.Release()
	return s.Write(context.Background(), w)
}

// restored is the content of a snapshot.
func restored(t *testing.T, o *statetest.Objects, handles []job.StateHandle) map[int64]int64 {
	t.Helper()
	c := start(t, &pebble.Factory{}, statebackend.Params{})
	if err := c.b.Restore(context.Background(), o, handles); err != nil {
		t.Fatal(err)
	}
	return c.all()
}

func same(t *testing.T, got, want map[int64]int64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d", len(got), len(want))
	}
	for k, v := range want {
		if got[k] != v {
			t.Fatalf("key %d has %d, want %d", k, got[k], v)
		}
	}
}

// A checkpoint for which there is no room fails and says so; the task goes on, and the next one has all.
func TestFullDiskAtASnapshot(t *testing.T) {
	for name, only := range map[string]string{"all": "", "sorted files": ".new", "the list of files": "MANIFEST"} {
		t.Run(name, func(t *testing.T) {
			d, f, o := newDisk(), &pebble.Factory{}, statetest.NewObjects()
			d.only = only
			f.SetDisk(d)
			c := start(t, f, statebackend.Params{})
			for k := range int64(20_000) {
				c.set(k, k)
			}
			if _, err := c.snapshot(1, o); err != nil {
				t.Fatal(err)
			}
			for round := range int64(3) {
				for k := range int64(5000) {
					c.set(k*3, k+round)
				}
				d.full.Store(true)
				_, err := c.snapshot(job.CheckpointID(10+round), o)
				switch {
				case d.spared.Load() > 0: // The reserve was enough.
				case err == nil || !statebackend.DiskFull(err):
					t.Fatalf("a snapshot without room: %v", err)
				case !strings.Contains(err.Error(), `"sum"`) || !strings.Contains(err.Error(), "--dir"):
					t.Fatalf("error %v does not say what to do", err)
				}
				d.full.Store(false)
				if only == "MANIFEST" { // There is one reserve, until the next flush makes another.
					break
				}
			}
			if d.spared.Load() > 0 && only != "MANIFEST" {
				t.Errorf("the reserve was given up for files that are not vital")
			}
			want := c.all()
			handles, err := c.snapshot(20, o)
			if err != nil {
				t.Fatal(err)
			}
			same(t, restored(t, o, handles), want)
		})
	}
}

// When what must leave the cache cannot be written, the access fails with a fault, not the process.
func TestFullDiskAtASpill(t *testing.T) {
	defer pebble.SetLeastShare(pebble.SetLeastShare(128 << 10))
	d, f := newDisk(), &pebble.Factory{}
	f.SetDisk(d)
	c := start(t, f, statebackend.Params{Budget: statebackend.NewBudget(1)})
	for k := range int64(20_000) {
		c.set(k, k)
	}
	d.full.Store(true)
	try := func(n int64) (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = statebackend.Recovered(r)
			}
		}()
		for k := range n {
			c.set(k, -k)
		}
		return nil
	}
	err := try(1_000_000)
	if !statebackend.DiskFull(err) || !strings.Contains(err.Error(), `"sum"`) || !strings.Contains(err.Error(), "--dir") {
		t.Fatalf("error is %v", err)
	}
	var je *job.Error
	if !errors.As(err, &je) || je.Class != job.ClassExternal {
		t.Errorf("%v is not of class %s", err, job.ClassExternal)
	}
	d.full.Store(false)
	if again := try(1); again == nil || !statebackend.DiskFull(again) {
		t.Errorf("who catches the panic goes on: %v", again)
	}
	if _, err := c.b.Freeze(1); err == nil {
		t.Error("a snapshot is taken after a fault")
	}
}

// under is filepath.Glob below a folder of any name.
func under(dir, pattern string) ([]string, error) {
	names, err := fs.Glob(os.DirFS(dir), pattern)
	for i, n := range names {
		names[i] = filepath.Join(dir, n)
	}
	return names, err
}

// A restore takes copies on this machine, drops those that are damaged, and fetches what is missing.
func TestLocalCopies(t *testing.T) {
	local, o := filepath.Join(t.TempDir(), "a[b]*"), statetest.NewObjects()
	p := statebackend.Params{Job: "j1", Local: local}
	c := start(t, &pebble.Factory{}, p)
	var handles []job.StateHandle
	for round := range int64(4) {
		for k := range int64(50_000) {
			if k%(round+1) == 0 {
				c.set(k, k*7919+round)
			}
		}
		c.b.Committed(job.CheckpointID(round))
		var err error
		if handles, err = c.snapshot(job.CheckpointID(round+1), o); err != nil {
			t.Fatal(err)
		}
	}
	want := c.all()
	if err := c.b.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := under(local, "j1/*/*/*/*.sst")
	if err != nil || len(files) == 0 {
		t.Fatalf("copies are %v, %v", files, err)
	}
	dirs, _ := under(local, "j1/*/*/*")
	if len(dirs) > 2 {
		t.Errorf("copies of %d snapshots are kept: %v", len(dirs), dirs)
	}
	restore := func() int64 {
		r := start(t, &pebble.Factory{}, p)
		before := o.BytesRead()
		if err := r.b.Restore(context.Background(), o, handles); err != nil {
			t.Fatal(err)
		}
		read := o.BytesRead() - before
		same(t, r.all(), want)
		if err := r.b.Close(); err != nil {
			t.Fatal(err)
		}
		return read
	}
	var total int64
	for _, h := range handles {
		total += h.Length
	}
	if read := restore(); read > total/4 {
		t.Errorf("%d bytes of %d were read though there are copies", read, total)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/2] ^= 1
		if err := errors.Join(os.Remove(f), os.WriteFile(f, data, 0o644)); err != nil { // Else what the tree links changes too.
			t.Fatal(err)
		}
	}
	if read := restore(); read < total/2 {
		t.Errorf("%d bytes of %d were read though the copies are damaged", read, total)
	}
}

// Nothing is left of a backend that was closed, also when a snapshot of it is released later.
func TestNothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	c := start(t, &pebble.Factory{}, statebackend.Params{Dir: dir})
	for k := range int64(10_000) {
		c.set(k, k)
	}
	s, err := c.b.Freeze(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(context.Background(), statetest.NewObjects()); err != nil {
		t.Fatal(err)
	}
	s.Release()
	for end := time.Now().Add(5 * time.Second); ; {
		left, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d folders are left", len(left))
		}
		time.Sleep(10 * time.Millisecond) // The release may go on behind.
	}
}

// Entries are rewritten to the present type as the program runs, so that the next one need not know of the type before that: a
// field that was renamed once, and whose first name nobody remembers, keeps its values.
func TestTypesDoNotFallBehind(t *testing.T) {
	type first struct{ Sum int32 }
	type second struct {
		Total int64 `cairn:"Total,alias=Sum"`
	}
	type third struct{ Total, More int64 }
	ctx, o := context.Background(), statetest.NewObjects()
	openAs := func(handles []job.StateHandle) statebackend.Backend {
		b, err := (&pebble.Factory{}).New(ctx, statebackend.Params{Operator: "sum", Dir: t.TempDir(), K: 16, Groups: job.GroupsOf(0, 16, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		if handles != nil {
			if err := b.Restore(ctx, o, handles); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
	const n = 300_000 // More than are rewritten before the first record.
	b := openAs(nil)
	v1 := value[first](t, b)
	for k := range int64(n) {
		g, s := at(k)
		v1.Set(g, s, &k, &first{int32(k)})
	}
	handles := freeze(t, b, 1, o)
	b = openAs(handles)
	value[second](t, b)
	early := freeze(t, b, 2, o)
	c := openAs(early)
	if _, err := statebackend.OpenValue(c, desc[third]()); err == nil || !strings.Contains(err.Error(), "rewritten") || !strings.Contains(err.Error(), `"counts"`) {
		t.Fatalf("a type that is two steps ahead: %v", err)
	}
	for b.Merge(time.Millisecond) {
	}
	handles = freeze(t, b, 3, o)
	b = openAs(handles)
	v3 := value[third](t, b)
	if v3.Len() != n {
		t.Fatalf("%d entries", v3.Len())
	}
	for k, v := range v3.All() {
		if v.Total != *k {
			t.Fatalf("key %d has %+v", *k, *v)
		}
	}
}

// A state keeps its number in the tree over any number of restarts.
func TestRestartsUseUpNoNumbers(t *testing.T) {
	o := statetest.NewObjects()
	var handles []job.StateHandle
	for i := range int64(100) {
		b, err := (&pebble.Factory{}).New(t.Context(), statebackend.Params{Operator: "sum", Dir: t.TempDir(), K: 16, Groups: job.GroupsOf(0, 16, 1)})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Restore(t.Context(), o, handles); err != nil {
			t.Fatal(err)
		}
		c := counter{b, counts(t, b)}
		for _, name := range []string{"second", "third"} {
			d := desc[int64pair]()
			d.Name = name
			if _, err := statebackend.OpenValue(b, d); err != nil {
				t.Fatalf("after %d restarts: %v", i, err)
			}
		}
		c.set(i%7, i)
		if handles, err = c.snapshot(job.CheckpointID(i+1), o); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	same(t, restored(t, o, handles), map[int64]int64{0: 98, 1: 99, 2: 93, 3: 94, 4: 95, 5: 96, 6: 97})
}

func desc[V any]() statebackend.ValueDesc[int64, V] {
	return statebackend.ValueDesc[int64, V]{
		Name: "counts", Key: codec.Int64(), Value: codec.MustStruct[V](), Hash: func(k *int64) (uint64, uint64) { return at(*k) },
	}
}

func value[V any](t *testing.T, b statebackend.Backend) statebackend.Value[int64, V] {
	t.Helper()
	return opened(t, b, desc[V]())
}

func freeze(t *testing.T, b statebackend.Backend, id job.CheckpointID, o *statetest.Objects) []job.StateHandle {
	t.Helper()
	s, err := b.Freeze(id)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	handles, err := s.Write(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return handles
}
