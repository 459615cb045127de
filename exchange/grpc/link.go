package grpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	ggrpc "google.golang.org/grpc"

	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/job"
)

// link is the sending side of the stream that the channels of one run to one process share.
type link struct {
	dialer *Dialer
	key    linkKey
	users  int // Channels that hold the link; guarded by dialer.mu.
	ctx    context.Context
	cancel context.CancelCauseFunc
	wake   chan struct{} // The writer has something to do.
	silent atomic.Int32  // Beats that passed since something was heard.

	mu struct {
		sync.Mutex
		queue    []item
		outs     map[uint32]*out
		number   uint32 // The newest channel.
		finished bool   // No channel is left: end when queue is written.
		err      error  // Why the link is over.
	}
}

func newLink(d *Dialer, key linkKey) *link {
	l := &link{dialer: d, key: key, wake: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.mu.outs = map[uint32]*out{}
	return l
}

// run is the life of the link; it is over when run returns.
func (l *link) run() {
	defer l.dialer.wg.Done()
	err := l.serve()
	l.cancel(err)
	l.dialer.forget(l)

	l.mu.Lock()
	l.mu.err = err
	if err == nil {
		l.mu.err = errors.New("the link has ended")
	}
	queue, outs := l.mu.queue, l.mu.outs
	l.mu.queue, l.mu.outs = nil, nil
	l.mu.Unlock()
	for i := range queue {
		queue[i].release()
	}
	for _, o := range outs {
		o.fail(o.broken(l.mu.err))
	}
}

// serve opens the stream and moves entries until it ends. It returns nil when all channels had been
// given up before and the receiver has everything.
func (l *link) serve() error {
	c, err := l.dialer.connect(l.key.addr)
	if err != nil {
		return err
	}
	defer l.dialer.disconnect(l.key.addr, c)

	opts := &l.dialer.opts
	late := time.AfterFunc(opts.DialTimeout, func() {
		l.cancel(fmt.Errorf("no connection within %v", opts.DialTimeout))
	})
	stream, err := c.NewStream(linkContext(l.ctx, l.key.run, opts.Self), &linkDesc, linkMethod,
		ggrpc.CallContentSubtype(codecName), ggrpc.MaxCallRecvMsgSize(2*maxMessage))
	if !late.Stop() && err == nil {
		err = context.Cause(l.ctx)
	}
	if err != nil {
		return l.cause(err)
	}
	time.AfterFunc(opts.Beat, l.watch)

	written := make(chan struct{})
	go func() {
		defer close(written)
		l.write(stream)
	}()
	err = l.read(stream)
	l.cancel(err) // Of use to the writer only.
	<-written
	return err
}

// watch ends the link when nothing was heard for too long. It counts its own ticks and asks no
// clock: a process that was stopped for a while has missed one tick, not all that the clock went on
// by, and gets to read what has come meanwhile.
func (l *link) watch() {
	if l.ctx.Err() != nil {
		return
	}
	opts := &l.dialer.opts
	if int(l.silent.Add(1)) > opts.MaxMissed {
		l.cancel(fmt.Errorf("no sign of life for %v", time.Duration(opts.MaxMissed)*opts.Beat))
		return
	}
	time.AfterFunc(opts.Beat, l.watch)
}

// open queues the request to open o.
func (l *link) open(o *out) {
	l.mu.Lock()
	if l.mu.err != nil {
		err := l.mu.err
		l.mu.Unlock()
		o.fail(o.broken(err))
		return
	}
	l.mu.number++
	o.number = l.mu.number
	l.mu.outs[o.number] = o
	l.mu.queue = append(l.mu.queue, item{kind: entryOpen, number: o.number, channel: o.ch})
	l.mu.Unlock()
	l.signal()
}

// enqueue puts it behind everything queued before. It fails when the link is over.
func (l *link) enqueue(it item) error {
	l.mu.Lock()
	if l.mu.err != nil {
		err := l.mu.err
		l.mu.Unlock()
		it.release()
		return err
	}
	l.mu.queue = append(l.mu.queue, it)
	l.mu.Unlock()
	l.signal()
	return nil
}

// drop forgets a channel; nothing that comes for it is of interest.
func (l *link) drop(number uint32) {
	l.mu.Lock()
	delete(l.mu.outs, number)
	l.mu.Unlock()
}

// finish ends the link when all that is queued is written.
func (l *link) finish() {
	l.mu.Lock()
	l.mu.finished = true
	l.mu.Unlock()
	l.signal()
}

// stop ends the link now if channels use it.
func (l *link) stop(cause error) {
	l.mu.Lock()
	finished := l.mu.finished
	l.mu.Unlock()
	if !finished {
		l.cancel(cause)
	}
}

func (l *link) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// keepItems bounds the memory that the queue of an idle link keeps.
const keepItems = 256

// write sends what is queued, in order, until the link ends. A message takes all that is there, so
// that the control events of many channels share one.
func (l *link) write(stream ggrpc.ClientStream) {
	var spare []item
	var m message
	for {
		l.mu.Lock()
		items, finished := l.mu.queue, l.mu.finished
		l.mu.queue = spare[:0]
		l.mu.Unlock()
		if len(items) == 0 {
			spare = items
			if finished {
				_ = stream.CloseSend() // The reader learns of every failure.
				return
			}
			select {
			case <-l.wake:
			case <-l.ctx.Done():
				return
			}
			continue
		}
		ok := l.writeItems(stream, &m, items)
		clear(items)
		if spare = items; cap(spare) > keepItems {
			spare = nil
		}
		if !ok {
			return
		}
	}
}

// writeItems sends items and gives back what they hold; after a failure the reader knows why.
func (l *link) writeItems(stream ggrpc.ClientStream, m *message, items []item) bool {
	var err error
	for i := range items {
		for done := false; !done && err == nil; {
			done = m.add(&items[i])
			if m.size >= maxMessage || !done {
				err = stream.SendMsg(&outgoing{m.take()})
			}
		}
		if err != nil {
			for j := range items[i:] {
				items[i+j].release()
			}
			return false
		}
	}
	if m.size > 0 {
		err = stream.SendMsg(&outgoing{m.take()})
	}
	return err == nil
}

// read carries out the replies until the stream ends. It returns nil after a clean end.
func (l *link) read(stream ggrpc.ClientStream) error {
	for {
		var in incoming
		if err := stream.RecvMsg(&in); err != nil {
			if errors.Is(err, io.EOF) {
				l.mu.Lock()
				finished := l.mu.finished
				l.mu.Unlock()
				if finished {
					return nil
				}
				return errors.New("the receiver ended the stream")
			}
			return l.cause(err)
		}
		l.silent.Store(0)
		e := entries{r: in.data.Reader()}
		in.data.Free()
		for e.more() {
			l.reply(&e)
		}
		_ = e.r.Close()
		if e.err != nil {
			return fmt.Errorf("bad reply: %w", e.err)
		}
	}
}

func (l *link) reply(e *entries) {
	kind, number := e.byte(), e.number()
	l.mu.Lock()
	o := l.mu.outs[number]
	l.mu.Unlock()
	switch kind {
	case replyBeat:
	case replyAccept:
		n, rows := e.uvarint(), e.uvarint()
		if o != nil && e.err == nil {
			o.pace(int64(min(rows, fullPace)))
			o.grant(int64(n), 0)
		}
	case replyCredit:
		n, frames := e.uvarint(), e.uvarint()
		if o != nil && e.err == nil {
			o.grant(int64(n), int64(frames))
		}
	case replyPace:
		rows := e.uvarint()
		if o != nil && e.err == nil {
			o.pace(int64(min(rows, fullPace)))
		}
	case replyRefuse:
		text := e.text()
		if o != nil && e.err == nil {
			o.fail(job.Errorf(job.ClassInfrastructure, "%w", o.wrap(fmt.Errorf("refused: %s", text))))
		}
	case replyClosed:
		if o != nil {
			o.fail(o.wrap(exchange.ErrClosed))
		}
	default:
		e.fail("unknown entry %d", kind)
	}
}

// cause is why the stream ended with err: who cancelled the link knows better than gRPC.
func (l *link) cause(err error) error {
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	return reason(err)
}
