package exchange

import (
	"context"
	"errors"

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
	// the Close control is for. It is idempotent.
	Close()
}

// Dialer opens channels to gates in other processes.
type Dialer interface {
	// Dial opens channel ch of run at the worker that listens on addr. The receiver has
	// registered the port before anybody dials. Everything that Out does ends when ctx is done.
	Dial(ctx context.Context, addr string, run job.Run, ch job.Channel, frames record.Frames) (Out, error)
}

// ErrClosed says that the receiving end is gone.
var ErrClosed = errors.New("the receiving end of the channel is closed")
