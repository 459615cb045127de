//go:build e2e

package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/examples/flights/flightsjob"
	"github.com/cairnstream/cairn/job"
)

// TestWindowKills: the windowed jobs give what plain Go gives, at parallelism 1 and 4, although one of the processes that
// run their tasks is killed in the middle of the stream.
func TestWindowKills(t *testing.T) {
	t.Parallel()
	c := startSmallCluster(t, 3, 2) // One TaskManager more than the larger jobs need.
	input := t.TempDir()
	if _, err := flightsjob.Deal(input, 4); err != nil {
		t.Fatal(err)
	}
	for program, reference := range map[string]func(io.Reader) ([]byte, error){
		"flights-sliding": flightsjob.SlidingReference, "flights-sessions": flightsjob.SessionsReference,
	} {
		lines, err := gzip.NewReader(bytes.NewReader(flightsjob.Input))
		if err != nil {
			t.Fatal(err)
		}
		want, err := reference(lines)
		if err != nil {
			t.Fatal(err)
		}
		for _, parallelism := range []int{1, 4} {
			name := fmt.Sprintf("%s-%d", program, parallelism)
			output := filepath.Join(t.TempDir(), "out")
			sub := submission(t, program, input, output, 3000, func(s *job.Settings) { // 7 s, without what is read again.
				s.Parallelism, s.CheckpointInterval = parallelism, 200*time.Millisecond
			})
			sub.Spec.Name, sub.RequestID = name, name
			runWithKill(t, c, sub)
			if err := flightsjob.Check(output, want); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// runWithKill runs a job to its end and kills the TaskManager of one of its tasks when between a third and two thirds of
// the flights have been read. The job loses one attempt by that, and goes on from a checkpoint.
func runWithKill(t *testing.T, c *cluster, sub coordinator.Submission) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sub.Spec.Version = versionOf(ctx, c)
	res, err := c.client.Submit(ctx, sub)
	if err != nil {
		t.Fatal(err)
	}
	until := func(what string, cond func(coordinator.JobDetail) bool) coordinator.JobDetail {
		t.Helper()
		for {
			d := c.get(ctx, string(res.Job.ID))
			if cond(d) {
				return d
			}
			if d.Job.State.Ended() || ctx.Err() != nil {
				t.Fatalf("%s: no %s: the job is %s: %s, %d restarts", sub.Spec.Name, what, d.Job.State, d.Job.Reason, d.Job.Restarts)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	d := until("middle of the stream", func(d coordinator.JobDetail) bool {
		return d.Job.State == coordinator.JobRunning && d.Job.Counters["records_read"] > flightsjob.Lines/3 && d.Job.Checkpoint > 1
	})
	if read := d.Job.Counters["records_read"]; read > flightsjob.Lines*2/3 || d.Job.Restarts > 0 {
		t.Fatalf("%s: %d flights were read and %d restarts were made before the kill", sub.Spec.Name, read, d.Job.Restarts)
	}
	pid, killed := workerPID(ctx, c, d.Vertices[len(d.Vertices)-1].Tasks[0].Worker), -1
	for i, p := range c.tms {
		if p.PID() == pid {
			p.Kill()
			killed = i
		}
	}
	if killed < 0 {
		t.Fatalf("%s: process %d, which runs a task, is no TaskManager", sub.Spec.Name, pid)
	}
	again := until("restart", func(d coordinator.JobDetail) bool { return d.Job.Restarts > 0 && d.Job.State == coordinator.JobRunning })
	if again.Restored < d.Job.Checkpoint {
		t.Errorf("%s: it went on from checkpoint %d, not from %d or a later one", sub.Spec.Name, again.Restored, d.Job.Checkpoint)
	}
	c.startTaskManager(killed)
	end := until("end", func(d coordinator.JobDetail) bool { return d.Job.State == coordinator.JobFinished })
	if end.Job.Restarts != 1 {
		t.Errorf("%s: %d restarts", sub.Spec.Name, end.Job.Restarts)
	}
	t.Logf("%s: killed after %d flights at checkpoint %d, restored from %d", sub.Spec.Name, d.Job.Counters["records_read"], d.Job.Checkpoint, again.Restored)
}
