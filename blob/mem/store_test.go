package mem_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/blobtest"
	"github.com/cairnstream/cairn/blob/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store { return mem.New("test") })
}
