package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/cairnstream/cairn/metastore"
)

// term is a stretch of a leadership under one lease. While etcd is away the lease may run out and the election's key go
// with it; if nobody led since, the leadership goes on with a new lease and a new key, and its epoch stays.
type term struct {
	lease    clientv3.LeaseID
	revision int64         // The create revision of the election's key: what guards every write.
	over     chan struct{} // Closed when another term has begun.
}

// holder marks a leadership: leases are unique within an etcd.
func holder(first clientv3.LeaseID) string { return strconv.FormatInt(int64(first), 16) }

// A key that was put again says which epoch it stands for, behind the address.
const epochMark = "\nepoch "

func leaderInfo(kv *mvccpb.KeyValue) metastore.LeaderInfo {
	id, text, again := strings.Cut(string(kv.Value), epochMark)
	info := metastore.LeaderInfo{ID: id, Epoch: uint64(kv.CreateRevision)}
	if again {
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			info.Epoch = n
		}
	}
	return info
}

func (l *leadership) current() term {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.term
}

// begin starts a term.
func (l *leadership) begin(lease clientv3.LeaseID, revision int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.mu.term.over)
	l.mu.term = term{lease, revision, make(chan struct{})}
}

// keep renews the lease until the leadership is over.
func (l *leadership) keep(ctx context.Context) {
	defer close(l.done)
	for {
		l.renew(ctx)
		if ctx.Err() != nil {
			break
		}
		why := l.regain(ctx)
		if why == nil {
			continue
		}
		if ctx.Err() == nil {
			l.store.config.Logger.Warn("leadership is lost", zap.String("election", l.name), zap.Int64("epoch", l.epoch), zap.Error(why))
		}
		break
	}
	l.end()
}

// renew returns when the lease is not renewed any more, or when a write was refused. The client renews at a third of the
// TTL, and gives up when a TTL has passed without an answer.
func (l *leadership) renew(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	renewals, err := l.store.client.KeepAlive(ctx, l.current().lease)
	if err != nil {
		return
	}
	for {
		select {
		case _, ok := <-renewals: // Each is one renewal; the channel is closed at the end.
			if !ok {
				return
			}
		case <-l.doubt:
			return
		}
	}
}

var (
	errReplaced  = errors.New("another one leads, or did")
	errPatience  = errors.New("etcd does not answer")
	errStillAway = errors.New("not known yet")
)

// regain finds out whether the leadership still holds, and takes it again if nobody else has had it. It returns nil when it
// holds. What etcd does not answer is asked again until the patience is over.
func (l *leadership) regain(ctx context.Context) error {
	began, told := time.Now(), false
	var fresh clientv3.LeaseID // For the next term.
	for {
		err := l.try(ctx, &fresh)
		switch {
		case err == nil:
			if told {
				l.store.config.Logger.Info("the metadata store answers again; the leadership goes on", zap.String("election", l.name),
					zap.Int64("epoch", l.epoch), zap.Duration("away", time.Since(began)))
			}
			return nil
		case errors.Is(err, errReplaced) || isRefusal(err):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Since(began) > l.store.config.Patience:
			return fmt.Errorf("%w: %w", errPatience, err)
		}
		if !told {
			told = true
			l.store.config.Logger.Warn("the metadata store is away; this leader goes on as long as nobody else leads",
				zap.String("election", l.name), zap.Int64("epoch", l.epoch), zap.Duration("patience", l.store.config.Patience), zap.Error(err))
		}
		select {
		case <-ctx.Done():
		case <-l.store.closed:
			return metastore.ErrClosed
		case <-time.After(campaignPause):
		}
	}
}

// try asks once. fresh is a lease that was granted by an earlier try, and may be that of the key already.
func (l *leadership) try(ctx context.Context, fresh *clientv3.LeaseID) error {
	now := l.current()
	var seen *clientv3.TxnResponse
	err := l.store.ask(ctx, func(ctx context.Context) (err error) {
		seen, err = l.store.client.Txn(ctx).Then(clientv3.OpGet(l.key), clientv3.OpGet(l.store.holderKey(l.name))).Commit()
		return err
	})
	if err != nil {
		return err
	}
	if kvs := seen.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		switch kv := kvs[0]; {
		case *fresh != 0 && kv.Lease == int64(*fresh):
			l.begin(*fresh, kv.CreateRevision) // The answer of an earlier try was lost.
		case kv.CreateRevision != now.revision:
			return errReplaced
		}
		err := l.store.ask(ctx, func(ctx context.Context) error {
			_, err := l.store.client.KeepAliveOnce(ctx, l.current().lease)
			return err
		})
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return errStillAway // It has just run out; the key goes with it.
		}
		return err
	}
	if kvs := seen.Responses[1].GetResponseRange().Kvs; len(kvs) == 0 || string(kvs[0].Value) != l.holder {
		return errReplaced
	}
	return l.takeAgain(ctx, fresh)
}

// takeAgain puts the key with a new lease, if it is nobody's and was nobody else's.
func (l *leadership) takeAgain(ctx context.Context, fresh *clientv3.LeaseID) error {
	if *fresh == 0 {
		err := l.store.change(ctx, func(ctx context.Context) error {
			resp, err := l.store.client.Grant(ctx, int64(l.store.config.LeaseTTL/time.Second))
			if err == nil {
				*fresh = resp.ID
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	value := l.id + epochMark + strconv.FormatInt(l.epoch, 10)
	var txn *clientv3.TxnResponse
	err := l.store.change(ctx, func(ctx context.Context) (err error) {
		txn, err = l.store.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(l.key), "=", 0), clientv3.Compare(clientv3.Value(l.store.holderKey(l.name)), "=", l.holder)).
			Then(clientv3.OpPut(l.key, value, clientv3.WithLease(*fresh))).Commit()
		return err
	})
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		*fresh = 0 // It ran out before it was used.
		return errStillAway
	case err != nil:
		return err
	case !txn.Succeeded:
		return errStillAway // Look again.
	}
	l.begin(*fresh, txn.Header.Revision)
	return nil
}

// refused tells what a write under a guard that did not hold means: true when there is a new term to try it again in,
// false when the leadership is over. It waits for that to be known.
func (l *leadership) refused(ctx context.Context, under term) (again bool, err error) {
	if l.current().revision != under.revision {
		return true, nil
	}
	select {
	case l.doubt <- struct{}{}:
	default:
	}
	limited, cancel := context.WithTimeout(ctx, l.store.config.RequestTimeout)
	defer cancel()
	select {
	case <-under.over:
		return true, nil
	case <-l.lost:
		return false, nil
	case <-limited.Done():
		return false, fmt.Errorf("%w: the lease ran out, and it is not known who leads: %w", metastore.ErrUnavailable, limited.Err())
	}
}
