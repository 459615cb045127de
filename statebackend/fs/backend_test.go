package fs_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/cairnstream/cairn/statebackend/fs"
	"github.com/cairnstream/cairn/statebackend/statetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBackend(t *testing.T) {
	t.Run("full", func(t *testing.T) { statetest.Run(t, fs.Factory{}) })
	t.Run("increments", func(t *testing.T) { statetest.Run(t, fs.Factory{FullBelow: 1}) })
}

func TestModel(t *testing.T) {
	t.Run("full", func(t *testing.T) { statetest.Model(t, fs.Factory{}) })
	t.Run("increments", func(t *testing.T) { statetest.Model(t, fs.Factory{FullBelow: 1}) })
}
