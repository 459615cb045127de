package exchange

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// Out is the sending end of a channel. The goroutine of the sending subtask alone calls it.
type Out interface {
	// Send moves b, and with it its ownership, behind everything sent before, and waits for room
	// when the channel is full. After an error the channel is dead; b is released all the same.
	Send(b record.Any) error
	// Control puts c behind everything sent before. It never waits for room.
	Control(c record.Control) error
	// Close gives up the sending end. It does not say that the channel ended well: that is what
	// the Close control is for, and without one the receiver's gate breaks. What was sent before
	// is still delivered. It is idempotent.
	Close()
}

// Dialer opens channels to gates in other processes.
type Dialer interface {
	// Dial opens channel ch of run at the worker that listens on addr. The receiver has
	// registered the port before anybody dials. Everything that Out does ends when ctx is done;
	// that counts as giving up the sending end. Any goroutine may call Dial, which waits until the
	// receiver has accepted or refused the channel, for a bounded time.
	Dial(ctx context.Context, addr string, run job.Run, ch job.Channel, frames record.Frames) (Out, error)
}

// ErrClosed says that the receiving end is gone.
var ErrClosed = errors.New("the receiving end of the channel is closed")

// Waiter is implemented by an Out that measures backpressure.
type Waiter interface {
	// Waited is the total time that Send has waited for room, the wait that is going on included.
	// Any goroutine may call it.
	Waited() time.Duration
}

// Pacer is implemented by an Out that knows how many rows its receiver can deal with in good time.
type Pacer interface {
	// Rows is how many rows the next batch should have at most.
	Rows() int
}

// Sender is implemented by an Out to another process.
type Sender interface {
	// Sent is the number of bytes that were sent. Any goroutine may call it.
	Sent() int64
}

// WaitClock adds up the waits of one goroutine. The zero value is ready.
type WaitClock struct {
	total atomic.Int64
	since atomic.Int64 // Nanoseconds after clockStart, or 0 while nobody waits.
}

var clockStart = time.Now()

// Start begins a wait.
func (c *WaitClock) Start() { c.since.Store(max(1, int64(time.Since(clockStart)))) }

// Stop ends the wait and returns how long it was.
func (c *WaitClock) Stop() time.Duration {
	d := max(0, int64(time.Since(clockStart))-c.since.Load())
	c.total.Add(d)
	c.since.Store(0)
	return time.Duration(d)
}

// Waited is the sum of all waits, the one that is going on included. A caller that races with
// Stop may see one wait twice or not at all for a moment.
func (c *WaitClock) Waited() time.Duration {
	total := c.total.Load()
	if s := c.since.Load(); s != 0 {
		total += max(0, int64(time.Since(clockStart))-s)
	}
	return time.Duration(total)
}
