package serve

import (
	"context"
	"net"
	"time"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/internal/group"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/rpc"
)

// JobManagerConfig configures a JobManager. Zero means the default; Etcd and Blob have none.
type JobManagerConfig struct {
	// Listen is where gRPC is served: the API of jobs and the sessions of TaskManagers. host:port, port 0 is a free
	// one. Default 127.0.0.1:6123: nothing is open to others unless it is asked for.
	Listen string
	// Advertise is where TaskManagers and clients reach Listen, host or host:port. Default: Listen with the host's
	// name in place of "all interfaces".
	Advertise string
	// HTTP is where /metrics, /healthz and /readyz are served, host:port; "off" serves them nowhere.
	// Default 127.0.0.1:8081.
	HTTP string
	// Etcd is where metadata is: endpoints of an etcd, separated by commas, or embedded:DIR for one in this process
	// with its data in DIR. Required.
	Etcd string
	// Blob is the URL of the store of snapshots, which every process of the cluster must reach under it. Required.
	Blob string
	// Cluster is the first part of all keys and objects, so that clusters can share an etcd and a bucket.
	// Default "default".
	Cluster string
	// PortsFile, if set, gets the addresses that were chosen, as a JSON object by flag name.
	PortsFile string
	// ShutdownTimeout bounds the drain after ctx has ended. Default 25 s: below the 30 s after which Kubernetes
	// kills.
	ShutdownTimeout time.Duration
	// Heartbeat is how often TaskManagers say that they live; one that misses more than MaxMissed is lost.
	// Defaults 1 s and 3: a hung process is found within seconds, a dead one by its connection at once.
	Heartbeat time.Duration
	MaxMissed int
	// Version of the binary, for people.
	Version string
	// Log gets what happens. Default: none.
	Log *zap.Logger
}

// WithDefaults fills in what is zero.
func (c JobManagerConfig) WithDefaults() JobManagerConfig {
	def(&c.Listen, "127.0.0.1:6123")
	def(&c.HTTP, "127.0.0.1:8081")
	def(&c.Cluster, "default")
	def(&c.ShutdownTimeout, 25*time.Second)
	def(&c.Heartbeat, time.Second)
	def(&c.MaxMissed, 3)
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Off is the address of an endpoint that is not served.
const Off = "off"

// Validate lists everything that is wrong with c after WithDefaults. Problems begin with the flag's name.
func (c JobManagerConfig) Validate() error {
	var problems []string
	checkAddress("listen", c.Listen, &problems)
	if c.HTTP != Off {
		checkAddress("http", c.HTTP, &problems)
	}
	if c.Etcd == "" {
		problems = append(problems, "etcd: required: endpoints such as 10.0.0.1:2379, or embedded:DIR")
	} else {
		checkEtcd(c.Etcd, &problems)
	}
	checkBlob(c.Blob, true, &problems)
	checkCluster(c.Cluster, &problems)
	checkPositive("shutdown-timeout", c.ShutdownTimeout, &problems)
	checkPositive("heartbeat", c.Heartbeat, &problems)
	if c.HTTP != Off && c.HTTP == c.Listen && portOf(c.HTTP) != "0" {
		problems = append(problems, "http: the same address as listen: "+c.HTTP)
	}
	return problemsOf("jobmanager", problems)
}

func problemsOf(what string, problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return &job.Problems{What: what, List: problems}
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

func checkBlob(raw string, required bool, problems *[]string) {
	switch {
	case raw == "" && required:
		*problems = append(*problems, "blob: required: s3://BUCKET/PREFIX?endpoint=URL or file:///DIR")
	case raw != "":
		if _, err := blob.ParseLocation(raw); err != nil {
			*problems = append(*problems, "blob: "+err.Error())
		}
	}
}

func checkCluster(name string, problems *[]string) {
	if err := blob.CheckKey(name); err != nil {
		*problems = append(*problems, "cluster: "+err.Error())
	}
}

func checkPositive(key string, d time.Duration, problems *[]string) {
	if d < 0 {
		*problems = append(*problems, key+": "+d.String()+" is negative")
	}
}

// JobManager runs a JobManager until ctx is done and then drains: checkpoints of running jobs, resignation, so that
// another one takes over at once, and the end of all calls. It returns nil after that. It returns an error when it
// cannot start (a bad configuration, a port in use) or cannot go on.
func JobManager(ctx context.Context, cfg JobManagerConfig) error {
	jm, err := startJobManager(ctx, cfg)
	if err != nil {
		return err
	}
	return jm.wait(ctx)
}

// jobManager is one that runs.
type jobManager struct {
	cfg     JobManagerConfig
	log     *zap.Logger
	g       *group.Group // Everything but the election.
	e       *group.Group // The election, which ends first.
	leader  *leader
	server  *rpc.Server
	workers *rpc.WorkerServer
	ready   *readiness
	listen  net.Listener
	http    net.Listener // nil: off.
	address string
}

// startJobManager begins to listen; the stores are opened behind it.
func startJobManager(ctx context.Context, cfg JobManagerConfig) (*jobManager, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	jm := &jobManager{cfg: cfg, log: cfg.Log}
	var err error
	if jm.listen, err = listen("gRPC", cfg.Listen); err != nil {
		return nil, err
	}
	if cfg.HTTP != Off {
		if jm.http, err = listen("HTTP", cfg.HTTP); err != nil {
			_ = jm.listen.Close()
			return nil, err
		}
	}
	jm.address = reachable(jm.listen, cfg.Advertise)
	addrs := map[string]any{"listen": jm.listen.Addr().String(), "advertise": jm.address}
	fields := []zap.Field{zap.String("listen", jm.listen.Addr().String()), zap.String("advertise", jm.address)}
	if jm.http != nil {
		addrs["http"] = jm.http.Addr().String()
		fields = append(fields, zap.String("http", jm.http.Addr().String()))
	}
	jm.log.Info("jobmanager starts", append(fields, zap.String("version", cfg.Version), zap.String("cluster", cfg.Cluster))...)
	warnOpen(jm.log, "API and sessions of the jobmanager", jm.listen)
	warnOpen(jm.log, "HTTP endpoint of the jobmanager", jm.http)
	if err := writePorts(cfg.PortsFile, addrs); err != nil {
		jm.closeListeners()
		return nil, err
	}

	reg := newRegistry()
	jm.ready = newReadiness(map[string]string{"leader": "nobody leads yet", whatMetadata: "not asked yet", whatBlob: "not asked yet"})
	// The server and the leader need each other.
	jm.leader = newLeader(cfg, jm.address, jm.log, reg, jm.ready, func(serving bool) { jm.server.SetServing(serving) })
	jm.workers = rpc.NewWorkerServer(rpc.WorkerServerConfig{
		Coordinator: jm.leader, Cluster: cfg.Cluster, Blob: cfg.Blob, Version: cfg.Version, Heartbeat: cfg.Heartbeat, Log: jm.log,
	})
	jm.server = rpc.NewServer(rpc.ServerConfig{Jobs: jm.leader, Workers: jm.workers})

	jm.g = group.New(context.WithoutCancel(ctx))
	jm.g.Go("grpc", func(context.Context) error { return jm.server.Serve(jm.listen) })
	if jm.http != nil {
		h := endpoints(reg, jm.ready, false, jm.log)
		jm.g.Go("http", func(ctx context.Context) error { return serveHTTP(ctx, jm.http, h, jm.log) })
	}
	jm.e = group.New(jm.g.Context())
	jm.e.Go("election", jm.elect)
	return jm, nil
}

// What /readyz speaks of.
const (
	whatMetadata = "metadata store"
	whatBlob     = "blob store"
)

func (jm *jobManager) closeListeners() {
	_ = jm.listen.Close()
	if jm.http != nil {
		_ = jm.http.Close()
	}
}

// elect opens the stores, waiting for them if need be, and takes part in the election until ctx is done.
func (jm *jobManager) elect(ctx context.Context) error {
	meta, err := openMetadata(ctx, jm.cfg.Etcd, jm.log)
	if err != nil {
		return err
	}
	defer meta.close()
	var store blob.Store
	closeBlob := func() {}
	defer func() { closeBlob() }()
	// Side by side, so that each has its line a second when both are away.
	probes := group.New(ctx)
	probes.Go(whatBlob, func(ctx context.Context) error {
		return everySecond(ctx, jm.log, whatBlob, jm.ready, func(ctx context.Context) error {
			s, done, err := openBlob(ctx, jm.cfg.Blob, jm.leader.reg)
			if err == nil {
				store, closeBlob = s, done
			}
			return err
		})
	})
	probes.Go(whatMetadata, func(ctx context.Context) error {
		return everySecond(ctx, jm.log, whatMetadata, jm.ready, func(ctx context.Context) error {
			_, err := reach(ctx, meta.store, jm.leader.election())
			return err
		})
	})
	if err := probes.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	g := group.New(ctx)
	g.Go("metadata store", func(ctx context.Context) error { return jm.leader.watch(ctx, meta.store) })
	g.Go("leader", func(ctx context.Context) error { return jm.leader.run(ctx, meta.store, store) })
	if meta.failed != nil {
		g.Go("embedded etcd", func(ctx context.Context) error {
			select {
			case err := <-meta.failed:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
	return g.Wait()
}

// wait returns when the JobManager has failed, or has drained after ctx was done.
func (jm *jobManager) wait(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		_ = jm.e.Wait() // It is asked again below.
		close(ended)
	}()
	select {
	case <-ended: // The election ends by itself only when something is broken for good.
	case <-jm.g.Context().Done():
	case <-ctx.Done():
		jm.drain(ended)
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignTimeout)
	defer cancel()
	jm.server.Stop(stop)
	jm.e.Cancel(errDrained)
	err := jm.e.Wait()
	jm.g.Cancel(errDrained)
	if gerr := jm.g.Wait(); err == nil {
		err = gerr
	}
	jm.log.Info("jobmanager has stopped", zap.Error(err))
	return err
}

// drain takes checkpoints, then resigns.
func (jm *jobManager) drain(ended <-chan struct{}) {
	jm.log.Info("jobmanager drains", zap.Duration("timeout", jm.cfg.ShutdownTimeout))
	jm.ready.set("shutdown", "draining")
	if c, _ := jm.leader.current(); c != nil {
		// Half of the time at most: the rest is for handing over.
		ctx, cancel := context.WithTimeout(context.Background(), jm.cfg.ShutdownTimeout/2)
		checkpointAll(ctx, jm.leader, jm.log, everyJob)
		cancel()
	}
	jm.e.Cancel(errDrained)
	select {
	case <-ended:
	case <-time.After(jm.cfg.ShutdownTimeout / 2):
		jm.log.Warn("the election does not end in time", zap.Strings("running", jm.e.Running()))
	}
}
