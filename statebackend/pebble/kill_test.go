package pebble_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/local"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/pebble"
)

// childEnv has the binary of the tests run as the process that is killed.
const childEnv = "CAIRN_TEST_PEBBLE_CHILD"

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		if err := runChild(text); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

var killSeed = flag.Uint64("kill.seed", 1, "seed of the moments at which processes are killed")

// killed is what a child is told.
type killed struct {
	Root  string
	ID    int    // Of the process: its folder of local state.
	Other bool   // Its program has the other type of values.
	Phase string // In which it ends itself as kill -9 does, at the
	At    int64  // so maniest event; empty for a child that is killed from outside.
}

// The phases in which events are counted.
const (
	inFlush    = "flush"    // Files of the tree are made, written and linked.
	inSnapshot = "snapshot" // Between a freeze and the commit.
	inUpload   = "upload"   // An object is on its way.
	inRestore  = "restore"  // Ranges are read, files of the tree made.
	inRewrite  = "rewrite"  // Values of the other type are rewritten.
)

// killer counts the events of a phase and ends the process at one of them.
type killer struct {
	killed
	n atomic.Int64
}

func (k *killer) event(phase string) {
	if phase == k.Phase && k.n.Add(1) == k.At {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // It does not return.
	}
}

// The types of two programs that know each other's name for the field.
type (
	left struct {
		Left int64 `cairn:"Left,alias=Right"`
		Text string
	}
	right struct {
		Right int64 `cairn:"Right,alias=Left"`
		Text  string
	}
)

const (
	killKeys  = 3000
	killState = "values"
)

// killContent is what the state has as of a checkpoint: a function of its number.
func killContent(id job.CheckpointID) map[int64]left {
	m := map[int64]left{}
	for i := job.CheckpointID(1); i <= id; i++ {
		killStep(i, func(k int64, v left) { m[k] = v }, func(k int64) { delete(m, k) })
	}
	return m
}

// killStep is what changes between two checkpoints.
func killStep(id job.CheckpointID, set func(k int64, v left), remove func(k int64)) {
	r := rand.New(rand.NewPCG(uint64(id), 5))
	n := 200
	if id == 1 {
		n = killKeys
	}
	for i := range n {
		k := r.Int64N(killKeys)
		if id == 1 {
			k = int64(i)
		}
		if r.IntN(4) == 0 && id > 1 {
			remove(k)
			continue
		}
		set(k, left{r.Int64(), fmt.Sprint("of checkpoint ", id)})
	}
}

// killedStore is the store of checkpoints, with events.
type killedStore struct {
	blob.Store
	k *killer
}

func (s killedStore) Put(ctx context.Context, key string, body io.Reader, size int64) error {
	return s.Store.Put(ctx, key, &killedReader{body, s.k}, size)
}

func (s killedStore) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	s.k.event(inRestore)
	return s.Store.GetRange(ctx, key, off, n)
}

type killedReader struct {
	io.Reader
	k *killer
}

func (r *killedReader) Read(p []byte) (int, error) {
	r.k.event(inUpload)
	return r.Reader.Read(p[:min(len(p), 4000)])
}

// killedDisk is the local disk, with events.
type killedDisk struct {
	vfs.FS
	k *killer
}

func (d killedDisk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	d.k.event(inFlush)
	return d.FS.Create(name, c)
}

func (d killedDisk) Link(oldname, newname string) error {
	d.k.event(inFlush)
	return d.FS.Link(oldname, newname)
}

func (d killedDisk) Unwrap() vfs.FS { return d.FS }

// killRoot is the folders of the test: the store, the local state of processes, and the copies.
type killRoot string

func (r killRoot) store() (blob.Store, error) {
	loc, err := blob.ParseLocation("file://" + filepath.Join(string(r), "store"))
	if err != nil {
		return nil, err
	}
	return local.Open(loc)
}

func (r killRoot) params(process int, subtask, parallelism int) (statebackend.Params, error) {
	dir := filepath.Join(string(r), "state", strconv.Itoa(process))
	return statebackend.Params{
		Job: "j", Task: job.Task{Vertex: "sum", Subtask: subtask}, Operator: "sum", Dir: dir, Local: filepath.Join(string(r), "local"),
		K: 16, Groups: job.GroupsOf(subtask, 16, parallelism), Incremental: true,
	}, os.MkdirAll(dir, 0o755)
}

// committed is the newest checkpoint, as the metadata store has it.
type committed struct {
	ID      job.CheckpointID
	Handles []job.StateHandle
}

func (r killRoot) committed() (c committed, err error) {
	data, err := os.ReadFile(filepath.Join(string(r), "committed"))
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	return c, err
}

func (r killRoot) commit(c committed) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	name := filepath.Join(string(r), "committed")
	return errors.Join(os.WriteFile(name+".new", data, 0o644), os.Rename(name+".new", name))
}

// runChild is a task that restores, changes its state and takes checkpoints until it is killed.
func runChild(text string) error {
	var k killer
	if err := json.Unmarshal([]byte(text), &k.killed); err != nil {
		return err
	}
	if k.Other {
		return runTask(&k, func(v *right, x left) { *v = right{x.Left, x.Text} })
	}
	return runTask(&k, func(v *left, x left) { *v = x })
}

func runTask[V any](k *killer, put func(v *V, x left)) error {
	ctx, root := context.Background(), killRoot(k.Root)
	pebble.SetRewriteAtOnce(100)
	inner, err := root.store()
	if err != nil {
		return err
	}
	store := killedStore{inner, k}
	p, err := root.params(k.ID, 0, 1)
	if err != nil {
		return err
	}
	c, err := root.committed()
	if err != nil {
		return err
	}
	p.Own, p.Restored = true, c.ID
	f := &pebble.Factory{}
	f.SetDisk(killedDisk{vfs.Default, k})
	b, err := f.New(ctx, p)
	if err != nil {
		return err
	}
	d := desc[V]()
	d.Name = killState
	v, err := statebackend.OpenValue(b, d)
	if err != nil {
		return err
	}
	if c.ID > 0 {
		if err := b.Restore(ctx, snapshot.NewReader(store), c.Handles); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	fmt.Println("restored")
	for id, base := nextID(root), c.ID; ; id++ {
		// A checkpoint that was not committed leaves its number used up, so that content is of the committed ones.
		n := c.ID + 1
		killStep(n, func(key int64, x left) {
			g, s := at(key)
			val, _ := v.Upsert(g, s, &key)
			put(val, x)
		}, func(key int64) {
			g, s := at(key)
			v.Delete(g, s, &key)
		})
		for range 3 {
			k.event(inRewrite)
			b.Merge(200 * time.Microsecond)
		}
		b.Committed(base)
		if err := os.WriteFile(filepath.Join(k.Root, "next"), []byte(strconv.FormatUint(uint64(id)+1, 10)), 0o644); err != nil {
			return err
		}
		w, err := snapshot.NewWriter(snapshot.WriterConfig{
			Store: store, Cluster: "test", Job: "j", Checkpoint: id, Attempt: job.Attempt(k.ID), Epoch: 1,
			Task: job.Task{Vertex: "sum"}, InlineLimit: 500, TempDir: p.Dir,
		})
		if err != nil {
			return err
		}
		snap, err := b.Freeze(id)
		if err != nil {
			return err
		}
		k.event(inSnapshot)
		handles, err := snap.Write(ctx, w.Operator("sum"))
		if err == nil {
			k.event(inSnapshot)
			err = w.Finish(ctx)
		}
		if err != nil {
			return err
		}
		k.event(inSnapshot)
		if err := root.commit(committed{n, handles}); err != nil {
			return err
		}
		c.ID, base = n, id
		snap.Release()
		w.Close()
		k.event(inSnapshot)
	}
}

// nextID is the number of the next checkpoint: no number is used twice.
func nextID(root killRoot) job.CheckpointID {
	data, _ := os.ReadFile(filepath.Join(string(root), "next"))
	n, _ := strconv.ParseUint(string(data), 10, 64)
	return job.CheckpointID(max(n, 1))
}

// Processes are killed, kill -9, at moments that a seed chooses, in every phase. The next one opens the same folders and the same
// store: it has the state of the newest committed checkpoint; what dead ones left beside that does not grow; and the folder of a
// process that lives is as it was.
func TestKilledProcesses(t *testing.T) {
	seed := *killSeed
	r := rand.New(rand.NewPCG(seed, seed))
	root := killRoot(t.TempDir())
	rounds := 24
	if testing.Short() {
		rounds = 8
	}
	// A process that lives all the time: this one, with a task of another subtask's number in the same folders.
	alive := liveTask(t, root)
	other, byItself := false, 0
	for i := range rounds {
		k := killed{Root: string(root), ID: i + 1, Other: other}
		if i%4 > 0 {
			k.Phase = []string{inFlush, inSnapshot, inUpload, inRestore, inRewrite}[r.IntN(5)]
			k.At = 1 + r.Int64N(map[string]int64{inFlush: 60, inSnapshot: 9, inUpload: 30, inRestore: 8, inRewrite: 9}[k.Phase])
		}
		what := fmt.Sprintf("seed %d, process %d, in %q at %d", seed, k.ID, k.Phase, k.At)
		switch itself, err := runUntilKilled(k, time.Duration(r.IntN(150))*time.Millisecond); {
		case err != nil && strings.Contains(err.Error(), "rewritten"):
			// Values are of this type and of the other, which the next program has not come to rewrite: it is that one's turn again.
		case err != nil:
			t.Fatalf("%s: %v", what, err)
		case itself:
			byItself++
		}
		other = !other
		if err := os.RemoveAll(filepath.Join(string(root), "state", strconv.Itoa(k.ID))); err != nil { // As the next TaskManager does.
			t.Fatal(err)
		}
		c, err := root.committed()
		if err != nil {
			t.Fatal(err)
		}
		if c.ID == 0 {
			continue
		}
		got, err := killRestored(t, root, 1+i%3, c.Handles)
		if err != nil {
			t.Fatalf("%s: restore: %v", what, err)
		}
		if want := killContent(c.ID); !maps.Equal(got, want) {
			t.Fatalf("%s: %d entries differ from the %d of checkpoint %v", what, len(got), len(want), c.ID)
		}
	}
	c, err := root.committed()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d processes ended in the phase that was meant, %v changes are committed", byItself, rounds, c.ID)
	if c.ID < 5 || byItself < rounds/4 {
		t.Error("that shows nothing")
	}
	// Copies that dead ones did not come to remove are gone after the next checkpoints.
	if _, err := runUntilKilled(killed{Root: string(root), ID: rounds + 1, Other: strings.Contains(c.Handles[0].Codec, `"name":"Right"`), Phase: inSnapshot, At: 16}, time.Minute); err != nil {
		t.Fatal(err)
	}
	copies, err := filepath.Glob(filepath.Join(string(root), "local", "j", "*", "0", "*"))
	if err != nil || len(copies) > 3 {
		t.Errorf("copies of %d snapshots are kept: %v, %v", len(copies), copies, err)
	}
	alive()
}

// liveTask starts a task in this process and returns what compares and ends it.
func liveTask(t *testing.T, root killRoot) (check func()) {
	p, err := root.params(0, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	b, err := (&pebble.Factory{}).New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	c, want := counter{b, counts(t, b)}, map[int64]int64{}
	for k := range int64(1000) {
		if g, _ := at(k); p.Groups.Contains(job.GroupOf(g, 16)) {
			c.set(k, k)
			want[k] = k
		}
	}
	if _, err := c.snapshot(1, discard{}); err != nil { // Most of it is on disk now.
		t.Fatal(err)
	}
	return func() {
		same(t, c.all(), want)
		left, err := os.ReadDir(p.Dir)
		if err != nil || len(left) != 1 {
			t.Errorf("the folder of a process that lives has %d entries, %v", len(left), err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(p.Dir); err != nil || len(left) > 0 {
			t.Errorf("%d entries are left, %v", len(left), err)
		}
	}
}

// runUntilKilled runs a child until it has killed itself, or kills it some time after it has restored; it tells which.
func runUntilKilled(k killed, after time.Duration) (itself bool, err error) {
	text, err := json.Marshal(k)
	if err != nil {
		return false, err
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	if k.Phase != "" {
		after += time.Second // It may not come to that event.
	}
	ended := make(chan struct{})
	lines := bufio.NewScanner(out)
	said := ""
	if lines.Scan() { // Else it is gone already.
		said = lines.Text()
	}
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	go func() {
		defer close(ended)
		for lines.Scan() {
			said = lines.Text()
		}
	}()
	<-ended
	itself = timer.Stop() && k.Phase != ""
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return itself, nil
	}
	return false, errors.Join(fmt.Errorf("the process says %q and ends", said), err)
}

// killRestored is what a checkpoint has, restored by so many subtasks of this process.
func killRestored(t *testing.T, root killRoot, parallelism int, handles []job.StateHandle) (map[int64]left, error) {
	t.Helper()
	store, err := root.store()
	if err != nil {
		return nil, err
	}
	got := map[int64]left{}
	for i := range parallelism {
		p, err := root.params(0, i, parallelism)
		if err != nil {
			return nil, err
		}
		p.Dir = t.TempDir()
		b, err := (&pebble.Factory{}).New(t.Context(), p)
		if err != nil {
			return nil, err
		}
		if err = b.Restore(t.Context(), snapshot.NewReader(store), handles); err == nil {
			err = addValues(b, handles[0].Codec, got)
		}
		if err = errors.Join(err, b.Close()); err != nil {
			return nil, err
		}
	}
	return got, nil
}

// addValues adds the entries of the state, by the type of the program that wrote the checkpoint.
func addValues(b statebackend.Backend, codec string, got map[int64]left) error {
	if strings.Contains(codec, `"name":"Right"`) {
		return addAs(b, got, func(v right) left { return left{v.Right, v.Text} })
	}
	return addAs(b, got, func(v left) left { return v })
}

func addAs[V any](b statebackend.Backend, got map[int64]left, to func(V) left) error {
	d := desc[V]()
	d.Name = killState
	v, err := statebackend.OpenValue(b, d)
	if err != nil {
		return err
	}
	for k, x := range v.All() {
		got[*k] = to(*x)
	}
	return nil
}
