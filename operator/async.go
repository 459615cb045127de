package operator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// CallsState is the name of the list state of an async operator: the records whose results were not
// emitted yet.
const CallsState = "calls"

// Awaiter is implemented by Yielders whose unfinished work may wait for something outside. While
// Awaiting is true nobody calls Resume; what ends it comes by Context.Post.
type Awaiter interface{ Awaiting() bool }

// AsyncOptions say how an async operator makes its calls. The zero value is usable.
type AsyncOptions struct {
	// Ordered emits results in the order of their records, so that a slow call holds back those
	// behind it. Otherwise each is emitted as it comes, but none passes a watermark in either
	// direction.
	Ordered bool
	// Capacity is how many records of one subtask may be under way: called, or waiting for their
	// turn to be emitted. At that many no more input is taken. 0 means 100, which covers 10,000
	// records a second of calls that take 10 ms.
	Capacity int
	// Timeout bounds each single call, 0 for a minute. It ends the call's context; a call that
	// returns all the same is taken as it is.
	Timeout time.Duration
	// Retries is how often a call that failed is made again.
	Retries int
	// Backoff is the wait before the first retry, 0 for 100 ms. It doubles with each up to
	// MaxBackoff, 0 for 10 s.
	Backoff    time.Duration
	MaxBackoff time.Duration
}

// WithDefaults fills in what is 0.
func (o AsyncOptions) WithDefaults() AsyncOptions {
	or := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	if o.Capacity == 0 {
		o.Capacity = 100
	}
	or(&o.Timeout, time.Minute)
	or(&o.Backoff, 100*time.Millisecond)
	or(&o.MaxBackoff, max(10*time.Second, o.Backoff))
	return o
}

// maxCapacity bounds the goroutines of one subtask; the records under way are all in each checkpoint.
const maxCapacity = 100_000

// Validate lists what is wrong with o.
func (o AsyncOptions) Validate() error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(o.Capacity < 0 || o.Capacity > maxCapacity, "capacity %d: want 1 to %d records, or 0 for the default", o.Capacity, maxCapacity)
	bad(o.Timeout < 0, "timeout %v is negative", o.Timeout)
	bad(o.Retries < 0, "%d retries: want 0 or more", o.Retries)
	bad(o.Backoff < 0, "backoff %v is negative", o.Backoff)
	bad(o.MaxBackoff < 0 || o.MaxBackoff > 0 && o.MaxBackoff < o.Backoff, "longest backoff %v is less than the first, %v", o.MaxBackoff, o.Backoff)
	return errors.Join(errs...)
}

// AsyncCalls are the functions of an async operator. They run on goroutines of their own, several
// at a time, and return soon once ctx is done: the task cannot end before they have. The record is
// read-only. After a restart calls are made again for records that had no result in the checkpoint.
type AsyncCalls[T, U any] struct {
	// Call gives the results for in, which are emitted with its event time. An error is retried as
	// the options say, but not a panic nor an error of class job.ClassUser, job.ClassRecord or
	// job.ClassRefused: a second call would end the same way. When there is no retry left the task
	// fails, with class job.ClassExternal unless the error has another.
	Call func(ctx context.Context, in T) ([]U, error)
	// Fallback, if set, gives the results for a record whose calls have failed, in place of the
	// failure. err is that of the last call. An error of its own fails the task.
	Fallback func(ctx context.Context, in T, err error) ([]U, error)
}

// asyncOp calls something outside for each record. The records whose results were not emitted yet,
// and those of the batch in hand, are in its snapshot, so that a barrier never waits for a call.
//
// Goroutines: one for each call under way; Close waits for them.
type asyncOp[T, U any] struct {
	o     AsyncOptions
	calls AsyncCalls[T, U]
	codec codec.Codec[T]

	c      *Context
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // Of calls.
	col    *Collector[U]

	rest   *record.Batch[T] // Not wholly taken, or nil.
	from   int              // Its next row, as an index into the selection.
	mark   int              // Its next mark.
	queue  asyncQueue[T, U]
	ending bool

	back struct {
		sync.Mutex
		calls  []*asyncCall[T, U] // Finished, not known to the operator yet.
		posted bool               // It has mail that tells.
	}
}

// Async returns an operator that calls something outside for each record. c is the codec of the
// records in checkpoints.
func Async[T, U any](o AsyncOptions, calls AsyncCalls[T, U], c codec.Codec[T]) Operator {
	return &asyncOp[T, U]{o: o.WithDefaults(), calls: calls, codec: c}
}

func (a *asyncOp[T, U]) Open(c *Context) error {
	a.c = c
	a.ctx, a.cancel = context.WithCancel(c.Context)
	a.col = newCollector[U](c.Out)
	a.queue.ordered = a.o.Ordered
	if !c.Restored {
		return nil
	}
	// What was under way comes first, and then the watermark that the input had reached: those
	// between the records were not kept.
	b := record.PoolOf[T]().Get()
	a.rest = b
	from, old := a.codec, a.codec.Schema()
	parts, err := olderItems(c.Items, CallsState, CallSchema(old), 1)
	if err == nil && parts != nil {
		old = parts[0]
		from, err = codec.Evolve(a.codec, old)
	}
	if err != nil {
		return refusedItems(c.Name, CallsState, c.Items[CallsState], CallSchema(a.codec.Schema()), err)
	}
	for _, item := range c.List[CallsState] {
		v, time, err := decodeCall(from, old, item)
		if err != nil {
			return fmt.Errorf("operator %q: %w", c.Name, err)
		}
		b.Append(v, time)
	}
	if c.Watermark != record.MinTime {
		b.Mark(record.Watermark, c.Watermark)
	}
	return nil
}

func (a *asyncOp[T, U]) Push(_ int, in record.Any) error {
	a.rest, a.from, a.mark = batchOf[T](in), 0, 0
	return a.Resume()
}

// Pending tells whether input is left, results can be emitted, or the end waits for some.
func (a *asyncOp[T, U]) Pending() bool {
	return a.rest != nil || a.queue.emittable() || a.ending && a.queue.records > 0
}

// Awaiting tells whether only the return of a call can change anything.
func (a *asyncOp[T, U]) Awaiting() bool {
	full := a.queue.records >= a.o.Capacity
	return !a.queue.emittable() && (a.rest == nil || full)
}

// Interruptible is true: all that is under way is in the snapshot.
func (a *asyncOp[T, U]) Interruptible() bool { return true }

func (a *asyncOp[T, U]) Resume() error {
	a.take()
	for range firingRun {
		if !a.queue.emittable() {
			break
		}
		e := a.queue.pop()
		if e.isMark {
			a.col.mark(e.mark)
			continue
		}
		a.col.time = e.time
		for _, r := range e.results {
			a.col.Emit(r)
		}
	}
	return a.col.done()
}

// take makes calls for the batch in hand, for as long as there is room.
func (a *asyncOp[T, U]) take() {
	for a.rest != nil {
		b := a.rest
		to := b.Len()
		last := a.mark == len(b.Marks)
		if !last {
			to = b.SelIndex(b.Marks[a.mark].Pos)
		}
		for ; a.from < to; a.from++ {
			if a.queue.records >= a.o.Capacity {
				return
			}
			i := a.row(a.from)
			a.call(b.Rows[i], b.Time(i))
		}
		if last {
			b.Release()
			a.rest = nil
			return
		}
		a.queue.pushMark(b.Marks[a.mark])
		a.mark++
	}
}

// row is the row at an index of the selection of the batch in hand.
func (a *asyncOp[T, U]) row(n int) int {
	if a.rest.Sel != nil {
		return int(a.rest.Sel[n])
	}
	return n
}

func (a *asyncOp[T, U]) call(in T, time int64) {
	e := &asyncCall[T, U]{in: in, time: time}
	a.queue.push(e)
	a.wg.Go(func() {
		e.results, e.err = a.answer(in)
		if a.ctx.Err() == nil {
			a.finished(e)
		}
	})
}

// finished hands a call back to the operator. It runs on the call's goroutine.
func (a *asyncOp[T, U]) finished(e *asyncCall[T, U]) {
	a.back.Lock()
	a.back.calls = append(a.back.calls, e)
	post := !a.back.posted
	a.back.posted = true
	a.back.Unlock()
	if post {
		a.c.Post(a.collect)
	}
}

// collect takes the calls that were handed back.
func (a *asyncOp[T, U]) collect() error {
	a.back.Lock()
	list := a.back.calls
	a.back.calls, a.back.posted = nil, false
	a.back.Unlock()
	for _, e := range list {
		if e.err != nil {
			return e.err
		}
		a.queue.finish(e)
	}
	return nil
}

// answer calls until there is an answer, or none will come. It runs on the call's goroutine.
func (a *asyncOp[T, U]) answer(in T) ([]U, error) {
	wait := a.o.Backoff
	for try := 1; ; try++ {
		out, err := a.try(in)
		if err == nil || a.ctx.Err() != nil {
			return out, err
		}
		class := job.FailureOf("", "", err).Class
		hopeless := class == job.ClassUser || class == job.ClassRecord || class == job.ClassRefused
		if !hopeless && try <= a.o.Retries {
			select {
			case <-time.After(wait):
			case <-a.ctx.Done():
				return nil, a.ctx.Err()
			}
			wait = min(2*wait, a.o.MaxBackoff)
			continue
		}
		if a.calls.Fallback == nil || class == job.ClassUser {
			return nil, a.failure(try, "", err)
		}
		if out, err = a.fallback(in, err); err != nil {
			return nil, a.failure(try, ", and so did the fallback", err)
		}
		return out, nil
	}
}

func (a *asyncOp[T, U]) failure(tries int, more string, err error) error {
	plural := "s"
	if tries == 1 {
		plural = ""
	}
	return job.Errorf(job.ClassExternal, "operator %q: call failed after %d attempt%s%s: %w", a.c.Name, tries, plural, more, err)
}

// try makes one call.
func (a *asyncOp[T, U]) try(in T) (out []U, err error) {
	ctx, cancel := context.WithTimeout(a.ctx, a.o.Timeout)
	defer cancel()
	err = guard(func() (err error) {
		out, err = a.calls.Call(ctx, in)
		return err
	})
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %v: %w", a.o.Timeout, err)
	}
	return out, err
}

func (a *asyncOp[T, U]) fallback(in T, cause error) (out []U, err error) {
	err = guard(func() (err error) {
		out, err = a.calls.Fallback(a.ctx, in, cause)
		return err
	})
	return out, err
}

func (a *asyncOp[T, U]) EndOfData() error {
	a.ending = true
	return nil
}

func (a *asyncOp[T, U]) Prepare(job.CheckpointID) error { return nil }

// ItemSchema tells what the items of a list are.
func (a *asyncOp[T, U]) ItemSchema(string) string { return CallSchema(a.codec.Schema()).String() }

func (a *asyncOp[T, U]) Committed(job.CheckpointID) error { return nil }

func (a *asyncOp[T, U]) Snapshot(job.CheckpointID) (map[string][][]byte, error) {
	var items [][]byte
	add := func(in *T, time int64) error {
		item, err := encodeCall(a.codec, in, time)
		if err != nil {
			return job.Errorf(job.ClassRecord, "operator %q: record under way: %w", a.c.Name, err)
		}
		items = append(items, item)
		return nil
	}
	for e := a.queue.head; e != nil; e = e.next {
		if e.isMark {
			continue
		}
		if err := add(&e.in, e.time); err != nil {
			return nil, err
		}
	}
	if a.rest != nil {
		for n := a.from; n < a.rest.Len(); n++ {
			i := a.row(n)
			if err := add(&a.rest.Rows[i], a.rest.Time(i)); err != nil {
				return nil, err
			}
		}
	}
	return map[string][][]byte{CallsState: items}, nil
}

// Close ends the calls that are under way.
func (a *asyncOp[T, U]) Close() error {
	if a.cancel != nil {
		a.cancel()
	}
	a.wg.Wait()
	if a.rest != nil {
		a.rest.Release()
		a.rest = nil
	}
	if a.col != nil {
		a.col.drop()
	}
	return nil
}
