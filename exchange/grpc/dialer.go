package grpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	ggrpc "google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// Dialer opens channels to other processes. It keeps one connection per address and one link per
// run and address, for as long as a channel uses them; it is safe for concurrent use.
type Dialer struct {
	opts  Options
	shard func(job.Channel) job.Channel // Which channels share a link; benchmarks vary it.
	wg    sync.WaitGroup                // The goroutines of links.

	mu struct {
		sync.Mutex
		conns  map[string]*conn
		links  map[linkKey]*link
		closed bool
	}
}

var _ exchange.Dialer = (*Dialer)(nil)

type linkKey struct {
	addr  string
	run   job.Run
	shard job.Channel
}

// conn is a connection that links share.
type conn struct {
	*ggrpc.ClientConn
	users int
}

// NewDialer makes a dialer. The error lists what is wrong with opts.
func NewDialer(opts Options) (*Dialer, error) {
	opts = opts.WithDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	d := &Dialer{opts: opts, shard: func(job.Channel) job.Channel { return job.Channel{} }}
	d.mu.conns = map[string]*conn{}
	d.mu.links = map[linkKey]*link{}
	return d, nil
}

// Dial implements exchange.Dialer.
func (d *Dialer) Dial(ctx context.Context, addr string, run job.Run, ch job.Channel, frames record.Frames) (exchange.Out, error) {
	o := &out{
		ctx: ctx, dialer: d, addr: addr, run: run, ch: ch, frames: frames,
		room: make(chan struct{}, 1), dead: make(chan struct{}),
	}
	o.rows.Store(fullPace)
	if err := ctx.Err(); err != nil {
		return nil, o.wrap(context.Cause(ctx))
	}
	l, err := d.acquire(linkKey{addr, run, d.shard(ch)})
	if err != nil {
		return nil, o.wrap(err)
	}
	o.link = l
	l.open(o)
	timeout := time.NewTimer(d.opts.DialTimeout)
	defer timeout.Stop()
	select {
	case <-o.room: // Accepted, with the first credit.
	case <-o.dead:
	case <-ctx.Done():
		o.fail(o.wrap(context.Cause(ctx)))
	case <-timeout.C:
		o.fail(job.Errorf(job.ClassInfrastructure, "%w", o.wrap(fmt.Errorf("no answer within %v", d.opts.DialTimeout))))
	}
	if err := o.failure(); err != nil {
		o.leave("the sender gave up dialing")
		return nil, err
	}
	o.stop = context.AfterFunc(ctx, func() {
		o.fail(o.wrap(context.Cause(ctx)))
		o.leave(context.Cause(ctx).Error())
	})
	return o, nil
}

// Close ends all channels that are still open, as broken, and waits until what closed channels
// had sent is written, or their links are found to be lost. Dial fails from now on.
func (d *Dialer) Close() {
	d.mu.Lock()
	d.mu.closed = true
	var links []*link
	for _, l := range d.mu.links {
		links = append(links, l)
	}
	d.mu.Unlock()
	for _, l := range links {
		l.stop(errors.New("this process is shutting down"))
	}
	d.wg.Wait()
}

// acquire finds or starts the link of a key and counts one more user of it.
func (d *Dialer) acquire(key linkKey) (*link, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.closed {
		return nil, errors.New("the dialer is closed")
	}
	l := d.mu.links[key]
	if l == nil {
		l = newLink(d, key)
		d.mu.links[key] = l
		d.wg.Add(1)
		go l.run()
	}
	l.users++
	return l, nil
}

// release counts one user less; a link without users ends when its queue is written.
func (d *Dialer) release(l *link) {
	d.mu.Lock()
	l.users--
	last := l.users == 0
	if last && d.mu.links[l.key] == l {
		delete(d.mu.links, l.key)
	}
	d.mu.Unlock()
	if last {
		l.finish()
	}
}

// forget lets nobody join l any more.
func (d *Dialer) forget(l *link) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.links[l.key] == l {
		delete(d.mu.links, l.key)
	}
}

func (d *Dialer) connect(addr string) (*conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.mu.conns[addr]; c != nil {
		c.users++
		return c, nil
	}
	creds := d.opts.Credentials
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	dial := net.Dialer{Timeout: d.opts.DialTimeout}
	cc, err := ggrpc.NewClient("passthrough:///"+addr,
		ggrpc.WithTransportCredentials(creds),
		ggrpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return dial.DialContext(ctx, "tcp", addr)
		}),
		ggrpc.WithDisableRetry(), // A retry would send frames twice.
		ggrpc.WithIdleTimeout(0),
		ggrpc.WithInitialWindowSize(streamWindow),
		ggrpc.WithInitialConnWindowSize(connWindow),
		ggrpc.WithReadBufferSize(socketBuffer),
		ggrpc.WithWriteBufferSize(socketBuffer),
	)
	if err != nil {
		return nil, err
	}
	c := &conn{ClientConn: cc, users: 1}
	d.mu.conns[addr] = c
	return c, nil
}

func (d *Dialer) disconnect(addr string, c *conn) {
	d.mu.Lock()
	c.users--
	last := c.users == 0
	if last {
		delete(d.mu.conns, addr)
	}
	d.mu.Unlock()
	if last {
		_ = c.Close() // Only says that it is closed already.
	}
}
