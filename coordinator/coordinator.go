package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/internal/group"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/metastore"
	"github.com/cairnstream/cairn/snapshot"
)

// Options are what a Coordinator stands on. Zero means default where one is given.
type Options struct {
	Cluster    string // Prefix of all keys. Required.
	Store      metastore.Store
	Leadership metastore.Leadership // Won, and not yet used by anybody else.
	Blob       blob.Store           // Holds the objects of checkpoints, below the cluster's name. Required.
	BlobURL    string               // Of Blob. Empty: no URL names it.
	Manifests  Manifests            // Default: a snapshot.Store on Blob.
	// OpenBlob opens another blob store: for a snapshot that a job begins with, which is only read and has to be there, and for
	// savepoints. The function that it returns closes it. It waits no longer than until ctx is done. Default: none can be opened.
	OpenBlob func(ctx context.Context, url string, readOnly bool) (blob.Store, func(), error)
	Log      *zap.Logger           // Default: none.
	Metrics  prometheus.Registerer // Default: none.
	// Heartbeat is how often workers say that they live; default 1 s. A session that was silent for
	// more than MaxMissed ticks (default 3) is lost. Ticks are counted, not time: a JobManager that was
	// itself stopped finds what arrived meanwhile before it counts three.
	Heartbeat time.Duration
	MaxMissed int
	// StoreTimeout bounds one transaction; default 10 s. When it ends without an answer the outcome is
	// unknown, and is found out before anything else is done with it.
	StoreTimeout time.Duration
	// BlobTimeout bounds writing or reading one manifest; default 1 min.
	BlobTimeout time.Duration
	// SweepInterval is how often objects that nothing refers to are looked for; default 10 min. It is
	// also done when a job begins or is taken over.
	SweepInterval time.Duration
	// Jitter gives numbers in [0, 1) to spread restarts; default: random ones.
	Jitter func() float64
	// NewID makes job ids; default: random.
	NewID func() job.ID
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = time.Second
	}
	if o.MaxMissed == 0 {
		o.MaxMissed = 3
	}
	if o.StoreTimeout == 0 {
		o.StoreTimeout = 10 * time.Second
	}
	if o.BlobTimeout == 0 {
		o.BlobTimeout = time.Minute
	}
	if o.SweepInterval == 0 {
		o.SweepInterval = 10 * time.Minute
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	if o.OpenBlob == nil {
		o.OpenBlob = func(_ context.Context, url string, _ bool) (blob.Store, func(), error) {
			return nil, nil, fmt.Errorf("%s: this JobManager opens no other store than its own", url)
		}
	}
	if o.NewID == nil {
		o.NewID = randomID
	}
	return o
}

// Coordinator runs the jobs of a cluster during one leadership. Its methods may be called from any
// goroutine; those with a context may wait for a store.
type Coordinator struct {
	opt     Options
	records records
	metrics *metrics
	log     *zap.Logger
	g       *group.Group
	done    chan struct{} // Closed when everything has stopped.

	mu struct {
		sync.Mutex
		stopped    bool // No goroutine is started any more.
		workers    map[job.WorkerID]*worker
		jobs       map[job.ID]*entry
		names      map[string]job.ID
		requests   map[string]job.ID
		submitting map[string]bool          // Names.
		asking     map[string]chan struct{} // Request ids; closed when the submission has ended.
		sessions   uint64
	}
}

// New takes the cluster over: it reads what is on record and goes on with every job that is not over.
// An error means that the records could not be read; the leadership may be used to try again.
func New(ctx context.Context, opt Options) (*Coordinator, error) {
	c := &Coordinator{opt: opt.withDefaults(), done: make(chan struct{})}
	if c.opt.Manifests == nil {
		s, err := snapshot.NewStore(opt.Blob, opt.Cluster)
		if err != nil {
			return nil, err
		}
		c.opt.Manifests = s
	}
	c.records = records{keys: keys{opt.Cluster}, store: opt.Store, lead: opt.Leadership}
	c.log = c.opt.Log.With(zap.Uint64("epoch", opt.Leadership.Epoch()))
	c.mu.workers = map[job.WorkerID]*worker{}
	c.mu.jobs = map[job.ID]*entry{}
	c.mu.names = map[string]job.ID{}
	c.mu.requests = map[string]job.ID{}
	c.mu.submitting = map[string]bool{}
	c.mu.asking = map[string]chan struct{}{}
	all, err := c.records.load(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the jobs on record: %w", err)
	}
	names, err := c.records.namesOnRecord(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the names of jobs: %w", err)
	}
	metrics, err := newMetrics(c.opt.Metrics)
	if err != nil {
		return nil, err
	}
	c.metrics = metrics
	if err := metrics.register(hotKeys{c}); err != nil {
		return nil, err
	}
	// What a leader before was at when it died, and what nobody will go on with.
	unfinished, err := c.records.savepoints(ctx, c.records.saving(""))
	if err != nil {
		return nil, fmt.Errorf("read the savepoints that were on their way: %w", err)
	}
	c.mu.names = names
	c.g = group.New(context.WithoutCancel(ctx))
	c.g.Go("leadership", c.watchLeadership)
	for _, r := range all {
		if err := c.adopt(r, true); err != nil {
			break // It has stopped already.
		}
	}
	c.g.Go("heartbeats", c.countHeartbeats)
	for _, r := range unfinished {
		c.dropSavepoint(r)
	}
	go func() {
		if err := c.g.Wait(); err != nil && !errors.Is(err, errNotLeader) {
			c.log.Error("coordinator stopped", zap.Error(err))
		}
		c.stopped()
		close(c.done)
	}()
	return c, nil
}

// Epoch is the term of this leadership.
func (c *Coordinator) Epoch() job.Epoch { return c.records.epoch() }

// Done is closed when the coordinator has stopped: after Close, when the leadership is lost, or after
// a bug. Tasks run on; the next leader takes over.
func (c *Coordinator) Done() <-chan struct{} { return c.done }

// Close stops everything and waits for it, or for ctx. Nothing is written: tasks run on, and the next
// leader goes on with all jobs.
func (c *Coordinator) Close(ctx context.Context) error {
	c.g.Cancel(nil)
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop the coordinator: still running: %v: %w", c.g.Running(), ctx.Err())
	}
}

// watchLeadership ends when everything is to stop. It is the goroutine of the group that keeps it open
// for others until then.
func (c *Coordinator) watchLeadership(ctx context.Context) error {
	var err error
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case <-c.opt.Leadership.Lost():
		c.log.Warn("leadership is lost: this JobManager stops coordinating; tasks run on")
		err = errNotLeader
	}
	c.mu.Lock()
	c.mu.stopped = true
	c.mu.Unlock()
	return err
}

// start runs f on a goroutine of the coordinator, unless it has stopped.
func (c *Coordinator) start(name string, f func(context.Context) error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.stopped {
		return false
	}
	c.g.Go(name, f)
	return true
}

// stopped releases who waits, and ends the sessions.
func (c *Coordinator) stopped() {
	c.mu.Lock()
	workers := slices.Collect(maps.Values(c.mu.workers))
	c.mu.workers = map[job.WorkerID]*worker{}
	c.mu.Unlock()
	for _, w := range workers {
		w.conn.Close(errStopped())
	}
	c.metrics.unregister()
}

// adopt takes a job on record into the registers and starts its loop, if there is anything to do for
// it.
func (c *Coordinator) adopt(r *jobRecord, found bool) error {
	e, l, err := c.newJob(r, found)
	if err != nil {
		// One that this version cannot run must not keep the others from running. Its record is left
		// alone, so that its name and its checkpoints stay its own.
		c.log.Error("job on record cannot be run by this version", zap.String("job", string(r.id)), zap.String("name", r.submission.Name), zap.Error(err))
		e, l = unusable(r, err), nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.stopped {
		return errStopped()
	}
	c.mu.jobs[r.id] = e
	if r.submission.Request != "" {
		c.mu.requests[r.submission.Request] = r.id
	}
	if l != nil {
		c.g.Go("job "+string(r.id), l.run)
		c.g.Go("job "+string(r.id)+": deletions", l.deletions.run)
	}
	return nil
}

// unusable shows a job that cannot be run.
func unusable(r *jobRecord, err error) *entry {
	e := newEntry(r.id)
	j := Job{ID: r.id, Name: r.submission.Name, Program: r.spec.Program, Version: r.spec.Version, State: JobFailed,
		Reason: "this version cannot run it: " + err.Error(), Attempt: r.attempt.Attempt, Submitted: r.submission.Submitted, Checkpoint: r.newest()}
	e.publish(view{detail: JobDetail{Job: j, Spec: r.spec}})
	return e
}

// entry is what everybody may see of a job. Its loop replaces view; nobody changes what is in it.
type entry struct {
	id   job.ID
	mail *mailbox // nil when the job has no loop: nothing happens to it any more.

	mu struct {
		sync.Mutex
		view    view
		changed chan struct{} // Closed and replaced with every view.
		holds   map[job.WorkerID]int
	}
}

// view is immutable.
type view struct {
	detail      JobDetail
	events      int                 // Number of the first event in detail; they count from 0.
	checkpoints []*CheckpointDetail // Newest last; none is changed.
	plan        *job.Plan
	submission  int             // Its number.
	live        job.Attempt     // That may have tasks; 0: none.
	hot         [][]job.HotKeys // By task, in no order.
}

func newEntry(id job.ID) *entry {
	e := &entry{id: id}
	e.mu.changed = make(chan struct{})
	return e
}

func (e *entry) publish(v view) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.view = v
	close(e.mu.changed)
	e.mu.changed = make(chan struct{})
}

// look returns the view and a channel that is closed when there is another one.
func (e *entry) look() (view, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.view, e.mu.changed
}
