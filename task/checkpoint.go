package task

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
)

// captured is the synchronous part of a task's snapshot.
type captured struct {
	barrier record.Control
	links   []capturedLink
	start   time.Time // Of the synchronous part.
	align   time.Duration
	sync    time.Duration
	ended   bool
}

type capturedLink struct {
	name      string
	frozen    statebackend.Snapshot // nil without keyed state.
	lists     map[string][][]byte
	kinds     map[string]string // Of lists, as snapshots have them.
	items     map[string]string // Schemas of the lists' items, as snapshots have them.
	watermark int64
}

// capture flushes, forwards the barrier, freezes the state, and leaves the rest to another
// goroutine. Nothing behind the barrier is processed before it returns.
func (s *subtask) capture(b record.Control) error {
	start := time.Now()
	for _, l := range s.chain {
		if c, ok := l.op.(operator.Checkpointed); ok {
			if err := c.Prepare(b.Checkpoint); err != nil {
				return err
			}
		}
	}
	if err := s.drain(); err != nil {
		return err
	}
	if err := s.controlAll(b); err != nil {
		return err
	}
	snap := &captured{barrier: b, start: start, align: s.uploads.aligned(start), ended: s.ended}
	for i, l := range s.chain {
		cl := capturedLink{name: l.name, watermark: s.inputWatermark(i)}
		if c, ok := l.op.(operator.Checkpointed); ok {
			lists, err := c.Snapshot(b.Checkpoint)
			if err != nil {
				snap.release()
				return err
			}
			cl.lists, cl.kinds, cl.items = lists, kindsOf(l.op, lists), itemsOf(l.op, lists)
		}
		if l.state != nil {
			// The one that the coordinator keeps for this checkpoint, not one that committed since.
			base := b.Committed
			if b.Full {
				base = 0
			}
			l.state.Committed(base)
			frozen, err := l.state.Freeze(b.Checkpoint)
			if errors.Is(err, statebackend.ErrTooManySnapshots) {
				snap.release()
				s.decline(b.Checkpoint, err)
				return nil
			}
			if err != nil {
				snap.release()
				return err
			}
			cl.frozen = frozen
		}
		snap.links = append(snap.links, cl)
	}
	snap.sync = time.Since(start)
	if b.Stop {
		s.stopping = b.Checkpoint
	}
	s.captured = b.Checkpoint
	if s.ended && s.closeAt == 0 {
		s.closeAt = b.Checkpoint
	}
	s.merging = true
	s.uploads.start(s, snap)
	return nil
}

// kindsOf tells the lists that are the same in every subtask from the others.
func kindsOf(op operator.Operator, lists map[string][][]byte) map[string]string {
	b, _ := op.(operator.Broadcaster)
	kinds := make(map[string]string, len(lists))
	for name := range lists {
		kinds[name] = snapshot.KindList
		if b != nil && b.Broadcast(name) {
			kinds[name] = snapshot.KindBroadcast
		}
	}
	return kinds
}

// opaque is the schema of list items that only their operator knows.
const opaque = "bytes"

// itemsOf says what the items of lists are.
func itemsOf(op operator.Operator, lists map[string][][]byte) map[string]string {
	i, _ := op.(operator.Itemized)
	items := make(map[string]string, len(lists))
	for name := range lists {
		items[name] = opaque
		if i == nil {
			continue
		}
		if s := i.ItemSchema(name); s != "" {
			items[name] = s
		}
	}
	return items
}

// inputWatermark is the watermark that operator i of the chain has been given.
func (s *subtask) inputWatermark(i int) int64 {
	var w int64
	switch {
	case i > 0:
		w = s.chain[i].from.mark.Load()
	case s.poller != nil:
		w = s.chain[0].main.mark.Load()
	default:
		w = s.merge.Current()
	}
	if w == record.MaxTime {
		// The final watermark is never kept: a restored task reaches its end again.
		w = s.chain[0].ctx.Watermark
	}
	return w
}

func (c *captured) release() {
	for _, l := range c.links {
		if l.frozen != nil {
			l.frozen.Release()
		}
	}
}

func (s *subtask) decline(id job.CheckpointID, err error) {
	s.log.Warn("checkpoint declined", zap.Uint64("checkpoint", uint64(id)), zap.Error(err))
	s.run.manager.report(job.Decline{
		Run: s.run.id, Task: s.task, Checkpoint: id,
		Failure: job.FailureOf(s.task.String(), s.run.manager.cfg.Info.ID, err),
	})
}

// uploads are the snapshots of a subtask that are being stored.
type uploads struct {
	first time.Time // When the first barrier of the present alignment came. The subtask's own.
	wg    sync.WaitGroup
	mu    struct {
		sync.Mutex
		cancel map[job.CheckpointID]context.CancelFunc
	}
}

func (u *uploads) firstBarrier(now time.Time) {
	if u.first.IsZero() {
		u.first = now
	}
}

func (u *uploads) clearAlign() { u.first = time.Time{} }

// aligned ends the present alignment and tells how long it took.
func (u *uploads) aligned(now time.Time) time.Duration {
	if u.first.IsZero() {
		return 0
	}
	d := now.Sub(u.first)
	u.first = time.Time{}
	return d
}

// start stores snap on a goroutine of its own and reports the outcome.
func (u *uploads) start(s *subtask, snap *captured) {
	ctx, cancel := context.WithCancel(s.ctx)
	id := snap.barrier.Checkpoint
	u.mu.Lock()
	if u.mu.cancel == nil {
		u.mu.cancel = map[job.CheckpointID]context.CancelFunc{}
	}
	u.mu.cancel[id] = cancel
	u.mu.Unlock()
	u.wg.Go(func() {
		defer func() {
			cancel()
			u.mu.Lock()
			delete(u.mu.cancel, id)
			u.mu.Unlock()
		}()
		u.store(ctx, s, snap)
	})
}

func (u *uploads) store(ctx context.Context, s *subtask, snap *captured) {
	m := s.run.manager
	select {
	case m.slots <- struct{}{}:
		defer func() { <-m.slots }()
	case <-ctx.Done():
		snap.release()
		return
	}
	start := time.Now()
	id := snap.barrier.Checkpoint
	var ops, saved map[string]job.SubtaskSnapshot
	stats := job.CheckpointStats{Align: snap.align, Sync: snap.sync}
	err := guard(func() (err error) {
		var object string
		if ops, object, err = s.storeSnapshot(ctx, snap, &stats); err == nil && snap.barrier.Savepoint {
			saved, err = s.storeSavepoint(ctx, snap, object)
		}
		return err
	})
	snap.release()
	if ctx.Err() != nil {
		return // Aborted, or the task is gone: nobody waits for an answer.
	}
	if err != nil {
		s.decline(id, fmt.Errorf("snapshot of %v: %w", id, ofStore(err)))
		return
	}
	stats.Async = time.Since(start)
	if snap.barrier.Started > 0 {
		stats.Start = max(0, snap.start.Sub(time.Unix(0, snap.barrier.Started))-snap.align)
	}
	m.report(job.Ack{Run: s.run.id, Task: s.task, Checkpoint: id, Operators: ops, Savepoint: saved, Stats: stats})
}

// storeSnapshot writes the states of every operator to the blob store, and notes in stats what that took. It also returns the key
// of the task's object.
func (s *subtask) storeSnapshot(ctx context.Context, c *captured, stats *job.CheckpointStats) (out map[string]job.SubtaskSnapshot, object string, err error) {
	r := s.run
	w, err := snapshot.NewWriter(snapshot.WriterConfig{
		Store: r.session.Blob, Cluster: r.session.Cluster, Job: r.id.Job, Checkpoint: c.barrier.Checkpoint,
		Attempt: r.id.Attempt, Epoch: r.session.Epoch, Task: s.task, TempDir: r.manager.cfg.TempDir,
	})
	if err != nil {
		return nil, "", err
	}
	defer w.Close()
	out, err = s.write(ctx, c, w, statebackend.Snapshot.Write)
	if err == nil {
		err = w.Finish(ctx)
	}
	stats.Bytes, stats.Upload = w.Bytes(), w.Uploading()
	return out, w.Object(), err
}

// storeSavepoint writes all states once more, to where the savepoint goes; named is the key of the task's object in the checkpoint.
func (s *subtask) storeSavepoint(ctx context.Context, c *captured, named string) (map[string]job.SubtaskSnapshot, error) {
	r := s.run
	to, err := r.savepoints.target(ctx, c.barrier.Checkpoint)
	if err != nil {
		return nil, err
	}
	store := r.session.Blob
	if to.Store != "" {
		if r.manager.cfg.OpenBlob == nil {
			return nil, job.Errorf(job.ClassRefused, "savepoint to %s: this TaskManager opens no other store than the cluster's", to.Store)
		}
		opened, done, err := r.manager.cfg.OpenBlob(ctx, to.Store, false)
		if err != nil {
			return nil, job.Errorf(job.ClassExternal, "savepoint to %s: %w", to.Store, err)
		}
		defer done()
		store = opened
	}
	w, err := snapshot.NewWriter(snapshot.WriterConfig{
		Store: store, Cluster: r.session.Cluster, Job: r.id.Job, Checkpoint: c.barrier.Checkpoint, Attempt: r.id.Attempt, Epoch: r.session.Epoch,
		Task: s.task, Object: to.Folder + "/" + path.Base(named), TempDir: r.manager.cfg.TempDir,
	})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	out, err := s.write(ctx, c, w, statebackend.Snapshot.WriteCanonical)
	if err == nil {
		err = w.Finish(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("savepoint: %w", err)
	}
	return out, nil
}

// write writes the states of every operator with w.
func (s *subtask) write(ctx context.Context, c *captured, w *snapshot.Writer, keyed func(statebackend.Snapshot, context.Context, statebackend.Writer) ([]job.StateHandle, error)) (map[string]job.SubtaskSnapshot, error) {
	out := make(map[string]job.SubtaskSnapshot, len(c.links))
	var inline statebackend.Inline
	for _, l := range c.links {
		sub := job.SubtaskSnapshot{EndOfData: c.ended, Watermark: l.watermark}
		ow := w.Operator(l.name)
		if l.frozen != nil {
			var err error
			if sub.States, err = keyed(l.frozen, ctx, ow); err != nil {
				return nil, fmt.Errorf("operator %q: %w", l.name, err)
			}
		}
		for _, name := range sortedKeys(l.lists) {
			h, err := ow.List(ctx, name, l.kinds[name], l.items[name], l.lists[name])
			if err != nil {
				return nil, fmt.Errorf("operator %q, state %q: %w", l.name, name, err)
			}
			sub.States = append(sub.States, h)
		}
		out[l.name] = sub
		inline.Add(l.name, sub)
	}
	if err := inline.Check("task "+s.task.String(), statebackend.MaxInlineTask); err != nil {
		return nil, err
	}
	return out, nil
}

// abort stops the upload of a checkpoint that will never complete.
func (u *uploads) abort(id job.CheckpointID) {
	u.mu.Lock()
	cancel := u.mu.cancel[id]
	u.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// trigger starts a checkpoint at an enumerator.
func (s *subtask) trigger(t job.Trigger) error {
	s.learnCommitted(t.Committed)
	return s.act(s.align.Trigger(record.Control{
		Kind: record.Barrier, Checkpoint: t.Checkpoint, Final: t.Final, Mode: t.Mode,
		Committed: t.Committed, Full: t.Full, Savepoint: t.Savepoint != nil, Stop: t.Stop, Started: time.Now().UnixNano(),
	}))
}
