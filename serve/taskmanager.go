package serve

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/exchange"
	xgrpc "github.com/cairnstream/cairn/exchange/grpc"
	"github.com/cairnstream/cairn/exchange/inproc"
	"github.com/cairnstream/cairn/internal/group"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/rpc"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/task"
)

// Programs are those that a binary has.
type Programs interface {
	task.Programs
	// List names them, each with the version of the build.
	List() []job.ProgramInfo
}

// TaskManagerConfig configures a TaskManager. Zero means the default; JobManagers has none.
type TaskManagerConfig struct {
	// JobManagers are the addresses of all JobManagers, host:port. Required.
	JobManagers []string
	// Slots is how many subtasks of each operator of a job it takes. Default: the number of CPUs, since a slot keeps
	// about one of them busy.
	Slots int
	// Listen is where other TaskManagers send data to, host:port, port 0 is a free one. Default 127.0.0.1:6124.
	Listen string
	// Advertise is where they reach Listen, host or host:port. Default: Listen with the host's name in place of "all
	// interfaces".
	Advertise string
	// HTTP is where /metrics, /healthz, /readyz and /debug/pprof are served, host:port; "off" serves them nowhere.
	// Default 127.0.0.1:8082.
	HTTP string
	// Dir holds local state and what is on its way to the blob store, in a folder of this process that goes with it, and
	// copies of snapshots for later processes. TaskManagers of one machine may share it. Default: a folder of this user's
	// in the system's directory for temporary files.
	Dir string
	// StateMemory is what the state backends of all jobs here share for caches and buffers. State in tables in memory
	// (the backends memory and fs) does not count. Default 256 MiB: with the tables of a few operators cached well it
	// leaves most of a small machine to the jobs.
	StateMemory job.Bytes
	// Uploads is how many tasks store their snapshots at a time. Default 4: enough to keep a store with 10 ms of latency
	// busy, few enough to leave the cores to the tasks.
	Uploads int
	// UploadRate is how many bytes a second all uploads of snapshots take together, for networks that records need too.
	// Default 0: no limit. A checkpoint that takes longer for it than checkpoint.timeout fails.
	UploadRate job.Bytes
	// Blob is the URL of the store of snapshots. Default: what the JobManager says.
	Blob string
	// PortsFile, if set, gets the addresses that were chosen, as a JSON object by flag name.
	PortsFile string
	// ShutdownTimeout bounds the drain after ctx has ended. Default 25 s: below the 30 s after which Kubernetes
	// kills.
	ShutdownTimeout time.Duration
	// Programs are those that it runs.
	Programs Programs
	// Version of the binary, for people.
	Version string
	// Log gets what happens. Default: none.
	Log *zap.Logger
}

// WithDefaults fills in what is zero.
func (c TaskManagerConfig) WithDefaults() TaskManagerConfig {
	def(&c.Slots, runtime.NumCPU())
	def(&c.Listen, "127.0.0.1:6124")
	def(&c.HTTP, "127.0.0.1:8082")
	def(&c.Dir, defaultDir())
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

// Validate lists everything that is wrong with c after WithDefaults. Problems begin with the flag's name.
func (c TaskManagerConfig) Validate() error {
	var problems []string
	if len(c.JobManagers) == 0 {
		problems = append(problems, "jobmanager: required: the addresses of all JobManagers, host:port, separated by commas")
	}
	for _, a := range c.JobManagers {
		checkAddress("jobmanager", a, &problems)
	}
	if c.Slots < 1 || c.Slots > job.MaxMaxParallelism {
		problems = append(problems, fmt.Sprintf("slots: %d: want 1 to %d", c.Slots, job.MaxMaxParallelism))
	}
	checkAddress("listen", c.Listen, &problems)
	if c.HTTP != Off {
		checkAddress("http", c.HTTP, &problems)
	}
	if c.HTTP != Off && c.HTTP == c.Listen && portOf(c.HTTP) != "0" {
		problems = append(problems, "http: the same address as listen: "+c.HTTP)
	}
	checkBlob(c.Blob, false, &problems)
	checkStateMemory(c.StateMemory, &problems)
	checkUploads(c.Uploads, c.UploadRate, &problems)
	checkPositive("shutdown-timeout", c.ShutdownTimeout, &problems)
	return problemsOf("taskmanager", problems)
}

// minStateMemory is less than what a state backend needs for its smallest buffers.
const minStateMemory = 4 * job.MiB

func checkStateMemory(b job.Bytes, problems *[]string) {
	if b < minStateMemory {
		*problems = append(*problems, fmt.Sprintf("state-memory: %v: want at least %v", b, minStateMemory))
	}
}

const (
	maxUploads = 1000
	// minUploadRate is less than what keeps a store from giving up on a request.
	minUploadRate = 64 * job.KiB
)

func checkUploads(n int, rate job.Bytes, problems *[]string) {
	if n < 1 || n > maxUploads {
		*problems = append(*problems, fmt.Sprintf("upload-concurrency: %d: want 1 to %d", n, maxUploads))
	}
	if rate != 0 && rate < minUploadRate {
		*problems = append(*problems, fmt.Sprintf("upload-rate: %v a second: want at least %v, or 0 for no limit", rate, minUploadRate))
	}
}

// TaskManager runs a TaskManager until ctx is done and then drains: checkpoints of the jobs that it runs tasks of, the
// end of its session and of its tasks. It returns nil after that. It returns an error when it cannot start (a bad
// configuration, a port in use); a JobManager that is away it waits for.
func TaskManager(ctx context.Context, cfg TaskManagerConfig) error {
	tm, err := startTaskManager(ctx, cfg)
	if err != nil {
		return err
	}
	return tm.wait(ctx)
}

// taskManager is one that runs.
type taskManager struct {
	cfg      TaskManagerConfig
	log      *zap.Logger
	g        *group.Group // Everything but the session.
	s        *group.Group // The session, which ends first.
	info     job.WorkerInfo
	manager  *task.Manager
	exchange *xgrpc.Server
	dialer   *xgrpc.Dialer
	server   *rpc.DataServer
	reg      *prometheus.Registry
	ready    *readiness
	dir      *stateDir

	mu struct {
		sync.Mutex
		blob    blob.Store // Opened at the first session.
		blobURL string
		close   func()
	}
}

func startTaskManager(ctx context.Context, cfg TaskManagerConfig) (_ *taskManager, err error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	tm := &taskManager{cfg: cfg, reg: newRegistry(), ready: newReadiness(map[string]string{whatJobManager: "not connected yet"})}
	var undo []func()
	defer func() {
		if err != nil {
			for _, f := range undo {
				f()
			}
		}
	}()
	data, err := listen("data exchange", cfg.Listen)
	if err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = data.Close() })
	var web net.Listener
	if cfg.HTTP != Off {
		if web, err = listen("HTTP", cfg.HTTP); err != nil {
			return nil, err
		}
		undo = append(undo, func() { _ = web.Close() })
	}
	id := newWorkerID()
	tm.log = cfg.Log.With(zap.String("worker", string(id)))
	tm.info = job.WorkerInfo{
		ID: id, Slots: cfg.Slots, Data: reachable(data, cfg.Advertise), Host: hostname(), PID: os.Getpid(),
		Programs: cfg.Programs.List(), Version: cfg.Version,
	}
	addrs := map[string]any{"listen": data.Addr().String(), "advertise": tm.info.Data}
	fields := []zap.Field{zap.String("listen", data.Addr().String()), zap.String("advertise", tm.info.Data)}
	if web != nil {
		tm.info.HTTP = reachable(web, hostOf(cfg.Advertise))
		addrs["http"] = web.Addr().String()
		fields = append(fields, zap.String("http", web.Addr().String()))
	}
	tm.log.Info("taskmanager starts", append(fields, zap.Int("slots", cfg.Slots), zap.Strings("jobmanager", cfg.JobManagers), zap.String("version", cfg.Version))...)
	warnOpen(tm.log, "data exchange of the taskmanager", data)
	warnOpen(tm.log, "HTTP endpoint of the taskmanager", web)
	if err := writePorts(cfg.PortsFile, addrs); err != nil {
		return nil, err
	}
	if cfg.Dir == defaultDir() {
		if err := makeDefaultDir(cfg.Dir); err != nil {
			return nil, err
		}
	}
	if tm.dir, err = openStateDir(cfg.Dir, string(id), tm.log); err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = tm.dir.remove() })
	if err := tm.build(); err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = tm.manager.Close(context.Background()); tm.dialer.Close() })
	session, err := rpc.NewSession(rpc.SessionConfig{JobManagers: cfg.JobManagers, Info: tm.info, Welcomed: tm.welcomed, Log: tm.log})
	if err != nil {
		return nil, err
	}

	tm.g = group.New(context.WithoutCancel(ctx))
	tm.g.Go("copies", func(ctx context.Context) error {
		keepLocal(ctx, tm.dir.local, tm.log)
		return nil
	})
	tm.g.Go("data", func(context.Context) error { return tm.server.Serve(data) })
	if web != nil {
		h := endpoints(tm.reg, tm.ready, true, tm.log)
		tm.g.Go("http", func(ctx context.Context) error { return serveHTTP(ctx, web, h, tm.log) })
	}
	tm.s = group.New(tm.g.Context())
	tm.s.Go("session", session.Run)
	return tm, nil
}

const whatJobManager = "jobmanager"

func hostOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return strings.Trim(addr, "[]")
}

// newWorkerID names this incarnation of the process.
func newWorkerID() job.WorkerID {
	var b [6]byte
	_, _ = rand.Read(b[:]) // Never fails.
	return job.WorkerID("tm-" + hex.EncodeToString(b[:]))
}

// build makes the task manager and the exchange.
func (tm *taskManager) build() error {
	dir := exchange.NewDirectory()
	opts := xgrpc.Options{Self: tm.info.ID, Metrics: xgrpc.NewMetrics(tm.reg)}
	var err error
	if tm.exchange, err = xgrpc.NewServer(dir, opts); err != nil {
		return err
	}
	if tm.dialer, err = xgrpc.NewDialer(opts); err != nil {
		return err
	}
	tm.server = rpc.NewDataServer(xgrpc.ServerOptions(), tm.exchange.Register)
	tm.manager = task.NewManager(task.Config{
		Info: tm.info, Programs: tm.cfg.Programs, Directory: dir, Dialer: tm.dialer,
		Local: func(ctx context.Context, p *exchange.Port) exchange.Out {
			return inproc.Connect(ctx, p, inproc.Options{})
		},
		Backend: backends(), Log: tm.log, TempDir: tm.dir.spool(), StateDir: tm.dir.ops(), LocalDir: tm.dir.local, OpenBlob: openOther,
		StateMemory: statebackend.NewBudget(int64(tm.cfg.StateMemory)), Uploads: tm.cfg.Uploads,
	})
	tm.reg.MustRegister(tm.manager.Collector())
	return nil
}

// welcomed opens the blob store and hands the session to the tasks.
func (tm *taskManager) welcomed(ctx context.Context, w rpc.Welcome) (rpc.Handler, error) {
	raw := tm.cfg.Blob
	if raw == "" {
		raw = w.Blob
	}
	store, err := tm.openBlob(ctx, raw)
	if err != nil {
		tm.ready.set(whatJobManager, err.Error())
		return nil, fmt.Errorf("blob store: %w", err)
	}
	return &attached{tm: tm, session: task.Session{Epoch: w.Epoch, Cluster: w.Cluster, Blob: store}}, nil
}

func (tm *taskManager) openBlob(ctx context.Context, raw string) (blob.Store, error) {
	tm.mu.Lock()
	store, url := tm.mu.blob, tm.mu.blobURL
	tm.mu.Unlock()
	if store != nil && url == raw {
		return store, nil
	}
	opened, done, err := openBlob(ctx, raw, tm.reg)
	if err != nil {
		return nil, err
	}
	opened = blob.Limited(opened, int64(tm.cfg.UploadRate))
	tm.mu.Lock()
	former := tm.mu.close
	tm.mu.blob, tm.mu.blobURL, tm.mu.close = opened, raw, done
	tm.mu.Unlock()
	if former != nil {
		former()
	}
	return opened, nil
}

// attached is one session with the tasks. It implements rpc.Handler.
type attached struct {
	tm      *taskManager
	session task.Session
}

func (a *attached) Attach(report func(job.Report)) {
	a.session.Report = report
	a.tm.manager.Attach(a.session)
	a.tm.ready.set(whatJobManager, "")
}

func (a *attached) Handle(c job.Command) { a.tm.manager.Handle(c) }

func (a *attached) Detach() {
	a.tm.ready.set(whatJobManager, "not connected")
	a.tm.manager.Detach()
}

// wait returns when the TaskManager has failed, or has drained after ctx was done.
func (tm *taskManager) wait(ctx context.Context) error {
	select {
	case <-tm.s.Context().Done(): // Something of tm.g has failed, or the session has panicked.
	case <-ctx.Done():
		tm.drain()
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), tm.cfg.ShutdownTimeout/2)
	defer cancel()
	tm.s.Cancel(errDrained)
	serr := tm.s.Wait()
	if err := tm.manager.Close(stop); err != nil {
		tm.log.Warn("tasks do not end in time", zap.Error(err))
	}
	tm.dialer.Close()
	tm.exchange.Close()
	tm.server.Stop(stop)
	tm.g.Cancel(errDrained)
	err := tm.g.Wait()
	if err == nil {
		err = serr
	}
	tm.mu.Lock()
	done := tm.mu.close
	tm.mu.Unlock()
	if done != nil {
		done()
	}
	if rerr := tm.dir.remove(); rerr != nil {
		tm.log.Warn("remove the local state of the taskmanager", zap.Error(rerr))
	}
	tm.log.Info("taskmanager has stopped", zap.Error(err))
	return err
}

// drain takes a checkpoint of every job that has tasks here, so that they lose little when those end.
func (tm *taskManager) drain() {
	tm.log.Info("taskmanager drains", zap.Duration("timeout", tm.cfg.ShutdownTimeout))
	tm.ready.set("shutdown", "draining")
	here := map[job.ID]bool{}
	for _, run := range tm.manager.Running() {
		here[run.Job] = true
	}
	if len(here) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tm.cfg.ShutdownTimeout/2)
	defer cancel()
	client, err := rpc.NewClient(rpc.ClientConfig{JobManagers: tm.cfg.JobManagers, ElectionPatience: time.Second})
	if err != nil {
		return
	}
	defer client.Close()
	checkpointAll(ctx, client, tm.log, func(j coordinator.Job) bool { return here[j.ID] })
}

func everyJob(coordinator.Job) bool { return true }
