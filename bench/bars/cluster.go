package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/internal/proc"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/rpc"
)

// cluster is a JobManager with embedded etcd and TaskManagers, each a process.
type cluster struct {
	c      config
	dir    string
	jm     *proc.Process
	tms    []*proc.Process
	client *rpc.Client
}

// stopTimeout is what a process gets to end; nothing is lost when it is killed then.
const stopTimeout = 10 * time.Second

// startCluster starts one. name is that of its directory.
func startCluster(c config, name string, taskManagers, slots int) (*cluster, error) {
	cl := &cluster{c: c, dir: filepath.Join(c.dir, name)}
	if err := os.MkdirAll(cl.dir, 0o755); err != nil {
		return nil, err
	}
	var err error
	if cl.jm, err = startJobManager(c, cl.dir, "jobmanager"); err != nil {
		return nil, err
	}
	for range taskManagers {
		if _, err := cl.startTaskManager(slots); err != nil {
			cl.stop()
			return nil, err
		}
	}
	if cl.client, err = rpc.NewClient(rpc.ClientConfig{JobManagers: []string{cl.jm.Ports["listen"]}}); err != nil {
		cl.stop()
		return nil, err
	}
	return cl, nil
}

func startJobManager(c config, dir, name string) (*proc.Process, error) {
	return proc.Start(proc.Config{Name: name, Binary: c.self, Dir: dir, Args: []string{
		"jobmanager", "--etcd", "embedded:" + filepath.Join(dir, name+"-metadata"), "--blob", "file://" + filepath.Join(dir, name+"-blob"),
		"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
	}})
}

func (cl *cluster) startTaskManager(slots int) (*proc.Process, error) {
	p, err := proc.Start(proc.Config{Name: fmt.Sprintf("taskmanager-%d", len(cl.tms)+1), Binary: cl.c.self, Dir: cl.dir, Args: []string{
		"taskmanager", "--jobmanager", cl.jm.Ports["listen"], "--slots", fmt.Sprint(slots),
		"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--dir", cl.dir,
	}})
	if err == nil {
		cl.tms = append(cl.tms, p)
	}
	return p, err
}

// stop ends every process.
func (cl *cluster) stop() {
	if cl.client != nil {
		_ = cl.client.Close()
	}
	for _, p := range cl.tms {
		p.Kill() // A drain would take a last checkpoint, which nobody needs.
	}
	_ = cl.jm.Stop(stopTimeout) // Killed if it does not end.
}

// cpu is the CPU time of the TaskManagers so far.
func (cl *cluster) cpu() (sum time.Duration, err error) {
	for _, p := range cl.tms {
		d, err := cpuOfProcess(p.PID())
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// waitUntil asks for the job until cond holds.
func (cl *cluster) waitUntil(ctx context.Context, id job.ID, what string, cond func(coordinator.JobDetail) bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		d, err := cl.client.Get(ctx, string(id))
		if err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
		if cond(d) {
			return nil
		}
		if d.Job.State.Ended() {
			return fmt.Errorf("wait until %s: job %s: %s", what, d.Job.State, d.Job.Reason)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: the job is %s: %w", what, d.Job.State, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// allRun tells whether every task runs.
func allRun(d coordinator.JobDetail) bool { return !d.Progress.RunningSince.IsZero() }

// waitFinished waits until a bounded job is through.
func (cl *cluster) waitFinished(ctx context.Context, id job.ID) error {
	var last coordinator.JobDetail
	err := cl.client.Watch(ctx, string(id), func(d coordinator.JobDetail) error {
		last = d
		return nil
	})
	if err == nil && last.Job.State != coordinator.JobFinished {
		err = fmt.Errorf("the job is %s: %s", last.Job.State, last.Job.Reason)
	}
	return err
}
