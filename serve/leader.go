package serve

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/metastore"
	"github.com/cairnstream/cairn/rpc"
)

// leader is the JobManager's part in the election: it campaigns, runs a coordinator while it leads, and answers for it.
// While it does not lead, it answers with who does.
type leader struct {
	cfg     JobManagerConfig
	address string // Where others reach this JobManager; its name in the election.
	log     *zap.Logger
	reg     prometheus.Registerer
	ready   *readiness
	gauge   prometheus.Gauge
	serving func(bool) // Tells health checks.

	mu struct {
		sync.Mutex
		coordinator *coordinator.Coordinator // nil while this JobManager does not lead.
		other       metastore.LeaderInfo     // Who leads in its place, as far as known.
	}
}

var (
	_ rpc.Jobs        = (*leader)(nil)
	_ rpc.Coordinator = (*leader)(nil)
)

func newLeader(cfg JobManagerConfig, address string, log *zap.Logger, reg prometheus.Registerer, ready *readiness, serving func(bool)) *leader {
	l := &leader{cfg: cfg, address: address, log: log, reg: reg, ready: ready, serving: serving}
	l.gauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "cairn_leader", Help: "1 while this JobManager leads the cluster, else 0.",
		ConstLabels: prometheus.Labels{"cluster": cfg.Cluster},
	})
	reg.MustRegister(l.gauge)
	return l
}

// election is the name of the cluster's election.
func (l *leader) election() string { return l.cfg.Cluster + "/leader" }

// run campaigns and leads, again and again, until ctx is done.
func (l *leader) run(ctx context.Context, store metastore.Store, b blob.Store) error {
	for {
		lead, err := store.Elect(ctx, l.election(), l.address)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			l.log.Warn("campaign failed; trying again", zap.Error(err))
		} else {
			l.lead(ctx, store, lead, b)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryPause):
		}
	}
}

// retryPause keeps a campaign that fails at once from spinning.
const retryPause = 200 * time.Millisecond

// lead runs a coordinator until the leadership is lost or ctx is done. What runs on TaskManagers is left to the next
// leader.
func (l *leader) lead(ctx context.Context, store metastore.Store, lead metastore.Leadership, b blob.Store) {
	log := l.log.With(zap.Uint64("epoch", lead.Epoch()))
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignTimeout)
		defer cancel()
		if err := lead.Resign(ctx); err != nil {
			log.Warn("resign: the leadership runs out by itself", zap.Error(err))
		}
	}()
	c := l.take(ctx, store, lead, b, log)
	if c == nil {
		return
	}
	l.set(c)
	l.gauge.Set(1)
	l.ready.set("leader", "")
	l.serving(true)
	log.Info("this jobmanager leads", zap.String("cluster", l.cfg.Cluster), zap.String("address", l.address))
	select {
	case <-ctx.Done():
	case <-lead.Lost():
		log.Warn("the leadership is lost; campaigning again")
	case <-c.Done():
		log.Warn("the coordinator has stopped; campaigning again")
	}
	l.serving(false)
	l.gauge.Set(0)
	l.set(nil)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignTimeout)
	defer cancel()
	if err := c.Close(stop); err != nil {
		log.Error("the coordinator does not stop", zap.Error(err))
	}
}

// resignTimeout bounds the end of a leadership, after which the next one may begin anyway.
const resignTimeout = 5 * time.Second

// take makes the coordinator of a new leadership, trying again while the metadata cannot be read. It returns nil when
// the leadership is over before that.
func (l *leader) take(ctx context.Context, store metastore.Store, lead metastore.Leadership, b blob.Store, log *zap.Logger) *coordinator.Coordinator {
	for {
		c, err := coordinator.New(ctx, coordinator.Options{
			Cluster: l.cfg.Cluster, Store: store, Leadership: lead, Blob: b, BlobURL: l.cfg.Blob, OpenBlob: openOther, Log: l.log, Metrics: l.reg,
			Heartbeat: l.cfg.Heartbeat, MaxMissed: l.cfg.MaxMissed, Jitter: rand.Float64,
		})
		if err == nil {
			return c
		}
		if ctx.Err() != nil {
			return nil
		}
		l.ready.set("leader", err.Error())
		log.Error("elected, but the jobs cannot be taken over; trying again every second", zap.Error(err))
		select {
		case <-ctx.Done():
			return nil
		case <-lead.Lost():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// watch keeps track of who leads while this JobManager does not, and says once a second that the metadata store is
// away.
func (l *leader) watch(ctx context.Context, store metastore.Store) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if c, _ := l.current(); c == nil {
			info, err := reach(ctx, store, l.election())
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				l.ready.set("leader", err.Error())
				l.log.Warn("metadata store is away; trying again every second", zap.Error(err))
			default:
				l.standby(info)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// standby notes who leads. A standby that knows a leader is ready: it can take over, and says where to go.
func (l *leader) standby(info metastore.LeaderInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.coordinator != nil {
		return // Elected meanwhile.
	}
	if info.ID == l.address {
		info = metastore.LeaderInfo{} // Elected, and about to take over; or its own former leadership.
	}
	l.mu.other = info
	if info.ID != "" {
		l.ready.set("leader", "")
	} else {
		l.ready.set("leader", "nobody leads yet")
	}
}

func (l *leader) set(c *coordinator.Coordinator) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.coordinator, l.mu.other = c, metastore.LeaderInfo{}
	if c == nil {
		l.ready.set("leader", "nobody leads yet")
	}
}

// current returns the coordinator, or who leads instead.
func (l *leader) current() (*coordinator.Coordinator, metastore.LeaderInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.coordinator, l.mu.other
}

// leading returns the coordinator, or an error that says who leads.
func (l *leader) leading() (*coordinator.Coordinator, error) {
	c, other := l.current()
	if c == nil {
		return nil, rpc.NotLeaderError(other.ID)
	}
	return c, nil
}

// notLeading makes of an error of a coordinator that has stopped the one that lets clients look for the next leader.
func (l *leader) notLeading(c *coordinator.Coordinator, err error) error {
	if err == nil || !errors.Is(err, coordinator.ErrUnavailable) {
		return err
	}
	select {
	case <-c.Done():
		_, other := l.current()
		return rpc.NotLeaderError(other.ID)
	default:
		return err
	}
}

// Connect implements rpc.Coordinator.
func (l *leader) Connect(info job.WorkerInfo, w rpc.Worker) (rpc.Connection, error) {
	c, err := l.leading()
	if err != nil {
		return nil, err
	}
	s, err := c.Connect(info, w)
	if err != nil {
		return nil, l.notLeading(c, err)
	}
	return s, nil
}

// ask calls f with the coordinator.
func ask[T any](l *leader, f func(*coordinator.Coordinator) (T, error)) (T, error) {
	c, err := l.leading()
	if err != nil {
		var none T
		return none, err
	}
	v, err := f(c)
	return v, l.notLeading(c, err)
}

// Submit implements rpc.Jobs.
func (l *leader) Submit(ctx context.Context, s coordinator.Submission) (coordinator.Submitted, error) {
	return ask(l, func(c *coordinator.Coordinator) (coordinator.Submitted, error) { return c.Submit(ctx, s) })
}

// List implements rpc.Jobs.
func (l *leader) List(ctx context.Context) ([]coordinator.Job, error) {
	return ask(l, func(c *coordinator.Coordinator) ([]coordinator.Job, error) { return c.List(ctx) })
}

// Get implements rpc.Jobs.
func (l *leader) Get(ctx context.Context, ref string) (coordinator.JobDetail, error) {
	return ask(l, func(c *coordinator.Coordinator) (coordinator.JobDetail, error) { return c.Get(ctx, ref) })
}

// Watch implements rpc.Jobs.
func (l *leader) Watch(ctx context.Context, ref string, f func(coordinator.JobDetail) error) error {
	_, err := ask(l, func(c *coordinator.Coordinator) (struct{}, error) { return struct{}{}, c.Watch(ctx, ref, f) })
	return err
}

// Cancel implements rpc.Jobs.
func (l *leader) Cancel(ctx context.Context, ref string) (coordinator.Job, error) {
	return ask(l, func(c *coordinator.Coordinator) (coordinator.Job, error) { return c.Cancel(ctx, ref) })
}

// TriggerCheckpoint implements rpc.Jobs.
func (l *leader) TriggerCheckpoint(ctx context.Context, ref string, o coordinator.TriggerOptions) (coordinator.Checkpoint, error) {
	return ask(l, func(c *coordinator.Coordinator) (coordinator.Checkpoint, error) {
		return c.TriggerCheckpoint(ctx, ref, o)
	})
}

// TakeSavepoint implements rpc.Jobs.
func (l *leader) TakeSavepoint(ctx context.Context, ref string, o coordinator.SavepointOptions) (coordinator.Savepoint, error) {
	return ask(l, func(c *coordinator.Coordinator) (coordinator.Savepoint, error) { return c.TakeSavepoint(ctx, ref, o) })
}

// ListSavepoints implements rpc.Jobs.
func (l *leader) ListSavepoints(ctx context.Context, ref string) ([]coordinator.Savepoint, error) {
	return ask(l, func(c *coordinator.Coordinator) ([]coordinator.Savepoint, error) { return c.ListSavepoints(ctx, ref) })
}

// DeleteSavepoint implements rpc.Jobs.
func (l *leader) DeleteSavepoint(ctx context.Context, id string) (coordinator.Savepoint, error) {
	return ask(l, func(c *coordinator.Coordinator) (coordinator.Savepoint, error) { return c.DeleteSavepoint(ctx, id) })
}

// ListCheckpoints implements rpc.Jobs.
func (l *leader) ListCheckpoints(ctx context.Context, ref string) ([]coordinator.Checkpoint, error) {
	return ask(l, func(c *coordinator.Coordinator) ([]coordinator.Checkpoint, error) { return c.ListCheckpoints(ctx, ref) })
}

// GetCheckpoint implements rpc.Jobs.
func (l *leader) GetCheckpoint(ctx context.Context, ref string, id job.CheckpointID) (coordinator.CheckpointDetail, error) {
	return ask(l, func(c *coordinator.Coordinator) (coordinator.CheckpointDetail, error) {
		return c.GetCheckpoint(ctx, ref, id)
	})
}

// Nodes implements rpc.Jobs.
func (l *leader) Nodes(ctx context.Context) ([]coordinator.Node, error) {
	return ask(l, func(c *coordinator.Coordinator) ([]coordinator.Node, error) { return c.Nodes(ctx) })
}

// Version implements rpc.Jobs.
func (l *leader) Version(context.Context) (rpc.Version, error) {
	c, other := l.current()
	v := rpc.Version{
		Version: l.cfg.Version, GoVersion: runtime.Version(), Cluster: l.cfg.Cluster, LeaderAddress: other.ID, Epoch: job.Epoch(other.Epoch),
	}
	if c != nil {
		v.Leader, v.LeaderAddress, v.Epoch = true, l.address, c.Epoch()
	}
	return v, nil
}

// checkpointAll takes a checkpoint of every running job that jobs shows, all at the same time, so that what follows
// costs them little. It is best effort.
func checkpointAll(ctx context.Context, jobs rpc.Jobs, log *zap.Logger, concerned func(coordinator.Job) bool) {
	list, err := jobs.List(ctx)
	if err != nil {
		log.Warn("no checkpoint before the end", zap.Error(err))
		return
	}
	var wg sync.WaitGroup
	for _, j := range list {
		if j.State != coordinator.JobRunning || !concerned(j) {
			continue
		}
		wg.Go(func() {
			c, err := jobs.TriggerCheckpoint(ctx, string(j.ID), coordinator.TriggerOptions{})
			switch {
			case err != nil && !errors.Is(err, coordinator.ErrRefused) && rpc.KindOf(err) != rpc.Refused:
				log.Warn("no checkpoint before the end", zap.String("job", j.Name), zap.Error(err))
			case err == nil:
				log.Info("checkpoint before the end", zap.String("job", j.Name), zap.Uint64("checkpoint", uint64(c.ID)), zap.Duration("duration", c.Duration))
			}
		})
	}
	wg.Wait()
}

var errDrained = fmt.Errorf("drained: %w", context.Canceled)
