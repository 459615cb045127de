package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/coordinator/checkpoint"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
)

// found reads the manifests of the checkpoints on record, for the objects that they refer to. That
// of one that is damaged for good protects nothing; restoring from it fails with a clear error.
func (l *jobLoop) found(ctx context.Context) (checkpoint.History, error) {
	h := checkpoint.History{Next: l.rec.nextID, Pinned: slices.Collect(maps.Values(l.rec.pins))}
	load := func(n job.CheckpointID, p pointer) (checkpoint.Committed, error) {
		for pause := minPause; ; pause = min(2*pause, time.Second) {
			m, err := l.loadManifest(ctx, p.Manifest)
			switch {
			case err == nil:
				return checkpoint.CommittedOf(n, m.Operators), nil
			case ctx.Err() != nil:
				return checkpoint.Committed{}, ctx.Err()
			case !passing(err):
				if !errors.Is(err, blob.ErrNotExist) || l.rec.checkpoints[n].Manifest != "" {
					l.log.Error("manifest cannot be read", zap.Uint64("checkpoint", uint64(n)), zap.String("manifest", p.Manifest), zap.Error(err))
				}
				return checkpoint.Committed{ID: n}, nil
			}
			l.log.Warn("manifest cannot be read now; it is tried again", zap.Uint64("checkpoint", uint64(n)), zap.Error(err))
			l.note("note", "waiting for the blob store: "+err.Error())
			l.e.publish(l.view())
			select {
			case <-ctx.Done():
				return checkpoint.Committed{}, ctx.Err()
			case <-time.After(pause):
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(l.rec.checkpoints)) {
		c, err := load(n, l.rec.checkpoints[n])
		if err != nil {
			return h, err
		}
		h.Committed = append(h.Committed, c)
	}
	for _, n := range slices.Sorted(maps.Keys(l.rec.discarding)) {
		c, err := load(n, l.rec.discarding[n])
		if err != nil {
			return h, err
		}
		h.Discarding = append(h.Discarding, c)
	}
	return h, nil
}

func (l *jobLoop) loadManifest(ctx context.Context, key string) (*snapshot.Manifest, error) {
	ctx, cancel := context.WithTimeout(ctx, l.c.opt.BlobTimeout)
	defer cancel()
	m, err := l.c.opt.Manifests.LoadManifest(ctx, key)
	if err == nil && m.Job != l.rec.id {
		err = fmt.Errorf("manifest %q is of job %s", key, m.Job)
	}
	if n, ok := snapshot.CheckpointOf(l.c.opt.Cluster, l.rec.id, key); err == nil && ok && n != m.Checkpoint {
		err = fmt.Errorf("manifest %q is of checkpoint %d", key, uint64(m.Checkpoint))
	}
	return m, err
}

// passing tells an error of a store that may pass from one that will not. Missing rights are given back by
// people, and the checkpoint is as good as before.
func passing(err error) bool {
	return blob.IsTransient(err) || errors.Is(err, blob.ErrDenied) || errors.Is(err, context.DeadlineExceeded)
}
