package mem_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/cairnstream/cairn/metastore"
	"github.com/cairnstream/cairn/metastore/mem"
	"github.com/cairnstream/cairn/metastore/metatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type harness struct{ cluster *mem.Cluster }

func (h harness) Client(*testing.T) metastore.Store { return h.cluster.Client() }

func TestConformance(t *testing.T) {
	metatest.Run(t, func(*testing.T) metatest.Harness { return harness{mem.NewCluster()} })
}

func elect(t *testing.T, c *mem.Cluster, id string) metastore.Leadership {
	t.Helper()
	l, err := c.Client().Elect(t.Context(), "leader", id)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func lost(l metastore.Leadership) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

func TestDepose(t *testing.T) {
	c := mem.NewCluster()
	if c.Depose("leader") {
		t.Error("nobody was deposed")
	}
	a := elect(t, c, "a")
	if !c.Depose("leader") || !lost(a) {
		t.Error("not deposed")
	}
	b := elect(t, c, "b")
	if !c.DeposeQuietly("leader") || lost(b) {
		t.Error("not deposed quietly")
	}
	elect(t, c, "c")
	if o, err := b.Commit(t.Context(), metastore.Txn{}); err != nil || o != metastore.NotLeader || !lost(b) {
		t.Errorf("commit of a leader that does not know yet: %v, %v", o, err)
	}
}

func TestDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mem.NewCluster()
		l := elect(t, c, "a")
		c.SetDown(true)
		if _, err := l.Commit(t.Context(), metastore.Txn{}); !errors.Is(err, metastore.ErrUnavailable) || lost(l) {
			t.Errorf("commit: %v", err)
		}
		if _, err := c.Client().Get(t.Context(), "k"); !errors.Is(err, metastore.ErrUnavailable) {
			t.Errorf("get: %v", err)
		}
		won := make(chan struct{})
		go func() {
			defer close(won)
			if _, err := c.Client().Elect(t.Context(), "other", "b"); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		c.SetDown(false)
		<-won
		if o, err := l.Commit(t.Context(), metastore.Txn{}); err != nil || o != metastore.Committed {
			t.Errorf("commit: %v, %v", o, err)
		}
	})
}

// Whether the request or its answer is lost, Settle finds out, and the transaction takes effect once.
func TestSettleUnknownOutcomes(t *testing.T) {
	txn := metastore.Txn{
		Conditions: []metastore.Condition{metastore.Absent("checkpoint/7")},
		Puts:       []metastore.Put{{Key: "checkpoint/7", Value: []byte("epoch 3, attempt 1")}},
	}
	for name, tt := range map[string]struct {
		faults []mem.Fault
		other  string // what somebody else put there before
		want   metastore.Outcome
	}{
		"answer lost":              {[]mem.Fault{mem.LostAnswer}, "", metastore.Committed},
		"request lost":             {[]mem.Fault{mem.LostRequest}, "", metastore.Committed},
		"both lost":                {[]mem.Fault{mem.LostRequest, mem.LostAnswer, mem.LostAnswer}, "", metastore.Committed},
		"answer lost, other's key": {[]mem.Fault{mem.LostAnswer}, "another", metastore.ConditionFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := mem.NewCluster()
				l := elect(t, c, "a")
				if tt.other != "" {
					if _, err := l.Commit(t.Context(), metastore.Txn{Puts: []metastore.Put{{Key: "checkpoint/7", Value: []byte(tt.other)}}}); err != nil {
						t.Fatal(err)
					}
				}
				c.FailCommits(tt.faults...)
				if got, err := metastore.Settle(t.Context(), l, txn); err != nil || got != tt.want {
					t.Errorf("got %v, %v, want %v", got, err, tt.want)
				}
			})
		})
	}
}

// What Settle cannot find out, it says so.
func TestSettleStaysOpen(t *testing.T) {
	txn := metastore.Txn{
		Conditions: []metastore.Condition{metastore.Absent("k")},
		Puts:       []metastore.Put{{Key: "k", Value: []byte("v")}},
	}
	synctest.Test(t, func(t *testing.T) {
		c := mem.NewCluster()
		l := elect(t, c, "a")
		c.FailCommits(mem.LostAnswer)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(settleStart, func() { c.Depose("leader") })
		if got, err := metastore.Settle(ctx, l, txn); !errors.Is(err, metastore.ErrOutcomeUnknown) || !errors.Is(err, metastore.ErrNotLeader) {
			t.Errorf("leadership lost before it was known: %v, %v", got, err)
		}
		next := elect(t, c, "b")
		c.SetDown(true)
		if got, err := metastore.Settle(ctx, next, txn); !errors.Is(err, metastore.ErrUnavailable) || errors.Is(err, metastore.ErrOutcomeUnknown) {
			t.Errorf("never asked: %v, %v", got, err)
		}
	})
}

// settleStart is within the first pause of Settle.
const settleStart = 10 * time.Millisecond
