// Package inproc joins subtasks of one process: batches move from the sender to the receiver's gate
// as they are, without being encoded. It has no goroutine of its own.
package inproc

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/internal/invariant"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// DefaultLimit is how many batches a channel holds: one that the receiver takes next, one that is
// on its way there, and two for the unevenness of two goroutines that take turns on a core. More
// would only make a barrier wait longer behind them.
const DefaultLimit = 4

// Options are the settings of one channel.
type Options struct {
	// Channel names the channel in errors.
	Channel job.Channel
	// Limit bounds the batches that wait in the receiver's gate; 0 means DefaultLimit.
	Limit int
}

type out struct {
	ctx   context.Context
	stop  func() bool // Ends the watch of ctx.
	port  *exchange.Port
	name  job.Channel
	limit int
	over  atomic.Bool // The Close control or Close came, or ctx is done: the gate is settled.
	shut  bool        // Close was called.
	clock exchange.WaitClock
}

// Connect joins the sending end that it returns to port. The end of ctx gives up the sending end.
func Connect(ctx context.Context, port *exchange.Port, opts Options) exchange.Out {
	o := &out{ctx: ctx, port: port, name: opts.Channel, limit: opts.Limit}
	if o.limit <= 0 {
		o.limit = DefaultLimit
	}
	o.stop = context.AfterFunc(ctx, func() { o.giveUp(context.Cause(ctx)) })
	return o
}

func (o *out) Send(b record.Any) error {
	if invariant.Enabled {
		if c, ok := b.(interface{ CheckLive() }); ok {
			c.CheckLive()
		}
	}
	sent, err := o.try(b)
	if !sent && err == nil {
		o.clock.Start()
		for !sent && err == nil {
			select {
			case <-o.port.Room():
			case <-o.ctx.Done():
			}
			sent, err = o.try(b)
		}
		o.clock.Stop()
	}
	if err != nil {
		b.Release()
		return o.wrap(err)
	}
	return nil
}

func (o *out) try(b record.Any) (bool, error) {
	if err := o.dead(); err != nil {
		return false, err
	}
	return o.port.TryBatch(b, o.limit)
}

func (o *out) Control(c record.Control) error {
	if err := o.dead(); err != nil {
		return o.wrap(err)
	}
	if c.Kind == record.Close {
		o.over.Store(true)
	}
	if err := o.port.Control(c); err != nil {
		return o.wrap(err)
	}
	return nil
}

func (o *out) Close() {
	o.shut = true
	o.stop()
	o.giveUp(errors.New("the sender stopped"))
}

// Rows implements exchange.Pacer.
func (o *out) Rows() int { return o.port.Rows() }

// Waited implements exchange.Waiter.
func (o *out) Waited() time.Duration { return o.clock.Waited() }

// dead says why nothing can be sent any more.
func (o *out) dead() error {
	if o.shut {
		return errors.New("the sending end is closed")
	}
	if o.ctx.Err() != nil {
		return context.Cause(o.ctx)
	}
	return nil
}

// giveUp breaks the receiver's gate unless the channel has ended well. The cause is told, not
// wrapped: the end of the sender's context is not that of the receiver's.
func (o *out) giveUp(cause error) {
	if o.over.CompareAndSwap(false, true) {
		o.port.Fail(job.Errorf(job.ClassInfrastructure, "channel %v in this process broke before its end: %v", o.name, cause))
	}
}

func (o *out) wrap(err error) error { return fmt.Errorf("channel %v: %w", o.name, err) }
