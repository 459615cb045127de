package streamtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/coordinator/lifecycle"
	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/exchange/inproc"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
	"github.com/cairnstream/cairn/statebackend/memory"
	"github.com/cairnstream/cairn/statebackend/pebble"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/task"
)

// patience is how much of the bubble's time may pass while the harness waits for the job itself,
// such as for a checkpoint behind a slow call.
const patience = 24 * time.Hour

// Harness runs a job for a test and plays its coordinator. Its methods are called on the test's
// goroutine; what goes wrong ends the test, except where Failure is asked.
type Harness struct {
	t       testing.TB
	args    map[string]string
	set     map[string]string
	blob    *mem.Store
	worker  *task.Manager
	reports chan job.Report
	ends    []func() // Of the inputs.

	program  stream.Program
	spec     job.Spec
	plan     *job.Plan
	attempt  job.Attempt
	next     job.CheckpointID
	newest   *Snapshot
	states   map[job.Task]job.TaskState
	finished map[job.Task]map[string]job.SubtaskSnapshot // The last snapshot of tasks that closed.
	last     map[job.Task]map[string]job.SubtaskSnapshot // Of the newest checkpoint.
	answers  map[job.Task]map[string]job.SubtaskSnapshot // Of the checkpoint in progress.
	declined *job.Failure
	failure  *job.Failure
}

// Snapshot is a checkpoint of a job.
type Snapshot struct {
	restore     job.Restore
	parallelism int
}

// Run runs f with a harness, in a bubble of testing/synctest whose clock begins at Begin.
func Run(t *testing.T, f func(t *testing.T, h *Harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(Begin))
		f(t, New(t))
	})
}

// Begin is when the clock of Run begins: late enough that records of our days are not from a future
// that a watermark strategy would not believe.
var Begin = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// New makes a harness for a test that runs in a bubble of testing/synctest already. It ends with
// the test.
func New(t testing.TB) *Harness {
	t.Helper()
	inBubble(t)
	h := &Harness{
		t: t, args: map[string]string{}, set: map[string]string{}, blob: mem.New("streamtest"),
		reports: make(chan job.Report, 1<<16), // More than comes between two looks at it.
	}
	h.worker = task.NewManager(task.Config{
		Info: job.WorkerInfo{ID: "test", Slots: 1}, Programs: programs{h}, Directory: exchange.NewDirectory(),
		Local: func(ctx context.Context, p *exchange.Port) exchange.Out {
			return inproc.Connect(ctx, p, inproc.Options{})
		},
		Backend: backends(), Log: zap.NewNop(), TempDir: t.TempDir(), StateDir: t.TempDir(), LocalDir: t.TempDir(),
	})
	h.worker.Attach(task.Session{Epoch: 1, Cluster: "test", Blob: h.blob, Report: func(r job.Report) { h.reports <- r }})
	t.Cleanup(h.close)
	return h
}

func inBubble(t testing.TB) {
	t.Helper()
	defer func() {
		if v := recover(); v != nil {
			t.Fatalf("streamtest.New works in a bubble of testing/synctest only, and streamtest.Run makes one: %v", v)
		}
	}()
	synctest.Wait()
}

func backends() func(name string) (statebackend.Factory, error) {
	trees := &pebble.Factory{}
	return func(name string) (statebackend.Factory, error) {
		switch name {
		case statebackend.Memory:
			return memory.Factory{Trees: pebble.OpenTrees}, nil
		case "", statebackend.FS:
			return fs.Factory{FullBelow: 1, Trees: pebble.OpenTrees}, nil // Tests have little state; of that, too, checkpoints hold what changed.
		case statebackend.Pebble:
			return trees, nil
		}
		return nil, fmt.Errorf("state backend %q is not available in a streamtest", name)
	}
}

// programs builds the harness's program wherever a spec asks for one.
type programs struct{ h *Harness }

func (p programs) Build(spec job.Spec) (*operator.Blueprint, error) {
	return stream.Build(p.h.program, spec.Args)
}

func (h *Harness) close() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := h.worker.Close(ctx); err != nil {
		h.t.Errorf("the job does not end: %v", err)
	}
}

// Input makes an input of one part, for a program to read.
func (h *Harness) Input[T any]() *Input[T] { return h.PartedInput[T](1) }

// PartedInput makes an input of several parts, for which the subtasks of its reader share the work.
func (h *Harness) PartedInput[T any](parts int) *Input[T] {
	in := newInput[T](parts)
	h.ends = append(h.ends, in.End)
	return in
}

// Output makes an output, for a program to write to.
func (h *Harness) Output[T any]() *Output[T] { return &Output[T]{settle: h.Settle} }

// Arg sets an argument of the program, before Start.
func (h *Harness) Arg(name, value string) { h.args[name] = value }

// Set sets one of the job's settings, before Start or a restore: parallelism, state.backend and so
// on. Where nothing is set the job has one subtask of each operator, and hands records on at once.
func (h *Harness) Set(key, value string) { h.set[key] = value }

// Start starts the job that build describes.
func (h *Harness) Start(build func(j *stream.Job)) {
	h.t.Helper()
	if h.plan != nil {
		h.t.Fatal("streamtest: the job was started before")
	}
	h.program = stream.Program{Name: h.t.Name(), Build: build}
	h.deploy(nil, 0)
}

// Operator starts a job of one operator, or a few: what build makes of a stream that reads the
// input returned. Its results are in the output.
func (h *Harness) Operator[T, U any](build func(in stream.Stream[T]) stream.Stream[U]) (*Input[T], *Output[U]) {
	h.t.Helper()
	in, out := h.Input[T](), h.Output[U]()
	h.Start(func(j *stream.Job) { build(j.Source("input", in)).Sink("output", out) })
	return in, out
}

// Settle waits until all that was pushed is processed as far as it can be without the clock moving.
func (h *Harness) Settle() {
	h.t.Helper()
	h.quiet()
	h.check()
}

// Advance moves the clock, and settles.
func (h *Harness) Advance(d time.Duration) {
	h.t.Helper()
	h.Settle()
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case r := <-h.reports:
			h.handle(r)
			continue
		case <-timer.C:
		}
		break
	}
	h.Settle()
}

// Snapshot settles and takes a checkpoint, which sinks commit. Time passes only if the job cannot
// take one without.
func (h *Harness) Snapshot() *Snapshot {
	h.t.Helper()
	h.Settle()
	s := h.checkpoint(true)
	h.Settle()
	return s
}

// Restore ends the job wherever it is, as a crash would, and starts it again from s, with that
// parallelism; 0 is the one that it had. A nil s stands for the beginning. Inputs repeat what was
// pushed behind s.
func (h *Harness) Restore(s *Snapshot, parallelism int) {
	h.t.Helper()
	h.crash()
	h.deploy(s, parallelism)
}

// Upgrade is Restore into another version of the program.
func (h *Harness) Upgrade(s *Snapshot, build func(j *stream.Job)) {
	h.t.Helper()
	h.crash()
	h.program.Build = build
	h.deploy(s, 0)
}

// EndOfData ends every input and drives the job to its end: everything that waited for a watermark
// is emitted, and sinks commit. Time passes as far as the job needs it.
func (h *Harness) EndOfData() {
	h.t.Helper()
	for _, end := range h.ends {
		end()
	}
	n := len(h.plan.Tasks())
	h.await("the end of the data", func() bool { return h.count(job.TaskEndOfData, job.TaskFinished) == n })
	h.checkpoint(true)
	h.await("the end of the job", func() bool { return h.count(job.TaskFinished) == n })
	h.Settle()
}

// Failure settles and gives what the job failed with, which no longer ends the test then; nil if it
// runs. The job can be restored.
func (h *Harness) Failure() *job.Failure {
	h.quiet()
	f := h.failure
	h.failure = nil
	return f
}

func (h *Harness) run() job.Run { return job.Run{Job: "job", Attempt: h.attempt} }

// deploy starts an attempt from s.
func (h *Harness) deploy(s *Snapshot, parallelism int) {
	h.t.Helper()
	bp, err := stream.Build(h.program, h.args)
	if err != nil {
		h.t.Fatal(err)
	}
	set := job.DefaultSettings()
	set.FlushTimeout = 0
	err = errors.Join(set.Apply(bp.Settings), set.Apply(h.set))
	if s != nil {
		set.Parallelism = s.parallelism
	}
	if parallelism > 0 {
		set.Parallelism = parallelism
	}
	h.spec = job.Spec{Name: "job", Program: h.program.Name, Args: h.args, Settings: set, Graph: bp.Graph}
	if err = errors.Join(err, h.spec.Validate()); err != nil {
		h.t.Fatal(err)
	}
	if h.plan, err = job.NewPlan(bp.Graph, set); err != nil {
		h.t.Fatal(err)
	}
	h.attempt++
	h.states = map[job.Task]job.TaskState{}
	h.finished = map[job.Task]map[string]job.SubtaskSnapshot{}
	h.failure = nil
	h.newest = s
	d := job.Deploy{Run: h.run(), Spec: h.spec, Fingerprint: bp.Graph.Fingerprint(), Tasks: h.plan.Tasks()}
	for _, t := range d.Tasks {
		d.Placements = append(d.Placements, job.Placement{Task: t, Worker: "test"})
	}
	if s != nil {
		d.Restore = &s.restore
	}
	h.worker.Handle(d)
	h.await("every task to be ready", func() bool { return h.count(job.TaskReady) == len(d.Tasks) })
	h.worker.Handle(job.Start{Run: h.run()})
	h.Settle()
}

// crash cancels the attempt and waits until its tasks are gone.
func (h *Harness) crash() {
	h.t.Helper()
	h.worker.Handle(job.Cancel{Run: h.run()})
	h.wait("the tasks to end", func() bool { return len(h.worker.Running()) == 0 })
	h.failure = nil
}

// checkpoint takes one; what is pushed and not read yet stays behind it.
func (h *Harness) checkpoint(commit bool) *Snapshot {
	h.t.Helper()
	h.next++
	id := h.next
	trigger := job.Trigger{Run: h.run(), Checkpoint: id, Mode: h.spec.Settings.CheckpointMode}
	if h.newest != nil {
		trigger.Committed = h.newest.restore.Checkpoint
	}
	for _, v := range h.plan.Vertices {
		if t := (job.Task{Vertex: v.Name}); v.Enumerator && h.states[t] != job.TaskFinished {
			trigger.To = append(trigger.To, t)
		}
	}
	h.answers, h.declined = map[job.Task]map[string]job.SubtaskSnapshot{}, nil
	h.worker.Handle(trigger)
	answer := func(t job.Task) (map[string]job.SubtaskSnapshot, bool) {
		if a, ok := h.answers[t]; ok {
			return a, true
		}
		a, ok := h.finished[t]
		return a, ok
	}
	h.await("a checkpoint", func() bool {
		if h.declined != nil {
			h.t.Fatalf("checkpoint declined: %v", h.declined)
		}
		for _, t := range h.plan.Tasks() {
			if _, ok := answer(t); !ok {
				return false
			}
		}
		return true
	})
	s := &Snapshot{restore: job.Restore{Checkpoint: id, Job: h.run().Job, Operators: map[string]job.OperatorSnapshot{}}, parallelism: h.spec.Settings.Parallelism}
	for _, v := range h.plan.Vertices {
		for _, n := range v.Operators {
			name := h.plan.Graph.Operators[n].Name
			snap := job.OperatorSnapshot{Parallelism: v.Parallelism, Subtasks: make([]job.SubtaskSnapshot, v.Parallelism)}
			for i := range v.Parallelism {
				a, _ := answer(job.Task{Vertex: v.Name, Subtask: i})
				snap.Subtasks[i] = a[name]
			}
			s.restore.Operators[name] = snap
		}
	}
	h.last, h.newest = map[job.Task]map[string]job.SubtaskSnapshot{}, s
	for _, t := range h.plan.Tasks() {
		h.last[t], _ = answer(t)
	}
	if commit {
		h.worker.Handle(job.Complete{Run: h.run(), UpTo: id})
	}
	return s
}

// await lets the job work, and time pass if need be, until done. A failure ends the test.
func (h *Harness) await(what string, done func() bool) {
	h.t.Helper()
	h.wait(what, func() bool {
		h.check()
		return done()
	})
}

// wait lets the job work, and time pass if need be, until done.
func (h *Harness) wait(what string, done func() bool) {
	h.t.Helper()
	start := time.Now()
	for {
		h.quiet()
		if done() {
			return
		}
		if time.Since(start) > patience {
			h.t.Fatalf("streamtest: waited for %s for %v of the test's time; tasks are %v", what, patience, h.states)
		}
		timer := time.NewTimer(time.Second)
		select {
		case r := <-h.reports:
			h.handle(r)
		case <-timer.C:
		}
		timer.Stop()
	}
}

// quiet lets the job work until there is nothing left to do without the clock moving.
func (h *Harness) quiet() {
	for {
		synctest.Wait()
		if !h.drain() {
			return
		}
	}
}

// drain handles the reports that are there; it tells whether there were any.
func (h *Harness) drain() (had bool) {
	for {
		select {
		case r := <-h.reports:
			h.handle(r)
			had = true
		default:
			return had
		}
	}
}

func (h *Harness) check() {
	h.t.Helper()
	if f := h.failure; f != nil {
		h.failure = nil
		h.t.Fatalf("the job failed: %v\n%s", f, f.Stack)
	}
}

func (h *Harness) count(states ...job.TaskState) (n int) {
	for _, s := range h.states {
		for _, want := range states {
			if s == want {
				n++
			}
		}
	}
	return n
}

// handle takes one report, as a coordinator would.
func (h *Harness) handle(r job.Report) {
	switch r := r.(type) {
	case job.TaskChanged:
		if r.Run != h.run() {
			return
		}
		if r.Failure != nil && h.failure == nil {
			h.failure = r.Failure
		}
		h.states[r.Task] = r.State
		if r.State == job.TaskFinished {
			h.finished[r.Task] = h.last[r.Task]
			finished := func(t job.Task) bool { return h.states[t] == job.TaskFinished }
			if en, done := lifecycle.TopologyOf(h.plan).ReadersDone(r.Task, finished); done {
				h.worker.Handle(job.ReadersDone{Run: h.run(), Task: en})
			}
		}
	case job.Mail:
		if r.Run == h.run() {
			h.worker.Handle(job.Deliver{Run: r.Run, To: r.To, From: r.From, Body: r.Body})
		}
	case job.Ack:
		if r.Run == h.run() && r.Checkpoint == h.next {
			h.answers[r.Task] = r.Operators
		}
	case job.Decline:
		if r.Run == h.run() && r.Checkpoint == h.next {
			h.declined = &r.Failure
		}
	}
}
