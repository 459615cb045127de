package checkpoint

import (
	"time"

	"github.com/cairnstream/cairn/job"
)

// Config is how a job wants its checkpoints.
type Config struct {
	Mode          job.Mode
	Interval      time.Duration // From trigger to trigger.
	Timeout       time.Duration // From the trigger to the last acknowledgement.
	MinPause      time.Duration // From the last completion to the next periodic trigger; may be 0.
	MaxConcurrent int           // Checkpoints on their way, those being published included.
	Tolerable     int           // Failures in a row that the job survives; may be 0.
	Retained      int           // Committed checkpoints that are kept, at least 1.
}

// ConfigOf takes a job's settings.
func ConfigOf(s job.Settings) Config {
	return Config{
		Mode: s.CheckpointMode, Interval: s.CheckpointInterval, Timeout: s.CheckpointTimeout, MinPause: s.MinPause,
		MaxConcurrent: s.MaxConcurrent, Tolerable: s.TolerableFailures, Retained: s.Retained,
	}
}

const (
	// Block is how many ids are reserved at once. A new leader leaves the rest of the last block
	// unused, so it bounds the gap that people see after a failover.
	Block = 10
	// retryPause is how long the machine waits before it repeats what must not wait for an interval:
	// a final checkpoint that failed, a reservation, finding out the outcome of a publication.
	retryPause = time.Second
)

// History is what a new leader found in the metadata store.
type History struct {
	// Next is the first id that was never reserved; 0 counts as 1.
	Next job.CheckpointID
	// Committed holds the checkpoints that a job may restore from, ascending.
	Committed []Committed
	// Discarding holds those whose deletion had begun.
	Discarding []Committed
	// Pinned holds the checkpoints that other jobs begin with, each once for each Pin.
	Pinned []job.CheckpointID
}

// Committed is a checkpoint past its commit point.
type Committed struct {
	ID      job.CheckpointID
	Objects []string // Every object that its manifest refers to, without duplicates.
}
