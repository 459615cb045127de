package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/watermark"
)

// askAgain is how long a reader waits for a split before it asks again: mail may get lost.
const askAgain = time.Second

// reader reads the splits that an enumerator gives it. Of several it reads the one whose watermark
// is furthest behind, so that their times advance together.
type reader[T any] struct {
	source Source[T]
	stamper[T]
	inOrder bool
	eager   bool // Splits are opened as they come: none of them need ever end.

	sc     SourceContext
	ctx    context.Context
	cancel context.CancelFunc
	rows   int // The most of a batch.
	size   batchSize

	waiting []heldSplit // Not yet started.
	active  []*activeSplit[T]
	noMore  bool
	asked   time.Time // When a split was last asked for; zero when none is awaited.
	mark    int64     // Last watermark emitted.
	started bool
	now     time.Time     // Of the last Poll.
	taken   []record.Mark // Scratch: what the source marked.

	idle struct {
		on      bool
		said    bool                // That the reader is idle.
		waited  waitClock           //
		nothing watermark.IdleClock // Runs while there is no split.
	}
	align alignment
}

type activeSplit[T any] struct {
	split   Split
	r       SplitReader[T]
	gen     *watermark.Generator
	waiting bool // Read said ReadWait; a wake-up clears it.
	clock   watermark.IdleClock
}

// Reader returns the reader of a source. time may be nil: then records have the times that the
// source gives, or none.
func Reader[T any](s Source[T], time func(*T) time.Time, strategy watermark.Strategy) Operator {
	return TimedReader(s, Timing[T]{Time: time, Strategy: strategy})
}

// TimedReader is Reader with all that a Timing can say.
func TimedReader[T any](s Source[T], t Timing[T]) Operator {
	r := &reader[T]{source: s, stamper: stamper[T]{Timing: t}}
	if o, ok := s.(InOrder); ok {
		r.inOrder = o.SplitsInOrder()
	}
	r.eager = !s.Bounded() && !r.inOrder
	return r
}

func (r *reader[T]) Open(c *Context) error {
	r.ctx, r.cancel = context.WithCancel(c.Context)
	r.open(c, fmt.Sprintf("source %q", c.Name))
	r.rows = r.pool.Rows()
	timeout := r.Strategy.IdleTimeout()
	r.idle.on = timeout > 0
	r.idle.waited = newWaitClock(timeout)
	r.idle.nothing = watermark.NewIdleClock(timeout)
	r.mark = c.Watermark
	r.align = newAlignment(r.Strategy)
	r.sc = SourceContext{
		Name: c.Name, Subtask: c.Subtask, Parallelism: c.Parallelism, Now: c.Now,
		Wake: func() { c.Post(r.wake) },
	}
	for _, b := range c.List[splitsState] {
		s, err := decodeSplit(b)
		if err != nil {
			return err
		}
		r.waiting = append(r.waiting, s)
	}
	return nil
}

// Start opens the splits that were restored, so that each takes part in the watermark.
func (r *reader[T]) Start() error {
	r.started = true
	r.now = r.c.Now()
	restored := r.waiting
	r.waiting = nil
	for _, s := range restored {
		if err := r.openSplit(s); err != nil {
			return err
		}
	}
	if r.c.Restored {
		r.ask()
	}
	return nil
}

func (r *reader[T]) openSplit(s heldSplit) error {
	sr, err := r.source.Open(r.ctx, r.sc, s.Split)
	if err != nil {
		return fmt.Errorf("%s: open split %s: %w", r.where, s.ID, err)
	}
	a := &activeSplit[T]{
		split: s.Split, r: sr, gen: r.Strategy.NewGenerator(), clock: watermark.NewIdleClock(r.Strategy.IdleTimeout()),
	}
	a.gen.Restore(s.mark)
	r.active = append(r.active, a)
	return nil
}

// ask asks the enumerator for another split unless one is on its way or there are none.
func (r *reader[T]) ask() {
	if r.noMore || len(r.waiting) > 0 {
		r.asked = time.Time{}
		return
	}
	if now := r.c.Now(); r.asked.IsZero() || now.Sub(r.asked) >= askAgain {
		r.asked = now
		r.c.Mail(job.Task{Vertex: r.c.Enumerator, Subtask: 0}, []byte{mailRequestSplit})
	}
}

// Push takes splits from the enumerator.
func (r *reader[T]) Push(_ int, a record.Any) error {
	b := batchOf[SplitMessage](a)
	for i := range b.Rows {
		m := &b.Rows[i]
		if m.NoMore {
			r.noMore = true
			continue
		}
		r.waiting = append(r.waiting, heldSplit{Split{ID: m.ID, Body: m.Body}, record.MinTime})
	}
	b.Release()
	r.asked = time.Time{}
	// Once every split is given out, all of them are opened: from then on each one holds the
	// watermark for itself, and they are read in step.
	for r.started && len(r.waiting) > 0 && (len(r.active) == 0 || (r.noMore || r.eager) && !r.inOrder) {
		if err := r.startNext(); err != nil {
			return err
		}
	}
	r.ask()
	r.now = r.c.Now()
	r.report(false)
	return r.advance(nil)
}

func (r *reader[T]) startNext() error {
	s := r.waiting[0]
	r.waiting = r.waiting[1:]
	return r.openSplit(s)
}

func (r *reader[T]) wake() error {
	if r.idle.on {
		r.idle.waited.to(r.c.Now())
	}
	for _, a := range r.active {
		a.waiting = false
		a.clock.Blocked(r.idle.waited.now) // Until it is read again.
	}
	return nil
}

// Slept implements Sleeper.
func (r *reader[T]) Slept(d time.Duration) { r.idle.waited.slept(d) }

// Poll reads one batch of the split that is furthest behind.
func (r *reader[T]) Poll() (bool, error) {
	if !r.started {
		return false, nil
	}
	r.now = r.c.Now()
	r.idle.waited.to(r.now)
	r.checkSplits()
	a := r.behind()
	if a == nil || r.ahead(a) {
		r.size.rest()
		return r.rest(a != nil)
	}
	r.align.paused = false
	again, err := r.read(a)
	if err == nil {
		r.report(false)
	}
	return again, err
}

func (r *reader[T]) read(a *activeSplit[T]) (again bool, err error) {
	b := r.pool.Get()
	defer func() {
		if err != nil && b != nil {
			b.Release()
		}
	}()
	status, err := a.r.Read(b, r.size.next(r.now, r.rows))
	if err != nil {
		return false, fmt.Errorf("%s: %w", r.where, err)
	}
	r.size.read(r.now, len(b.Rows))
	if len(b.Rows) > 0 || len(b.Marks) > 0 {
		if err := r.take(a, b); err != nil {
			return false, err
		}
	}
	switch status {
	case ReadWait:
		a.waiting = true
		r.checkSplits() // Its wait begins.
	case ReadEnd:
		if err := r.finish(a); err != nil {
			return false, err
		}
	}
	out := b
	b = nil
	return true, r.advance(out)
}

// behind is the split to read next: of those that have something, the one with the lowest
// watermark.
func (r *reader[T]) behind() *activeSplit[T] {
	var best *activeSplit[T]
	for _, a := range r.active {
		if !a.waiting && (best == nil || a.gen.Current() < best.gen.Current()) {
			best = a
		}
	}
	return best
}

// take gives what was read of a its times, and puts the watermarks of the reader that follow from
// those of the source and the records in their places.
func (r *reader[T]) take(a *activeSplit[T], b *record.Batch[T]) error {
	a.clock.Read()
	r.idle.nothing.Read()
	r.taken = r.taken[:0]
	if len(b.Marks) > 0 && (r.Time == nil || r.Strategy.TakesSourceMarks()) {
		r.taken = append(r.taken, b.Marks...)
	}
	b.Marks = b.Marks[:0]
	if r.idle.said {
		r.idle.said = false
		b.Marks = append(b.Marks, record.Mark{Kind: record.Active}) // Before the first row.
	}
	newest, err := r.stamp(b, r.now)
	if err != nil {
		return fmt.Errorf("split %s: %w", a.split.ID, err)
	}
	if len(r.taken) > 0 || len(r.marks) > 0 {
		others, held := r.others(a)
		mergeMarks(r.taken, r.marks, func(m record.Mark, _ bool) {
			if m.Kind != record.Watermark {
				return // Idleness is for the reader to say.
			}
			if m.Time > r.furthest {
				r.c.Counters.Ahead.Add(1)
				return
			}
			a.gen.Mark(m.Time)
			if w := min(a.gen.Current(), others); !held && w > r.mark {
				r.mark = w
				b.Marks = append(b.Marks, record.Mark{Kind: record.Watermark, Pos: m.Pos, Time: w})
			}
		})
	}
	return r.tell(b, a.gen, newest, r.now)
}

func (r *reader[T]) finish(a *activeSplit[T]) error {
	err := a.r.Close()
	for i := range r.active {
		if r.active[i] == a {
			r.active = append(r.active[:i], r.active[i+1:]...)
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%s: close split %s: %w", r.where, a.split.ID, err)
	}
	if len(r.waiting) > 0 && len(r.active) == 0 {
		if err := r.startNext(); err != nil {
			return err
		}
	}
	r.ask()
	return nil
}

// advance marks b with the reader's watermark if it moved, and emits b. b may be nil.
func (r *reader[T]) advance(b *record.Batch[T]) error {
	if w := r.watermark(); w > r.mark {
		r.mark = w
		if b == nil {
			b = r.pool.Get()
		}
		b.Mark(record.Watermark, w)
	}
	if b == nil {
		return nil
	}
	return r.emit(b)
}

func (r *reader[T]) emit(b *record.Batch[T]) error {
	if err := r.emitSide(b.Marks); err != nil {
		b.Release()
		return err
	}
	if b.Len() == 0 && len(b.Marks) == 0 {
		b.Release()
		return nil
	}
	return r.c.Out.Emit(b)
}

// watermark is the lowest of the splits'. While the enumerator has splits left, or one waits here,
// nothing can be said, unless splits follow each other in time.
func (r *reader[T]) watermark() int64 {
	if !r.known() || len(r.active) == 0 {
		return r.mark
	}
	// Idle splits hold nothing back; when all are idle the one that is furthest counts.
	lowest, highest := record.MaxTime, r.mark
	idle := true
	for _, a := range r.active {
		w := a.gen.Current()
		if a.clock.Idle() {
			highest = max(highest, w)
			continue
		}
		idle = false
		lowest = min(lowest, w)
	}
	if idle {
		return highest
	}
	return lowest
}

// known tells whether all is known that the watermark depends on.
func (r *reader[T]) known() bool { return r.inOrder || r.noMore && len(r.waiting) == 0 }

// others is the lowest watermark of the active splits but a. held tells that nothing can be said.
func (r *reader[T]) others(a *activeSplit[T]) (lowest int64, held bool) {
	lowest = record.MaxTime
	for _, o := range r.active {
		if o != a && !o.clock.Idle() {
			lowest = min(lowest, o.gen.Current())
		}
	}
	return lowest, !r.known()
}

// checkSplits sees which of the splits that wait for input have become idle.
func (r *reader[T]) checkSplits() {
	if !r.idle.on {
		return
	}
	for _, a := range r.active {
		if a.waiting {
			a.clock.Waiting(r.idle.waited.now)
		}
	}
}

// rest is what there is to do while nothing is read: no split has input, or the one to read is
// paused. It tells whether there was anything to say.
func (r *reader[T]) rest(paused bool) (bool, error) {
	r.align.paused = paused
	if paused {
		// A split that may not be read can have input: it cannot become idle.
		for _, a := range r.active {
			if !a.waiting {
				a.clock.Blocked(r.idle.waited.now)
			}
		}
	}
	r.ask()
	if r.Strategy.NeedsTimes() {
		for _, a := range r.active {
			if err := r.stamper.ask(a.gen, r.now); err != nil {
				return false, err
			}
		}
	}
	r.report(false)
	w := r.watermark()
	idle := !paused && !r.idle.said && r.allIdle()
	if w <= r.mark && !idle {
		return false, nil
	}
	b := r.pool.Get()
	if w > r.mark {
		r.mark = w
		b.Mark(record.Watermark, w)
	}
	if idle {
		r.idle.said = true
		b.Mark(record.Idle, 0)
	}
	return true, r.emit(b)
}

// allIdle tells whether the reader is idle: each of its splits is, or it has waited for one.
func (r *reader[T]) allIdle() bool {
	if !r.idle.on || r.Exhausted() {
		return false
	}
	if len(r.active) == 0 {
		r.idle.nothing.Waiting(r.idle.waited.now)
		return r.idle.nothing.Idle()
	}
	r.idle.nothing.Read() // Behind its splits it waits anew.
	for _, a := range r.active {
		if !a.clock.Idle() {
			return false
		}
	}
	return true
}

// askRule is how long a rule of the user's own is not asked while no record comes.
const askRule = time.Second

// Deadline is when a split becomes idle, or something is to be said again.
func (r *reader[T]) Deadline() (at time.Time, ok bool) {
	if r.Exhausted() {
		return time.Time{}, false
	}
	earliest := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	if len(r.active) == 0 {
		if t, has := r.idle.nothing.Deadline(); has {
			earliest(r.idle.waited.wall(t))
		}
	}
	for _, a := range r.active {
		if t, has := a.clock.Deadline(); has && a.waiting {
			earliest(r.idle.waited.wall(t))
		}
	}
	if !r.asked.IsZero() && !r.noMore {
		earliest(r.asked.Add(askAgain))
	}
	if r.Strategy.NeedsTimes() && len(r.active) > 0 {
		earliest(r.now.Add(askRule))
	}
	if t, has := r.reportAt(); has {
		earliest(t)
	}
	return at, ok
}

func (r *reader[T]) Exhausted() bool {
	return r.started && r.noMore && len(r.active) == 0 && len(r.waiting) == 0
}

// Prepare repeats the last report of a reader that is through: there will be no other occasion.
func (r *reader[T]) Prepare(job.CheckpointID) error {
	if r.c.Ended || r.Exhausted() {
		r.report(true)
	}
	return nil
}

func (r *reader[T]) Committed(job.CheckpointID) error { return nil }

func (r *reader[T]) Snapshot(job.CheckpointID) (map[string][][]byte, error) {
	var splits [][]byte
	for _, a := range r.active {
		splits = append(splits, heldSplit{a.r.Position(), a.gen.Current()}.encode())
	}
	for _, s := range r.waiting {
		splits = append(splits, s.encode())
	}
	return map[string][][]byte{splitsState: splits}, nil
}

func (r *reader[T]) EndOfData() error {
	r.report(true)
	return nil
}

func (r *reader[T]) Close() error {
	r.drop()
	if r.cancel != nil {
		r.cancel()
	}
	var first error
	for _, a := range r.active {
		if err := a.r.Close(); err != nil && first == nil {
			first = err
		}
	}
	r.active = nil
	return first
}
