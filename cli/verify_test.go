package cli

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/local"
	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/rpc"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/streamtest"
)

// listing is a JobManager whose job has these checkpoints.
type listing struct {
	fakeJobs
	list []coordinator.Checkpoint
}

func (l *listing) ListCheckpoints(context.Context, string) ([]coordinator.Checkpoint, error) {
	return l.list, nil
}

func (l *listing) List(context.Context) ([]coordinator.Job, error) {
	return []coordinator.Job{theJob()}, nil
}

// serveJobs answers as a JobManager until the test ends.
func serveJobs(t *testing.T, jobs rpc.Jobs) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := rpc.NewServer(rpc.ServerConfig{Jobs: jobs})
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	t.Cleanup(func() {
		srv.Stop(context.Background())
		wg.Wait()
	})
	return l.Addr().String()
}

// A checkpoint is found by its folder, its URL, its job's folder, and by what a JobManager says of the job.
func TestVerifyFinds(t *testing.T) {
	dir := t.TempDir()
	visitSnapshots(t, dir)
	const key = "prod/jobs/job/checkpoints/"
	jm := serveJobs(t, &listing{list: []coordinator.Checkpoint{
		{ID: 3, State: coordinator.CheckpointFailed},
		{ID: 2, State: coordinator.CheckpointCompleted, Manifest: key + "2/_metadata"},
		{ID: 1, State: coordinator.CheckpointCompleted, Manifest: key + "1/_metadata"},
	}})
	store := []string{"--jobmanager", jm, "--blob", "file://" + dir}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{dir + "/" + key + "1"}, Done, "Checkpoint:  1\n"},
		{[]string{dir + "/prod/jobs/job"}, Done, "Checkpoint:  2\n"},
		{[]string{"file://" + dir + "/" + key + "2/_metadata"}, Done, "Faults:      0\n"},
		{append([]string{"orders"}, store...), Done, "Checkpoint:  2\n"},
		{append([]string{"orders", "1"}, store...), Done, "Checkpoint:  1\n"},
		{append([]string{"orders/latest"}, store...), Done, "Checkpoint:  2\n"},
		{append([]string{"orders/checkpoint/1"}, store...), Done, "Checkpoint:  1\n"},
		{append([]string{"orders", "3"}, store...), NotFound, `checkpoint 3 of job "orders" is failed`},
		{append([]string{"orders", "4"}, store...), NotFound, `job "orders" has no checkpoint 4`},
		{append([]string{"orders", "x"}, store...), Usage, `"x" is not the number of a checkpoint`},
		{[]string{"orders", "--jobmanager", jm}, Usage, "missing flag --blob URL"},
		{[]string{dir + "/" + key + "9"}, NotFound, "there is none"},
		{[]string{dir + "/none"}, NotFound, "there is none"},
	} {
		r := call(nil, nil, append([]string{"cairn", "checkpoint", "verify"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.stdout+r.stderr, c.want) {
			t.Errorf("%q: %+v, want %q", c.args, r, c.want)
		}
	}
}

// A checkpoint that a newer one replaces while it is read is not damaged; one on record without its manifest is.
func TestVerifyWhileItGoes(t *testing.T) {
	dir := t.TempDir()
	visitSnapshots(t, dir)
	if err := os.Remove(filepath.Join(dir, "prod/jobs/job/checkpoints/1/_metadata")); err != nil {
		t.Fatal(err)
	}
	there := coordinator.Checkpoint{ID: 1, State: coordinator.CheckpointCompleted, Manifest: "prod/jobs/job/checkpoints/1/_metadata"}
	replaced := there
	replaced.State = coordinator.CheckpointSubsumed
	for _, c := range []struct {
		then coordinator.Checkpoint
		code int
		want string
	}{{replaced, NotFound, "went while it was read"}, {there, Failed, "on record, and there is no manifest"}} {
		jm := serveJobs(t, &going{lists: [][]coordinator.Checkpoint{{there}, {c.then}}})
		r := call(nil, nil, "cairn", "checkpoint", "verify", "orders", "1", "--jobmanager", jm, "--blob", dir)
		if r.code != c.code || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%+v, want %q", r, c.want)
		}
	}
}

// going answers otherwise each time.
type going struct {
	fakeJobs
	lists [][]coordinator.Checkpoint
}

func (g *going) ListCheckpoints(context.Context, string) ([]coordinator.Checkpoint, error) {
	list := g.lists[0]
	g.lists = g.lists[1:]
	return list, nil
}

// Damage is printed with the object and the states, and is the exit code 1, whatever the format.
func TestVerifyDamaged(t *testing.T) {
	dir := t.TempDir()
	visitSnapshots(t, dir)
	snap := filepath.Join(dir, "prod/jobs/job/checkpoints/1")
	manifest := filepath.Join(snap, "_metadata")
	data, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	damaged := append([]byte{}, data...)
	damaged[len(damaged)/2] ^= 1
	if err := os.WriteFile(manifest, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, noun := range []string{"checkpoint", "savepoint"} {
		r := call(nil, nil, "cairn", noun, "verify", snap)
		if r.code != Failed || !strings.Contains(r.stdout, "the hash of the manifest is") || !strings.Contains(r.stderr, "is damaged: 1 fault") {
			t.Errorf("%+v", r)
		}
		r = call(nil, nil, "cairn", noun, "verify", snap, "-o", "json")
		var v verifyView
		if err := json.Unmarshal([]byte(r.stdout), &v); err != nil || r.code != Failed || v.OK || len(v.Faults) != 1 || v.Faults[0].Kind != "manifest" {
			t.Errorf("%+v, %v", r, err)
		}
	}
	r := call(nil, nil, "cairn", "savepoint", "list", dir)
	if r.code != Failed || !strings.Contains(r.stdout, "prod/jobs/job/checkpoints/2") || !strings.Contains(r.stderr, "1 manifest cannot be read") {
		t.Errorf("%+v", r)
	}
	if r := call(nil, nil, "cairn", "savepoint", "list", dir+"/none"); r.code != NotFound {
		t.Errorf("%+v", r)
	}
	if r := call(nil, nil, "cairn", "savepoint", "show", filepath.Join(dir, "prod/jobs/job/checkpoints/2"), "-o", "json"); r.code != Done || !strings.Contains(r.stdout, `"operators"`) {
		t.Errorf("%+v", r)
	}
}

// Snapshots of all kinds of states are whole, on every backend, also after a restore into another parallelism.
func TestVerifyKinds(t *testing.T) {
	for _, backend := range []string{"memory", "fs", "pebble"} {
		t.Run(backend, func(t *testing.T) {
			dir := t.TempDir()
			streamtest.Run(t, func(t *testing.T, h *streamtest.Harness) {
				store, err := local.Open(blob.Location{Scheme: blob.SchemeFile, Path: dir})
				if err != nil {
					t.Fatal(err)
				}
				in, rules, out := h.Input[visit](), h.Input[string](), h.Output[string]()
				h.Set("state.backend", backend)
				h.Set("parallelism", "2")
				h.Start(func(j *stream.Job) { visits(j, in, rules, out) })
				rules.Push("short", "longer")
				in.Push(theVisits...)
				s := h.Snapshot()
				h.Save(s, store, "prod")
				h.Restore(s, 3)
				in.Push(visit{"cid", "/", monday.Add(7 * time.Minute), 0}, visit{"bob", "/cart", monday.Add(8 * time.Minute), 0})
				h.Save(h.Snapshot(), store, "prod")
			})
			for _, n := range []string{"1", "2"} {
				r := call(nil, nil, "cairn", "checkpoint", "verify", filepath.Join(dir, "prod/jobs/job/checkpoints", n), "-o", "json")
				var v verifyView
				if err := json.Unmarshal([]byte(r.stdout), &v); err != nil || r.code != Done || !v.OK || len(v.Undecoded) > 0 || v.Entries == 0 {
					t.Errorf("checkpoint %s: %+v, %v", n, r, err)
				}
			}
		})
	}
}
