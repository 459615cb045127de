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
	return &inDir{dir: emptyAtEnd(t), budget: b}
}

// emptyAtEnd is a folder that is empty at the end of a test.
func emptyAtEnd(t *testing.T) string {
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
	return dir
}

func (f *inDir) New(ctx context.Context, p statebackend.Params) (statebackend.Backend, error) {
	p.Dir, p.Budget, p.Incremental = f.dir, f.budget, true
	return f.Factory.New(ctx, p)
}

// each runs a test with backends that have memory and with such that have little.
func each(t *testing.T, test func(*testing.T, statebackend.Factory)) {
	t.Run("with memory", func(t *testing.T) { test(t, newInDir(t, nil)) })
	t.Run("with little memory", func(t *testing.T) {
		if raced {
			t.Skip("see raced")
		}
		defer pebble.SetLeastShare(pebble.SetLeastShare(64 << 10))
		test(t, newInDir(t, statebackend.NewBudget(1)))
	})
}

func TestBackend(t *testing.T) { each(t, statetest.Run) }

func TestModel(t *testing.T) { each(t, statetest.Model) }

// What the backend fs wrote is restored.
func TestSegments(t *testing.T) { statetest.RunMoved(t, fs.Factory{FullBelow: 1}, newInDir(t, nil)) }

// others are the backends that are not of this package, with memory and disk of their own.
func others(t *testing.T) map[string]statebackend.Factory {
	return map[string]statebackend.Factory{
		statebackend.Memory: &elsewhere{memory.Factory{Trees: pebble.OpenTrees}, emptyAtEnd(t)},
		statebackend.FS:     &elsewhere{fs.Factory{FullBelow: 1, Trees: pebble.OpenTrees}, emptyAtEnd(t)},
	}
}

// elsewhere makes backends that have a folder, of which they leave nothing.
type elsewhere struct {
	statebackend.Factory
	dir string
}

func (f *elsewhere) New(ctx context.Context, p statebackend.Params) (statebackend.Backend, error) {
	p.Dir = f.dir
	return f.Factory.New(ctx, p)
}

// What this backend wrote is restored by others.
func TestMoved(t *testing.T) {
	for name, f := range others(t) {
		t.Run(name, func(t *testing.T) { statetest.RunMoved(t, newInDir(t, nil), f) })
	}
}

// Every subtask has another backend, in every attempt.
func TestMixedModel(t *testing.T) {
	o := others(t)
	statetest.Model(t, &statetest.Mixed{Of: []statebackend.Factory{newInDir(t, nil), o[statebackend.FS], newInDir(t, nil), o[statebackend.Memory]}})
}

func TestMixed(t *testing.T) {
	o := others(t)
	statetest.Run(t, &statetest.Mixed{Of: []statebackend.Factory{newInDir(t, nil), o[statebackend.FS], o[statebackend.Memory]}})
}

func TestSameSavepoints(t *testing.T) {
	all := others(t)
	all[statebackend.Pebble] = newInDir(t, nil)
	statetest.SameSavepoints(t, all)
}
