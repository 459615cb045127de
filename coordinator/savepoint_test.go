package coordinator

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
)

// taking starts to take a savepoint; the function that it returns waits for it.
func (w *world) taking(ref string, o SavepointOptions) func() (Savepoint, error) {
	type answer struct {
		Savepoint
		err error
	}
	got := make(chan answer, 1)
	go func() {
		s, err := w.c.TakeSavepoint(bg, ref, o)
		got <- answer{s, err}
	}()
	synctest.Wait()
	return func() (Savepoint, error) { a := <-got; return a.Savepoint, a.err }
}

// notes are the savepoints that are noted to be on their way.
func (w *world) notes() []savepointRecord {
	w.t.Helper()
	all, err := w.c.records.savepoints(bg, w.c.records.saving(""))
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// A savepoint has all of its objects in its folder, is on record, outlives retention and the checkpoint that was taken with it, can be
// begun with by its id, and is deleted by it.
func TestSavepoint(t *testing.T) {
	for _, to := range []string{"", "mem://other/one"} {
		t.Run("to "+to, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.submit(Submission{Spec: spec("j", map[string]string{"checkpoint.retained": "1"})})
				w.sleep(15 * time.Second)
				s, err := w.taking("j", SavepointOptions{To: to})()
				if err != nil || s.Checkpoint != 2 || s.Bytes == 0 || s.Name != "j" {
					t.Fatalf("%+v %v", s, err)
				}
				store := w.inner
				if to != "" {
					store = w.other
					if s.URL != to {
						t.Errorf("URL %s", s.URL)
					}
				}
				w.sleep(time.Minute)
				list, err := w.c.ListSavepoints(bg, "j")
				if err != nil || !slices.Equal(list, []Savepoint{s}) {
					t.Errorf("list %+v %v", list, err)
				}
				r, err := w.c.records.savepoint(bg, s.ID)
				if err != nil {
					t.Fatal(err)
				}
				m, err := snapshot.LoadManifest(bg, store, r.Target.Folder+"/_metadata")
				if err != nil {
					t.Fatal(err)
				}
				objects := snapshot.ObjectsOf(m)
				if len(objects) != 9 {
					t.Errorf("%d objects", len(objects))
				}
				for _, o := range objects {
					if _, err := store.Stat(bg, o); err != nil || !strings.HasPrefix(o, r.Target.Folder+"/") {
						t.Errorf("object %s: %v", o, err)
					}
				}
				if _, err := store.Stat(bg, r.Target.Folder+"/"+marker); !errors.Is(err, blob.ErrNotExist) || len(w.notes()) > 0 {
					t.Errorf("the marker: %v, notes %v", err, w.notes())
				}
				if _, err := w.c.TakeSavepoint(bg, "j", SavepointOptions{To: s.URL}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "there is something already") {
					t.Errorf("to the same place: %v", err)
				}
				if _, err := w.c.Cancel(bg, "j"); err != nil {
					t.Fatal(err)
				}
				w.want("j", JobCancelled)
				w.failOver()
				got := w.submit(Submission{Spec: spec("k", nil), From: s.ID})
				if got.ResumedFrom != 2 {
					t.Errorf("%+v", got)
				}
				if _, err := w.c.DeleteSavepoint(bg, s.ID); !errors.Is(err, ErrRefused) {
					t.Errorf("delete what a job begins with: %v", err)
				}
				w.sleep(11 * time.Second)
				w.want("k", JobRunning)
				if _, err := w.c.DeleteSavepoint(bg, s.ID); err != nil {
					t.Error(err)
				}
				if _, err := w.c.DeleteSavepoint(bg, s.ID); !errors.Is(err, ErrNotFound) {
					t.Errorf("delete it again: %v", err)
				}
				for info := range store.List(bg, r.Target.Folder+"/") {
					t.Errorf("%s is left", info.Key)
				}
				if len(w.notes()) > 0 {
					t.Errorf("notes %v", w.notes())
				}
			})
		})
	}
}

// Savepoints that fail, of a job that fails, or whose leader dies leave nothing behind; too many at once are refused, and so is one
// to the place of another that is on its way.
func TestSavepointFails(t *testing.T) {
	for name, f := range map[string]func(*world){
		"worker lost": func(w *world) { w.fail(job.Task{Vertex: "sum", Subtask: 1}, job.ClassUser) },
		"cancelled":   func(w *world) { _, _ = w.c.Cancel(bg, "j") },
		"new leader":  func(w *world) { w.failOver() },
		"timeout":     func(w *world) { w.sleep(11 * time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.submit(Submission{Spec: spec("j", nil)})
				w.sleep(11 * time.Second)
				w.mu.Lock()
				w.silent[job.Task{Vertex: "sum", Subtask: 1}] = true
				w.mu.Unlock()
				wait := w.taking("j", SavepointOptions{To: "mem://other/sp"})
				if count(t, w.other) < 5 || len(w.notes()) != 1 {
					t.Fatalf("%d objects on their way, notes %v", count(t, w.other), w.notes())
				}
				if _, err := w.c.TakeSavepoint(bg, "j", SavepointOptions{To: "mem://other/sp"}); !errors.Is(err, ErrRefused) {
					t.Errorf("the same place: %v", err)
				}
				before := w.bytesBelow(snapshot.JobPrefix(cluster, w.get("j").Job.ID))
				f(w)
				if s, err := wait(); err == nil {
					t.Errorf("%+v", s)
				}
				w.sleep(time.Second)
				if n := count(t, w.other); n > 0 || len(w.notes()) > 0 {
					t.Errorf("%d objects are left, notes %v", n, w.notes())
				}
				list, err := w.c.ListSavepoints(bg, "")
				if err != nil || len(list) > 0 {
					t.Errorf("list %v %v", list, err)
				}
				for key := range before {
					if strings.Contains(key, "/checkpoints/1/") {
						if _, err := w.inner.Stat(bg, key); err != nil {
							t.Errorf("object of an earlier checkpoint: %v", err)
						}
					}
				}
			})
		})
	}
	t.Run("astray", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.submit(Submission{Spec: spec("j", nil)})
			w.astray = true
			_, err := w.taking("j", SavepointOptions{To: "mem://other/sp"})()
			if !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "have to reach the same mem://other/sp") {
				t.Errorf("%v", err)
			}
			w.sleep(15 * time.Second)
			if d := w.want("j", JobRunning); d.Job.Attempt != 1 || d.Job.Checkpoint == 0 || count(t, w.other) > 0 || len(w.notes()) > 0 {
				t.Errorf("%+v, %d objects, notes %v", d.Job, count(t, w.other), w.notes())
			}
		})
	})
	t.Run("too many", func(t *testing.T) {
		inWorld(t, func(w *world) {
			w.submit(Submission{Spec: spec("j", nil)})
			w.hush(true)
			var waits []func() (Savepoint, error)
			for range 6 {
				waits = append(waits, w.taking("j", SavepointOptions{}))
			}
			if _, err := waits[5](); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "4 savepoints") {
				t.Errorf("the sixth: %v", err)
			}
			w.hush(false)
			w.fail(job.Task{Vertex: "sum", Subtask: 1}, job.ClassUser)
			for _, wait := range waits[:5] {
				if _, err := wait(); err == nil {
					t.Error("one was taken of an attempt that failed")
				}
			}
			w.sleep(time.Second)
			for info := range w.inner.List(bg, cluster+"/savepoints/") {
				t.Errorf("%s is left", info.Key)
			}
		})
	})
}

// A job stops with a savepoint; its name goes on from there, under its own id. A savepoint that fails leaves the job running.
func TestStop(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.submit(Submission{Spec: spec("j", nil)})
		w.sleep(11 * time.Second)
		w.hush(true)
		wait := w.taking("j", SavepointOptions{Stop: true})
		w.sleep(11 * time.Minute)
		if _, err := wait(); !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "expired") {
			t.Errorf("nobody answers: %v", err)
		}
		w.hush(false)
		w.sleep(11 * time.Minute) // A periodic one was not answered either.
		if d := w.want("j", JobRunning); d.Job.Attempt != 1 || d.Job.Checkpoint < 2 {
			t.Fatalf("after a stop that failed: %+v", d.Job)
		}
		s, err := w.taking("j", SavepointOptions{Stop: true})()
		if err != nil || !s.Stopped {
			t.Fatalf("%+v %v", s, err)
		}
		d := w.want("j", JobFinished)
		if d.Job.Checkpoint != s.Checkpoint {
			t.Errorf("the newest checkpoint is %d, the savepoint is of %d", d.Job.Checkpoint, s.Checkpoint)
		}
		if have, want := w.bytesBelow(snapshot.JobPrefix(cluster, first.Job.ID)), w.referenced(first.Job.ID); len(have) != len(want) {
			t.Errorf("objects %v, referenced %v", slices.Sorted(maps.Keys(have)), want)
		}
		again := w.submit(Submission{Spec: spec("j", map[string]string{"parallelism": "2"})}) // At once.
		if again.Job.ID != first.Job.ID || again.ResumedFrom != s.Checkpoint || !strings.Contains(again.Notes[0], "stopped with a savepoint") {
			t.Errorf("%+v", again)
		}
		w.want("j", JobRunning)
	})
}

// The leader dies, or a task fails, when a stop has committed and the tasks have not closed: the job runs on from there, with the next
// attempt, and the savepoint is good.
func TestStopInterrupted(t *testing.T) {
	for name, f := range map[string]func(*world){
		"new leader":  func(w *world) { w.failOver() },
		"task failed": func(w *world) { w.fail(job.Task{Vertex: "sum", Subtask: 1}, job.ClassUser) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.submit(Submission{Spec: spec("j", nil)})
				w.sleep(11 * time.Second)
				w.mu.Lock()
				w.deaf = true
				w.mu.Unlock()
				wait := w.taking("j", SavepointOptions{Stop: true})
				f(w)
				w.mu.Lock()
				w.deaf = false
				w.mu.Unlock()
				if s, err := wait(); err == nil {
					t.Errorf("%+v", s)
				}
				w.sleep(time.Second)
				list, err := w.c.ListSavepoints(bg, "j")
				if err != nil || len(list) != 1 || list[0].Checkpoint != 2 {
					t.Fatalf("on record: %+v %v", list, err)
				}
				if d := w.want("j", JobRunning); d.Restored != 2 || d.Job.Attempt != 2 {
					t.Errorf("%+v from %d", d.Job, d.Restored)
				}
				if n := len(w.notes()); n > 0 {
					t.Errorf("%d notes", n)
				}
				if _, err := w.taking("j", SavepointOptions{Stop: true})(); err != nil {
					t.Error(err)
				}
				w.want("j", JobFinished)
			})
		})
	}
}

func TestTriggerKinds(t *testing.T) {
	inWorld(t, func(w *world) {
		w.submit(Submission{Spec: spec("j", map[string]string{"checkpoint.incremental": "false"})})
		w.sleep(11 * time.Second)
		if _, err := w.c.TriggerCheckpoint(bg, "j", TriggerOptions{Incremental: true}); !errors.Is(err, ErrRefused) {
			t.Errorf("incremental: %v", err)
		}
		if _, err := w.c.TriggerCheckpoint(bg, "j", TriggerOptions{Full: true, Incremental: true}); !errors.Is(err, ErrInvalid) {
			t.Errorf("both: %v", err)
		}
		c, err := w.c.TriggerCheckpoint(bg, "j", TriggerOptions{Full: true})
		if err != nil || c.State != CheckpointCompleted {
			t.Fatalf("%+v %v", c, err)
		}
		m, err := snapshot.LoadManifest(bg, w.inner, c.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range snapshot.ObjectsOf(m) {
			if n, _ := snapshot.CheckpointOf(cluster, m.Job, o); n != c.ID {
				t.Errorf("a full checkpoint refers to %s", o)
			}
		}
	})
}
