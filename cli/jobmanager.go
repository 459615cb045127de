package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstream/cairn/serve"
)

func (a *App) jobManagerCommand(use string) *cobra.Command {
	var c serve.JobManagerConfig
	level := "info"
	o := &options{fromFile: true}
	o.text(&c.Listen, "listen", "HOST:PORT", "gRPC: job API and TaskManager sessions (default 127.0.0.1:6123)")
	o.text(&c.Advertise, "advertise", "HOST[:PORT]", "where others reach --listen (default: its own address)")
	o.text(&c.HTTP, "http", "HOST:PORT", "/metrics, /healthz, /readyz; off: none (default 127.0.0.1:8081)")
	o.text(&c.Etcd, "etcd", "ENDPOINTS", "endpoints, comma separated, or embedded:DIR for one inside (required)")
	o.text(&c.Blob, "blob", "URL", "store of snapshots: s3://BUCKET/PREFIX?endpoint=URL&region=R&path-style=true or file:///DIR (required)")
	o.text(&c.Cluster, "cluster", "NAME", "prefix of all keys and objects (default \"default\")")
	o.text(&c.PortsFile, "ports-file", "FILE", "write the chosen addresses there, as JSON")
	o.duration(&c.ShutdownTimeout, "shutdown-timeout", "time for draining after SIGTERM (default 25s)")
	o.duration(&c.Heartbeat, "heartbeat", "how often TaskManagers say that they live; lost after three missed ones (default 1s)")
	o.choice(&level, "log-level", "least level that is logged", logLevels...)
	o.fill = func() { c = c.WithDefaults() }
	o.check = func() []string { return problemsOf(c.Validate()) }
	return a.command(&cobra.Command{Use: use, Short: "runs a JobManager: API, scheduling, checkpoints"}, o, func(ctx context.Context, _ []string) error {
		c.Version, c.Log = Version, logger(a.Stderr, level)
		defer a.deadline(ctx, c.ShutdownTimeout)()
		return serve.JobManager(ctx, c)
	})
}

const (
	stateMemoryUsage = "memory of a TaskManager for state that is on disk, shared by its operators (default 256MiB)"
	uploadsUsage     = "snapshots of tasks that a TaskManager stores at a time (default 4)"
	uploadRateUsage  = "bytes a second that a TaskManager's snapshots take of the network, such as 50MiB (default 0: no limit)"
)

func (a *App) taskManagerCommand(use string) *cobra.Command {
	var c serve.TaskManagerConfig
	level := "info"
	o := &options{fromFile: true}
	o.addresses(&c.JobManagers, "jobmanager", "addresses of all JobManagers, comma separated (required)")
	o.number(&c.Slots, "slots", "subtasks of each operator of a job that it takes (default: number of CPUs)")
	o.text(&c.Listen, "listen", "HOST:PORT", "data exchange (default 127.0.0.1:6124)")
	o.text(&c.Advertise, "advertise", "HOST[:PORT]", "where others reach --listen (default: its own address)")
	o.text(&c.HTTP, "http", "HOST:PORT", "/metrics, /healthz, /readyz, /debug/pprof; off: none (default 127.0.0.1:8082)")
	o.text(&c.Dir, "dir", "DIR", "local state, spill, copies of snapshots (default: a folder in the system's temporary directory)")
	o.size(&c.StateMemory, "state-memory", stateMemoryUsage)
	o.number(&c.Uploads, "upload-concurrency", uploadsUsage)
	o.rate(&c.UploadRate, "upload-rate", uploadRateUsage)
	o.text(&c.Blob, "blob", "URL", "store of snapshots (default: what the JobManager says)")
	o.text(&c.PortsFile, "ports-file", "FILE", "write the chosen addresses there, as JSON")
	o.duration(&c.ShutdownTimeout, "shutdown-timeout", "time for draining after SIGTERM (default 25s)")
	o.choice(&level, "log-level", "least level that is logged", logLevels...)
	o.fill = func() { c = c.WithDefaults() }
	o.check = func() []string { return problemsOf(c.Validate()) }
	return a.command(&cobra.Command{Use: use, Short: "runs a TaskManager: subtasks in slots, data exchange, state"}, o, func(ctx context.Context, _ []string) error {
		c.Programs, c.Version, c.Log = a.Programs, Version, logger(a.Stderr, level)
		defer a.deadline(ctx, c.ShutdownTimeout)()
		return serve.TaskManager(ctx, c)
	})
}

func (a *App) localCommand() *cobra.Command {
	var c serve.LocalConfig
	level := "info"
	o := &options{fromFile: true}
	o.number(&c.TaskManagers, "taskmanagers", "number of TaskManagers (default 1)")
	o.number(&c.Slots, "slots", "slots of each TaskManager (default: number of CPUs)")
	o.text(&c.Dir, "dir", "DIR", "metadata, snapshots and state, used again by the next cluster on it (default: a temporary one)")
	o.size(&c.StateMemory, "state-memory", stateMemoryUsage)
	o.number(&c.Uploads, "upload-concurrency", uploadsUsage)
	o.rate(&c.UploadRate, "upload-rate", uploadRateUsage)
	o.text(&c.Listen, "listen", "HOST:PORT", "gRPC of the JobManager (default 127.0.0.1:6123)")
	o.text(&c.HTTP, "http", "HOST:PORT", "HTTP of the JobManager; off: none (default 127.0.0.1:8081)")
	o.text(&c.PortsFile, "ports-file", "FILE", "write the chosen addresses there, as JSON")
	o.duration(&c.ShutdownTimeout, "shutdown-timeout", "time for draining after SIGTERM (default 25s)")
	o.choice(&level, "log-level", "least level that is logged", logLevels...)
	o.fill = func() { c = c.WithDefaults() }
	o.check = func() []string { return problemsOf(c.Validate()) }
	return a.command(&cobra.Command{Use: "local", Short: "runs a whole cluster in this process"}, o, func(ctx context.Context, _ []string) error {
		c.Programs, c.Version, c.Log = a.Programs, Version, logger(a.Stderr, level)
		defer a.deadline(ctx, c.ShutdownTimeout)()
		return serve.Local(ctx, c)
	})
}

// deadline ends the process when a drain takes longer than it may; what it returns calls that off.
func (a *App) deadline(ctx context.Context, timeout time.Duration) (off func()) {
	finished := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(timeout)
		defer t.Stop()
		select {
		case <-t.C:
			a.giveUp(timeout)
		case <-finished:
		}
	})
	return func() { stop(); close(finished) }
}
