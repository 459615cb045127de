package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/cairnstream/cairn/metastore"
)

const (
	// campaignPause is the time between two tries while etcd does not answer.
	campaignPause = 250 * time.Millisecond
	// watchAtMost is how long a candidate relies on being told that the leader has gone before it looks for itself.
	watchAtMost = 10 * time.Second
)

// Elect implements metastore.Store.
func (s *Store) Elect(ctx context.Context, name, id string) (metastore.Leadership, error) {
	if err := metastore.CheckKey(name); err != nil {
		return nil, failed("elect", name, err)
	}
	c := &candidate{store: s, name: name, key: s.electionKey(name), id: id}
	l, err := c.campaign(ctx)
	if err != nil {
		return nil, failed("elect", name, err)
	}
	return l, nil
}

// candidate stands for one election. It takes a lease only when there is something to win.
type candidate struct {
	store         *Store
	name, key, id string
	lease         clientv3.LeaseID
}

func (c *candidate) campaign(ctx context.Context) (*leadership, error) {
	defer c.giveUp()
	for {
		if err := c.store.check(ctx); err != nil {
			return nil, err
		}
		epoch, held, err := c.try(ctx)
		switch {
		case epoch > 0:
			return c.win(epoch)
		case err == nil:
			c.giveUp()
			c.await(ctx, held)
			continue
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			c.lease = 0 // it ran out before it was used
			continue
		case isRefusal(err):
			return nil, err
		}
		c.store.config.Logger.Debug("etcd does not answer the candidate", zap.String("election", c.name), zap.Error(err))
		select {
		case <-ctx.Done():
		case <-c.store.closed:
		case <-time.After(campaignPause):
		}
	}
}

// try puts the election's key if nobody has. It gives the epoch if this candidate leads, else the revision at which
// somebody else was seen to. After an error it may be repeated: a key with the own lease is a success of before.
func (c *candidate) try(ctx context.Context) (epoch, held int64, err error) {
	var resp *clientv3.GetResponse
	err = c.store.ask(ctx, func(ctx context.Context) (err error) {
		resp, err = c.store.client.Get(ctx, c.key)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	if len(resp.Kvs) > 0 {
		return c.mine(resp.Kvs[0].Lease, resp.Kvs[0].CreateRevision), resp.Header.Revision, nil
	}
	if c.lease == 0 {
		err = c.store.change(ctx, func(ctx context.Context) error {
			resp, err := c.store.client.Grant(ctx, int64(c.store.config.LeaseTTL/time.Second))
			if err == nil {
				c.lease = resp.ID
			}
			return err
		})
		if err != nil {
			return 0, 0, err
		}
	}
	var txn *clientv3.TxnResponse
	err = c.store.change(ctx, func(ctx context.Context) (err error) {
		txn, err = c.store.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(c.key), "=", 0)).
			Then(clientv3.OpPut(c.key, c.id, clientv3.WithLease(c.lease)), clientv3.OpPut(c.store.holderKey(c.name), holder(c.lease))).
			Else(clientv3.OpGet(c.key)).Commit()
		return err
	})
	switch {
	case err != nil:
		return 0, 0, err
	case txn.Succeeded:
		return txn.Header.Revision, 0, nil
	}
	kv := txn.Responses[0].GetResponseRange().Kvs[0]
	return c.mine(kv.Lease, kv.CreateRevision), txn.Header.Revision, nil
}

// mine is the epoch if the election's key has this candidate's lease.
func (c *candidate) mine(lease, createRevision int64) int64 {
	if c.lease != 0 && lease == int64(c.lease) {
		return createRevision
	}
	return 0
}

// await returns when the key, seen at that revision, may have been deleted.
func (c *candidate) await(ctx context.Context, revision int64) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), watchAtMost)
	defer cancel()
	events := c.store.client.Watch(ctx, c.key, clientv3.WithRev(revision+1), clientv3.WithFilterPut())
	for {
		select {
		case <-c.store.closed:
			return
		case resp, ok := <-events:
			if ok && resp.Err() == nil && len(resp.Events) == 0 {
				continue // the watch was made, or has progressed
			}
			if !ok || resp.Err() != nil {
				select {
				case <-ctx.Done():
				case <-c.store.closed:
				case <-time.After(campaignPause):
				}
			}
			return
		}
	}
}

// win turns the candidate into a leader. The lease is the leadership's from here on.
func (c *candidate) win(epoch int64) (*leadership, error) {
	l := &leadership{
		store: c.store, name: c.name, key: c.key, id: c.id, holder: holder(c.lease), epoch: epoch,
		lost: make(chan struct{}), done: make(chan struct{}), doubt: make(chan struct{}, 1),
	}
	l.mu.term = term{c.lease, epoch, make(chan struct{})}
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if c.store.mu.closed {
		return nil, metastore.ErrClosed
	}
	c.lease = 0
	c.store.mu.leaderships[l] = struct{}{}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(context.Background())
	go l.keep(ctx)
	return l, nil
}

// giveUp takes the lease back, so that a key which a lost answer left behind does not lead for nobody. If etcd does
// not answer the lease runs out.
func (c *candidate) giveUp() {
	if c.lease == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(time.Second, c.store.config.RequestTimeout))
	defer cancel()
	if _, err := c.store.client.Revoke(ctx, c.lease); err != nil {
		c.store.config.Logger.Debug("lease of a candidate stays until it runs out", zap.String("election", c.name), zap.Error(err))
	}
	c.lease = 0
}
