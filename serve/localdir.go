package serve

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
)

// Nobody tells a TaskManager that a job will not come back: its tasks end in the same way when they move elsewhere. So the copies of
// a job's snapshots go when no task of it has made any for a day. They are a cache: a job that comes later all the same reads the
// blob store.
const (
	localKept  = 24 * time.Hour
	localSweep = time.Hour
)

// sweepLocal removes the copies of jobs in a folder of copies, which has a folder for each job with one for each operator and one in
// it for each subtask, when the newest of those is from before that time. Other processes may use the folder, and may remove what is
// removed here.
func sweepLocal(local string, before time.Time, log *zap.Logger) {
	jobs, err := os.ReadDir(local)
	if err != nil {
		log.Warn("look for copies of snapshots that nobody needs", zap.String("path", local), zap.Error(err))
		return
	}
	for _, j := range jobs {
		path := filepath.Join(local, j.Name())
		if !j.IsDir() || !unused(path, before) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			log.Warn("remove the copies of snapshots of a job", zap.String("path", path), zap.Error(err))
			continue
		}
		log.Info("removed the copies of snapshots of a job that was not here for long", zap.String("path", path))
	}
}

// unused tells that nothing was put into the folder of a job since that time. What cannot be read is in use.
func unused(job string, before time.Time) bool {
	old := true
	err := filepath.WalkDir(job, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !e.IsDir() {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if !info.ModTime().Before(before) {
			old = false
			return fs.SkipAll
		}
		if filepath.Dir(filepath.Dir(path)) == job {
			return fs.SkipDir // Of a subtask: what is put into it changes its time.
		}
		return nil
	})
	return err == nil && old
}

// keepLocal sweeps until ctx ends.
func keepLocal(ctx context.Context, local string, log *zap.Logger) {
	tick := time.NewTicker(localSweep)
	defer tick.Stop()
	for {
		sweepLocal(local, time.Now().Add(-localKept), log)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
