package task_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	ggrpc "google.golang.org/grpc"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/coordinator/lifecycle"
	"github.com/cairnstream/cairn/exchange"
	xgrpc "github.com/cairnstream/cairn/exchange/grpc"
	"github.com/cairnstream/cairn/exchange/inproc"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
	"github.com/cairnstream/cairn/statebackend/memory"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// programs builds the one program of a test.
type programs struct{ p stream.Program }

func (p programs) Build(spec job.Spec) (*operator.Blueprint, error) {
	return stream.Build(p.p, spec.Args)
}

func (c *cluster) backends(name string) (statebackend.Factory, error) {
	if c.factory != nil {
		return c.factory(name), nil
	}
	if name == statebackend.Memory {
		return memory.Factory{}, nil
	}
	return fs.Factory{FullBelow: 1}, nil // Also of the little state that tests have only the changes are written.
}

// cluster is a few workers and a coordinator of the simplest kind, driven by the test.
type cluster struct {
	t       testing.TB
	prog    stream.Program
	blob    blob.Store
	workers []*worker
	reports chan job.Report
	// factory, if set before the first deploy, makes the state backends.
	factory func(name string) statebackend.Factory

	spec    job.Spec
	plan    *job.Plan
	attempt job.Attempt
	next    job.CheckpointID
	// committed is the newest durable checkpoint, nil before the first.
	committed   *job.Restore
	finished    map[job.Task]map[string]job.SubtaskSnapshot // Last snapshot of tasks that closed.
	last        map[job.Task]map[string]job.SubtaskSnapshot // Of the newest checkpoint, by task.
	states      map[job.Task]job.TaskState
	failures    []job.Failure
	checkpoints int
}

type worker struct {
	m      *task.Manager
	id     job.WorkerID
	addr   string
	server *ggrpc.Server
	xs     *xgrpc.Server
	dialer *xgrpc.Dialer
}

func newCluster(t testing.TB, workers int, p stream.Program, s job.Settings) *cluster {
	t.Helper()
	c := &cluster{t: t, prog: p, blob: mem.New("test"), reports: make(chan job.Report, 1<<16)}
	for i := range workers {
		w := &worker{id: job.WorkerID(fmt.Sprintf("w%d", i))}
		dir := exchange.NewDirectory()
		var err error
		if w.dialer, err = xgrpc.NewDialer(xgrpc.Options{}); err != nil {
			t.Fatal(err)
		}
		if w.xs, err = xgrpc.NewServer(dir, xgrpc.Options{}); err != nil {
			t.Fatal(err)
		}
		w.server = ggrpc.NewServer(xgrpc.ServerOptions()...)
		w.xs.Register(w.server)
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		w.addr = lis.Addr().String()
		go func() { _ = w.server.Serve(lis) }()
		w.m = task.NewManager(task.Config{
			Info: job.WorkerInfo{ID: w.id, Slots: 4, Data: w.addr}, Programs: programs{p}, Directory: dir, Dialer: w.dialer,
			Local: func(ctx context.Context, p *exchange.Port) exchange.Out {
				return inproc.Connect(ctx, p, inproc.Options{})
			},
			Backend: c.backends, Log: zap.NewNop(), TempDir: t.TempDir(), StateDir: t.TempDir(), LocalDir: t.TempDir(),
			StateMemory: statebackend.NewBudget(64 << 20),
		})
		w.m.Attach(task.Session{Epoch: 1, Cluster: "test", Blob: c.blob, Report: func(r job.Report) { c.reports <- r }})
		c.workers = append(c.workers, w)
	}
	bp, err := stream.Build(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.spec = job.Spec{Name: "test", Program: p.Name, Settings: s, Graph: bp.Graph}
	t.Cleanup(c.close)
	return c
}

func (c *cluster) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, w := range c.workers {
		wg.Go(func() {
			if err := w.m.Close(ctx); err != nil {
				c.t.Error(err)
			}
			w.xs.Close()
			w.server.Stop()
			w.dialer.Close()
		})
	}
	wg.Wait()
}

func (c *cluster) run() job.Run { return job.Run{Job: "job", Attempt: c.attempt} }

// deploy starts a new attempt from the newest committed checkpoint.
func (c *cluster) deploy(parallelism int) {
	c.t.Helper()
	c.deployOnly(parallelism)
	c.all(job.Start{Run: c.run()})
}

// deployOnly deploys an attempt and waits until it is ready.
func (c *cluster) deployOnly(parallelism int) {
	c.t.Helper()
	c.attempt++
	c.spec.Settings.Parallelism = parallelism
	var err error
	if c.plan, err = job.NewPlan(c.spec.Graph, c.spec.Settings); err != nil {
		c.t.Fatal(err)
	}
	c.states = map[job.Task]job.TaskState{}
	c.finished = map[job.Task]map[string]job.SubtaskSnapshot{}
	c.failures = nil
	var places []job.Placement
	on := map[job.WorkerID][]job.Task{}
	for i, t := range c.plan.Tasks() {
		w := c.workers[(i+t.Subtask)%len(c.workers)]
		places = append(places, job.Placement{Task: t, Worker: w.id, Data: w.addr})
		on[w.id] = append(on[w.id], t)
	}
	for _, w := range c.workers {
		w.m.Handle(job.Deploy{Run: c.run(), Spec: c.spec, Placements: places, Tasks: on[w.id], Restore: c.committed})
	}
	c.until("ready", func() bool { return c.count(job.TaskReady) == len(c.plan.Tasks()) })
}

func (c *cluster) all(cmd job.Command) {
	for _, w := range c.workers {
		w.m.Handle(cmd)
	}
}

func (c *cluster) count(states ...job.TaskState) (n int) {
	for _, s := range c.states {
		for _, want := range states {
			if s == want {
				n++
			}
		}
	}
	return n
}

// handle takes one report of this attempt; acks and declines are returned.
func (c *cluster) handle(r job.Report) job.Report {
	switch r := r.(type) {
	case job.TaskChanged:
		if r.Run != c.run() {
			return nil
		}
		if r.Failure != nil {
			c.failures = append(c.failures, *r.Failure)
		}
		c.states[r.Task] = r.State
		if r.State == job.TaskFinished {
			c.finished[r.Task] = c.last[r.Task]
			finished := func(t job.Task) bool { return c.states[t] == job.TaskFinished }
			if en, done := lifecycle.TopologyOf(c.plan).ReadersDone(r.Task, finished); done {
				c.all(job.ReadersDone{Run: c.run(), Task: en})
			}
		}
	case job.Mail:
		if r.Run == c.run() {
			c.all(job.Deliver{Run: r.Run, To: r.To, From: r.From, Body: r.Body})
		}
	case job.Ack, job.Decline:
		return r
	}
	return nil
}

// until handles reports until cond holds; a failed task ends the test.
func (c *cluster) until(what string, cond func() bool) {
	c.t.Helper()
	timeout := time.After(time.Minute)
	for !cond() {
		select {
		case r := <-c.reports:
			c.handle(r)
			if len(c.failures) > 0 {
				c.t.Fatalf("waiting for %s: %v\n%s", what, c.failures[0], c.failures[0].Stack)
			}
		case <-timeout:
			c.t.Fatalf("waiting for %s: states %v", what, c.states)
		}
	}
}

// failed waits for the failure of a task.
func (c *cluster) failed(t *testing.T) job.Failure {
	t.Helper()
	timeout := time.After(time.Minute)
	for len(c.failures) == 0 {
		select {
		case r := <-c.reports:
			c.handle(r)
		case <-timeout:
			t.Fatalf("no task fails: states %v", c.states)
		}
	}
	return c.failures[0]
}

// checkpoint takes one; it tells whether it completed. commit says whether to tell the tasks.
func (c *cluster) checkpoint(commit bool) bool {
	c.t.Helper()
	c.next++
	id := c.next
	var to []job.Task
	waiting := map[job.Task]bool{}
	for _, t := range c.plan.Tasks() {
		if c.states[t] == job.TaskFinished {
			continue
		}
		waiting[t] = true
		if c.plan.Vertices[c.plan.Vertex(t.Vertex)].Enumerator {
			to = append(to, t)
		}
	}
	committed := job.CheckpointID(0)
	if c.committed != nil {
		committed = c.committed.Checkpoint
	}
	c.all(job.Trigger{Run: c.run(), Checkpoint: id, To: to, Committed: committed, Mode: c.spec.Settings.CheckpointMode})
	got := map[job.Task]map[string]job.SubtaskSnapshot{}
	for t, ops := range c.finished {
		got[t] = ops
	}
	timeout := time.After(30 * time.Second)
	for len(waiting) > 0 {
		select {
		case r := <-c.reports:
			switch r := c.handle(r).(type) {
			case job.Ack:
				if r.Run == c.run() && r.Checkpoint == id {
					got[r.Task] = r.Operators
					delete(waiting, r.Task)
				}
			case job.Decline:
				if r.Run == c.run() && r.Checkpoint == id {
					c.t.Fatalf("declined: %v", r.Failure)
				}
			}
			if len(c.failures) > 0 {
				c.t.Fatalf("checkpoint %v: %v\n%s", id, c.failures[0], c.failures[0].Stack)
			}
			for t := range c.finished {
				if waiting[t] {
					got[t] = c.finished[t]
					delete(waiting, t)
				}
			}
		case <-timeout:
			c.t.Fatalf("checkpoint %v: no answer of %v", id, waiting)
		}
	}
	c.last = got
	res := &job.Restore{Checkpoint: id, Job: c.run().Job, Operators: map[string]job.OperatorSnapshot{}}
	for _, v := range c.plan.Vertices {
		for _, n := range v.Operators {
			name := c.plan.Graph.Operators[n].Name
			snap := job.OperatorSnapshot{Parallelism: v.Parallelism, Subtasks: make([]job.SubtaskSnapshot, v.Parallelism)}
			for i := range v.Parallelism {
				snap.Subtasks[i] = got[job.Task{Vertex: v.Name, Subtask: i}][name]
			}
			res.Operators[name] = snap
		}
	}
	c.committed = res
	c.checkpoints++
	c.retain()
	if commit {
		c.all(job.Complete{Run: c.run(), UpTo: id})
	}
	return true
}

// retain deletes the objects that the newest checkpoint does not refer to, as a coordinator that keeps but one.
func (c *cluster) retain() {
	c.t.Helper()
	want := snapshot.ObjectsOf(&snapshot.Manifest{Operators: c.committed.Operators})
	var have []string
	for info, err := range c.blob.List(c.t.Context(), "") {
		if err != nil {
			c.t.Fatal(err)
		}
		if have = append(have, info.Key); slices.Contains(want, info.Key) {
			continue
		}
		if err := c.blob.Delete(c.t.Context(), info.Key); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, o := range want {
		if !slices.Contains(have, o) {
			c.t.Fatalf("checkpoint %v refers to object %s, which is deleted", c.committed.Checkpoint, o)
		}
	}
}

// crash cancels the attempt wherever it is and waits until its tasks are gone.
func (c *cluster) crash() {
	c.t.Helper()
	c.all(job.Cancel{Run: c.run()})
	timeout := time.After(30 * time.Second)
	for c.count(job.TaskCancelled, job.TaskFinished, job.TaskFailed) < len(c.states) {
		select {
		case r := <-c.reports:
			c.handle(r)
		case <-timeout:
			c.t.Fatalf("cancel: states %v", c.states)
		}
	}
}

// finish drives the job to its end.
func (c *cluster) finish() {
	c.t.Helper()
	n := len(c.plan.Tasks())
	c.until("end of data", func() bool { return c.count(job.TaskEndOfData, job.TaskFinished) == n })
	c.checkpoint(true)
	c.until("finished", func() bool { return c.count(job.TaskFinished) == n })
}
