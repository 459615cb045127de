package task

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/task/barrier"
	"github.com/cairnstream/cairn/watermark"
)

// Time that the loop gives to merging state layers after a batch, and when there is nothing else
// to do. No single pause may pass 5 ms; a merge step is at most this and one entry.
const (
	mergeBusy = 100 * time.Microsecond
	mergeIdle = 500 * time.Microsecond
	// mergeWait is when an idle task looks again for what could not be merged yet, since another goroutine still writes it.
	mergeWait = 2 * time.Millisecond
)

// subtask runs one task of one attempt.
type subtask struct {
	run    *run
	task   job.Task
	vertex job.Vertex
	log    *zap.Logger
	ctx    context.Context
	cancel context.CancelCauseFunc
	mail   *mailbox

	gate    *exchange.Gate
	pace    pace // Of batches to the gate.
	inputs  []inputPort
	merge   *watermark.Merge
	align   *barrier.Machine
	chain   []*link
	routers []operator.Router
	outs    []exchange.Out
	waiters []waiter // Those of outs that measure how long they waited.
	yielder operator.Yielder
	poller  operator.Poller
	sleeper operator.Sleeper
	clocked operator.Clocked
	marks   []record.Mark // Scratch.
	idle    bool          // The merged input is idle.

	holding time.Time // When the routers began to hold something back; zero when they do not.
	flushed time.Time // When something held back was last sent before its frame was full.
	timer   *time.Timer
	merging bool
	tenders []statebackend.Tender // Those of the chain's backends that are.

	// End of input.
	open   int // Ports without end-of-data.
	ending bool
	ended  bool
	// closeAt is the first checkpoint captured behind the end of data.
	closeAt   job.CheckpointID
	committed job.CheckpointID
	captured  job.CheckpointID
	mayClose  bool // ReadersDone, or Finish was carried out.
	closed    bool
	// stopping is the checkpoint behind whose barrier nothing is done, or 0.
	stopping job.CheckpointID

	uploads uploads
	times   struct{ idle, blocked atomic.Int64 } // Nanoseconds.
	begun   time.Time                            // Set before the first state is.
	state   atomic.Value                         // job.TaskState

	senders   atomic.Pointer[map[string][]exchange.Sender] // Those of outs to other processes, by operator.
	sizes     atomic.Pointer[[]stateSize]                  // Of the states, as last measured.
	measuring atomic.Bool                                  // The task was asked to measure them.
	hot       atomic.Pointer[[]job.HotKeys]                // Of the keyed operators, as last told.
	telling   atomic.Bool                                  // The task was asked to tell them.
}

// inputPort says what a port of the gate carries.
type inputPort struct {
	input int // Of the head operator.
	from  job.Channel
	ended bool
	empty func() record.Any
}

// waiter is implemented by outputs that measure how long they have waited for room.
type waiter interface{ Waited() time.Duration }

// errFinished ends the loop of a task that is through.
var errFinished = errors.New("finished")

// guard calls f and turns a panic into an error: one of user code with its stack, or one of state.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = statebackend.Recovered(v)
		}
	}()
	return f()
}

// loop runs until the task is finished, cancelled, or fails.
func (s *subtask) loop() error {
	s.timer = time.NewTimer(time.Hour)
	defer s.timer.Stop()
	if err := s.start(); err != nil {
		return err
	}
	for {
		for _, f := range s.mail.take() {
			if err := f(); err != nil {
				return err
			}
		}
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		if err := s.closeIfDone(); err != nil {
			return err
		}
		if s.stopping > 0 {
			s.hold()
			continue
		}
		worked, err := s.step()
		if err != nil {
			return err
		}
		if worked {
			if err := s.afterWork(); err != nil {
				return err
			}
			continue
		}
		begun := time.Now()
		if s.merging = s.mergeState(mergeIdle); s.merging && time.Since(begun) >= mergeIdle/2 {
			continue
		}
		if err := s.wait(); err != nil {
			return err
		}
	}
}

// start lets the operators act that need no input, and tells again that the end was reached.
func (s *subtask) start() error {
	if s.ended {
		s.report(job.TaskEndOfData)
		return s.controlAll(record.Control{Kind: record.EndOfData})
	}
	for _, l := range s.chain {
		if st, ok := l.op.(operator.Starter); ok {
			if err := st.Start(); err != nil {
				return err
			}
		}
	}
	return nil
}

// step does the next piece of work; it tells whether there was any.
func (s *subtask) step() (bool, error) {
	if s.yielder != nil && s.yielder.Pending() {
		// While timers are due no record is taken, but a barrier need not wait for them. At the end of the data it has to:
		// with that checkpoint the tasks before this one close, and none that is behind the end could follow.
		if !s.ending && s.yielder.Interruptible() {
			if item, ok := s.gate.PollBarrier(); ok {
				return true, s.control(item.Port, item.Control)
			}
		}
		if a, ok := s.yielder.(operator.Awaiter); ok && a.Awaiting() {
			return false, nil
		}
		return true, s.yielder.Resume()
	}
	if s.ending {
		return true, s.finishEnd()
	}
	if s.clockDue() {
		if item, ok := s.gate.PollBarrier(); ok {
			return true, s.control(item.Port, item.Control)
		}
		return true, s.clocked.Tick(s.chain[0].ctx.Now())
	}
	item, ok, err := s.gate.Poll()
	if err != nil {
		return false, err
	}
	if ok {
		if item.Batch != nil {
			return true, s.batch(item.Port, item.Batch)
		}
		return true, s.control(item.Port, item.Control)
	}
	if s.poller == nil || s.ended {
		return false, nil
	}
	again, err := s.poller.Poll()
	if err != nil || again {
		return again, err
	}
	if s.poller.Exhausted() {
		return true, s.beginEnd()
	}
	return false, nil
}

// clockDue tells whether a processing-time timer is due.
func (s *subtask) clockDue() bool {
	if s.clocked == nil || s.ended {
		return false
	}
	at, ok := s.clocked.Deadline()
	return ok && !at.After(s.chain[0].ctx.Now())
}

// batch gives a batch the merged watermarks and pushes it through the chain.
func (s *subtask) batch(port int, b record.Any) error {
	if marks := b.MarkList(); len(marks) > 0 {
		s.mergeMarks(port, marks)
		b.SetMarks(append(marks[:0], s.marks...))
		if len(s.marks) == 0 && b.Len() == 0 {
			b.Release()
			return nil
		}
	}
	head, rows := s.chain[0], b.Len()
	head.counters.In.Add(int64(rows))
	begun := time.Now()
	err := head.op.Push(s.inputs[port].input, b)
	if rows > 0 && s.pace.took(rows, time.Since(begun)) {
		s.gate.SetRows(s.pace.rows)
	}
	return err
}

// mergeMarks turns the marks of one port into those of the merged input, in s.marks.
func (s *subtask) mergeMarks(port int, marks []record.Mark) {
	s.marks = s.marks[:0]
	for _, m := range marks {
		var w int64
		var advanced bool
		switch m.Kind {
		case record.Watermark:
			w, advanced = s.merge.Update(port, m.Time)
		case record.Idle:
			w, advanced = s.merge.Idle(port)
		case record.Active:
			w, advanced = s.merge.Active(port)
		}
		s.mergedMark(m.Pos, w, advanced)
	}
	s.gate.Prefer(s.merge.Behind())
}

// mergedMark appends what the merged input has to say after one input changed.
func (s *subtask) mergedMark(pos int32, w int64, advanced bool) {
	idle := s.merge.AllIdle()
	if s.idle && !idle {
		s.marks = append(s.marks, record.Mark{Kind: record.Active, Pos: pos})
	}
	if advanced && w != record.MaxTime {
		s.marks = append(s.marks, record.Mark{Kind: record.Watermark, Pos: pos, Time: w})
	}
	if idle && !s.idle {
		s.marks = append(s.marks, record.Mark{Kind: record.Idle, Pos: pos})
	}
	s.idle = idle
}

// control handles a control event of a port.
func (s *subtask) control(port int, c record.Control) error {
	switch c.Kind {
	case record.Barrier:
		s.learnCommitted(c.Committed)
		return s.act(s.align.Barrier(port, c))
	case record.CancelBarrier:
		return s.act(s.align.Cancel(port, c.Checkpoint))
	case record.EndOfData:
		return s.portEnded(port)
	case record.Close:
		if err := s.portEnded(port); err != nil {
			return err
		}
		return s.act(s.align.Close(port))
	}
	return job.Errorf(job.ClassInternal, "input %d: unknown control event %v", port, c)
}

// portEnded notes that no record follows on a port.
func (s *subtask) portEnded(port int) error {
	p := &s.inputs[port]
	if p.ended || s.vertex.Reader {
		return nil // A reader ends by its splits, not by the enumerator's channel.
	}
	p.ended = true
	s.open--
	w, advanced := s.merge.Close(port)
	s.gate.Prefer(s.merge.Behind())
	if s.ended {
		return nil
	}
	if s.open == 0 {
		return s.beginEnd()
	}
	s.marks = s.marks[:0]
	s.mergedMark(0, w, advanced)
	if len(s.marks) == 0 {
		return nil
	}
	b := p.empty()
	b.SetMarks(append(b.MarkList()[:0], s.marks...))
	return s.chain[0].op.Push(p.input, b)
}

// beginEnd tells the head operator that its input has ended. What it holds may take several runs.
func (s *subtask) beginEnd() error {
	s.ending = true
	return s.chain[0].op.EndOfData()
}

// finishEnd lets the rest of the chain end and tells everybody.
func (s *subtask) finishEnd() error {
	s.ending = false
	for _, l := range s.chain[1:] {
		if err := l.op.EndOfData(); err != nil {
			return err
		}
	}
	if err := s.drain(); err != nil {
		return err
	}
	s.ended = true
	if !s.vertex.Enumerator {
		// Readers go on to their own end; the enumerator's channel only carries barriers.
		if err := s.controlAll(record.Control{Kind: record.EndOfData}); err != nil {
			return err
		}
	}
	s.report(job.TaskEndOfData)
	return nil
}

// closeIfDone ends a task whose final checkpoint has committed, with its sinks.
func (s *subtask) closeIfDone() error {
	if !s.ended && s.stopping == 0 || s.closed {
		return nil
	}
	done := s.mayClose || !s.vertex.Enumerator && s.closeAt > 0 && s.committed >= s.closeAt || s.stopping > 0 && s.committed >= s.stopping
	if !done {
		return nil
	}
	for _, l := range s.chain {
		if c, ok := l.op.(operator.Committing); ok && c.Uncommitted() > 0 {
			return nil
		}
	}
	s.closed = true
	if err := s.controlAll(record.Control{Kind: record.Close}); err != nil {
		return err
	}
	return errFinished
}

// hold waits behind the barrier of a checkpoint that ends the job, for its commit or its abort. What the outputs still hold goes
// on by itself.
func (s *subtask) hold() {
	select {
	case <-s.mail.signal:
	case <-s.ctx.Done():
	}
}

// controlAll puts c on every output. A receiver that has finished already needs it no more.
func (s *subtask) controlAll(c record.Control) error {
	for _, o := range s.outs {
		if err := o.Control(c); err != nil && !errors.Is(err, exchange.ErrClosed) {
			return err
		}
	}
	return nil
}

// afterWork sends what was held back for long enough and merges state a little.
func (s *subtask) afterWork() error {
	if s.merging || s.due() {
		s.merging = s.mergeState(mergeBusy)
	}
	if len(s.routers) == 0 {
		return nil
	}
	held := false
	for _, r := range s.routers {
		if r.Holding() {
			held = true
			break
		}
	}
	if !held {
		s.holding = time.Time{}
		return nil
	}
	now := time.Now()
	if s.holding.IsZero() {
		s.holding = now
	}
	if now.Sub(s.holding) >= s.run.settings.FlushTimeout {
		return s.flush()
	}
	return nil
}

// noteBlocked sums how long the outputs have waited for room.
func (s *subtask) noteBlocked() {
	var d time.Duration
	for _, w := range s.waiters {
		d += w.Waited()
	}
	s.times.blocked.Store(int64(d))
}

// drain sends everything, also what is being combined.
func (s *subtask) drain() error {
	for _, r := range s.routers {
		if err := r.Drain(); err != nil {
			return err
		}
	}
	return s.flush()
}

func (s *subtask) flush() error {
	if !s.holding.IsZero() {
		s.holding, s.flushed = time.Time{}, time.Now()
	}
	s.noteBlocked()
	for _, r := range s.routers {
		if err := r.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// due tells whether a backend has something for Merge to do.
func (s *subtask) due() bool {
	for _, t := range s.tenders {
		if t.Due() {
			return true
		}
	}
	return false
}

func (s *subtask) mergeState(budget time.Duration) (more bool) {
	for _, l := range s.chain {
		if l.state != nil && l.state.Merge(budget) {
			more = true
		}
	}
	return more
}

// wait sleeps until something comes or a deadline passes.
//
// The flush timeout bounds how often frames are sent that are not full, not how long a record waits: the
// first one after a quiet time goes out at once, since nothing is there to share its frame.
func (s *subtask) wait() error {
	start := time.Now()
	deadline := time.Time{}
	if !s.holding.IsZero() {
		if deadline = s.flushed.Add(s.run.settings.FlushTimeout); !deadline.After(start) {
			return s.flush()
		}
	}
	if s.poller != nil && !s.ended {
		if at, ok := s.poller.Deadline(); ok && (deadline.IsZero() || at.Before(deadline)) {
			deadline = at
		}
	}
	if s.clocked != nil && !s.ended {
		if at, ok := s.clocked.Deadline(); ok && (deadline.IsZero() || at.Before(deadline)) {
			deadline = at
		}
	}
	if at, ok := s.gate.WaitsUntil(); ok && (deadline.IsZero() || at.Before(deadline)) {
		deadline = at
	}
	if at := start.Add(mergeWait); s.merging && (deadline.IsZero() || at.Before(deadline)) {
		deadline = at
	}
	var due <-chan time.Time
	if !deadline.IsZero() {
		s.timer.Reset(max(0, deadline.Sub(start)))
		due = s.timer.C
	}
	select {
	case <-s.mail.signal:
	case <-s.gate.Ready():
	case <-due:
	case <-s.ctx.Done():
	}
	now := time.Now()
	s.times.idle.Add(int64(now.Sub(start)))
	if s.sleeper != nil {
		s.sleeper.Slept(now.Sub(start))
	}
	if !s.holding.IsZero() && now.Sub(s.flushed) >= s.run.settings.FlushTimeout {
		return s.flush()
	}
	return nil
}

// act carries out the actions of the barrier machine, in order.
func (s *subtask) act(actions []barrier.Action) error {
	for _, a := range actions {
		switch a := a.(type) {
		case barrier.Block:
			s.uploads.firstBarrier(time.Now())
			s.gate.Block(a.Channel)
		case barrier.Unblock:
			s.gate.Unblock(a.Channel)
		case barrier.GiveUp:
			s.log.Debug("checkpoint given up", zap.Uint64("checkpoint", uint64(a.Checkpoint)), zap.String("reason", a.Reason))
			s.uploads.clearAlign()
			if a.Reason != barrier.ByCoordinator {
				// The coordinator would wait for this task until the timeout.
				s.decline(a.Checkpoint, job.Errorf(job.ClassInfrastructure, "no snapshot was taken: %s", a.Reason))
			}
			if err := s.controlAll(record.Control{Kind: record.CancelBarrier, Checkpoint: a.Checkpoint}); err != nil {
				return err
			}
		case barrier.Capture:
			if err := s.capture(a.Barrier); err != nil {
				return err
			}
		}
	}
	return nil
}

// learnCommitted takes the news that all checkpoints up to id, aborted ones aside, are durable.
func (s *subtask) learnCommitted(id job.CheckpointID) {
	if id <= s.committed {
		return
	}
	s.committed = id
	for _, l := range s.chain {
		if c, ok := l.op.(operator.Checkpointed); ok {
			if err := c.Committed(id); err != nil {
				s.mail.post(func() error { return err })
			}
		}
	}
}

// finishWithoutCheckpoints commits the sinks of a job without checkpoints at its end.
func (s *subtask) finishWithoutCheckpoints() error {
	for _, l := range s.chain {
		if c, ok := l.op.(operator.Committing); ok {
			if err := c.CommitAll(); err != nil {
				return err
			}
		}
	}
	s.mayClose = true
	return nil
}
