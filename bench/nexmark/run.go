package nexmark

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/rpc"
	"github.com/cairnstream/cairn/serve"
)

// Options say what to run. Zero means the default.
type Options struct {
	// Query is one of Names, or keyed-count/N with another number of keys.
	Query string
	// Events is their number. Default 10,000,000.
	Events int64
	// Seed of the events. Every number is good, 0 too.
	Seed uint64
	// Jitter is by how many milliseconds at most events come out of order. Default 0.
	Jitter int64
	// Parallelism of every operator. Default 2.
	Parallelism int
	// Splits of the source. Default: the parallelism.
	Splits int
	// Backend is the state backend. Default fs.
	Backend string
	// CheckpointInterval of the exactly-once checkpoints. Default 5 s.
	CheckpointInterval time.Duration
	// TaskManagers share the tasks out; records between them pass sockets. Default 1.
	TaskManagers int
	// Binary has the TaskManagers run in processes of their own, each with the command taskmanager of this executable. One
	// that ends is replaced and the job goes on from its last checkpoint. Default: all in this process.
	Binary string
	// Say gets what happens to those processes. Default: nobody.
	Say func(format string, args ...any)
	// Throttle is the number of records per second that the source makes. Default: as fast as they are taken.
	Throttle float64
	// Check leaves out the timed run.
	Check bool
	// Dir is where checkpoints and answers go, in directories that are removed. Default: the system's for temporary files.
	Dir string
}

// WithDefaults fills in what is zero.
func (o Options) WithDefaults() Options {
	def(&o.Events, 10_000_000)
	def(&o.Parallelism, 2)
	def(&o.Backend, "fs")
	def(&o.CheckpointInterval, 5*time.Second)
	def(&o.TaskManagers, 1)
	return o
}

func (o Options) say(format string, args ...any) {
	if o.Say != nil {
		o.Say(format, args...)
	}
}

func def[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// Result is what came of a run. Figures of a timed run are null where there was none, and rates where the answer is wrong.
type Result struct {
	Query       string `json:"query"`
	Events      int64  `json:"events"`
	Seed        uint64 `json:"seed"`
	Parallelism int    `json:"parallelism"`
	Backend     string `json:"backend"`
	// Seconds go from the first record emitted to the last one that a sink took; CPUSeconds are this process's in them.
	Seconds            *float64 `json:"seconds"`
	CPUSeconds         *float64 `json:"cpu_seconds"`
	EventsPerSecond    *float64 `json:"events_per_second"`
	EventsPerCPUSecond *float64 `json:"events_per_cpu_second"`
	// Checkpoints were completed while records flowed; the one after the end of the data is not among them.
	Checkpoints  int           `json:"checkpoints"`
	CheckpointMS *Distribution `json:"checkpoint_ms"`
	PeakRSSBytes int64         `json:"peak_rss_bytes"`
	// Rows and SHA256 are the answer's. Verified tells whether it is the reference's; null: the reference has none.
	Rows     int64  `json:"rows"`
	SHA256   string `json:"sha256"`
	Verified *bool  `json:"verified"`
}

// Distribution is what there is to say of a few figures.
type Distribution struct {
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

func distribution(v []float64) *Distribution {
	if len(v) == 0 {
		return nil
	}
	v = slices.Sorted(slices.Values(v))
	return &Distribution{Min: v[0], Median: (v[(len(v)-1)/2] + v[len(v)/2]) / 2, Max: v[len(v)-1]}
}

// Run runs a query on a cluster in this process: first timed, with its rows counted and dropped, and then once more to
// check its answer. A wrong answer is no error; the Result says so.
func Run(ctx context.Context, o Options) (r Result, err error) {
	o = o.WithDefaults()
	if _, _, err := find(o.Query); err != nil {
		return r, err
	}
	r = Result{Query: o.Query, Events: o.Events, Seed: o.Seed, Parallelism: o.Parallelism, Backend: o.Backend}
	dir, err := os.MkdirTemp(o.Dir, "cairn-nexmark-")
	if err != nil {
		return r, fmt.Errorf("directory of the benchmark: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if !o.Check {
		if err := timedRun(ctx, o, dir, &r); err != nil {
			return r, fmt.Errorf("timed run of %s: %w", o.Query, err)
		}
	}
	if err := checkedRun(ctx, o, dir, &r); err != nil {
		return r, fmt.Errorf("checked run of %s: %w", o.Query, err)
	}
	if r.Seconds != nil && (r.Verified == nil || *r.Verified) {
		wall, cpu := float64(o.Events) / *r.Seconds, float64(o.Events) / *r.CPUSeconds
		r.EventsPerSecond, r.EventsPerCPUSecond = &wall, &cpu
	}
	return r, nil
}

func timedRun(ctx context.Context, o Options, dir string, r *Result) error {
	debug.FreeOSMemory() // What earlier runs left behind is not this one's.
	resetPeak()
	m := newMeter()
	var done []coordinator.Checkpoint
	wall, cpu, err := m.run(ctx, func(ctx context.Context) (err error) {
		done, err = o.run(ctx, filepath.Join(dir, "timed"), "", m)
		return err
	})
	if err != nil {
		return err
	}
	r.PeakRSSBytes = m.peak
	var ms []float64
	for _, c := range done {
		ms = append(ms, float64(c.Duration)/1e6)
	}
	r.Checkpoints, r.CheckpointMS = len(done), distribution(ms)
	seconds, cpuSeconds := wall.Seconds(), cpu.Seconds()
	r.Seconds, r.CPUSeconds = &seconds, &cpuSeconds
	return nil
}

func checkedRun(ctx context.Context, o Options, dir string, r *Result) error {
	out := filepath.Join(dir, "answer")
	if _, err := o.run(ctx, filepath.Join(dir, "checked"), out, nil); err != nil {
		return err
	}
	a, err := ReadAnswer(o.Query, out)
	if err != nil {
		return err
	}
	r.Rows, r.SHA256 = a.Rows, a.SHA256
	want, known, err := Expected(o.Query, o.Events, o.Seed, o.Jitter)
	if known {
		right := a == want
		r.Verified = &right
	}
	return err
}

// args are the program's.
func (o Options) args(out string) map[string]string {
	return map[string]string{
		"query": o.Query, "events": strconv.FormatInt(o.Events, 10), "seed": strconv.FormatUint(o.Seed, 10),
		"jitter-ms": strconv.FormatInt(o.Jitter, 10), "splits": strconv.Itoa(o.Splits),
		"throttle": strconv.FormatFloat(o.Throttle, 'g', -1, 64), "out": out,
	}
}

// run runs the query on a cluster of its own until it has finished, and returns the checkpoints that were completed
// before the end of the data.
func (o Options) run(ctx context.Context, dir, out string, m *meter) (done []coordinator.Checkpoint, err error) {
	if o.Binary != "" {
		return o.runProcesses(ctx, dir, out, m)
	}
	programs := cairn.NewPrograms(program(m))
	spec, err := o.spec(programs, out)
	if err != nil {
		return nil, err
	}
	c, err := serve.StartLocal(ctx, serve.LocalConfig{
		TaskManagers: o.TaskManagers, Slots: (o.Parallelism + o.TaskManagers - 1) / o.TaskManagers,
		Dir: dir, InMemory: true, Listen: "127.0.0.1:0", HTTP: serve.Off, Programs: programs,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if err := c.StartTaskManagers(); err != nil {
		return nil, err
	}
	done, err = o.submit(ctx, c.Address(), spec, nil)
	if err == nil && m != nil {
		m.peak, err = peakMemory()
	}
	return done, err
}

// runProcesses is run with TaskManagers in processes of their own.
func (o Options) runProcesses(ctx context.Context, dir, out string, m *meter) (done []coordinator.Checkpoint, err error) {
	spec, err := o.spec(cairn.NewPrograms(Program()), out)
	if err != nil {
		return nil, err
	}
	c, err := serve.StartLocal(ctx, serve.LocalConfig{Dir: dir, InMemory: true, Listen: "127.0.0.1:0", HTTP: serve.Off})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	p, err := startProcesses(ctx, o, c.Address(), filepath.Join(dir, "taskmanagers"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if m == nil {
		return o.submit(ctx, c.Address(), spec, nil)
	}
	m.others.Store(p)
	if done, err = o.submit(ctx, c.Address(), spec, m.emitted); err != nil {
		return nil, err
	}
	m.taken(0)
	if m.peak, err = p.peak(); err != nil {
		return nil, err
	}
	own, err := peakMemory()
	m.peak += own
	return done, err
}

// submit runs a job to its end, and returns the checkpoints that were completed before the end of the data. running, if
// set, is called when all tasks run.
func (o Options) submit(ctx context.Context, address string, spec job.Spec, running func()) (done []coordinator.Checkpoint, err error) {
	jobs, err := rpc.NewClient(rpc.ClientConfig{JobManagers: []string{address}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, jobs.Close()) }()
	if err := connected(ctx, jobs, o.TaskManagers); err != nil {
		return nil, err
	}
	sub, err := jobs.Submit(ctx, coordinator.Submission{Spec: spec, Fresh: true})
	if err != nil {
		return nil, err
	}
	return follow(ctx, jobs, string(sub.Job.ID), running)
}

func (o Options) spec(programs *cairn.Programs, out string) (job.Spec, error) {
	s := job.Spec{Name: ProgramName, Program: ProgramName, Version: programs.List()[0].Version, Args: o.args(out)}
	bp, err := programs.Build(s)
	if err != nil {
		return s, err
	}
	s.Graph, s.Settings = bp.Graph, job.DefaultSettings()
	err = s.Settings.Apply(map[string]string{
		"parallelism": strconv.Itoa(o.Parallelism), "state.backend": o.Backend, "restart.strategy": o.restart(),
		"checkpoint.interval": o.CheckpointInterval.String(), "checkpoint.mode": cairn.ExactlyOnce, "checkpoint.on-cancel": "delete",
	})
	return s, errors.Join(err, s.Validate())
}

// restart is how the job takes the loss of a task: in this process there is none to be lost.
func (o Options) restart() string {
	if o.Binary == "" {
		return "none"
	}
	return "fixed-delay"
}

// connected waits until n TaskManagers have registered, so that the tasks are shared out among all of them.
func connected(ctx context.Context, jobs *rpc.Client, n int) error {
	for {
		nodes, err := jobs.Nodes(ctx)
		if err != nil || len(nodes) >= n {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// follow waits for the end of a job; one that does not finish is an error.
func follow(ctx context.Context, jobs *rpc.Client, id string, running func()) ([]coordinator.Checkpoint, error) {
	seen := map[job.CheckpointID]coordinator.Checkpoint{}
	var last coordinator.JobDetail
	if err := jobs.Watch(ctx, id, func(d coordinator.JobDetail) error {
		last = d
		if running != nil && d.Job.State == coordinator.JobRunning {
			running()
		}
		if c := d.Progress.LastCheckpoint; c != nil && !c.Final {
			seen[c.ID] = *c
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if last.Job.State != coordinator.JobFinished {
		if f := last.Job.Failure; f != nil {
			return nil, fmt.Errorf("the job is %s: %s", last.Job.State, f.Message)
		}
		return nil, fmt.Errorf("the job is %s: %s", last.Job.State, last.Job.Reason)
	}
	// What went by between two looks is still listed, if it is recent.
	list, err := jobs.ListCheckpoints(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		if !c.Final && (c.State == coordinator.CheckpointCompleted || c.State == coordinator.CheckpointSubsumed) {
			seen[c.ID] = c
		}
	}
	done := make([]coordinator.Checkpoint, 0, len(seen))
	for _, c := range seen {
		done = append(done, c)
	}
	return done, nil
}
