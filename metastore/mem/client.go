package mem

import (
	"context"
	"fmt"
	"sync"

	"github.com/cairnstream/cairn/metastore"
)

// Client is one process's view of a Cluster.
type Client struct {
	cluster *Cluster
	closed  chan struct{}
	mu      struct {
		sync.Mutex
		closed      bool
		leaderships []*leadership
	}
}

var _ metastore.Store = (*Client)(nil)

// Get implements metastore.Store.
func (c *Client) Get(ctx context.Context, key string) (metastore.Entry, error) {
	return c.get(ctx, nil, key)
}

func (c *Client) get(ctx context.Context, l *leadership, key string) (e metastore.Entry, err error) {
	if err = metastore.CheckKey(key); err == nil {
		err = c.check(ctx)
	}
	if err == nil {
		e, err = c.cluster.get(l, key)
	}
	return e, failed("get", key, err)
}

// List implements metastore.Store.
func (c *Client) List(ctx context.Context, prefix string) (entries []metastore.Entry, err error) {
	if err = c.check(ctx); err == nil {
		entries, err = c.cluster.list(prefix)
	}
	return entries, failed("list", prefix, err)
}

// Leader implements metastore.Store.
func (c *Client) Leader(ctx context.Context, name string) (info metastore.LeaderInfo, err error) {
	if err = metastore.CheckKey(name); err == nil {
		err = c.check(ctx)
	}
	if err == nil {
		info, err = c.cluster.leader(name)
	}
	return info, failed("leader of", name, err)
}

// Elect implements metastore.Store.
func (c *Client) Elect(ctx context.Context, name, id string) (metastore.Leadership, error) {
	if err := metastore.CheckKey(name); err != nil {
		return nil, failed("elect", name, err)
	}
	l := &leadership{client: c, name: name, id: id, lost: make(chan struct{})}
	for {
		if err := c.check(ctx); err != nil {
			return nil, failed("elect", name, err)
		}
		won, changed := c.cluster.lead(l)
		if won {
			break
		}
		select {
		case <-ctx.Done():
		case <-c.closed:
		case <-changed:
		}
	}
	c.mu.Lock()
	closed := c.mu.closed
	c.mu.leaderships = append(c.mu.leaderships, l)
	c.mu.Unlock()
	if closed {
		l.end()
		return nil, failed("elect", name, metastore.ErrClosed)
	}
	return l, nil
}

// Close implements metastore.Store.
func (c *Client) Close() error {
	c.mu.Lock()
	if !c.mu.closed {
		c.mu.closed = true
		close(c.closed)
	}
	leaderships := c.mu.leaderships
	c.mu.Unlock()
	for _, l := range leaderships {
		l.end()
	}
	return nil
}

func (c *Client) check(ctx context.Context) error {
	select {
	case <-c.closed:
		return metastore.ErrClosed
	default:
		return ctx.Err()
	}
}

func failed(op, what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("metadata store: %s %q: %w", op, what, err)
}

type leadership struct {
	client   *Client
	name, id string
	epoch    uint64
	once     sync.Once
	lost     chan struct{}
}

func (l *leadership) Epoch() uint64         { return l.epoch }
func (l *leadership) Lost() <-chan struct{} { return l.lost }

func (l *leadership) Commit(ctx context.Context, txn metastore.Txn) (outcome metastore.Outcome, err error) {
	if err = txn.Validate(); err == nil {
		err = l.client.check(ctx)
	}
	if err == nil {
		outcome, err = l.client.cluster.commit(l, txn)
	}
	return outcome, failed("commit as leader of", l.name, err)
}

func (l *leadership) Get(ctx context.Context, key string) (metastore.Entry, error) {
	return l.client.get(ctx, l, key)
}

func (l *leadership) Resign(context.Context) error {
	l.end()
	return nil
}

func (l *leadership) end() {
	c := l.client.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(l)
}
