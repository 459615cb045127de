package task

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
)

// errCancelled is the cause of a context that the coordinator cancelled.
var errCancelled = errors.New("cancelled by the coordinator")

// run is the part of one attempt of a job that this worker has.
type run struct {
	manager  *Manager
	id       job.Run
	deploy   job.Deploy
	settings job.Settings
	session  Session // In which it was deployed.
	log      *zap.Logger
	ctx      context.Context
	cancel   context.CancelCauseFunc
	started  chan struct{} // Closed by begin.
	begun    sync.Once
	wg       sync.WaitGroup
	plan     *job.Plan
	bp       *operator.Blueprint

	// tasks is complete before the run is known to the manager, and not changed afterwards.
	tasks map[job.Task]*subtask

	source     blob.Store // That has the snapshot to restore.
	savepoints savepoints

	mu struct {
		sync.Mutex
		sent map[job.Task]sent // As last reported.
	}
}

// sent is what a report of counters had.
type sent struct {
	counters map[string]int64
	hot      *[]job.HotKeys
}

// newRun is called with m.mu held.
func newRun(m *Manager, d job.Deploy) *run {
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &run{
		manager: m, id: d.Run, deploy: d, settings: d.Spec.Settings, session: m.mu.session, ctx: ctx, cancel: cancel, started: make(chan struct{}),
		tasks: map[job.Task]*subtask{},
		log:   m.cfg.Log.With(zap.String("job", string(d.Job)), zap.Uint64("attempt", uint64(d.Attempt))),
	}
	r.mu.sent = map[job.Task]sent{}
	for _, t := range d.Tasks {
		r.tasks[t] = newSubtask(r, t)
	}
	return r
}

// begin lets the tasks run.
func (r *run) begin() { r.begun.Do(func() { close(r.started) }) }

// stop cancels every task.
func (r *run) stop(cause error) { r.cancel(cause) }

func (r *run) post(t job.Task, f func(*subtask) error) {
	if s := r.tasks[t]; s != nil {
		s.mail.post(func() error { return f(s) })
	}
}

func (r *run) postAll(f func(*subtask) error) {
	for _, s := range r.tasks {
		s.mail.post(func() error { return f(s) })
	}
}

// main builds and runs the tasks and returns when all are gone.
func (r *run) main() {
	defer r.cancel(errCancelled)
	err := guard(r.build)
	if err != nil {
		for _, t := range r.deploy.Tasks {
			r.failed(t, err)
		}
		return
	}
	closeSource, err := r.openSource()
	if err != nil {
		for _, t := range r.deploy.Tasks {
			r.failed(t, err)
		}
		return
	}
	defer closeSource() // Behind the last task.
	dir := r.manager.cfg.Directory
	defer dir.Remove(r.id)
	for _, s := range r.tasks {
		s.makeGate()
		for i, in := range s.inputs {
			dir.Register(r.id, in.from, s.gate.Port(i))
		}
	}
	for _, s := range r.tasks {
		r.wg.Go(s.main)
	}
	r.wg.Wait()
}

// openSource opens the store of the snapshot to restore, if that is not the cluster's.
func (r *run) openSource() (func(), error) {
	r.source = r.session.Blob
	if r.deploy.Restore == nil || r.deploy.Restore.Store == "" {
		return func() {}, nil
	}
	url := r.deploy.Restore.Store
	if r.manager.cfg.OpenBlob == nil {
		return nil, job.Errorf(job.ClassRefused, "restore from %s: this TaskManager opens no other store than the cluster's", url)
	}
	store, done, err := r.manager.cfg.OpenBlob(r.ctx, url, true)
	switch {
	case errors.Is(err, blob.ErrNotExist):
		return nil, job.Errorf(job.ClassRefused, "restore from %s: this TaskManager does not see it: every TaskManager has to, until the job's first checkpoint has completed: %w", url, err)
	case err != nil:
		return nil, job.Errorf(job.ClassExternal, "restore from %s: %w", url, err)
	}
	r.source = store
	return done, nil
}

// build makes the program's operators and checks that they are those of the job.
func (r *run) build() error {
	spec := r.deploy.Spec
	bp, err := r.manager.cfg.Programs.Build(spec)
	if err != nil {
		return &job.Error{Class: job.ClassRefused, Err: err}
	}
	want, have := spec.Graph.Fingerprint(), bp.Graph.Fingerprint()
	if want != have {
		return job.Errorf(job.ClassRefused, "program %q version %q builds another topology here (fingerprint %s) than the job has (fingerprint %s): its graph must depend on nothing but its arguments, and every TaskManager needs the build that submitted the job", spec.Program, spec.Version, have, want)
	}
	r.bp = bp
	if r.plan, err = job.NewPlan(spec.Graph, spec.Settings); err != nil {
		return &job.Error{Class: job.ClassRefused, Err: err}
	}
	for t := range r.tasks {
		v := r.plan.Vertex(t.Vertex)
		if v < 0 || t.Subtask >= r.plan.Vertices[v].Parallelism {
			return job.Errorf(job.ClassInternal, "task %v is not in the plan", t)
		}
	}
	return nil
}

func (r *run) failed(t job.Task, err error) {
	f := job.FailureOf(t.String(), r.manager.cfg.Info.ID, err)
	r.log.Warn("task failed", zap.Stringer("task", t), zap.String("class", string(f.Class)), zap.String("error", f.Message), zap.String("stack", f.Stack))
	r.manager.report(job.TaskChanged{Run: r.id, Task: t, State: job.TaskFailed, Failure: &f})
}

// place is where a task of the job runs.
func (r *run) place(t job.Task) (job.Placement, error) {
	for _, p := range r.deploy.Placements {
		if p.Task == t {
			return p, nil
		}
	}
	return job.Placement{}, fmt.Errorf("no placement for task %v", t)
}

// sendCounters reports the counters that changed, or only those of tasks that have reported none.
func (r *run) sendCounters(all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.deploy.Tasks {
		s := r.tasks[t]
		old := r.mu.sent[t]
		if s.state.Load() == nil || !all && old.counters != nil {
			continue
		}
		now := sent{s.counterValues(), s.hot.Load()}
		changed := !maps.Equal(now.counters, old.counters)
		if all {
			s.askHotKeys(changed)
		}
		if !all && now.counters["records_in"] == 0 && now.counters["records_out"] == 0 || !changed && now.hot == old.hot {
			continue
		}
		r.mu.sent[t] = now
		report := job.Counters{Run: r.id, Task: t, Values: now.counters}
		if now.hot != nil {
			report.Hot = *now.hot
		}
		r.manager.report(report)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
