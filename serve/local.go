package serve

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/internal/group"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// LocalConfig configures a cluster in one process. Zero means the default.
type LocalConfig struct {
	// TaskManagers is how many there are. Default 1.
	TaskManagers int
	// Slots of each. Default: the number of CPUs.
	Slots int
	// Dir holds metadata (an embedded etcd), snapshots and local state, and is used again by the next cluster on it. Default: a new
	// directory for temporary files, which is removed in the end.
	Dir string
	// StateMemory of each TaskManager, as in TaskManagerConfig.
	StateMemory job.Bytes
	// Uploads and UploadRate of each TaskManager, as in TaskManagerConfig.
	Uploads    int
	UploadRate job.Bytes
	// InMemory keeps the metadata in memory, which starts faster: for a cluster that lives no longer than its process.
	InMemory bool
	// Listen and HTTP are the JobManager's addresses, as in JobManagerConfig.
	Listen, HTTP string
	// Cluster as in JobManagerConfig.
	Cluster string
	// PortsFile, if set, gets the addresses that were chosen, as a JSON object.
	PortsFile string
	// ShutdownTimeout as in JobManagerConfig.
	ShutdownTimeout time.Duration
	// Programs are those that the TaskManagers run.
	Programs Programs
	// Version of the binary, for people.
	Version string
	// Log gets what happens. Default: none.
	Log *zap.Logger
}

// WithDefaults fills in what is zero.
func (c LocalConfig) WithDefaults() LocalConfig {
	def(&c.TaskManagers, 1)
	def(&c.Slots, runtime.NumCPU())
	def(&c.Listen, "127.0.0.1:6123")
	def(&c.HTTP, "127.0.0.1:8081")
	def(&c.Cluster, "default")
	def(&c.StateMemory, statebackend.DefaultBudget)
	def(&c.Uploads, 4)
	def(&c.ShutdownTimeout, 25*time.Second)
	if c.Programs == nil {
		c.Programs = noPrograms{}
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

// maxLocal is more TaskManagers in one process than anybody has use for.
const maxLocal = 64

// Validate lists everything that is wrong with c after WithDefaults. Problems begin with the flag's name.
func (c LocalConfig) Validate() error {
	var problems []string
	if c.TaskManagers < 0 || c.TaskManagers > maxLocal {
		problems = append(problems, fmt.Sprintf("taskmanagers: %d: want 1 to %d", c.TaskManagers, maxLocal))
	}
	if c.Slots < 1 || c.Slots > job.MaxMaxParallelism {
		problems = append(problems, fmt.Sprintf("slots: %d: want 1 to %d", c.Slots, job.MaxMaxParallelism))
	}
	checkAddress("listen", c.Listen, &problems)
	if c.HTTP != Off {
		checkAddress("http", c.HTTP, &problems)
	}
	checkCluster(c.Cluster, &problems)
	checkStateMemory(c.StateMemory, &problems)
	checkUploads(c.Uploads, c.UploadRate, &problems)
	checkPositive("shutdown-timeout", c.ShutdownTimeout, &problems)
	return problemsOf("local", problems)
}

// LocalCluster is a cluster in this process.
type LocalCluster struct {
	cfg  LocalConfig
	dir  string
	temp string // Removed in the end.
	jm   *jobManager
	g    *group.Group // A goroutine per process that there would be.
	// The TaskManagers end before the JobManager.
	drainTMs context.CancelFunc
	tmCtx    context.Context
	tms      *group.Group
	drainJM  context.CancelFunc
}

// StartLocal starts a JobManager; StartTaskManagers does the rest. Stop ends everything.
func StartLocal(ctx context.Context, cfg LocalConfig) (*LocalCluster, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	l := &LocalCluster{cfg: cfg}
	dir := cfg.Dir
	var err error
	if dir == "" {
		if l.temp, err = os.MkdirTemp("", "cairn-"); err != nil {
			return nil, fmt.Errorf("directory of the cluster: %w", err)
		}
		dir = l.temp
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("directory of the cluster: %w", err)
	}
	l.dir = dir
	meta := embeddedPrefix + filepath.Join(dir, "metadata")
	if cfg.InMemory {
		meta = inMemory
	}
	ctx = context.WithoutCancel(ctx) // Stop is how a cluster ends.
	l.jm, err = startJobManager(ctx, JobManagerConfig{
		Listen: cfg.Listen, HTTP: cfg.HTTP, Etcd: meta, Cluster: cfg.Cluster, PortsFile: cfg.PortsFile,
		Blob:            (&url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(dir, "blob"))}).String(),
		ShutdownTimeout: cfg.ShutdownTimeout, Version: cfg.Version, Log: cfg.Log.Named("jobmanager"),
	})
	if err != nil {
		l.removeTemp()
		return nil, err
	}
	var jmCtx context.Context
	jmCtx, l.drainJM = context.WithCancel(ctx)
	l.g = group.New(ctx)
	l.g.Go("jobmanager", func(context.Context) error { return l.jm.wait(jmCtx) })
	l.tmCtx, l.drainTMs = context.WithCancel(ctx)
	l.tms = group.New(l.g.Context())
	return l, nil
}

// Address is where the JobManager answers.
func (l *LocalCluster) Address() string { return l.jm.listen.Addr().String() }

// HTTP is where the JobManager's endpoints are, or empty.
func (l *LocalCluster) HTTP() string {
	if l.jm.http == nil {
		return ""
	}
	return l.jm.http.Addr().String()
}

// StartTaskManagers starts the TaskManagers. They find the JobManager by themselves.
func (l *LocalCluster) StartTaskManagers() error {
	web := "127.0.0.1:0"
	if l.jm.http == nil {
		web = Off
	}
	for i := range l.cfg.TaskManagers {
		tm, err := startTaskManager(l.tmCtx, TaskManagerConfig{
			JobManagers: []string{l.Address()}, Slots: l.cfg.Slots, Listen: "127.0.0.1:0", HTTP: web, Dir: l.dir,
			StateMemory: l.cfg.StateMemory, Uploads: l.cfg.Uploads, UploadRate: l.cfg.UploadRate, ShutdownTimeout: l.cfg.ShutdownTimeout, Programs: l.cfg.Programs, Version: l.cfg.Version,
			Log: l.cfg.Log.Named(fmt.Sprintf("taskmanager-%d", i+1)),
		})
		if err != nil {
			return err
		}
		l.tms.Go(fmt.Sprintf("taskmanager %d", i+1), func(context.Context) error { return tm.wait(l.tmCtx) })
	}
	return nil
}

// Failed is closed when a part of the cluster has failed; Stop returns why.
func (l *LocalCluster) Failed() <-chan struct{} { return l.tms.Context().Done() }

// Stop takes checkpoints of running jobs, ends TaskManagers and JobManager, and removes a temporary directory. Jobs
// that have not ended go on when a cluster is started on the same directory again.
func (l *LocalCluster) Stop() error {
	// The JobManager first: it would take the end of a TaskManager for a loss and start its jobs anew.
	l.drainJM()
	err := l.g.Wait()
	l.drainTMs()
	if terr := l.tms.Wait(); err == nil {
		err = terr
	}
	l.removeTemp()
	return err
}

func (l *LocalCluster) removeTemp() {
	if l.temp == "" {
		return
	}
	if err := os.RemoveAll(l.temp); err != nil {
		l.cfg.Log.Warn("remove the cluster's temporary directory", zap.Error(err))
	}
}

// Local runs a cluster in this process until ctx is done, and then drains it.
func Local(ctx context.Context, cfg LocalConfig) error {
	l, err := StartLocal(ctx, cfg)
	if err != nil {
		return err
	}
	err = l.StartTaskManagers()
	if err == nil {
		select {
		case <-ctx.Done():
		case <-l.Failed():
		}
	}
	if serr := l.Stop(); err == nil {
		err = serr
	}
	return err
}
