// Package memory is the state backend for small state: tables in memory, and snapshots inline in the
// checkpoint's metadata, so that a checkpoint needs no object but that. A state whose snapshot is above a
// limit fails the checkpoint with an error that says so. It starts no goroutines.
package memory

import (
	"cmp"
	"context"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/internal/tables"
)

// DefaultLimit is the most bytes of one state's snapshot in one subtask, compressed. The metadata of a
// checkpoint passes through the JobManager's memory whole.
const DefaultLimit = 5 << 20

// Factory makes backends. Its zero value is ready for use.
type Factory struct {
	Limit int64 // Bytes per state and subtask. Zero means DefaultLimit.
	// Trees reads checkpoints that the backend pebble wrote. Without it they are refused.
	Trees statebackend.OpenTrees
}

var _ statebackend.Factory = Factory{}

// New implements statebackend.Factory.
func (f Factory) New(_ context.Context, p statebackend.Params) (statebackend.Backend, error) {
	return tables.New(tables.Config{Params: p, Inline: true, InlineLimit: cmp.Or(f.Limit, DefaultLimit), Trees: f.Trees})
}

// Config describes one backend.
type Config struct {
	Task          job.Task
	Operator      string
	Groups        job.GroupRange
	K             int
	MaxConcurrent int // Zero means 1.
	Compression   statebackend.Compression
	MaxValue      int64 // Bytes per value. Zero means no limit.
	Limit         int64 // Bytes per state. Zero means DefaultLimit.
}

// New makes a backend without states.
func New(c Config) (statebackend.Backend, error) {
	return Factory{Limit: c.Limit}.New(context.Background(), statebackend.Params{
		Task: c.Task, Operator: c.Operator, Groups: c.Groups, K: c.K, MaxConcurrent: c.MaxConcurrent, Compression: c.Compression,
		MaxValue: c.MaxValue,
	})
}
