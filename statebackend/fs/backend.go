// Package fs is the state backend for state that fits into memory: tables in memory, and snapshots in the
// blob store. Of large states a snapshot holds only what changed since the one before, if the job wants that.
package fs

import (
	"context"

	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/internal/tables"
)

// Factory makes backends. Its zero value is ready for use.
type Factory struct {
	// FullBelow is the number of entries below which a state is written in full each time, as long as that is small. Zero
	// means 16384.
	FullBelow int
	// Trees reads checkpoints that the backend pebble wrote. Without it they are refused.
	Trees statebackend.OpenTrees
}

var _ statebackend.Factory = Factory{}

// New implements statebackend.Factory.
func (f Factory) New(_ context.Context, p statebackend.Params) (statebackend.Backend, error) {
	return tables.New(tables.Config{Params: p, FullBelow: f.FullBelow, Trees: f.Trees})
}

// Config describes one backend. Zero for MaxConcurrent means 1.
type Config = statebackend.Params

// New makes a backend without states.
func New(c Config) (statebackend.Backend, error) {
	return Factory{}.New(context.Background(), c)
}
