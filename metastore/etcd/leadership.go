package etcd

import (
	"context"
	"errors"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cairnstream/cairn/metastore"
)

// leadership is held as long as the election's key has the create revision of its present term.
type leadership struct {
	store     *Store
	name, key string
	id        string // Of the candidate.
	holder    string // What marks the leadership in etcd.
	epoch     int64
	stop      context.CancelFunc // ends keep
	done      chan struct{}      // keep has ended
	doubt     chan struct{}      // Tells keep to look whether the leadership holds.
	once      sync.Once
	lost      chan struct{}
	mu        struct {
		sync.Mutex
		term term
	}
}

func (l *leadership) Epoch() uint64         { return uint64(l.epoch) }
func (l *leadership) Lost() <-chan struct{} { return l.lost }

// end makes it known that the leadership is over.
func (l *leadership) end() {
	l.once.Do(func() {
		close(l.lost)
		l.stop()
		l.store.mu.Lock()
		defer l.store.mu.Unlock()
		delete(l.store.mu.leaderships, l)
	})
}

func (l *leadership) over() bool {
	select {
	case <-l.lost:
		return true
	default:
		return false
	}
}

func (l *leadership) guard(t term) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(l.key), "=", t.revision)
}

// Commit implements metastore.Leadership.
func (l *leadership) Commit(ctx context.Context, txn metastore.Txn) (metastore.Outcome, error) {
	if err := txn.Validate(); err != nil {
		return 0, failed("commit as leader of", l.name, err)
	}
	for {
		outcome, under, err := l.commit(ctx, txn)
		if outcome != metastore.NotLeader || err != nil || l.over() {
			return outcome, err
		}
		// It has had no effect.
		if again, err := l.refused(ctx, under); err != nil {
			return 0, failed("commit as leader of", l.name, err)
		} else if !again {
			return metastore.NotLeader, nil
		}
	}
}

func (l *leadership) commit(ctx context.Context, txn metastore.Txn) (metastore.Outcome, term, error) {
	under := l.current()
	if l.over() {
		return metastore.NotLeader, under, nil
	}
	conditions := []clientv3.Cmp{l.guard(under)}
	for _, c := range txn.Conditions {
		conditions = append(conditions, l.condition(c))
	}
	var changes []clientv3.Op
	for _, key := range txn.Deletes {
		changes = append(changes, clientv3.OpDelete(l.store.dataKey(key)))
	}
	for _, prefix := range txn.DeletePrefixes {
		changes = append(changes, clientv3.OpDelete(l.store.dataKey(prefix), clientv3.WithPrefix()))
	}
	for _, p := range txn.Puts {
		changes = append(changes, clientv3.OpPut(l.store.dataKey(p.Key), string(p.Value)))
	}
	var resp *clientv3.TxnResponse
	err := l.store.change(ctx, func(ctx context.Context) (err error) {
		// What failed is asked for in the same moment.
		resp, err = l.store.client.Txn(ctx).If(conditions...).Then(changes...).Else(clientv3.OpGet(l.key)).Commit()
		return err
	})
	switch {
	case err != nil:
		return 0, under, failed("commit as leader of", l.name, err)
	case resp.Succeeded:
		return metastore.Committed, under, nil
	case !holds(resp, under):
		return metastore.NotLeader, under, nil
	}
	return metastore.ConditionFailed, under, nil
}

// holds tells whether the answer to OpGet of the election's key, which is the first of resp, shows this term.
func holds(resp *clientv3.TxnResponse, t term) bool {
	kvs := resp.Responses[0].GetResponseRange().Kvs
	return len(kvs) == 1 && kvs[0].CreateRevision == t.revision
}

func (l *leadership) condition(c metastore.Condition) clientv3.Cmp {
	key := l.store.dataKey(c.Key)
	switch c.Revision {
	case metastore.AnyRevision:
		return clientv3.Compare(clientv3.CreateRevision(key), ">", 0)
	case 0:
		return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	}
	return clientv3.Compare(clientv3.ModRevision(key), "=", c.Revision)
}

// Get implements metastore.Leadership.
func (l *leadership) Get(ctx context.Context, key string) (metastore.Entry, error) {
	e, err := l.get(ctx, key)
	return e, failed("get as leader", key, err)
}

func (l *leadership) get(ctx context.Context, key string) (metastore.Entry, error) {
	if err := metastore.CheckKey(key); err != nil {
		return metastore.Entry{}, err
	}
	var resp *clientv3.TxnResponse
	for {
		if l.over() {
			return metastore.Entry{}, metastore.ErrNotLeader
		}
		under := l.current()
		err := l.store.ask(ctx, func(ctx context.Context) (err error) {
			resp, err = l.store.client.Txn(ctx).If(l.guard(under)).Then(clientv3.OpGet(l.store.dataKey(key))).Commit()
			return err
		})
		if err != nil {
			return metastore.Entry{}, err
		}
		if resp.Succeeded {
			break
		}
		if again, err := l.refused(ctx, under); err != nil {
			return metastore.Entry{}, err
		} else if !again {
			return metastore.Entry{}, metastore.ErrNotLeader
		}
	}
	kvs := resp.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return metastore.Entry{}, metastore.ErrNotFound
	}
	return metastore.Entry{Key: key, Value: kvs[0].Value, CreateRevision: kvs[0].CreateRevision, ModRevision: kvs[0].ModRevision}, nil
}

// Resign implements metastore.Leadership. The lease goes, and the election's key with it.
func (l *leadership) Resign(ctx context.Context) error {
	if l.over() {
		<-l.done
		return nil
	}
	l.end()
	<-l.done
	limited, cancel := context.WithTimeout(ctx, l.store.config.RequestTimeout)
	defer cancel()
	_, err := l.store.client.Revoke(limited, l.current().lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		err = nil // it had run out
	}
	return failed("resign as leader of", l.name, err)
}
