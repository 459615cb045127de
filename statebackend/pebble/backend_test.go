package pebble_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
	"github.com/cairnstream/cairn/statebackend/pebble"
	"github.com/cairnstream/cairn/statebackend/statetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inDir makes backends in folders of a test.
type inDir struct {
	pebble.Factory
	t      *testing.T
	budget *statebackend.Budget
}

func (f *inDir) New(ctx context.Context, p statebackend.Params) (statebackend.Backend, error) {
	p.Dir, p.Budget, p.Incremental = f.t.TempDir(), f.budget, true
	return f.Factory.New(ctx, p)
}

func TestBackend(t *testing.T) {
	t.Run("with memory", func(t *testing.T) { statetest.Run(t, &inDir{t: t}) })
	t.Run("with little memory", func(t *testing.T) {
		defer pebble.SetLeastShare(pebble.SetLeastShare(64 << 10))
		statetest.Run(t, &inDir{t: t, budget: statebackend.NewBudget(1)})
	})
	t.Run("of segments", func(t *testing.T) { statetest.RunMoved(t, fs.Factory{FullBelow: 1}, &inDir{t: t}) })
}
