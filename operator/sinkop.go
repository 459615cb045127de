package operator

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// Names of a sink's list states: committables that are not committed yet, each with its
// checkpoint, and what the writer itself keeps.
const (
	committablesState = "committables"
	writerState       = "writer"
)

// maxUncommitted is how many durable checkpoints may wait for a sink to commit them before the
// task fails and says so: a sink that cannot commit must not collect them without bound.
const maxUncommitted = 64

// pendingCommit is what one checkpoint prepared.
type pendingCommit struct {
	id    job.CheckpointID
	items [][]byte
}

// sinkOp writes records and commits what checkpoints made durable. Committables stay in every
// snapshot until they were committed, those of aborted checkpoints too.
type sinkOp struct {
	sink      committing
	writer    func(context.Context, SinkContext) (untyped, error)
	c         *Context
	w         untyped
	committer Committer

	pending []pendingCommit // Prepared and not yet committed, oldest first.
	queued  int             // How many of pending were handed to the committer's goroutine.
	work    chan pendingCommit
	cancel  context.CancelFunc
	gone    chan struct{} // Closed when the committer's goroutine is gone.
}

// NewSink returns the operator of one subtask of s.
func NewSink[T any](s Sink[T]) Operator {
	return &sinkOp{sink: s, writer: func(ctx context.Context, c SinkContext) (u untyped, err error) {
		w, err := s.Writer(ctx, c)
		if err != nil {
			return u, err
		}
		return untyped{w, func(a record.Any) error {
			b := batchOf[T](a)
			var err error
			if b.Len() > 0 {
				err = w.Write(b)
			}
			b.Release()
			return err
		}}, nil
	}}
}

// committing is what of a Sink does not depend on the type of its records.
type committing interface {
	TwoPhase() bool
	Committer(context.Context, SinkContext) (Committer, error)
}

// untyped is a Writer without the type of its records. write takes over a batch.
type untyped struct {
	preparing
	write func(record.Any) error
}

type preparing interface {
	Prepare(job.CheckpointID) ([][]byte, error)
	State() ([]byte, error)
	Close() error
}

func (s *sinkOp) Open(c *Context) error {
	s.c = c
	sc := SinkContext{
		Run: c.Run, Name: c.Name, Subtask: c.Subtask, Parallelism: c.Parallelism,
		Restored: c.Restored, States: c.Union[writerState], Overwrite: c.Overwrite, Log: c.Log,
	}
	for _, b := range c.Union[committablesState] {
		_, item, err := decodeCommittable(b)
		if err != nil {
			return fmt.Errorf("sink %q: %w", c.Name, err)
		}
		sc.Committables = append(sc.Committables, item)
	}
	var err error
	if s.sink.TwoPhase() {
		if s.committer, err = s.sink.Committer(c.Context, sc); err != nil {
			return fmt.Errorf("sink %q: %w", c.Name, err)
		}
		// What the checkpoint lists was decided: it is committed before anything new is written.
		var share [][]byte
		for _, b := range c.List[committablesState] {
			_, item, err := decodeCommittable(b)
			if err != nil {
				return fmt.Errorf("sink %q: %w", c.Name, err)
			}
			share = append(share, item)
		}
		if len(share) > 0 {
			if err := s.commit(c.Context, share); err != nil {
				return fmt.Errorf("sink %q: commit of the restored checkpoint: %w", c.Name, err)
			}
		}
	}
	if s.w, err = s.writer(c.Context, sc); err != nil {
		return fmt.Errorf("sink %q: %w", c.Name, err)
	}
	if s.committer != nil {
		ctx, cancel := context.WithCancel(c.Context)
		s.cancel = cancel
		// Prepare lets at most maxUncommitted wait here and as many for their checkpoint.
		s.work = make(chan pendingCommit, 2*maxUncommitted)
		s.gone = make(chan struct{})
		go s.commitLoop(ctx)
	}
	return nil
}

func (s *sinkOp) Push(_ int, a record.Any) error {
	if err := s.w.write(a); err != nil {
		return fmt.Errorf("sink %q: %w", s.c.Name, err)
	}
	return nil
}

func (s *sinkOp) EndOfData() error { return nil }

func (s *sinkOp) Prepare(id job.CheckpointID) error {
	if s.queued >= maxUncommitted {
		return job.Errorf(job.ClassExternal, "sink %q: %d durable checkpoints wait for the sink to commit them, the limit is %d", s.c.Name, s.queued, maxUncommitted)
	}
	items, err := s.w.Prepare(id)
	if err != nil {
		return fmt.Errorf("sink %q: prepare: %w", s.c.Name, err)
	}
	if len(items) == 0 {
		return nil
	}
	if s.committer == nil {
		return job.Errorf(job.ClassInternal, "sink %q has no committer and its writer gave %d committables, which nobody would ever commit", s.c.Name, len(items))
	}
	// While checkpoints fail, for whatever reason, what they prepared collects; it is committed
	// together with the next that succeeds.
	if n := len(s.pending); n-s.queued >= maxUncommitted {
		last := &s.pending[n-1]
		last.id, last.items = id, append(last.items, items...)
		return nil
	}
	s.pending = append(s.pending, pendingCommit{id, items})
	return nil
}

func (s *sinkOp) Snapshot(job.CheckpointID) (map[string][][]byte, error) {
	m := map[string][][]byte{}
	for _, p := range s.pending {
		for _, item := range p.items {
			m[committablesState] = append(m[committablesState], encodeCommittable(p.id, item))
		}
	}
	st, err := s.w.State()
	if err != nil {
		return nil, fmt.Errorf("sink %q: state: %w", s.c.Name, err)
	}
	if st != nil {
		m[writerState] = [][]byte{st}
	}
	return m, nil
}

func (s *sinkOp) Committed(id job.CheckpointID) error {
	for s.queued < len(s.pending) && s.pending[s.queued].id <= id {
		s.work <- s.pending[s.queued] // Has room for all that may be pending.
		s.queued++
	}
	return nil
}

// Uncommitted is the number of checkpoints whose committables wait.
func (s *sinkOp) Uncommitted() int { return len(s.pending) }

// CommitAll prepares and commits everything, at the end of a job without checkpoints.
func (s *sinkOp) CommitAll() error {
	if err := s.Prepare(1); err != nil {
		return err
	}
	return s.Committed(1)
}

// commitLoop is the committer's goroutine.
func (s *sinkOp) commitLoop(ctx context.Context) {
	defer close(s.gone)
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-s.work:
			err := guard(func() error { return s.commit(ctx, p.items) })
			if ctx.Err() != nil {
				return
			}
			s.c.Post(func() error {
				if err != nil {
					return fmt.Errorf("sink %q: commit of %v: %w", s.c.Name, p.id, err)
				}
				s.pending = s.pending[1:]
				s.queued--
				return nil
			})
			if err != nil {
				return // The task fails; nothing overtakes what could not be committed.
			}
		}
	}
}

// commit commits items, again and again while the fault is outside.
func (s *sinkOp) commit(ctx context.Context, items [][]byte) error {
	wait := 100 * time.Millisecond
	for try := 1; ; try++ {
		err := s.committer.Commit(ctx, items)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if job.FailureOf("", "", err).Class != job.ClassExternal || try == commitTries {
			return err
		}
		s.c.Log.Warn("commit failed, will be tried again: " + err.Error())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
		wait = min(2*wait, 10*time.Second)
	}
}

// commitTries spans about two minutes; then the task fails, and the restart tries anew.
const commitTries = 16

func (s *sinkOp) Close() error {
	if s.cancel != nil {
		s.cancel()
		<-s.gone
	}
	var first error
	if s.w.preparing != nil {
		first = s.w.Close()
	}
	if s.committer != nil {
		if err := s.committer.Close(); first == nil {
			first = err
		}
	}
	return first
}

func encodeCommittable(id job.CheckpointID, item []byte) []byte {
	return append(binary.AppendUvarint(nil, uint64(id)), item...)
}

func decodeCommittable(b []byte) (job.CheckpointID, []byte, error) {
	id, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, fmt.Errorf("committable in state: truncated")
	}
	return job.CheckpointID(id), append([]byte(nil), b[n:]...), nil
}
