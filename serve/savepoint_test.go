package serve

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/rpc"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend/stored"
	"github.com/cairnstream/cairn/stream"
)

// tally counts numbers by their last digits and emits each count, so that a number that is lost or counted twice shows.
type tally struct {
	sink     *collect.Sink[string]
	n        int64
	operator string // What the operator that counts is called; empty: tally.
}

func (p *tally) List() []job.ProgramInfo { return []job.ProgramInfo{{Name: "tally", Version: "v1"}} }

func (p *tally) Build(s job.Spec) (*operator.Blueprint, error) {
	operatorName := p.operator
	if operatorName == "" {
		operatorName = "tally"
	}
	return stream.Build(stream.Program{Name: "tally", Build: func(j *stream.Job) {
		j.Source("numbers", datagen.Source[int64]{Make: func(n int64, v *int64) { *v = n }, Count: p.n, Rate: 4000, NumSplits: 4}).
			KeyBy(func(v *int64) int64 { return *v % 100 }).
			Process(operatorName, func(s *operator.States[int64]) operator.Handler[int64, int64, string] {
				count := s.Value[int64]("count")
				return operator.Handler[int64, int64, string]{Record: func(c *operator.KeyedContext[int64, string], v *int64) {
					*count.Ref()++
					c.Emit(fmt.Sprintf("%d=%d", c.Key(), *count.Ref()))
				}}
			}).
			Sink("out", p.sink)
	}}, s.Args)
}

func (p *tally) spec(t *testing.T, name, backend string, parallelism int) job.Spec {
	t.Helper()
	s := job.Spec{Name: name, Program: "tally", Version: "v1", Settings: job.DefaultSettings()}
	s.Settings.Parallelism, s.Settings.CheckpointInterval, s.Settings.StateBackend = parallelism, 100*time.Millisecond, backend
	b, err := p.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	s.Graph = b.Graph
	return s
}

// check demands that each key was counted from one on, without a gap or a repetition.
func (p *tally) check(t *testing.T) {
	t.Helper()
	want := map[string]int{}
	for n := range p.n {
		want[fmt.Sprintf("%d=%d", n%100, n/100+1)] = 1
	}
	got := map[string]int{}
	for _, row := range p.sink.Rows() {
		got[row]++
	}
	if !maps.Equal(got, want) {
		t.Errorf("%d rows of %d different ones, want %d, each once", p.sink.Len(), len(got), len(want))
	}
}

// A job is stopped with a savepoint half-way, another one begins with it, on another state backend and with another parallelism, is
// stopped in turn, and a third one ends: the answer is exact. Savepoints that are taken on the way are whole and change nothing.
func TestSavepoints(t *testing.T) {
	for _, c := range []struct{ first, second string }{{"fs", "memory"}, {"pebble", "fs"}, {"fs", "pebble"}} {
		t.Run(c.first+" to "+c.second, func(t *testing.T) {
			prog := &tally{sink: collect.New[string](), n: 20000}
			dir := t.TempDir()
			l, err := StartLocal(t.Context(), LocalConfig{
				TaskManagers: 2, Slots: 2, Dir: filepath.Join(dir, "cluster"), InMemory: true, Listen: "127.0.0.1:0", HTTP: Off, Programs: prog,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := l.Stop(); err != nil {
					t.Error(err)
				}
			}()
			if err := l.StartTaskManagers(); err != nil {
				t.Fatal(err)
			}
			jobs := api(t, l.Address())
			submit := func(s coordinator.Submission) string {
				t.Helper()
				got, err := jobs.Submit(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				return string(got.Job.ID)
			}
			running := func(id string, records int64) {
				t.Helper()
				eventually(t, "records", func() error {
					d, err := jobs.Get(t.Context(), id)
					if err == nil && (d.Job.State != coordinator.JobRunning || d.Job.Checkpoint == 0 || d.Job.Counters["records_read"] < records) {
						err = fmt.Errorf("%s %s %v", d.Job.State, d.Job.Reason, d.Job.Counters)
					}
					return err
				})
			}
			first := submit(coordinator.Submission{Spec: prog.spec(t, "one", c.first, 2)})
			running(first, 2000)
			taken, err := jobs.TakeSavepoint(t.Context(), first, coordinator.SavepointOptions{})
			if err != nil {
				t.Fatal(err)
			}
			whole(t, taken.URL)
			if _, err := jobs.TriggerCheckpoint(t.Context(), first, coordinator.TriggerOptions{Full: true}); err != nil {
				t.Error(err)
			}
			there := (&url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(dir, "there/sp"))}).String()
			stopped, err := jobs.TakeSavepoint(t.Context(), first, coordinator.SavepointOptions{Stop: true, To: there})
			if err != nil {
				t.Fatal(err)
			}
			whole(t, there)
			d, err := jobs.Get(t.Context(), first)
			if err != nil || d.Job.State != coordinator.JobFinished || d.Job.Checkpoint != stopped.Checkpoint {
				t.Fatalf("after the stop: %+v %v", d.Job, err)
			}
			before := prog.sink.Len()
			time.Sleep(200 * time.Millisecond) // What does not come cannot be waited for.
			if prog.sink.Len() != before {
				t.Error("the sink goes on after the stop")
			}
			second := submit(coordinator.Submission{Spec: prog.spec(t, "two", c.second, 4), From: there})
			running(second, 3000)
			stopped, err = jobs.TakeSavepoint(t.Context(), second, coordinator.SavepointOptions{Stop: true})
			if err != nil {
				t.Fatal(err)
			}
			whole(t, stopped.URL)
			if err := os.RemoveAll(filepath.Join(dir, "there")); err != nil { // It has checkpoints of its own.
				t.Fatal(err)
			}
			third := submit(coordinator.Submission{Spec: prog.spec(t, "three", c.first, 1), From: stopped.ID})
			if err := jobs.Watch(t.Context(), third, func(coordinator.JobDetail) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if d, err := jobs.Get(t.Context(), third); err != nil || d.Job.State != coordinator.JobFinished {
				t.Fatalf("%+v %v", d.Job, err)
			}
			prog.check(t)
			if _, err := jobs.TakeSavepoint(t.Context(), third, coordinator.SavepointOptions{}); rpc.KindOf(err) != rpc.Refused {
				t.Errorf("of a job that has ended: %v", err)
			}
			if _, err := jobs.DeleteSavepoint(t.Context(), stopped.ID); err != nil {
				t.Error(err)
			}
			list, err := jobs.ListSavepoints(t.Context(), "")
			var ids []string
			for _, s := range list {
				ids = append(ids, s.ID)
			}
			if err != nil || len(ids) != 2 || !slices.Contains(ids, taken.ID) {
				t.Errorf("left on record: %v %v", ids, err)
			}
		})
	}
}

// An operator that has another name than in the snapshot is refused, with what it would lose; told so, the job goes on with its
// state, on another cluster.
func TestFromRenamed(t *testing.T) {
	old := &tally{sink: collect.New[string](), n: 8000}
	dir := t.TempDir()
	cluster := func(p Programs, name string) (*LocalCluster, *rpc.Client) {
		t.Helper()
		l, err := StartLocal(t.Context(), LocalConfig{
			TaskManagers: 1, Slots: 2, Dir: filepath.Join(dir, name), InMemory: true, Listen: "127.0.0.1:0", HTTP: Off, Programs: p,
		})
		if err == nil {
			err = l.StartTaskManagers()
		}
		if err != nil {
			t.Fatal(err)
		}
		return l, api(t, l.Address())
	}
	l, jobs := cluster(old, "old")
	sub, err := jobs.Submit(t.Context(), coordinator.Submission{Spec: old.spec(t, "one", "fs", 1)})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "records", func() error {
		d, err := jobs.Get(t.Context(), string(sub.Job.ID))
		if err == nil && d.Job.Counters["records_read"] < 2000 {
			err = fmt.Errorf("%s %v", d.Job.State, d.Job.Counters)
		}
		return err
	})
	sp, err := jobs.TakeSavepoint(t.Context(), string(sub.Job.ID), coordinator.SavepointOptions{Stop: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Stop(); err != nil {
		t.Error(err)
	}
	renamed := &tally{sink: old.sink, n: old.n, operator: "count"}
	l, jobs = cluster(renamed, "new")
	defer func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	}()
	s := coordinator.Submission{Spec: renamed.spec(t, "two", "fs", 2), From: sp.URL}
	_, err = jobs.Submit(t.Context(), s)
	if rpc.KindOf(err) != rpc.Refused {
		t.Fatalf("without a word: %v", err)
	}
	for _, want := range []string{`"tally"`, "count of int64 to int64", "--map tally=NEW", "--allow-dropped"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	s.Adapt.Rename = map[string]string{"tally": "count"}
	sub, err = jobs.Submit(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if err := jobs.Watch(t.Context(), string(sub.Job.ID), func(coordinator.JobDetail) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if d, err := jobs.Get(t.Context(), string(sub.Job.ID)); err != nil || d.Job.State != coordinator.JobFinished {
		t.Fatalf("%+v %v", d.Job, err)
	}
	old.check(t)
}

// whole demands that a savepoint is complete, to the last entry, and needs nothing outside of its folder.
func whole(t *testing.T, at string) {
	t.Helper()
	loc, err := blob.ParseLocation(at)
	if err != nil {
		t.Fatal(err)
	}
	p, err := snapshot.ParseFolder(loc)
	if err != nil {
		t.Fatal(err)
	}
	store, done, err := OpenBlob(context.Background(), p.Root, true)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	r, err := stored.Verify(context.Background(), store, p.Manifest(), Verify())
	if err != nil || len(r.Faults) > 0 {
		t.Errorf("%s: %v %+v", at, err, r.Faults)
	}
	n := 0
	for _, err := range store.List(context.Background(), p.Dir+"/") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != r.Objects+1 {
		t.Errorf("%s: %d objects, the manifest lists %d", at, n, r.Objects)
	}
}
