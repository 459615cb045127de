//go:build e2e

package e2e

import (
	"context"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/examples/flights/flightsjob"
	"github.com/cairnstream/cairn/job"
)

// TestAway: a job runs on while etcd or the blob store is away, in one attempt, and takes checkpoints again when they are
// back. A TaskManager that hangs is found out and costs one restart; when it wakes up it changes nothing, and its slots
// are free. One that is asked to end does so in time, after a checkpoint. The output is exact.
func TestAway(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	c := startCluster(t, 3, 2) // One TaskManager more than the job needs.
	input, output := t.TempDir(), filepath.Join(t.TempDir(), "out")
	if _, err := flightsjob.Deal(input, parallelism); err != nil {
		t.Fatal(err)
	}
	sub := submission(t, "flights-daily", input, output, 350, func(s *job.Settings) { // About a minute.
		s.CheckpointInterval, s.CheckpointTimeout = 500*time.Millisecond, 5*time.Second
	})
	sub.Spec.Version = versionOf(ctx, c)
	res, err := c.client.Submit(ctx, sub)
	if err != nil {
		t.Fatal(err)
	}
	id := string(res.Job.ID)
	// until waits for cond; what happens after it was called is what counts.
	until := func(what string, cond func(now, then coordinator.JobDetail) bool) coordinator.JobDetail {
		t.Helper()
		then := c.get(ctx, id)
		for {
			now := c.get(ctx, id)
			switch {
			case cond(now, then):
				return now
			case now.Job.State.Ended():
				t.Fatalf("%s: the job has ended as %s: %s", what, now.Job.State, now.Job.Reason)
			case ctx.Err() != nil:
				t.Fatalf("%s: does not happen; the job is %s: %s, %d restarts", what, now.Job.State, now.Job.Reason, now.Job.Restarts)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	moreCheckpoints := func(now, then coordinator.JobDetail) bool { return now.Job.Checkpoint >= then.Job.Checkpoint+2 }
	reads := func(now, then coordinator.JobDetail) bool {
		return now.Job.Counters["records_read"] > then.Job.Counters["records_read"]+100
	}
	until("first checkpoints", moreCheckpoints)

	// Longer than the lease of the leader, which is 5 s.
	if err := c.etcd.Members[0].Pause(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(7 * time.Second)
	until("progress without etcd", reads)
	if err := c.etcd.Members[0].Resume(); err != nil {
		t.Fatal(err)
	}
	until("checkpoints after etcd was away", moreCheckpoints)

	c.s3.Kill()
	until("progress without the blob store", reads)
	until("a failed checkpoint", func(now, _ coordinator.JobDetail) bool { return now.Progress.CheckpointsFailed > 0 })
	if err := c.s3.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	d := until("checkpoints after the blob store was away", moreCheckpoints)
	if d.Job.Restarts != 0 {
		t.Errorf("%d restarts because a store was away: %v", d.Job.Restarts, d.Progress.Incidents)
	}

	hung := -1
	var left int
	for i, p := range c.tms {
		for _, v := range d.Vertices {
			if workerPID(ctx, c, v.Tasks[0].Worker) == p.PID() {
				hung = i
			}
		}
	}
	if hung < 0 {
		t.Fatal("no TaskManager runs a task")
	}
	if err := c.tms[hung].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until("a restart without the TaskManager that hangs", func(now, _ coordinator.JobDetail) bool {
		return now.Job.Restarts == 1 && now.Job.State == coordinator.JobRunning
	})
	until("checkpoints without it", moreCheckpoints)
	if err := c.tms[hung].Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	until("its return with all slots free", func(coordinator.JobDetail, coordinator.JobDetail) bool {
		nodes, err := c.client.Nodes(ctx)
		if err != nil || len(nodes) != len(c.tms) {
			return false
		}
		for _, n := range nodes {
			if n.Worker.PID == c.tms[hung].PID() {
				return n.FreeSlots == c.slots && n.Tasks == 0
			}
		}
		return false
	})

	left = (hung + 1) % len(c.tms)
	if err := c.tms[left].Stop(15 * time.Second); err != nil {
		t.Errorf("a TaskManager that was asked to end: %v", err)
	}
	until("a restart without the TaskManager that left", func(now, _ coordinator.JobDetail) bool {
		return now.Job.Restarts == 2 && now.Job.State == coordinator.JobRunning
	})
	for !d.Job.State.Ended() {
		if ctx.Err() != nil {
			t.Fatalf("the job does not end: %s", d.Job.State)
		}
		time.Sleep(100 * time.Millisecond)
		d = c.get(ctx, id)
	}
	if d.Job.State != coordinator.JobFinished || d.Job.Restarts != 2 {
		t.Errorf("the job ended as %s: %s, after %d restarts", d.Job.State, d.Job.Reason, d.Job.Restarts)
	}
	if err := flightsjob.Check(output, flightsjob.Expected); err != nil {
		t.Error(err)
	}
}

// workerPID is the process of a TaskManager; 0 if it is not connected.
func workerPID(ctx context.Context, c *cluster, id job.WorkerID) int {
	nodes, err := c.client.Nodes(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Worker.ID == id {
			return n.Worker.PID
		}
	}
	return 0
}
