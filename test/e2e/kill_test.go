//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/examples/flights/flightsjob"
	"github.com/cairnstream/cairn/job"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the kills; 0 draws one")

const (
	killsOfTaskManagers = 20
	killsOfJobManager   = 5
	parallelism         = 4
	// rate is low enough that the run outlasts the kills: 20,000 records take 154 s without any.
	rate = 130
	// meanGap is the mean time from one kill to the next. 25 of them fit into the run.
	meanGap = 4 * time.Second
)

// TestKills: the output is exact however often and whenever processes die.
func TestKills(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64() >> 32
	}
	t.Run("exactly-once", func(t *testing.T) {
		t.Parallel()
		out := runWithKills(t, seed, job.ExactlyOnce)
		if err := flightsjob.Check(out, flightsjob.Expected); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("at-least-once", func(t *testing.T) {
		t.Parallel()
		out := runWithKills(t, seed, job.AtLeastOnce)
		surplus, err := flightsjob.CheckAtLeastOnce(out, flightsjob.Expected)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("seed %d: surplus of %d flights", seed, surplus)
		fmt.Printf("at-least-once, seed %d: nothing missing, surplus of %d flights\n", seed, surplus)
	})
}

// submission makes a job of a flights program.
func submission(t *testing.T, program, input, output string, rate int, s func(*job.Settings)) coordinator.Submission {
	t.Helper()
	p := cairn.NewPrograms(
		cairn.Program("flights-daily", flightsjob.DailyJob),
		cairn.Program("flights-sliding", flightsjob.SlidingJob),
		cairn.Program("flights-sessions", flightsjob.SessionsJob),
	)
	spec := job.Spec{
		Name: program, Program: program,
		Args: map[string]string{"input": filepath.Join(input, "*"), "output": output, "rate": fmt.Sprint(rate)},
	}
	bp, err := p.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	spec.Graph, spec.Settings = bp.Graph, job.DefaultSettings()
	spec.Settings.Parallelism = parallelism
	s(&spec.Settings)
	return coordinator.Submission{Spec: spec, RequestID: "e2e"}
}

// runWithKills runs the job to its end under kills and returns the output directory.
func runWithKills(t *testing.T, seed uint64, mode job.Mode) string {
	t.Logf("seed %d (repeat with -seed %d)", seed, seed)
	fmt.Printf("%s: seed %d\n", mode, seed)
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	c := startCluster(t, 3, 2)
	input, output := t.TempDir(), filepath.Join(t.TempDir(), "out")
	if _, err := flightsjob.Deal(input, parallelism); err != nil {
		t.Fatal(err)
	}
	sub := submission(t, "flights-daily", input, output, rate, func(s *job.Settings) {
		s.CheckpointInterval, s.CheckpointMode = 500*time.Millisecond, mode
	})
	sub.Spec.Version = versionOf(ctx, c)
	res, err := c.client.Submit(ctx, sub)
	if err != nil {
		t.Fatal(err)
	}
	id := string(res.Job.ID)
	killAll(ctx, c, id, rand.New(rand.NewPCG(seed, 2)))
	start := time.Now()
	for {
		d := c.get(ctx, id)
		if d.Job.State.Ended() {
			if d.Job.State != coordinator.JobFinished {
				t.Fatalf("the job ended as %s: %s", d.Job.State, d.Job.Reason)
			}
			t.Logf("%s: finished %v after the last kill, %d restarts, newest checkpoint %d", mode, time.Since(start).Round(time.Second), d.Job.Restarts, d.Job.Checkpoint)
			return output
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the job did not end: %s: %s", d.Job.State, d.Job.Reason)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// versionOf is the version of the program that the TaskManagers registered.
func versionOf(ctx context.Context, c *cluster) string {
	for {
		nodes, err := c.client.Nodes(ctx)
		if err == nil && len(nodes) > 0 {
			return nodes[0].Worker.Programs[0].Version
		}
		if ctx.Err() != nil {
			c.t.Fatalf("no TaskManager registered: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// stall stops a TaskManager for longer than the checkpoint interval and lets it go on a little before
// a kill. The barriers on its channels come late, so that alignment has something to do: without it,
// as in at-least-once mode, the records of the other channels are counted and then read again.
func stall(c *cluster, rng *rand.Rand) {
	p := c.tms[rng.IntN(len(c.tms))]
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		c.t.Fatal(err)
	}
	time.Sleep(600 * time.Millisecond)
	if err := p.Signal(syscall.SIGCONT); err != nil {
		c.t.Fatal(err)
	}
	time.Sleep(50*time.Millisecond + time.Duration(rng.Int64N(int64(300*time.Millisecond))))
}

// killAll kills processes at random moments and starts each again 0 to 3 s later.
func killAll(ctx context.Context, c *cluster, id string, rng *rand.Rand) {
	c.t.Helper()
	kills := make([]bool, killsOfTaskManagers+killsOfJobManager) // true: the JobManager.
	for i := range killsOfJobManager {
		kills[i] = true
	}
	rng.Shuffle(len(kills), func(i, j int) { kills[i], kills[j] = kills[j], kills[i] })
	for n, jobManager := range kills {
		gap := meanGap/3 + time.Duration(rng.Int64N(int64(meanGap*4/3)))
		down := time.Duration(rng.Int64N(int64(3 * time.Second)))
		who := rng.IntN(len(c.tms))
		select {
		case <-ctx.Done():
			c.t.Fatal("out of time in the middle of the kills")
		case <-time.After(gap):
		}
		stall(c, rng)
		if d := c.get(ctx, id); d.Job.State.Ended() {
			c.t.Fatalf("the job ended as %s (%s) after %d of %d kills: it must outlast them", d.Job.State, d.Job.Reason, n, len(kills))
		}
		if jobManager {
			c.jm.Kill()
			time.Sleep(down)
			c.startJobManager()
			continue
		}
		c.tms[who].Kill()
		time.Sleep(down)
		c.startTaskManager(who)
	}
	fmt.Fprintf(os.Stderr, "%d kills done\n", len(kills))
}
