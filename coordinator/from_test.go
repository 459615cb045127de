package coordinator

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
)

// bytesBelow reads all objects below a prefix.
func (w *world) bytesBelow(prefix string) map[string]string {
	w.t.Helper()
	out := map[string]string{}
	for info, err := range w.inner.List(bg, prefix) {
		if err != nil {
			w.t.Fatal(err)
		}
		b, err := blob.ReadAll(bg, w.inner, info.Key, 1<<20)
		if err != nil {
			w.t.Fatal(err)
		}
		out[info.Key] = string(b)
	}
	return out
}

// hush keeps the tasks from acknowledging, or lets them again.
func (w *world) hush(quiet bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = map[job.Task]bool{}
	for t := range w.tasks {
		w.silent[t] = quiet
	}
}

// cancelled runs a job until it has two checkpoints, and cancels it.
func (w *world) cancelled(name string, settings map[string]string) job.ID {
	w.t.Helper()
	got := w.submit(Submission{Spec: spec(name, settings)})
	w.sleep(25 * time.Second)
	if _, err := w.c.Cancel(bg, name); err != nil {
		w.t.Fatal(err)
	}
	w.want(name, JobCancelled)
	return got.Job.ID
}

// A job begins with a checkpoint of another one, again after each failure and under a new leader, until it has one of its own,
// which refers to nothing of the other's. That stays as it is.
func TestFrom(t *testing.T) {
	inWorld(t, func(w *world) {
		old := w.cancelled("j", nil)
		before := w.bytesBelow(snapshot.JobPrefix(cluster, old))
		got := w.submit(Submission{Spec: spec("k", map[string]string{"parallelism": "2"}), From: "j/latest"})
		if got.Job.ID == old || got.ResumedFrom != 2 || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "begins with checkpoint 2 of job "+string(old)) {
			t.Fatalf("%+v", got)
		}
		w.hush(true)
		last := func() job.Deploy { w.mu.Lock(); defer w.mu.Unlock(); return w.deploys[len(w.deploys)-1] }
		if r := last().Restore; r == nil || r.Job != old || r.Checkpoint != 2 || r.Store != "" {
			t.Fatalf("deployed from %+v", r)
		}
		w.fail(job.Task{Vertex: "sum", Subtask: 1}, job.ClassUser)
		w.sleep(time.Second)
		if d := w.want("k", JobRunning); d.Job.Attempt != 2 || d.Job.From != "j/latest" || last().Restore.Job != old {
			t.Errorf("after a failure: %+v from %+v", d.Job, last().Restore)
		}
		w.failOver()
		w.sleep(time.Second)
		if d := w.want("k", JobRunning); d.Job.Attempt != 3 || last().Restore.Job != old {
			t.Errorf("under a new leader: %+v from %+v", d.Job, last().Restore)
		}
		w.hush(false)
		w.sleep(11 * time.Second)
		d := w.want("k", JobRunning)
		if d.Job.Checkpoint != 13 { // Behind a block of ids of the leader before.
			t.Errorf("first own checkpoint is %d", d.Job.Checkpoint)
		}
		one, err := w.c.GetCheckpoint(bg, "k", 0)
		if err != nil {
			t.Fatal(err)
		}
		m, err := snapshot.LoadManifest(bg, w.inner, one.Checkpoint.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range snapshot.ObjectsOf(m) {
			if !strings.HasPrefix(o, snapshot.JobPrefix(cluster, got.Job.ID)) {
				t.Errorf("the first own checkpoint refers to %s", o)
			}
		}
		w.fail(job.Task{Vertex: "sum", Subtask: 1}, job.ClassUser)
		w.sleep(time.Second)
		if w.want("k", JobRunning); last().Restore.Job != got.Job.ID {
			t.Errorf("after the first own checkpoint: from %+v", last().Restore)
		}
		if after := w.bytesBelow(snapshot.JobPrefix(cluster, old)); !maps.Equal(before, after) {
			t.Errorf("the other job's checkpoints were changed: %v and %v", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
		}
	})
}

// A job that ended before it had a checkpoint begins with the same snapshot when its name is submitted again; never with nothing,
// unless asked.
func TestFromAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		old := w.cancelled("j", nil)
		first := w.submit(Submission{Spec: spec("k", nil), From: "j/checkpoint/1", Adapt: Adaptation{DropStates: []string{"read/s"}}})
		w.hush(true)
		if _, err := w.c.Cancel(bg, "k"); err != nil {
			t.Fatal(err)
		}
		w.want("k", JobCancelled)
		again := w.submit(Submission{Spec: spec("k", nil)})
		if again.Job.ID != first.Job.ID || again.ResumedFrom != 1 || !strings.Contains(again.Notes[0], "begins again with j/checkpoint/1") {
			t.Errorf("%+v", again)
		}
		w.mu.Lock()
		for _, d := range w.deploys[len(w.deploys)-2:] {
			if d.Restore.Job != old || d.Restore.Checkpoint != 1 {
				t.Errorf("from %+v", d.Restore)
			}
			for _, sub := range d.Restore.Operators["read"].Subtasks {
				if len(sub.States) > 0 {
					t.Errorf("what was dropped is there: %+v", sub)
				}
			}
		}
		w.mu.Unlock()
		w.hush(true)
		if _, err := w.c.Cancel(bg, "k"); err != nil {
			t.Fatal(err)
		}
		w.want("k", JobCancelled)
		if fresh := w.submit(Submission{Spec: spec("k", nil), Fresh: true}); fresh.Job.ID == first.Job.ID || fresh.ResumedFrom != 0 {
			t.Errorf("%+v", fresh)
		}
		if r, err := w.c.records.loadOne(bg, old); err != nil || len(r.pins) != 0 {
			t.Errorf("pins %v %v", r.pins, err)
		}
	})
}

// A checkpoint that a job begins with outlives its job's retention, also under a new leader, until that job has one of its own.
func TestFromIsPinned(t *testing.T) {
	// Under a new leader either job may be the first to take the slots. If it is the one that waits, there is nothing to see.
	for range 20 {
		if fromIsPinned(t) {
			return
		}
	}
	t.Error("the job that waits was the first one every time")
}

func fromIsPinned(t *testing.T) (seen bool) {
	inWorld(t, func(w *world) {
		w.submit(Submission{Spec: spec("j", map[string]string{"checkpoint.retained": "1"})})
		w.sleep(11 * time.Second)
		id := w.want("j", JobRunning).Job.ID
		// There are no slots for it: it waits.
		got := w.submit(Submission{Spec: spec("k", nil), From: "j/checkpoint/1"})
		w.want("k", JobWaiting)
		manifest := snapshot.ManifestKey(cluster, id, 1)
		there := func() bool { _, err := w.inner.Stat(bg, manifest); return err == nil }
		w.sleep(30 * time.Second)
		if w.get("j").Job.Checkpoint < 4 || !there() {
			t.Fatal("the checkpoint that a waiting job begins with is gone")
		}
		w.failOver()
		w.sleep(30 * time.Second)
		if w.get("k").Job.State != JobWaiting {
			return
		}
		seen = true
		if !there() || len(w.missing(id)) > 0 {
			t.Fatalf("gone under a new leader; missing %v", w.missing(id))
		}
		if _, err := w.c.Submit(bg, Submission{Spec: spec("x", nil), From: "j/checkpoint/2"}); !errors.Is(err, ErrNotFound) {
			t.Errorf("one that is gone: %v", err)
		}
		if _, err := w.c.Cancel(bg, "j"); err != nil {
			t.Fatal(err)
		}
		w.want("j", JobCancelled)
		w.sleep(11 * time.Second)
		if d := w.want("k", JobRunning); d.Job.ID != got.Job.ID || d.Job.Checkpoint == 0 || d.Restored != 1 {
			t.Errorf("%+v restored %d", d.Job, d.Restored)
		}
		r, err := w.c.records.loadOne(bg, id)
		if err != nil || len(r.pins) != 0 {
			t.Errorf("pins %v %v", r.pins, err)
		}
	})
	return seen
}

// A savepoint in another store that is claimed is deleted once the job has a checkpoint of its own, and not before; what is put
// there later is not.
func TestClaim(t *testing.T) {
	inWorld(t, func(w *world) {
		old := w.cancelled("j", nil)
		other := w.other
		w.saveTo(other, "sp", snapshot.ManifestKey(cluster, old, 2))
		_, err := w.c.Submit(bg, Submission{Spec: spec("k", nil), From: "j/checkpoint/2", Claim: true})
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "--claim") {
			t.Errorf("a checkpoint: %v", err)
		}
		if _, err = w.c.Submit(bg, Submission{Spec: spec("k", nil), Claim: true}); !errors.Is(err, ErrInvalid) {
			t.Errorf("nothing to claim: %v", err)
		}
		w.submit(Submission{Spec: spec("k", nil), From: "mem://other/sp", Claim: true})
		w.mu.Lock()
		if r := w.deploys[len(w.deploys)-1].Restore; r.Store != "mem://other" || r.Job != old {
			t.Errorf("from %+v", r)
		}
		w.mu.Unlock()
		w.hush(true)
		w.sleep(9 * time.Second)
		if n := count(t, other); n == 0 {
			t.Fatal("it is gone before the job has a checkpoint")
		}
		w.hush(false)
		w.sleep(20 * time.Minute) // The first one runs into its timeout.
		if w.want("k", JobRunning).Job.Checkpoint == 0 {
			t.Fatal("no checkpoint")
		}
		if n := count(t, other); n != 0 {
			t.Errorf("%d objects are left of what was claimed", n)
		}
		if err := blob.PutBytes(bg, other, "sp/_metadata", []byte("another one's")); err != nil {
			t.Fatal(err)
		}
		w.failOver()
		w.sleep(time.Minute)
		if n := count(t, other); n != 1 {
			t.Error("what came later at the same place was deleted")
		}
	})
}

func count(t *testing.T, s blob.Store) (n int) {
	t.Helper()
	for _, err := range s.List(bg, "") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// saveTo makes a savepoint of a checkpoint.
func (w *world) saveTo(store blob.Store, folder, manifest string) {
	w.t.Helper()
	m, err := snapshot.LoadManifest(bg, w.inner, manifest)
	if err != nil {
		w.t.Fatal(err)
	}
	to := func(o string) string { return folder + "/" + strings.ReplaceAll(o, "/", "-") }
	for _, o := range snapshot.ObjectsOf(m) {
		b, err := blob.ReadAll(bg, w.inner, o, 1<<20)
		if err == nil {
			err = blob.PutBytes(bg, store, to(o), b)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	m.Rename(to)
	if _, err := snapshot.WriteSavepoint(bg, store, folder, m); err != nil {
		w.t.Fatal(err)
	}
}

// What a job may not have of a snapshot is refused, all of it at once.
func TestAdaptation(t *testing.T) {
	states := func(handles ...job.StateHandle) job.OperatorSnapshot {
		return job.OperatorSnapshot{Parallelism: 1, Subtasks: []job.SubtaskSnapshot{{States: handles}}}
	}
	list := job.StateHandle{Name: "s", Kind: "list", Codec: "bytes", Inline: []byte{1}}
	keyed := job.StateHandle{Name: "total", Kind: "keyed", Key: "string", Codec: "int64", Inline: []byte{1}}
	items := job.StateHandle{Name: "total.items", Kind: "keyed", Inline: []byte{1}}
	tree := job.StateHandle{Name: "big", Kind: "tree", Key: "string", Codec: "int64"}
	for name, c := range map[string]struct {
		a    Adaptation
		edit func(*snapshot.Manifest, *job.Spec)
		want string // Of the error, or the operators that are left with their states.
	}{
		"as it is":          {want: "enum:s read:s sum:total,total.items"},
		"key groups":        {edit: func(m *snapshot.Manifest, _ *job.Spec) { m.K = 128 }, want: "its state is in 128 key groups, and max-parallelism is 720"},
		"drained":           {edit: func(m *snapshot.Manifest, _ *job.Spec) { m.Final = true }, want: "--allow-drained"},
		"drained, allowed":  {a: Adaptation{AllowDrained: true}, edit: func(m *snapshot.Manifest, _ *job.Spec) { m.Final = true }, want: "enum:s read:s sum:total,total.items"},
		"dropped":           {edit: func(_ *snapshot.Manifest, s *job.Spec) { s.Graph.Operators[2].Name = "sums" }, want: `operator "sum" has state (total of string to int64), and the job has no operator of that name ("sums" is new): --map sum=NEW`},
		"dropped, allowed":  {a: Adaptation{AllowDropped: true}, edit: func(_ *snapshot.Manifest, s *job.Spec) { s.Graph.Operators[2].Name = "sums" }, want: "enum:s read:s"},
		"renamed":           {a: Adaptation{Rename: map[string]string{"sum": "sums"}}, edit: func(_ *snapshot.Manifest, s *job.Spec) { s.Graph.Operators[2].Name = "sums" }, want: "enum:s read:s sums:total,total.items"},
		"swapped":           {a: Adaptation{Rename: map[string]string{"sum": "read", "read": "sum"}}, want: "enum:s read:total,total.items sum:s"},
		"renamed onto one":  {a: Adaptation{Rename: map[string]string{"sum": "read"}}, want: `it has an operator "read" too`},
		"renamed from none": {a: Adaptation{Rename: map[string]string{"x": "read"}}, want: `there is no operator "x" in it; there are enum, read, sum`},
		"renamed to none":   {a: Adaptation{Rename: map[string]string{"sum": "x"}}, want: `the job has no operator "x"; there are enum, read, sum`},
		"state dropped":     {a: Adaptation{DropStates: []string{"sum/total"}}, want: "enum:s read:s sum:"},
		"no such state":     {a: Adaptation{DropStates: []string{"sum/x"}}, want: `operator "sum" has no state "x" in it; there are total of string to int64`},
		"state of a tree": {a: Adaptation{DropStates: []string{"sum/big"}}, edit: func(m *snapshot.Manifest, _ *job.Spec) {
			m.Operators["sum"].Subtasks[0].States = append(m.Operators["sum"].Subtasks[0].States, tree)
		}, want: "state.backend=pebble"},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec("j", nil)
			m := &snapshot.Manifest{Job: "o", Checkpoint: 3, K: 720, Operators: map[string]job.OperatorSnapshot{
				"enum": states(list), "read": states(list), "sum": states(keyed, items),
			}}
			if c.edit != nil {
				c.edit(m, &s)
			}
			_, err := c.a.apply(m, s, false)
			if err != nil {
				if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %s", err, c.want)
				}
				return
			}
			var left []string
			for _, op := range slices.Sorted(maps.Keys(m.Operators)) {
				var names []string
				for _, h := range m.Operators[op].Subtasks[0].States {
					names = append(names, h.Name)
				}
				left = append(left, op+":"+strings.Join(names, ","))
			}
			if got := strings.Join(left, " "); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
