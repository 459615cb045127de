package coordinator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/job"
)

// deletions is a job's queue of objects to be deleted. It never gives up and never holds anything up:
// a task that fails waits, doubling its pause, while the others go on. All steps are idempotent.
type deletions struct {
	id      job.ID
	records records
	objects interface {
		Delete(ctx context.Context, keys ...string) error
	}
	mail    *mailbox
	log     *zap.Logger
	timeout time.Duration
	wake    chan struct{} // Holds one token when tasks were added or the end was asked for.
	mu      struct {
		sync.Mutex
		tasks []*deletion
		end   bool
	}
}

// deletion is one task of the queue.
type deletion struct {
	objects []string
	// checkpoint is set when a committed checkpoint is discarded: then its pointer is removed first
	// (unless noted, when that was done already) and the note of it last.
	checkpoint job.CheckpointID
	pointer    pointer
	noted      bool

	at    time.Time
	pause time.Duration
}

const (
	minPause = 100 * time.Millisecond
	maxPause = time.Minute
)

func (d *deletions) add(t *deletion) {
	d.mu.Lock()
	d.mu.tasks = append(d.mu.tasks, t)
	d.mu.Unlock()
	d.signal()
}

// finish lets run return when the queue is empty.
func (d *deletions) finish() {
	d.mu.Lock()
	d.mu.end = true
	d.mu.Unlock()
	d.signal()
}

func (d *deletions) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// next takes the task that is due first; wait is how long it is until then.
func (d *deletions) next(now time.Time) (t *deletion, wait time.Duration, over bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.mu.tasks) == 0 {
		return nil, time.Hour, d.mu.end
	}
	first := 0
	for i, t := range d.mu.tasks {
		if t.at.Before(d.mu.tasks[first].at) {
			first = i
		}
	}
	t = d.mu.tasks[first]
	if wait = t.at.Sub(now); wait > 0 {
		return nil, wait, false
	}
	d.mu.tasks = slices.Delete(d.mu.tasks, first, first+1)
	return t, 0, false
}

func (d *deletions) run(ctx context.Context) error {
	for {
		t, wait, over := d.next(time.Now())
		if over {
			return nil
		}
		if t == nil {
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			case <-d.wake:
			case <-timer.C:
			}
			timer.Stop()
			continue
		}
		err := d.do(ctx, t)
		switch {
		case err == nil:
			if t.checkpoint != 0 {
				d.mail.put(deleted{t.checkpoint})
			}
		case errors.Is(err, errNotLeader) || ctx.Err() != nil:
			return err
		default:
			t.pause = min(max(2*t.pause, minPause), maxPause)
			t.at = time.Now().Add(t.pause)
			d.log.Warn("deletion failed; it is tried again", zap.Int("objects", len(t.objects)),
				zap.Uint64("checkpoint", uint64(t.checkpoint)), zap.Duration("pause", t.pause), zap.Error(err))
			d.mu.Lock()
			d.mu.tasks = append(d.mu.tasks, t)
			d.mu.Unlock()
		}
	}
}

func (d *deletions) do(ctx context.Context, t *deletion) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	if t.checkpoint != 0 && !t.noted {
		if err := d.records.discard(ctx, d.id, t.checkpoint, t.pointer); err != nil {
			return err
		}
		t.noted = true
	}
	if len(t.objects) > 0 {
		if err := d.objects.Delete(ctx, t.objects...); err != nil {
			return err
		}
	}
	if t.checkpoint == 0 {
		return nil
	}
	if err := d.objects.Delete(ctx, t.pointer.Manifest); err != nil {
		return err
	}
	return d.records.forget(ctx, d.id, t.checkpoint)
}
