package serve

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"
)

// Copies of a job's snapshots go when none was made for long, and only then.
func TestSweepLocal(t *testing.T) {
	local, now := t.TempDir(), time.Now()
	add := func(age time.Duration, names ...string) string {
		t.Helper()
		path := filepath.Join(append([]string{local}, names...)...)
		if err := os.MkdirAll(filepath.Join(path, "7"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "7", "000001.sst"), []byte("entries"), 0o644); err != nil {
			t.Fatal(err)
		}
		for p := path; p != local; p = filepath.Dir(p) {
			if err := os.Chtimes(p, now.Add(-age), now.Add(-age)); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	gone := add(25*time.Hour, "old-job", "op", "0")
	kept := []string{add(23*time.Hour, "young-job", "op", "0")}
	// One subtask that goes on is enough.
	kept = append(kept, add(time.Minute, "half-job", "op", "1"), add(90*time.Hour, "half-job", "op", "0"))
	if err := os.WriteFile(filepath.Join(local, "a-file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	sweepLocal(local, now.Add(-localKept), zap.NewNop())
	if _, err := os.Stat(filepath.Dir(filepath.Dir(gone))); !os.IsNotExist(err) {
		t.Errorf("the copies of a job that is gone are there: %v", err)
	}
	for _, path := range kept {
		if _, err := os.Stat(filepath.Join(path, "7", "000001.sst")); err != nil {
			t.Error(err)
		}
	}
}
