package serve

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
)

// What a TaskManager stores goes at the rate that was set.
func TestUploadRate(t *testing.T) {
	tm := &taskManager{cfg: TaskManagerConfig{UploadRate: job.MiB}, reg: prometheus.NewRegistry()}
	s, err := tm.openBlob(t.Context(), "file://"+t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := blob.PutBytes(t.Context(), s, "a", make([]byte, 512<<10)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 300*time.Millisecond {
		t.Errorf("512 KiB take %v at 1 MiB a second", took)
	}
}
