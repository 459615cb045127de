package task

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/statebackend"
)

// Programs builds the programs that this process has.
type Programs interface {
	// Build builds the program of spec with its arguments.
	Build(spec job.Spec) (*operator.Blueprint, error)
}

// Session is what a manager learns when its worker registers with a leader.
type Session struct {
	Epoch   job.Epoch
	Cluster string     // Prefix of all objects.
	Blob    blob.Store // Where snapshots go.
	// Report takes reports, in the order they were made. It does not block.
	Report func(job.Report)
}

// Config is what a Manager needs.
type Config struct {
	Info      job.WorkerInfo
	Programs  Programs
	Directory *exchange.Directory
	// Dialer opens channels to other workers, Local those to a port of this one.
	Dialer exchange.Dialer
	Local  func(ctx context.Context, p *exchange.Port) exchange.Out
	// Backend returns the factory of a state backend by the name of the setting state.backend.
	Backend func(name string) (statebackend.Factory, error)
	Log     *zap.Logger
	// TempDir takes snapshots that are too large for memory while they are uploaded; empty for the
	// system's.
	TempDir string
	// StateDir is a folder of this process for state that does not fit into memory, LocalDir one that outlives it for
	// copies of snapshots; see statebackend.Params.
	StateDir, LocalDir string
	// StateMemory is what all state backends share; nil means the default for each of them.
	StateMemory *statebackend.Budget
	// OpenBlob opens the store of another URL than the cluster's: for the snapshot that a job begins with, which is only read,
	// and for savepoints. The function that it returns closes it. It waits no longer than until ctx is done.
	OpenBlob func(ctx context.Context, url string, readOnly bool) (blob.Store, func(), error)
	// Uploads is how many snapshots are stored at a time; 0 means 4: enough to keep a store with
	// 10 ms of latency busy, few enough to leave the cores to the tasks.
	Uploads int
}

// Manager runs the tasks of one worker process.
type Manager struct {
	cfg   Config
	slots chan struct{} // Of uploads.
	done  chan struct{}
	wg    sync.WaitGroup

	mu struct {
		sync.Mutex
		runs    map[job.Run]*run
		newest  map[job.ID]job.Attempt
		session Session
		closed  bool
	}
}

// NewManager makes a manager without a session: reports are dropped until Attach.
func NewManager(cfg Config) *Manager {
	if cfg.Uploads == 0 {
		cfg.Uploads = 4
	}
	m := &Manager{cfg: cfg, slots: make(chan struct{}, cfg.Uploads), done: make(chan struct{})}
	m.mu.runs = map[job.Run]*run{}
	m.mu.newest = map[job.ID]job.Attempt{}
	m.wg.Go(m.sendCounters)
	return m
}

// Attach starts a session. A session that was there before has ended: see Detach.
func (m *Manager) Attach(s Session) {
	m.mu.Lock()
	m.mu.session = s
	m.mu.Unlock()
}

func (m *Manager) session() Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.session
}

// Detach says that the session is over: reports are dropped and every task is cancelled, since
// the coordinator takes them for lost.
func (m *Manager) Detach() {
	m.mu.Lock()
	m.mu.session.Report = nil
	var all []*run
	for _, r := range m.mu.runs {
		all = append(all, r)
	}
	m.mu.Unlock()
	for _, r := range all {
		r.stop(errCancelled)
	}
}

func (m *Manager) report(r job.Report) {
	if f := m.session().Report; f != nil {
		f(r)
	}
}

// Handle carries out a command. It does not block.
func (m *Manager) Handle(c job.Command) {
	switch c := c.(type) {
	case job.Deploy:
		m.deploy(c)
	case job.Start:
		m.with(c.Run, func(r *run) { r.begin() })
	case job.Cancel:
		m.with(c.Run, func(r *run) { r.stop(errCancelled) })
	case job.Trigger:
		m.with(c.Run, func(r *run) {
			r.savepoints.announce(c)
			for _, t := range c.To {
				r.post(t, func(s *subtask) error { return s.trigger(c) })
			}
		})
	case job.Complete:
		m.with(c.Run, func(r *run) {
			r.savepoints.forget(c.UpTo)
			r.postAll(func(s *subtask) error { s.learnCommitted(c.UpTo); return nil })
		})
	case job.Abort:
		m.with(c.Run, func(r *run) {
			for _, s := range r.tasks {
				s.uploads.abort(c.Checkpoint)
			}
			r.savepoints.forget(c.Checkpoint)
			r.postAll(func(s *subtask) error {
				if s.stopping == c.Checkpoint {
					s.stopping = 0
				}
				return s.act(s.align.Abort(c.Checkpoint))
			})
		})
	case job.ReadersDone:
		m.with(c.Run, func(r *run) {
			r.post(c.Task, func(s *subtask) error { s.mayClose = true; return nil })
		})
	case job.Finish:
		m.with(c.Run, func(r *run) {
			r.postAll(func(s *subtask) error { return s.finishWithoutCheckpoints() })
		})
	case job.Deliver:
		m.with(c.Run, func(r *run) {
			r.post(c.To, func(s *subtask) error {
				if op, ok := s.chain[0].op.(operator.Mailed); ok {
					return op.Receive(c.From, c.Body)
				}
				return nil
			})
		})
	default:
		m.cfg.Log.Warn("unknown command", zap.String("type", fmt.Sprintf("%T", c)))
	}
}

// with calls f with a run that this worker has; a command for another is late and dropped.
func (m *Manager) with(id job.Run, f func(*run)) {
	m.mu.Lock()
	r := m.mu.runs[id]
	m.mu.Unlock()
	if r == nil {
		m.cfg.Log.Debug("command for a run that is not here", zap.String("job", string(id.Job)), zap.Uint64("attempt", uint64(id.Attempt)))
		return
	}
	f(r)
}

func (m *Manager) deploy(d job.Deploy) {
	m.mu.Lock()
	stale := d.Attempt <= m.mu.newest[d.Job] && m.mu.runs[d.Run] == nil && m.mu.newest[d.Job] != 0
	if m.mu.closed || stale || m.mu.runs[d.Run] != nil {
		m.mu.Unlock()
		m.cfg.Log.Warn("deployment dropped: stale or repeated, or shutting down", zap.String("job", string(d.Job)), zap.Uint64("attempt", uint64(d.Attempt)))
		return
	}
	var older []*run
	for _, r := range m.mu.runs {
		if r.id.Job == d.Job {
			older = append(older, r)
		}
	}
	m.mu.newest[d.Job] = d.Attempt
	r := newRun(m, d)
	m.mu.runs[d.Run] = r
	m.mu.Unlock()
	for _, o := range older {
		o.stop(errCancelled)
	}
	m.wg.Go(func() {
		r.main()
		m.mu.Lock()
		delete(m.mu.runs, d.Run)
		m.mu.Unlock()
	})
}

// Running lists the runs that have tasks here.
func (m *Manager) Running() []job.Run {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []job.Run
	for id := range m.mu.runs {
		out = append(out, id)
	}
	return out
}

// Close cancels every task and waits until they are gone or ctx is done.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	already := m.mu.closed
	m.mu.closed = true
	var all []*run
	for _, r := range m.mu.runs {
		all = append(all, r)
	}
	m.mu.Unlock()
	if !already {
		close(m.done)
	}
	for _, r := range all {
		r.stop(errCancelled)
	}
	gone := make(chan struct{})
	go func() {
		m.wg.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("tasks still running: %v: %w", m.Running(), ctx.Err())
	}
}

// Counters are sent once a second, and the first ones of a task as soon as it has any.
const (
	countersEvery = time.Second
	countersFirst = 100 * time.Millisecond
)

// sendCounters is the goroutine that reports the counters of every task.
func (m *Manager) sendCounters() {
	tick := time.NewTicker(countersFirst)
	defer tick.Stop()
	next := time.Now()
	for {
		var now time.Time
		select {
		case <-m.done:
			return
		case now = <-tick.C:
		}
		all := !now.Before(next)
		if all {
			next = now.Add(countersEvery)
		}
		m.mu.Lock()
		runs := make([]*run, 0, len(m.mu.runs))
		for _, r := range m.mu.runs {
			runs = append(runs, r)
		}
		m.mu.Unlock()
		for _, r := range runs {
			r.sendCounters(all)
		}
	}
}
