package lifecycle

import (
	"slices"
	"time"

	"github.com/cairnstream/cairn/job"
)

// Config is how a job lives.
type Config struct {
	Topology Topology
	// Checkpoints is false in mode off: then the end of data ends the job without a checkpoint.
	Checkpoints bool
	Strategy    string        // exponential, fixed-delay, none
	Initial     time.Duration // The pause of fixed-delay, and of the second exponential restart.
	Max         time.Duration // Where doubling stops.
	// Jitter gives numbers in [0, 1): 0.5 leaves a pause as it is, and the ends change it by a tenth,
	// so that the jobs of one dead worker do not come back all at once. nil: no jitter.
	Jitter func() float64
	// Healthy is how long an attempt runs before its failure counts as the first again. 0: 30 s.
	Healthy time.Duration
	// DeployTimeout bounds the time from Deploy until every task runs, restoring included. 0: 10 min.
	DeployTimeout time.Duration
	// CancelTimeout bounds how long a task may take to end. 0: 30 s.
	CancelTimeout time.Duration
}

// ConfigOf takes a job's plan and settings.
func ConfigOf(p *job.Plan, s job.Settings) Config {
	return Config{
		Topology: TopologyOf(p), Checkpoints: s.CheckpointMode != job.Off,
		Strategy: s.RestartStrategy, Initial: s.RestartInitial, Max: s.RestartMax,
	}
}

func (c Config) withDefaults() Config {
	if c.Jitter == nil {
		c.Jitter = func() float64 { return 0.5 }
	}
	if c.Healthy == 0 {
		c.Healthy = 30 * time.Second
	}
	if c.DeployTimeout == 0 {
		c.DeployTimeout = 10 * time.Minute
	}
	if c.CancelTimeout == 0 {
		c.CancelTimeout = 30 * time.Second
	}
	return c
}

// Topology is what the machine needs to know of a plan.
type Topology struct {
	Tasks       []job.Task
	Enumerators []job.Task
	Readers     map[job.Task][]job.Task // Of each enumerator.
}

// TopologyOf derives it.
func TopologyOf(p *job.Plan) Topology {
	t := Topology{Tasks: p.Tasks(), Readers: map[job.Task][]job.Task{}}
	for _, v := range p.Vertices {
		if !v.Enumerator {
			continue
		}
		enumerator := job.Task{Vertex: v.Name}
		t.Enumerators = append(t.Enumerators, enumerator)
		for _, id := range v.Out {
			to := p.Vertices[p.Edges[id].To]
			for i := range to.Parallelism {
				t.Readers[enumerator] = append(t.Readers[enumerator], job.Task{Vertex: to.Name, Subtask: i})
			}
		}
	}
	return t
}

// ReadersDone tells, when a task has finished, whether it was a reader and the last of its enumerator, which is to know.
func (t Topology) ReadersDone(task job.Task, finished func(job.Task) bool) (enumerator job.Task, done bool) {
	for _, enumerator := range t.Enumerators {
		readers := t.Readers[enumerator]
		if slices.Contains(readers, task) {
			return enumerator, !slices.ContainsFunc(readers, func(r job.Task) bool { return !finished(r) })
		}
	}
	return job.Task{}, false
}

const (
	// persistPause is the time between two tries to make an attempt durable: the metadata store is away.
	persistPause = time.Second
	// historyLen bounds the history of failures.
	historyLen = 20
)

// Incident is a failure that ended an attempt.
type Incident struct {
	Time     time.Time
	Attempt  job.Attempt
	Cause    Cause
	Failure  job.Failure
	Recovery time.Duration // Until every task ran again; 0 as long as they do not.
}
