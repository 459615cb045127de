package coordinator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/faulty"
	"github.com/cairnstream/cairn/job"
	metamem "github.com/cairnstream/cairn/metastore/mem"
	"github.com/cairnstream/cairn/snapshot"
)

var bg = context.Background()

// A bounded job runs, takes checkpoints, keeps the newest three, and finishes by a final one; a second
// submission of its name is another job.
func TestJobRunsToItsEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		got := w.submit(Submission{Spec: spec("j", nil)})
		w.want("j", JobRunning)
		w.sleep(51 * time.Second)
		d := w.want("j", JobRunning)
		if d.Job.Checkpoint != 5 || d.Progress.CheckpointsCompleted != 5 {
			t.Fatalf("after 51 s: %+v", d.Progress)
		}
		w.sleep(time.Second)
		if have, want := w.objects(), w.referenced(got.Job.ID); !slices.Equal(have, want) {
			t.Errorf("objects present:\n%v\nreferenced:\n%v", have, want)
		}
		list, _ := w.c.ListCheckpoints(bg, "j")
		var states []CheckpointState
		for _, c := range list {
			states = append(states, c.State)
		}
		if want := []CheckpointState{CheckpointCompleted, CheckpointCompleted, CheckpointCompleted, CheckpointSubsumed, CheckpointSubsumed}; !slices.Equal(states, want) {
			t.Errorf("checkpoints %v", states)
		}
		one, err := w.c.GetCheckpoint(bg, "j", 0)
		if err != nil || one.Checkpoint.ID != 5 || len(one.Tasks) != 9 || len(one.Operators) != 3 || one.Operators[1].Entries != 4 || one.Operators[1].Bytes == 0 {
			t.Errorf("checkpoint: %+v %v", one, err)
		}
		w.end()
		d = w.want("j", JobFinished)
		if d.Job.Checkpoint != 6 || d.Job.Ended.IsZero() || d.Job.Restarts != 0 {
			t.Errorf("finished: %+v", d.Job)
		}
		if again := w.submit(Submission{Spec: spec("j", nil)}); again.Job.ID == got.Job.ID || again.ResumedFrom != 0 {
			t.Errorf("after the end: %+v", again)
		}
		if n := testutil.ToFloat64(w.c.metrics.completes.WithLabelValues("j")); n != 6 {
			t.Errorf("cairn_checkpoint_completed_total is %v", n)
		}
		if _, err := w.reg.Gather(); err != nil {
			t.Error(err)
		}
	})
}

func TestWithoutCheckpoints(t *testing.T) {
	inWorld(t, func(w *world) {
		w.submit(Submission{Spec: spec("j", map[string]string{"checkpoint.mode": "off"})})
		w.sleep(time.Minute)
		if _, err := w.c.TriggerCheckpoint(bg, "j", TriggerOptions{}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "off") {
			t.Errorf("trigger: %v", err)
		}
		w.end()
		if d := w.want("j", JobFinished); d.Job.Checkpoint != 0 {
			t.Errorf("checkpoint %v", d.Job.Checkpoint)
		}
	})
}

// A name in use is refused; the same request gives the same job, also later and under a new leader.
func TestSubmitTwice(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.submit(Submission{Spec: spec("j", nil), RequestID: "r1"})
		if _, err := w.c.Submit(bg, Submission{Spec: spec("j", nil)}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), string(first.Job.ID)) {
			t.Errorf("the name again: %v", err)
		}
		if again := w.submit(Submission{Spec: spec("j", nil), RequestID: "r1"}); again.Job.ID != first.Job.ID || !again.Existed {
			t.Errorf("the request again: %+v", again)
		}
		w.failOver()
		if again := w.submit(Submission{Spec: spec("j", nil), RequestID: "r1"}); again.Job.ID != first.Job.ID || !again.Existed {
			t.Errorf("the request again, new leader: %+v", again)
		}
		bad := spec("", nil)
		bad.Graph.Operators[2].Named = false
		if _, err := w.c.Submit(bg, Submission{Spec: bad}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "sum") || !strings.Contains(err.Error(), "no name") {
			t.Errorf("invalid: %v", err)
		}
	})
}

// Two slots too few, then a worker of another version, then one that has them.
func TestWaitsForSlots(t *testing.T) {
	inWorld(t, func(w *world) {
		w.kill("w2")
		w.submit(Submission{Spec: spec("j", nil)})
		d := w.want("j", JobWaiting)
		if want := `need 4 slots, have 2 free on 1 TaskManager with program "prog" version "v1"`; !strings.HasPrefix(d.Job.Reason, want) {
			t.Errorf("reason %q", d.Job.Reason)
		}
		if _, err := w.c.TriggerCheckpoint(bg, "j", TriggerOptions{}); !errors.Is(err, ErrRefused) {
			t.Errorf("trigger: %v", err)
		}
		w.connect("w3", 2)
		w.want("j", JobRunning)
		nodes, _ := w.c.Nodes(bg)
		if len(nodes) != 2 || nodes[0].FreeSlots != 0 || nodes[0].Tasks+nodes[1].Tasks != 9 {
			t.Errorf("nodes %+v", nodes)
		}
		w.submit(Submission{Spec: spec("k", nil)})
		w.want("k", JobWaiting)
		if _, err := w.c.Cancel(bg, "j"); err != nil {
			t.Fatal(err)
		}
		w.want("j", JobCancelled)
		w.want("k", JobRunning)
	})
}

// A worker dies: the job goes on from the newest checkpoint on those that are left.
func TestWorkerLost(t *testing.T) {
	inWorld(t, func(w *world) {
		w.connect("w3", 4)
		w.submit(Submission{Spec: spec("j", nil)})
		w.sleep(25 * time.Second)
		w.kill("w1")
		d := w.want("j", JobRunning)
		if d.Job.Attempt != 2 || d.Restored != 2 || d.Job.Restarts != 1 || len(d.Progress.Incidents) != 1 || d.Progress.Incidents[0].Cause != "worker-lost" {
			t.Fatalf("%+v restored %d", d.Job, d.Restored)
		}
		last := w.deploys[len(w.deploys)-1]
		if last.Restore == nil || last.Restore.Checkpoint != 2 || len(last.Restore.Operators["sum"].Subtasks) != 4 {
			t.Errorf("restore %+v", last.Restore)
		}
		w.sleep(10 * time.Second)
		if d := w.get("j"); d.Job.Checkpoint != 3 {
			t.Errorf("checkpoint %d", d.Job.Checkpoint)
		}
		if n := testutil.ToFloat64(w.c.metrics.restarts.WithLabelValues("j", "worker-lost")); n != 1 {
			t.Errorf("cairn_job_restarts_total is %v", n)
		}
	})
}

// A worker that is silent is lost after three heartbeats.
func TestHeartbeats(t *testing.T) {
	inWorld(t, func(w *world) {
		w.submit(Submission{Spec: spec("j", nil)})
		w.workers["w1"].mute.Store(true)
		w.sleep(2500 * time.Millisecond)
		w.want("j", JobRunning)
		w.sleep(2 * time.Second)
		d := w.want("j", JobWaiting)
		if !strings.Contains(d.Job.Failure.Message, "3 heartbeats missed") {
			t.Errorf("failure %v", d.Job.Failure)
		}
	})
}

// A report that was under way when its attempt ended is not taken for the next attempt, and a worker
// that still runs something old is told to end it.
func TestStaleReports(t *testing.T) {
	inWorld(t, func(w *world) {
		w.submit(Submission{Spec: spec("j", nil)})
		old := w.run
		w.fail(job.Task{Vertex: "sum"}, job.ClassUser)
		d := w.want("j", JobRunning)
		w.log = nil
		s := w.workers["w1"].session.Load()
		s.Report(job.TaskChanged{Run: old, Task: job.Task{Vertex: "sum"}, State: job.TaskFailed, Failure: &job.Failure{}})
		s.Report(job.Counters{Run: old, Task: job.Task{Vertex: "sum"}, Values: map[string]int64{"records_out": 1}})
		s.Report(job.Counters{Run: job.Run{Job: "gone", Attempt: 1}})
		synctest.Wait()
		if after := w.want("j", JobRunning); after.Job.Attempt != d.Job.Attempt || len(after.Job.Counters) != 0 {
			t.Errorf("after stale reports: %+v", after.Job)
		}
		if want := []string{"w1 Cancel", "w1 Cancel"}; !slices.Equal(w.log, want) {
			t.Errorf("told %v", w.log)
		}
	})
}

// A new leader goes on with the next attempt, from the newest checkpoint; the former one writes nothing.
func TestFailOver(t *testing.T) {
	inWorld(t, func(w *world) {
		got := w.submit(Submission{Spec: spec("j", nil)})
		done := w.submit(Submission{Spec: spec("k", nil)})
		if _, err := w.c.Cancel(bg, "k"); err != nil {
			t.Fatal(err)
		}
		w.sleep(15 * time.Second)
		w.failOver()
		w.sleep(time.Second)
		d := w.want("j", JobRunning)
		if d.Job.ID != got.Job.ID || d.Job.Attempt != 2 || d.Restored != 1 || d.Job.Restarts != 1 || d.Job.Started.IsZero() {
			t.Fatalf("%+v restored %d", d.Job, d.Restored)
		}
		w.sleep(10 * time.Second)
		if d := w.get("j"); d.Job.Checkpoint != 11 { // The rest of the block is left unused.
			t.Errorf("checkpoint %d", d.Job.Checkpoint)
		}
		if k := w.want("k", JobCancelled); k.Job.ID != done.Job.ID || k.Job.Attempt != 0 {
			t.Errorf("the job that had ended: %+v", k.Job)
		}
	})
}

// A leader that does not know yet that it was replaced cannot write: it stops at the first try.
func TestDeposedQuietly(t *testing.T) {
	inWorld(t, func(w *world) {
		w.submit(Submission{Spec: spec("j", nil)})
		w.sleep(15 * time.Second)
		w.meta.DeposeQuietly("leader")
		old := w.c
		w.sleep(10 * time.Second) // A checkpoint is due.
		<-old.Done()
		if _, err := old.Submit(bg, Submission{Spec: spec("k", nil)}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("submit: %v", err)
		}
		if _, err := old.Connect(job.WorkerInfo{ID: "late"}, w.workers["w1"]); !errors.Is(err, ErrUnavailable) {
			t.Errorf("connect: %v", err)
		}
		w.takeOver()
		w.connect("w1", 2)
		w.connect("w2", 2)
		if d := w.want("j", JobRunning); d.Restored != 1 {
			t.Errorf("restored %d", d.Restored)
		}
		w.sleep(time.Second)
		if have, want := w.objects(), w.referenced(w.get("j").Job.ID); !slices.Equal(have, want) {
			t.Errorf("objects present:\n%v\nreferenced:\n%v", have, want)
		}
	})
}

// Cancelled with retain: the same name goes on from its newest checkpoint under the same id, or starts
// afresh under a new one.
func TestGoesOn(t *testing.T) {
	inWorld(t, func(w *world) {
		first := w.submit(Submission{Spec: spec("j", nil), RequestID: "r1"})
		w.sleep(25 * time.Second)
		if _, err := w.c.Cancel(bg, string(first.Job.ID)[:8]+"00000001"); err != nil {
			t.Fatal(err)
		}
		w.want("j", JobCancelled)
		w.sleep(time.Second)
		w.failOver()
		second := w.submit(Submission{Spec: spec("j", nil), RequestID: "r2"})
		if second.Job.ID != first.Job.ID || second.ResumedFrom != 2 || len(second.Notes) != 1 || !strings.Contains(second.Notes[0], "goes on from checkpoint 2") {
			t.Fatalf("%+v", second)
		}
		if d := w.want("j", JobRunning); d.Job.Attempt != 2 || d.Restored != 2 {
			t.Errorf("%+v", d.Job)
		}
		w.failOver()
		w.sleep(time.Second)
		if d := w.want("j", JobRunning); d.Job.Attempt != 3 || d.Restored != 2 {
			t.Errorf("new leader: %+v", d.Job)
		}
		if _, err := w.c.Cancel(bg, "j"); err != nil {
			t.Fatal(err)
		}
		w.want("j", JobCancelled)
		w.sleep(time.Second)
		third := w.submit(Submission{Spec: spec("j", nil), Fresh: true})
		if third.Job.ID == first.Job.ID || third.ResumedFrom != 0 {
			t.Errorf("fresh: %+v", third)
		}
		if d := w.want("j", JobRunning); d.Restored != 0 || d.Job.ID != third.Job.ID {
			t.Errorf("fresh: %+v", d.Job)
		}
	})
}

// Cancelled with delete: nothing is left of its checkpoints, even if the leader dies in between.
func TestCancelDelete(t *testing.T) {
	for _, dies := range []bool{false, true} {
		inWorld(t, func(w *world) {
			w.submit(Submission{Spec: spec("j", map[string]string{"checkpoint.on-cancel": "delete"})})
			w.sleep(25 * time.Second)
			if dies {
				w.blob.Set(faulty.Rule{Op: "delete", Err: errors.New("away")})
			}
			if _, err := w.c.Cancel(bg, "j"); err != nil {
				t.Fatal(err)
			}
			w.sleep(time.Second)
			w.want("j", JobCancelled)
			if dies {
				w.failOver()
				w.blob.Set()
				w.sleep(2 * time.Minute)
			}
			if have := w.objects(); len(have) != 0 {
				t.Errorf("dies=%v: left: %v", dies, have)
			}
			r, err := w.c.records.loadOne(bg, w.get("j").Job.ID)
			if err != nil || len(r.checkpoints)+len(r.discarding) != 0 || r.terminal == nil {
				t.Errorf("dies=%v: on record: %+v %v", dies, r, err)
			}
			if again := w.submit(Submission{Spec: spec("j", nil)}); again.ResumedFrom != 0 {
				t.Errorf("dies=%v: %+v", dies, again)
			}
		})
	}
}

// The cancellation is on record before it is acknowledged: a new leader carries it out.
func TestCancelSurvives(t *testing.T) {
	inWorld(t, func(w *world) {
		w.submit(Submission{Spec: spec("j", nil)})
		w.workers["w1"].mute.Store(true) // Its tasks do not end.
		if _, err := w.c.Cancel(bg, "j"); err != nil {
			t.Fatal(err)
		}
		w.want("j", JobCancelling)
		delete(w.workers, "w1")
		w.failOver()
		w.want("j", JobCancelled)
	})
}

// The outcome of the transaction is unknown, in both ways: the checkpoint commits, once.
func TestOutcomeUnknown(t *testing.T) {
	for _, fault := range []metamem.Fault{metamem.LostAnswer, metamem.LostRequest} {
		inWorld(t, func(w *world) {
			w.submit(Submission{Spec: spec("j", nil)})
			w.sleep(9 * time.Second)
			w.meta.FailCommits(fault, fault, fault)
			w.sleep(3 * time.Second)
			if d := w.want("j", JobRunning); d.Job.Checkpoint != 1 || d.Progress.CheckpointsFailed != 0 {
				t.Errorf("fault %v: %+v", fault, d.Progress)
			}
		})
	}
}

// The store is away for longer than a transaction waits, with the outcome unknown: nothing is deleted,
// a failing task restarts only when it is known, and from the newest checkpoint.
func TestOutcomeUnknownAndTaskFails(t *testing.T) {
	inWorld(t, func(w *world) {
		w.submit(Submission{Spec: spec("j", nil)})
		w.sleep(9 * time.Second)
		w.meta.FailCommits(metamem.LostAnswer)
		w.sleep(1 * time.Second)
		w.meta.SetDown(true)
		w.sleep(15 * time.Second)
		w.fail(job.Task{Vertex: "sum"}, job.ClassUser)
		w.sleep(15 * time.Second)
		if d := w.get("j"); d.Job.Attempt > 2 || d.Job.State == JobRunning {
			t.Errorf("while the outcome is unknown: %+v", d.Job)
		}
		w.meta.SetDown(false)
		w.sleep(15 * time.Second)
		if d := w.want("j", JobRunning); d.Restored != 1 {
			t.Errorf("restored %d", d.Restored)
		}
	})
}

// The metadata store is away: the job runs on, checkpoints fail and are counted; then they go on.
func TestMetastoreAway(t *testing.T) {
	inWorld(t, func(w *world) {
		w.submit(Submission{Spec: spec("j", map[string]string{"checkpoint.tolerable-failures": "0"})})
		w.sleep(15 * time.Second)
		w.meta.SetDown(true)
		w.sleep(10 * time.Minute)
		d := w.want("j", JobRunning)
		if d.Job.Attempt != 1 || d.Job.Checkpoint != 1 || d.Progress.CheckpointsFailed < 5 {
			t.Errorf("while away: %+v %+v", d.Job, d.Progress)
		}
		if _, err := w.c.Cancel(bg, "j"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("cancel: %v", err)
		}
		if _, err := w.c.Submit(bg, Submission{Spec: spec("k", nil)}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("submit: %v", err)
		}
		w.meta.SetDown(false)
		w.sleep(time.Minute)
		d = w.want("j", JobRunning)
		if d.Job.Checkpoint < 2 || d.Job.Attempt != 1 {
			t.Errorf("afterwards: %+v", d.Job)
		}
		if have, want := w.objects(), w.referenced(d.Job.ID); !slices.Equal(have, want) {
			t.Errorf("objects present:\n%v\nreferenced:\n%v", have, want)
		}
	})
}

// The blob store refuses manifests: likewise.
func TestBlobAway(t *testing.T) {
	inWorld(t, func(w *world) {
		w.submit(Submission{Spec: spec("j", nil)})
		w.blob.Set(faulty.Rule{Op: "put-if-absent", Err: errors.New("503")})
		w.sleep(55 * time.Second)
		d := w.want("j", JobRunning)
		if d.Progress.CheckpointsFailed != 5 || d.Job.Checkpoint != 0 {
			t.Errorf("while away: %+v", d.Progress)
		}
		w.blob.Set()
		w.sleep(10 * time.Second)
		if d := w.get("j"); d.Job.Checkpoint != 6 {
			t.Errorf("afterwards: %+v", d.Job)
		}
		w.sleep(time.Minute)
		if have, want := w.objects(), w.referenced(w.get("j").Job.ID); !slices.Equal(have, want) {
			t.Errorf("objects present:\n%v\nreferenced:\n%v", have, want)
		}
	})
}

// A failing deletion delays no checkpoint, and is made up for.
func TestDeletionAway(t *testing.T) {
	inWorld(t, func(w *world) {
		w.submit(Submission{Spec: spec("j", map[string]string{"checkpoint.retained": "1"})})
		w.blob.Set(faulty.Rule{Op: "delete", Err: errors.New("503")})
		w.sleep(101 * time.Second)
		if d := w.get("j"); d.Job.Checkpoint != 10 {
			t.Errorf("checkpoint %d", d.Job.Checkpoint)
		}
		w.blob.Set()
		w.sleep(65 * time.Second)
		w.sleep(time.Second)
		if have, want := w.objects(), w.referenced(w.get("j").Job.ID); !slices.Equal(have, want) {
			t.Errorf("objects present:\n%v\nreferenced:\n%v", have, want)
		}
	})
}

// The newest manifest is damaged for good: the job fails with its name, and processes nothing.
func TestDamagedCheckpoint(t *testing.T) {
	inWorld(t, func(w *world) {
		got := w.submit(Submission{Spec: spec("j", nil)})
		w.sleep(15 * time.Second)
		key := snapshot.ManifestKey(cluster, got.Job.ID, 1)
		if err := blob.PutBytes(bg, w.blob, key, []byte("garbage")); err != nil {
			t.Fatal(err)
		}
		w.fail(job.Task{Vertex: "sum"}, job.ClassUser)
		w.sleep(time.Second)
		d := w.want("j", JobFailed)
		if d.Job.Failure == nil || d.Job.Failure.Class != job.ClassRefused || !strings.Contains(d.Job.Failure.Message, key) {
			t.Errorf("failure %v", d.Job.Failure)
		}
		if len(w.deploys) != 2 {
			t.Errorf("%d deployments", len(w.deploys))
		}
	})
}

// In the place of the newest manifest is that of the checkpoint before, whole: likewise.
func TestSwappedManifest(t *testing.T) {
	inWorld(t, func(w *world) {
		got := w.submit(Submission{Spec: spec("j", nil)})
		w.sleep(25 * time.Second)
		data, err := blob.ReadAll(bg, w.blob, snapshot.ManifestKey(cluster, got.Job.ID, 1), 1<<20)
		if err == nil {
			err = blob.PutBytes(bg, w.blob, snapshot.ManifestKey(cluster, got.Job.ID, 2), data)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.fail(job.Task{Vertex: "sum"}, job.ClassUser)
		w.sleep(time.Second)
		d := w.want("j", JobFailed)
		if d.Job.Failure == nil || d.Job.Failure.Class != job.ClassRefused || !strings.Contains(d.Job.Failure.Message, "checkpoints/2/_metadata\" is of checkpoint 1") {
			t.Errorf("failure %v", d.Job.Failure)
		}
		if len(w.deploys) != 2 {
			t.Errorf("%d deployments", len(w.deploys))
		}
	})
}

// A manual checkpoint is answered when it has ended, well or not.
func TestTrigger(t *testing.T) {
	inWorld(t, func(w *world) {
		w.submit(Submission{Spec: spec("j", map[string]string{"checkpoint.interval": "1h", "checkpoint.timeout": "5s"})})
		c, err := w.c.TriggerCheckpoint(bg, "j", TriggerOptions{})
		if err != nil || c.ID != 1 || c.State != CheckpointCompleted || c.Acknowledged != 9 {
			t.Fatalf("%+v %v", c, err)
		}
		w.silent[job.Task{Vertex: "sum", Subtask: 2}] = true
		c, err = w.c.TriggerCheckpoint(bg, "j", TriggerOptions{})
		if !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "no answer from sum/2") || c.State != CheckpointFailed {
			t.Errorf("%+v %v", c, err)
		}
		if _, err := w.c.TriggerCheckpoint(bg, "nobody", TriggerOptions{}); !errors.Is(err, ErrNotFound) {
			t.Error(err)
		}
	})
}

// Watch shows the job until its end, with every event once.
func TestWatch(t *testing.T) {
	inWorld(t, func(w *world) {
		w.submit(Submission{Spec: spec("j", nil)})
		done := make(chan error)
		var states []JobState
		var events []string
		go func() {
			done <- w.c.Watch(bg, "j", func(d JobDetail) error {
				if n := len(states); n == 0 || states[n-1] != d.Job.State {
					states = append(states, d.Job.State)
				}
				for _, e := range d.Events {
					events = append(events, e.Message)
				}
				return nil
			})
		}()
		w.sleep(15 * time.Second)
		w.fail(job.Task{Vertex: "sum"}, job.ClassUser)
		w.sleep(5 * time.Second)
		w.workers["w1"].report(job.Counters{Run: w.run, Task: job.Task{Vertex: "read"}, Values: map[string]int64{"records_in": 7, "records_out": 9}})
		w.end()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		d := w.get("j")
		if d.Job.Counters["records_in"] != 7 || d.Job.Counters["records_out"] != 0 {
			t.Errorf("counters %v", d.Job.Counters)
		}
		if states[len(states)-1] != JobFinished || !slices.Contains(states, JobRunning) {
			t.Errorf("states %v", states)
		}
		var want []string
		for _, e := range d.Events {
			want = append(want, e.Message)
		}
		if !slices.Equal(events, want) {
			t.Errorf("events seen:\n%s\nwant:\n%s", strings.Join(events, "\n"), strings.Join(want, "\n"))
		}
	})
}

// A task that fails with what can never work ends the job; the tasks that are left are cancelled.
func TestRefusedByWorker(t *testing.T) {
	inWorld(t, func(w *world) {
		w.submit(Submission{Spec: spec("j", nil)})
		w.fail(job.Task{Vertex: "read", Subtask: 1}, job.ClassRefused)
		d := w.want("j", JobFailed)
		if d.Job.Failure.Task != "read/1" || d.Job.Reason == "" || len(w.tasks) != 0 {
			t.Errorf("%+v tasks %v", d.Job, w.tasks)
		}
	})
}

// The store stops answering while a submission is under way: the caller learns that it is not known
// whether it was carried out; the same request later gives the one job that came of it.
func TestSubmitOutcomeUnknown(t *testing.T) {
	for _, fault := range []metamem.Fault{metamem.LostAnswer, metamem.LostRequest} {
		inWorld(t, func(w *world) {
			w.meta.FailCommits(fault)
			go func() {
				time.Sleep(50 * time.Millisecond)
				w.meta.SetDown(true)
			}()
			_, err := w.c.Submit(bg, Submission{Spec: spec("j", nil), RequestID: "r1"})
			if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "same request id") {
				t.Fatalf("submit: %v", err)
			}
			if _, err := w.c.Submit(bg, Submission{Spec: spec("j", nil)}); !errors.Is(err, ErrRefused) {
				t.Errorf("the name meanwhile: %v", err)
			}
			w.meta.SetDown(false)
			got := w.submit(Submission{Spec: spec("j", nil), RequestID: "r1"})
			w.want("j", JobRunning)
			if list, _ := w.c.List(bg); len(list) != 1 || list[0].ID != got.Job.ID {
				t.Errorf("jobs: %+v", list)
			}
			w.failOver()
			w.sleep(time.Second)
			if list, _ := w.c.List(bg); len(list) != 1 || list[0].State != JobRunning {
				t.Errorf("jobs, new leader: %+v", list)
			}
		})
	}
}

// A job may be called by its id, a prefix that no other job's id has, or its name.
func TestNamesOfJobs(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.submit(Submission{Spec: spec("a", nil)})
		w.submit(Submission{Spec: spec("b", nil)})
		for ref, want := range map[string]string{"a": "a", string(a.Job.ID): "a", "b": "b"} {
			if d, err := w.c.Get(bg, ref); err != nil || d.Job.Name != want {
				t.Errorf("%q: %+v %v", ref, d.Job, err)
			}
		}
		for _, ref := range []string{"", "c", "000"} {
			if _, err := w.c.Get(bg, ref); !errors.Is(err, ErrNotFound) {
				t.Errorf("%q: %v", ref, err)
			}
		}
	})
}

// A worker that connects anew before its loss was noticed is lost once, and deployed to again.
func TestReconnect(t *testing.T) {
	inWorld(t, func(w *world) {
		w.submit(Submission{Spec: spec("j", nil)})
		w.sleep(15 * time.Second)
		for attempt := range 5 {
			old := w.workers["w1"].session.Load()
			w.reconnect(w.workers["w1"])
			old.Disconnect(errors.New("the former stream broke"))
			synctest.Wait()
			w.sleep(time.Minute) // Passes the pause, if there is one, and heals.
			if d := w.want("j", JobRunning); d.Job.Attempt != job.Attempt(attempt+2) {
				t.Errorf("attempt %d after %d reconnections", d.Job.Attempt, attempt+1)
			}
		}
	})
}

// The news of a lost session that comes late does not touch what runs on the worker's next one.
func TestLateNewsOfALostSession(t *testing.T) {
	inWorld(t, func(w *world) {
		got := w.submit(Submission{Spec: spec("j", nil)})
		old := w.workers["w1"].session.Load()
		w.reconnect(w.workers["w1"])
		w.sleep(time.Second)
		before := w.want("j", JobRunning)
		w.c.mu.Lock()
		e := w.c.mu.jobs[got.Job.ID]
		w.c.mu.Unlock()
		e.mail.put(workerLost{worker: "w1", session: old.id, reason: "late"})
		if after := w.want("j", JobRunning); after.Job.Attempt != before.Job.Attempt {
			t.Errorf("attempt %d, was %d", after.Job.Attempt, before.Job.Attempt)
		}
	})
}

// Checkpoints that refer to objects of earlier ones keep these alive, and only these, through discards, sweeps, restarts
// and new leaders.
func TestSharedObjects(t *testing.T) {
	inWorld(t, func(w *world) {
		got := w.submit(Submission{Spec: spec("j", map[string]string{"checkpoint.retained": "1", "checkpoint.interval": "10s"})})
		shared := 0
		for i := range 80 {
			w.sleep(10 * time.Second)
			switch i {
			case 20, 60:
				w.fail(job.Task{Vertex: "sum", Subtask: 2}, job.ClassUser)
			case 40:
				w.failOver()
			}
			w.sleep(time.Second)
			have, want := w.objects(), w.referenced(got.Job.ID)
			if !slices.Equal(have, want) {
				t.Fatalf("after %d rounds: objects present:\n%v\nreferenced:\n%v", i, have, want)
			}
			newest := snapshot.CheckpointPrefix(cluster, got.Job.ID, w.get("j").Job.Checkpoint)
			for _, o := range want {
				if !strings.HasPrefix(o, newest) {
					shared++
				}
			}
		}
		if shared < 100 {
			t.Errorf("only %d times an object of an earlier checkpoint was referred to", shared)
		}
	})
}

// What was stored for checkpoints that never came to be, by tasks that died, goes when the job is over at the latest.
func TestObjectsOfNoCheckpointAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(*world){
		"finished":  (*world).end,
		"cancelled": func(w *world) { _, _ = w.c.Cancel(bg, "j") },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				got := w.submit(Submission{Spec: spec("j", map[string]string{"checkpoint.interval": "10s"})})
				w.sleep(25 * time.Second)
				lost := snapshot.CheckpointPrefix(cluster, got.Job.ID, 1) + "a1.e1.lost.0"
				if err := w.inner.Put(bg, lost, strings.NewReader("x"), 1); err != nil {
					t.Fatal(err)
				}
				end(w)
				w.sleep(15 * time.Second)
				if d := w.get("j"); !d.Job.State.Ended() || d.Job.Checkpoint == 0 {
					t.Fatalf("the job is %s with checkpoint %d", d.Job.State, d.Job.Checkpoint)
				}
				if have, want := w.objects(), w.referenced(got.Job.ID); !slices.Equal(have, want) {
					t.Errorf("objects present:\n%v\nreferenced:\n%v", have, want)
				}
			})
		})
	}
}
