package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/cli"
	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/examples/flights/flightsjob"
	"github.com/cairnstream/cairn/internal/proc"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/rpc"
)

// What the demo runs.
const (
	demoFiles       = 4    // The input is dealt out to so many files, one per subtask.
	demoRate        = 1200 // Records per second over all: the run lasts long enough to be watched.
	demoRecords     = 20000
	demoInterval    = time.Second
	demoKillAfter   = demoRecords * 2 / 5
	demoRescale     = demoRecords * 7 / 10 // Then the job is stopped, and goes on with twice the parallelism.
	demoMarker      = ".cairn-demo"
	demoTimeout     = 3 * time.Minute
	demoStopTimeout = 20 * time.Second
)

func demoCommand(a *cli.App) *cobra.Command {
	dir := "demo-out"
	return a.Simple(&cobra.Command{
		Use: "demo", Short: "runs a job on real flight data, kills a TaskManager under it, rescales it, and proves the answer",
	}, map[string]cli.Text{"dir": {Value: &dir, Arg: "DIR", Usage: "directory of the demo, emptied at the start (default demo-out)"}},
		func(ctx context.Context) error { return runDemo(ctx, dir, a.Stderr, a.Stdout) })
}

// demo is one run.
type demo struct {
	dir      string
	binary   string
	say      func(format string, args ...any)
	jm       *proc.Process
	tms      []*proc.Process
	client   *rpc.Client
	started  time.Time
	killed   time.Time
	stopped  *coordinator.JobDetail // As it was before it was rescaled.
	moved    time.Duration          // From the wish to stop until every task ran again.
	reported map[string]bool
}

func runDemo(ctx context.Context, dir string, progress, result io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	d := &demo{started: time.Now(), reported: map[string]bool{}}
	d.say = func(format string, args ...any) {
		fmt.Fprintf(progress, "%5.1fs  %s\n", time.Since(d.started).Seconds(), fmt.Sprintf(format, args...))
	}
	if d.dir, err = demoDir(dir); err != nil {
		return err
	}
	if d.binary, err = os.Executable(); err != nil {
		return fmt.Errorf("find the own executable: %w", err)
	}
	defer func() {
		if serr := d.stop(); err == nil {
			err = serr
		}
	}()
	proof, err := d.run(ctx)
	if err != nil {
		return err
	}
	fmt.Fprint(result, proof)
	return nil
}

// demoDir empties the directory of an earlier demo. It touches no other.
func demoDir(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return "", err
	case len(entries) > 0:
		if _, err := os.Stat(filepath.Join(dir, demoMarker)); err != nil {
			return "", fmt.Errorf("%s is not empty and not of an earlier demo: choose another with --dir", dir)
		}
		if err := os.RemoveAll(dir); err != nil {
			return "", fmt.Errorf("empty the directory of an earlier demo: %w", err)
		}
	}
	for _, sub := range []string{"logs", "input"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return "", err
		}
	}
	return dir, os.WriteFile(filepath.Join(dir, demoMarker), []byte("made by cairn demo, emptied by the next one\n"), 0o644)
}

func (d *demo) start(name string, args ...string) (*proc.Process, error) {
	return proc.Start(proc.Config{Name: name, Binary: d.binary, Args: args, Dir: filepath.Join(d.dir, "logs")})
}

func (d *demo) startTaskManager() (*proc.Process, error) {
	p, err := d.start(fmt.Sprintf("taskmanager-%d", len(d.tms)+1), "taskmanager", "--jobmanager", d.jm.Ports["listen"],
		"--slots", "2", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--dir", filepath.Join(d.dir, "local"))
	if err != nil {
		return nil, err
	}
	d.tms = append(d.tms, p)
	return p, nil
}

// run does everything and returns the proof.
func (d *demo) run(ctx context.Context) (string, error) {
	input := filepath.Join(d.dir, "input")
	if _, err := flightsjob.Deal(input, demoFiles); err != nil {
		return "", err
	}
	d.say("input: %d flights of early 2001, dealt out to %d files in %s", demoRecords, demoFiles, input)
	var err error
	d.jm, err = d.start("jobmanager", "jobmanager", "--etcd", "embedded:"+filepath.Join(d.dir, "metadata"),
		"--blob", "file://"+filepath.Join(d.dir, "checkpoints"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	d.say("JobManager: pid %d on %s, embedded etcd", d.jm.PID(), d.jm.Ports["listen"])
	for range 2 {
		p, err := d.startTaskManager()
		if err != nil {
			return "", err
		}
		d.say("%s: pid %d, 2 slots", p.Name, p.PID())
	}
	if d.client, err = rpc.NewClient(rpc.ClientConfig{JobManagers: []string{d.jm.Ports["listen"]}}); err != nil {
		return "", err
	}
	defer func() { _ = d.client.Close() }()
	output := filepath.Join(d.dir, "output")
	spec, err := demoSpec(input, output, demoFiles/2)
	if err != nil {
		return "", err
	}
	sub, err := d.client.Submit(ctx, coordinator.Submission{Spec: spec})
	if err != nil {
		return "", err
	}
	d.say("job %s: %s, parallelism %d, a checkpoint every %v, exactly once", sub.Job.ID, spec.Name, spec.Settings.Parallelism, demoInterval)
	last, err := d.watch(ctx, string(sub.Job.ID))
	if errors.Is(err, errRescale) {
		before := last
		d.stopped = &before
		if err = d.rescale(ctx, string(sub.Job.ID), input, output); err == nil {
			last, err = d.watch(ctx, string(sub.Job.ID))
		}
	}
	if err != nil {
		return "", err
	}
	return d.prove(last, output)
}

// errRescale ends watching for a while.
var errRescale = errors.New("it is time to rescale")

// rescale stops the job with a savepoint and lets it go on, under its own id, with as many subtasks as there are slots.
func (d *demo) rescale(ctx context.Context, id, input, output string) error {
	began := time.Now()
	s, err := d.client.TakeSavepoint(ctx, id, coordinator.SavepointOptions{Stop: true})
	if err != nil {
		return fmt.Errorf("stop the job: %w", err)
	}
	d.say("stopped with a savepoint: %s", s.URL)
	spec, err := demoSpec(input, output, demoFiles)
	if err != nil {
		return err
	}
	sub, err := d.client.Submit(ctx, coordinator.Submission{Spec: spec})
	switch {
	case err != nil:
		return fmt.Errorf("go on with another parallelism: %w", err)
	case string(sub.Job.ID) != id || sub.ResumedFrom != s.Checkpoint:
		return fmt.Errorf("the job does not go on from the savepoint's checkpoint %d: it is %s, from %d", s.Checkpoint, sub.Job.ID, sub.ResumedFrom)
	}
	for {
		j, err := d.client.Get(ctx, id)
		switch {
		case err != nil:
			return err
		case !j.Progress.RunningSince.IsZero() || j.Job.State.Ended():
			d.moved = time.Since(began)
			d.say("parallelism %d -> %d: every task runs again, from checkpoint %d, after %v", demoFiles/2, demoFiles, uint64(j.Restored), d.moved.Round(time.Millisecond))
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func demoSpec(input, output string, parallelism int) (job.Spec, error) {
	p := cairn.NewPrograms(programs()...)
	spec := job.Spec{
		Name: flightsProgram, Program: flightsProgram, Version: p.List()[0].Version,
		Args: map[string]string{"input": filepath.Join(input, "*"), "output": output, "rate": fmt.Sprint(demoRate)},
	}
	bp, err := p.Build(spec)
	if err != nil {
		return spec, err
	}
	spec.Graph, spec.Settings = bp.Graph, job.DefaultSettings()
	spec.Settings.Parallelism, spec.Settings.CheckpointInterval = parallelism, demoInterval
	return spec, spec.Validate()
}

// watch follows the job to its end, kills a TaskManager on the way, and replaces it.
func (d *demo) watch(ctx context.Context, id string) (last coordinator.JobDetail, err error) {
	var shown time.Time
	err = d.client.Watch(ctx, id, func(j coordinator.JobDetail) error {
		last = j
		read := j.Job.Counters["records_read"]
		if now := time.Now(); now.Sub(shown) >= time.Second && !j.Job.State.Ended() {
			shown = now
			d.say("%-10s  records %6d  checkpoint %v (%d completed)", j.Job.State, read, uint64(j.Job.Checkpoint), j.Progress.CheckpointsCompleted)
		}
		for _, in := range j.Progress.Incidents {
			if key := fmt.Sprint(in.Attempt); in.Recovery > 0 && !d.reported[key] {
				d.reported[key] = true
				d.say("recovered: every task runs again, from checkpoint %d, %v after the loss was noticed", uint64(j.Restored), in.Recovery.Round(time.Millisecond))
			}
		}
		if d.killed.IsZero() && read >= demoKillAfter && j.Progress.CheckpointsCompleted >= 2 {
			victim, err := d.busy(ctx, j)
			if err != nil {
				return err
			}
			d.killed = time.Now()
			victim.Kill()
			d.say("kill -9 of %s (pid %d), in the middle of the stream", victim.Name, victim.PID())
			p, err := d.startTaskManager()
			if err != nil {
				return err
			}
			d.say("%s: pid %d, in its place", p.Name, p.PID())
		}
		recovered := len(j.Progress.Incidents) > 0 && j.Progress.Incidents[len(j.Progress.Incidents)-1].Recovery > 0
		if d.stopped == nil && recovered && read >= demoRescale && j.Job.State == coordinator.JobRunning {
			return errRescale
		}
		return nil
	})
	if errors.Is(err, errRescale) {
		return last, err
	}
	if err != nil {
		return last, fmt.Errorf("follow the job: %w; the logs are in %s", err, filepath.Join(d.dir, "logs"))
	}
	return last, nil
}

// busy finds a TaskManager that runs a task of the job.
func (d *demo) busy(ctx context.Context, j coordinator.JobDetail) (*proc.Process, error) {
	nodes, err := d.client.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		for _, v := range j.Vertices {
			if !slices.ContainsFunc(v.Tasks, func(t coordinator.TaskStatus) bool { return t.Worker == n.Worker.ID }) {
				continue
			}
			for _, p := range d.tms {
				if p.PID() == n.Worker.PID {
					return p, nil
				}
			}
		}
	}
	return nil, errors.New("no TaskManager runs a task of the job")
}

// prove checks the outcome and says what was shown.
func (d *demo) prove(j coordinator.JobDetail, output string) (string, error) {
	if j.Job.State != coordinator.JobFinished {
		return "", fmt.Errorf("the job ended as %s: %s; the logs are in %s", j.Job.State, j.Job.Reason, filepath.Join(d.dir, "logs"))
	}
	if d.stopped == nil || len(d.stopped.Progress.Incidents) == 0 {
		return "", errors.New("the job ended before the kill and the rescale had an effect: nothing is proved")
	}
	if err := flightsjob.Check(output, flightsjob.Expected); err != nil {
		return "", fmt.Errorf("the output is wrong: %w", err)
	}
	rows, err := flightsjob.Output(output)
	if err != nil {
		return "", err
	}
	in := d.stopped.Progress.Incidents[0]
	return fmt.Sprintf(`
What this run proved
  records      %d flights read, at least %d of them again after the recovery
  checkpoints  %d completed, %d failed
  the kill     kill -9 of a TaskManager, noticed %v later
  recovery     %v from the loss to every task running again, %d restart(s)
  rescale      parallelism %d -> %d by a stop with a savepoint, %v until every task ran again
  late         %d records
  output       %d rows (origin, day), equal to the expected file, each exactly once
  took         %v
The output is in %s, the logs beside it.
`,
		int64(demoRecords), max(0, j.Job.Counters["records_read"]+d.stopped.Job.Counters["records_read"]-demoRecords),
		d.stopped.Progress.CheckpointsCompleted+j.Progress.CheckpointsCompleted, d.stopped.Progress.CheckpointsFailed+j.Progress.CheckpointsFailed,
		in.Time.Sub(d.killed).Round(time.Millisecond), in.Recovery.Round(time.Millisecond), j.Job.Restarts,
		demoFiles/2, demoFiles, d.moved.Round(time.Millisecond), d.stopped.Job.Counters["late_records"]+j.Job.Counters["late_records"], len(rows), time.Since(d.started).Round(100*time.Millisecond), output), nil
}

// stop ends every process that the demo started.
func (d *demo) stop() error {
	var first error
	for _, p := range d.tms {
		select {
		case <-p.Done():
			continue // Killed on purpose, or it has said why in its log.
		default:
		}
		if err := p.Stop(demoStopTimeout); err != nil && first == nil {
			first = fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	if d.jm != nil {
		if err := d.jm.Stop(demoStopTimeout); err != nil && first == nil {
			first = fmt.Errorf("jobmanager: %w", err)
		}
	}
	return first
}
