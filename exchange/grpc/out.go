package grpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// out is the sending end of a channel.
type out struct {
	dialer *Dialer
	link   *link
	number uint32 // Within the link.
	ctx    context.Context
	stop   func() bool // Ends the watch of ctx.
	addr   string
	run    job.Run
	ch     job.Channel
	frames record.Frames
	hint   int // Expected size of the next frame.

	credit atomic.Int64  // May be below zero: the last frame may exceed the window.
	under  atomic.Int64  // Frames under way.
	rows   atomic.Int64  // The receiver's pace.
	room   chan struct{} // Credit came.
	dead   chan struct{} // Closed when err is set.
	once   sync.Once
	err    error
	left   atomic.Bool // The channel was given up; see leave.
	clock  exchange.WaitClock
	sent   atomic.Int64
}

func (o *out) Send(b record.Any) error {
	if err := o.failure(); err != nil {
		b.Release()
		return err
	}
	buf := buffers.Get(o.hint)
	frame, err := o.frames.Append((*buf)[:0], b)
	b.Release()
	*buf = frame
	if err != nil {
		buffers.Put(buf)
		err = o.wrap(err)
		o.fail(err)
		return err
	}
	if limit := o.dialer.opts.MaxFrame; len(frame) > limit {
		size := len(frame)
		buffers.Put(buf)
		err := job.Errorf(job.ClassRecord, "%w", o.wrap(fmt.Errorf("a batch takes %d bytes: the limit of a frame (max-frame) is %d", size, limit)))
		o.fail(err)
		return err
	}
	// Frames of one channel are about equal; a margin saves growing the buffer.
	o.hint = max(o.hint-o.hint/16, len(frame)+len(frame)/16)
	if err := o.reserve(frameCost(len(frame))); err != nil {
		buffers.Put(buf)
		return err
	}
	o.under.Add(1)
	n := len(frame) // The writer owns the buffer from here on.
	if err := o.link.enqueue(item{kind: entryFrame, number: o.number, frame: buf}); err != nil {
		return o.lost(err)
	}
	o.dialer.opts.Metrics.sent.Inc()
	o.dialer.opts.Metrics.sentBytes.Add(float64(n))
	o.sent.Add(int64(n))
	return nil
}

// reserve takes cost from the credit; it waits until there is any.
func (o *out) reserve(cost int64) error {
	if o.full() {
		o.clock.Start()
		err := o.await()
		o.dialer.opts.Metrics.creditWait.Add(o.clock.Stop().Seconds())
		if err != nil {
			return err
		}
	}
	o.credit.Add(-cost)
	return nil
}

// full tells whether nothing may be sent.
func (o *out) full() bool {
	return o.credit.Load() <= 0 || o.rows.Load() < slowPace && o.under.Load() >= slowFrames
}

func (o *out) await() error {
	for o.full() {
		select {
		case <-o.room:
		case <-o.dead:
			return o.failure()
		case <-o.ctx.Done():
			return o.wrap(context.Cause(o.ctx))
		}
	}
	return nil
}

// grant adds to the credit: frames that were under way have been taken.
func (o *out) grant(n, frames int64) {
	o.credit.Add(n)
	o.under.Add(-frames)
	o.signal()
}

// pace is what the receiver says of the size of batches.
func (o *out) pace(rows int64) {
	if o.rows.Swap(rows) < slowPace {
		o.signal() // It may be full no longer.
	}
}

func (o *out) signal() {
	select {
	case o.room <- struct{}{}:
	default:
	}
}

func (o *out) Control(c record.Control) error {
	if err := o.failure(); err != nil {
		return err
	}
	if err := o.link.enqueue(item{kind: entryControl, number: o.number, control: c}); err != nil {
		return o.lost(err)
	}
	return nil
}

func (o *out) Close() {
	o.stop()
	o.fail(o.wrap(errors.New("the sending end is closed")))
	o.leave("the sender stopped")
}

// leave tells the receiver that nothing more comes on the channel, behind what was sent before, and
// lets go of the link. The receiver knows whether the channel had ended before that.
func (o *out) leave(why string) {
	if !o.left.CompareAndSwap(false, true) {
		return
	}
	o.link.drop(o.number)
	_ = o.link.enqueue(item{kind: entryClose, number: o.number, text: why}) // A link that is over has said so to the receiver.
	o.dialer.release(o.link)
}

// Rows implements exchange.Pacer.
func (o *out) Rows() int { return int(o.rows.Load()) }

// Sent implements exchange.Sender.
func (o *out) Sent() int64 { return o.sent.Load() }

// Waited implements exchange.Waiter.
func (o *out) Waited() time.Duration { return o.clock.Waited() }

// fail makes err the answer to everything from now on. The first one stays.
func (o *out) fail(err error) {
	o.once.Do(func() {
		o.err = err
		close(o.dead)
	})
}

// failure is the error of fail, or the end of the context.
func (o *out) failure() error {
	select {
	case <-o.dead:
		return o.err
	default:
	}
	if o.ctx.Err() != nil {
		return o.wrap(context.Cause(o.ctx))
	}
	return nil
}

// lost is the failure of a channel whose link is over because of err.
func (o *out) lost(err error) error {
	o.fail(o.broken(err))
	return o.err
}

// broken is the error of a channel that a fault of the connection or the peer ended.
func (o *out) broken(err error) error {
	return job.Errorf(job.ClassInfrastructure, "%w", o.wrap(err))
}

func (o *out) wrap(err error) error {
	return fmt.Errorf("channel %v of job %s attempt %d to %s: %w", o.ch, o.run.Job, o.run.Attempt, o.addr, err)
}
