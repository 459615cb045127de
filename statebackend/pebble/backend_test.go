package pebble_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
	"github.com/cairnstream/cairn/statebackend/memory"
	"github.com/cairnstream/cairn/statebackend/pebble"
	"github.com/cairnstream/cairn/statebackend/statetest"
)

// inDir makes backends that share a folder of a test, of which they leave nothing.
type inDir struct {
	pebble.Factory
	dir    string
	budget *statebackend.Budget
}

func newInDir(t *testing.T, b *statebackend.Budget) *inDir {
	dir := t.TempDir()
	t.Cleanup(func() { // After the backends are closed. A snapshot that was given up removes its folder when its flush has ended.
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			left, err := os.ReadDir(dir)
			if err == nil && len(left) == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Errorf("%d folders are left: %v", len(left), err)
				return
			}
		}
	})
	return &inDir{dir: dir, budget: b}
}

func (f *inDir) New(ctx context.Context, p statebackend.Params) (statebackend.Backend, error) {
	p.Dir, p.Budget, p.Incremental = f.dir, f.budget, true
	return f.Factory.New(ctx, p)
}

// each runs a test with backends that have memory and with such that have little.
func each(t *testing.T, test func(*testing.T, statebackend.Factory)) {
	t.Run("with memory", func(t *testing.T) { test(t, newInDir(t, nil)) })
	t.Run("with little memory", func(t *testing.T) {
		defer pebble.SetLeastShare(pebble.SetLeastShare(64 << 10))
		test(t, newInDir(t, statebackend.NewBudget(1)))
	})
}

func TestBackend(t *testing.T) { each(t, statetest.Run) }

func TestModel(t *testing.T) { each(t, statetest.Model) }

// What the backend fs wrote is restored.
func TestSegments(t *testing.T) { statetest.RunMoved(t, fs.Factory{FullBelow: 1}, newInDir(t, nil)) }

func TestSameSavepoints(t *testing.T) {
	statetest.SameSavepoints(t, map[string]statebackend.Factory{
		"memory": memory.Factory{},
		"fs":     fs.Factory{FullBelow: 1}, "pebble": newInDir(t, nil),
	})
}
