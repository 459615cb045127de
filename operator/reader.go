package operator

import (
	"context"
	"fmt"
	"slices"
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
	source   Source[T]
	time     func(*T) time.Time
	strategy watermark.Strategy
	inOrder  bool

	c      *Context
	sc     SourceContext
	ctx    context.Context
	cancel context.CancelFunc
	pool   *record.Pool[T]
	rows   int

	waiting []Split // Not yet started.
	active  []*activeSplit[T]
	noMore  bool
	asked   time.Time           // When a split was last asked for; zero when none is awaited.
	mark    int64               // Last watermark emitted.
	clock   watermark.IdleClock // Of the reader: no split of it has input.
	started bool
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
	r := &reader[T]{source: s, time: time, strategy: strategy, pool: record.PoolOf[T]()}
	if o, ok := s.(InOrder); ok {
		r.inOrder = o.SplitsInOrder()
	}
	return r
}

func (r *reader[T]) Open(c *Context) error {
	r.c = c
	r.ctx, r.cancel = context.WithCancel(c.Context)
	r.rows = r.pool.Rows()
	r.clock = watermark.NewIdleClock(r.strategy.IdleTimeout())
	r.mark = c.Watermark
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
	restored := r.waiting
	r.waiting = nil
	for _, s := range restored {
		if err := r.open(s); err != nil {
			return err
		}
	}
	if r.c.Restored {
		r.ask()
	}
	return nil
}

func (r *reader[T]) open(s Split) error {
	sr, err := r.source.Open(r.ctx, r.sc, s)
	if err != nil {
		return fmt.Errorf("source %q: open split %s: %w", r.c.Name, s.ID, err)
	}
	r.active = append(r.active, &activeSplit[T]{
		split: s, r: sr, gen: r.strategy.NewGenerator(), clock: watermark.NewIdleClock(r.strategy.IdleTimeout()),
	})
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
		r.waiting = append(r.waiting, Split{ID: m.ID, Body: m.Body})
	}
	b.Release()
	r.asked = time.Time{}
	// Once every split is given out, all of them are opened: from then on each one holds the
	// watermark for itself, and they are read in step.
	for r.started && len(r.waiting) > 0 && (len(r.active) == 0 || r.noMore && !r.inOrder) {
		if err := r.startNext(); err != nil {
			return err
		}
	}
	r.ask()
	return r.advance(nil)
}

func (r *reader[T]) startNext() error {
	s := r.waiting[0]
	r.waiting = r.waiting[1:]
	return r.open(s)
}

func (r *reader[T]) wake() error {
	for _, a := range r.active {
		a.waiting = false
	}
	return nil
}

// Poll reads one batch of the split that is furthest behind.
func (r *reader[T]) Poll() (bool, error) {
	if !r.started {
		return false, nil
	}
	r.checkSplits()
	a := r.behind()
	if a == nil {
		r.ask()
		return r.checkIdle()
	}
	b := r.pool.Get()
	status, err := a.r.Read(b, r.rows)
	if err != nil {
		b.Release()
		return false, fmt.Errorf("source %q: %w", r.c.Name, err)
	}
	r.takeMarks(a, b)
	if len(b.Rows) > 0 {
		if r.clock.Read() {
			b.Marks = slices.Insert(b.Marks, 0, record.Mark{Kind: record.Active}) // Before the first row.
		}
		a.clock.Read()
		r.stamp(a, b)
	}
	switch status {
	case ReadWait:
		a.waiting = true
		r.checkSplits() // Its wait begins.
	case ReadEnd:
		if err := r.finish(a); err != nil {
			b.Release()
			return false, err
		}
	}
	if err := r.advance(b); err != nil {
		return false, err
	}
	return true, nil
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

// takeMarks makes the watermarks that Read put into b those of the split, and leaves in their places the watermarks of
// the reader that follow from them.
func (r *reader[T]) takeMarks(a *activeSplit[T], b *record.Batch[T]) {
	own := b.Marks[:0]
	for _, m := range b.Marks {
		if m.Kind != record.Watermark {
			continue // Idleness is for the reader to say.
		}
		a.gen.Restore(m.Time)
		if w := r.watermark(); w > r.mark {
			r.mark = w
			own = append(own, record.Mark{Kind: record.Watermark, Time: w, Pos: m.Pos})
		}
	}
	b.Marks = own
}

// stamp gives the rows of b their times and tells the split's generator of the newest.
func (r *reader[T]) stamp(a *activeSplit[T], b *record.Batch[T]) {
	newest := record.MinTime
	if r.time != nil {
		b.Times = b.Times[:0]
		for i := range b.Rows {
			ms := r.time(&b.Rows[i]).UnixMilli()
			b.Times = append(b.Times, ms)
			newest = max(newest, ms)
		}
	} else {
		for _, ms := range b.Times {
			newest = max(newest, ms)
		}
	}
	if newest != record.MinTime {
		a.gen.OnBatch(newest)
	}
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
		return fmt.Errorf("source %q: close split %s: %w", r.c.Name, a.split.ID, err)
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
	if len(b.Rows) == 0 && len(b.Marks) == 0 {
		b.Release()
		return nil
	}
	return r.c.Out.Emit(b)
}

// watermark is the lowest of the splits'. While the enumerator has splits left, or one waits here,
// nothing can be said, unless splits follow each other in time.
func (r *reader[T]) watermark() int64 {
	if !r.inOrder && (!r.noMore || len(r.waiting) > 0) {
		return r.mark
	}
	if len(r.active) == 0 {
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

// checkSplits sees which of the splits that wait for input have become idle.
func (r *reader[T]) checkSplits() {
	if r.strategy.IdleTimeout() <= 0 {
		return
	}
	var now time.Time
	for _, a := range r.active {
		if !a.waiting || a.clock.Idle() {
			continue
		}
		if now.IsZero() {
			now = r.c.Now()
		}
		a.clock.Waiting(now)
	}
}

// checkIdle runs while there is nothing to read. It tells whether it had something to say.
func (r *reader[T]) checkIdle() (bool, error) {
	w := r.watermark()
	idle := !r.Exhausted() && r.clock.Waiting(r.c.Now())
	if w <= r.mark && !idle {
		return false, nil
	}
	b := r.pool.Get()
	if w > r.mark {
		r.mark = w
		b.Mark(record.Watermark, w)
	}
	if idle {
		b.Mark(record.Idle, 0)
	}
	return true, r.c.Out.Emit(b)
}

func (r *reader[T]) Deadline() (time.Time, bool) {
	if r.Exhausted() {
		return time.Time{}, false
	}
	at, ok := r.clock.Deadline()
	for _, a := range r.active {
		if t, has := a.clock.Deadline(); has && a.waiting && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	if !r.asked.IsZero() && !r.noMore {
		if t := r.asked.Add(askAgain); !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	return at, ok
}

func (r *reader[T]) Exhausted() bool {
	return r.started && r.noMore && len(r.active) == 0 && len(r.waiting) == 0
}

func (r *reader[T]) Receive(job.Task, []byte) error   { return nil }
func (r *reader[T]) Prepare(job.CheckpointID) error   { return nil }
func (r *reader[T]) Committed(job.CheckpointID) error { return nil }

func (r *reader[T]) Snapshot(job.CheckpointID) (map[string][][]byte, error) {
	var splits [][]byte
	for _, a := range r.active {
		splits = append(splits, encodeSplit(a.r.Position()))
	}
	for _, s := range r.waiting {
		splits = append(splits, encodeSplit(s))
	}
	return map[string][][]byte{splitsState: splits}, nil
}

func (r *reader[T]) EndOfData() error { return nil }

func (r *reader[T]) Close() error {
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
