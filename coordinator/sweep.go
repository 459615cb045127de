package coordinator

import (
	"context"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
)

// sweep looks for objects that nothing refers to: those of checkpoints that ended without a commit and
// that no acknowledgement told of, because their task or their leader died. Only names of checkpoints
// that have ended are deleted, and only if no manifest that is kept, and no checkpoint on its way,
// lists them; so no clock takes part.
func (l *jobLoop) sweep() {
	if l.sweeping {
		return
	}
	l.sweeping = true
	sweep := l.sweeper()
	l.async("sweep", func(ctx context.Context) (any, error) {
		sweep(ctx)
		return swept{}, nil
	})
}

// lastSweep is for a job that is over, whose loop ends: nobody looks again. It holds nothing up: a submission that goes on
// with the job takes later ids for its checkpoints, and what it refers to is kept.
func (l *jobLoop) lastSweep() {
	sweep := l.sweeper()
	l.c.start("job "+string(l.rec.id)+": last sweep", func(ctx context.Context) error {
		sweep(ctx)
		return nil
	})
}

// sweeper returns a sweep by what is known now, for any goroutine.
func (l *jobLoop) sweeper() func(context.Context) {
	keep := l.cp.Live()
	for _, p := range l.pointers {
		keep[p.Manifest] = true
	}
	below := l.cp.Ended()
	return func(ctx context.Context) {
		n, err := l.c.sweep(ctx, l.rec.id, snapshot.Live{Below: below, Keep: keep})
		if err != nil && ctx.Err() == nil {
			l.log.Warn("sweep failed", zap.Error(err))
		} else if n > 0 {
			l.log.Info("objects swept that nothing refers to", zap.Int("objects", n))
		}
	}
}

func (c *Coordinator) sweep(ctx context.Context, id job.ID, live snapshot.Live) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opt.SweepInterval)
	defer cancel()
	var keys []string
	for info, err := range c.opt.Blob.List(ctx, snapshot.JobPrefix(c.opt.Cluster, id)+"checkpoints/") {
		if err != nil {
			return 0, err
		}
		if live.Garbage(c.opt.Cluster, id, info.Key) {
			keys = append(keys, info.Key)
		}
	}
	if len(keys) == 0 {
		return 0, nil
	}
	return len(keys), c.opt.Blob.Delete(ctx, keys...)
}
