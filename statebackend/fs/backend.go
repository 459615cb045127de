// Package fs is the state backend for state that fits into memory: tables in memory, and snapshots in the
// blob store. Snapshots are full. It starts no goroutines.
package fs

import (
	"context"

	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/internal/tables"
)

// Factory makes backends. Its zero value is ready for use.
type Factory struct{}

var _ statebackend.Factory = Factory{}

// New implements statebackend.Factory.
func (Factory) New(_ context.Context, p statebackend.Params) (statebackend.Backend, error) {
	return New(p)
}

// Config describes one backend. Zero for MaxConcurrent means 1.
type Config = statebackend.Params

// New makes a backend without states.
func New(c Config) (statebackend.Backend, error) {
	return tables.New(tables.Config{Params: c})
}
