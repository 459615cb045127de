package metatest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstream/cairn/metastore"
)

func testElection(t *testing.T, e *env) {
	s, other := e.client(t), e.client(t)
	if l, err := other.Leader(e.ctx, "leader"); !errors.Is(err, metastore.ErrNoLeader) {
		t.Fatalf("leader of nobody: %v, %v", l, err)
	}
	var last uint64
	for i := range 3 {
		id := fmt.Sprintf("host-%d:6123", i)
		l := e.elect(t, s, id)
		if l.Epoch() <= last {
			t.Errorf("epoch %d after %d", l.Epoch(), last)
		}
		last = l.Epoch()
		info, err := other.Leader(e.ctx, "leader")
		if err != nil || info.ID != id || info.Epoch != last {
			t.Errorf("leader: %v, %v", info, err)
		}
		if !open(l.Lost()) {
			t.Error("lost at once")
		}
		for range 2 {
			if err := l.Resign(e.ctx); err != nil {
				t.Errorf("resign: %v", err)
			}
		}
		closed(e.ctx, t, l.Lost())
		if l, err := other.Leader(e.ctx, "leader"); !errors.Is(err, metastore.ErrNoLeader) {
			t.Errorf("leader after resigning: %v, %v", l, err)
		}
	}
	for _, name := range []string{"", "/x"} {
		if _, err := s.Elect(e.ctx, name, "a"); !errors.Is(err, metastore.ErrInvalid) {
			t.Errorf("elect %q: %v", name, err)
		}
	}
}

// testOneLeader has many candidates, of several clients; each leads for a moment.
func testOneLeader(t *testing.T, e *env) {
	clients := []metastore.Store{e.client(t), e.client(t), e.client(t)}
	var leading, epochs atomic.Int64
	var wg sync.WaitGroup
	for i := range 9 {
		wg.Go(func() {
			l, err := clients[i%len(clients)].Elect(e.ctx, "leader", fmt.Sprint(i))
			if err != nil {
				t.Error(err)
				return
			}
			if n := leading.Add(1); n != 1 {
				t.Errorf("%d leaders at once", n)
			}
			if last := epochs.Swap(int64(l.Epoch())); last >= int64(l.Epoch()) {
				t.Errorf("epoch %d after %d", l.Epoch(), last)
			}
			if o, err := l.Commit(e.ctx, put("leader-was", fmt.Sprint(i))); err != nil || o != metastore.Committed {
				t.Errorf("commit: %v, %v", o, err)
			}
			leading.Add(-1)
			if err := l.Resign(e.ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func testIndependent(t *testing.T, e *env) {
	s := e.client(t)
	a := e.elect(t, s, "a")
	b, err := s.Elect(e.ctx, "leader/other", "b")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Resign(e.ctx); err != nil {
		t.Fatal(err)
	}
	e.commit(t, b, put("k", "b"), metastore.Committed)
	e.commit(t, a, put("k", "a"), metastore.NotLeader)
	if info, err := s.Leader(e.ctx, "leader/other"); err != nil || info.ID != "b" {
		t.Errorf("leader: %v, %v", info, err)
	}
	if _, err := s.Leader(e.ctx, "leader"); !errors.Is(err, metastore.ErrNoLeader) {
		t.Errorf("leader: %v", err)
	}
}

// testGuard: what a former leader tries has no effect, whoever leads now.
func testGuard(t *testing.T, e *env) {
	s, other := e.client(t), e.client(t)
	old := e.elect(t, s, "old")
	e.commit(t, old, put("k", "old"), metastore.Committed)
	won := make(chan metastore.Leadership, 1)
	go func() {
		l, err := other.Elect(e.ctx, "leader", "new")
		if err != nil {
			t.Error(err)
		}
		won <- l
	}()
	if err := old.Resign(e.ctx); err != nil {
		t.Fatal(err)
	}
	e.commit(t, old, put("k", "nobody leads"), metastore.NotLeader)
	current := <-won
	if current == nil {
		t.FailNow()
	}
	if current.Epoch() <= old.Epoch() {
		t.Errorf("epoch %d after %d", current.Epoch(), old.Epoch())
	}
	e.commit(t, current, put("k", "new"), metastore.Committed)
	e.commit(t, old, put("k", "late"), metastore.NotLeader)
	// Not even when a condition fails as well: that the leadership is over is what matters.
	e.commit(t, old, when(put("k", "late"), metastore.Absent("k")), metastore.NotLeader)
	if got, err := old.Get(e.ctx, "k"); !errors.Is(err, metastore.ErrNotLeader) {
		t.Errorf("guarded get of a former leader: %v, %v", got, err)
	}
	e.get(t, s, "k", "new")
	// The same candidate again is a new leader, and its former self stays over.
	if err := current.Resign(e.ctx); err != nil {
		t.Fatal(err)
	}
	again := e.elect(t, s, "old")
	e.commit(t, old, put("k", "late"), metastore.NotLeader)
	e.commit(t, again, put("k", "again"), metastore.Committed)
}

func testClose(t *testing.T, e *env) {
	s := e.harness.Client(t)
	l := e.elect(t, s, "a")
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	closed(e.ctx, t, l.Lost())
	if _, err := s.Get(e.ctx, "k"); !errors.Is(err, metastore.ErrClosed) {
		t.Errorf("get after close: %v", err)
	}
	if _, err := s.Elect(e.ctx, "leader", "a"); !errors.Is(err, metastore.ErrClosed) {
		t.Errorf("elect after close: %v", err)
	}
	// Others need not wait for a lease to run out.
	if _, err := e.client(t).Leader(e.ctx, "leader"); !errors.Is(err, metastore.ErrNoLeader) {
		t.Errorf("leader after close: %v", err)
	}
}

func testCancellation(t *testing.T, e *env) {
	s, other := e.client(t), e.client(t)
	l := e.elect(t, s, "a")
	gone, cancel := context.WithCancel(e.ctx)
	cancel()
	if _, err := s.Get(gone, "k"); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "k") {
		t.Errorf("get: %v", err)
	}
	if _, err := s.List(gone, "k"); !errors.Is(err, context.Canceled) {
		t.Errorf("list: %v", err)
	}
	if _, err := s.Leader(gone, "leader"); !errors.Is(err, context.Canceled) {
		t.Errorf("leader: %v", err)
	}
	if o, err := l.Commit(gone, put("k", "")); !errors.Is(err, context.Canceled) {
		t.Errorf("commit: %v, %v", o, err)
	}
	short, cancel := context.WithTimeout(e.ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := other.Elect(short, "leader", "b"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("elect: %v", err)
	}
	// Who gave up does not become leader later.
	if err := l.Resign(e.ctx); err != nil {
		t.Fatal(err)
	}
	if info, err := other.Leader(e.ctx, "leader"); !errors.Is(err, metastore.ErrNoLeader) {
		t.Errorf("leader: %v, %v", info, err)
	}
	// A leadership is not bound to the context of its election.
	won, cancel := context.WithCancel(e.ctx)
	again, err := s.Elect(won, "leader", "a")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	e.commit(t, again, put("k", "1"), metastore.Committed)
}

func testSettle(t *testing.T, e *env) {
	s := e.client(t)
	l := e.elect(t, s, "a")
	if _, err := metastore.Settle(e.ctx, l, put("k", "1")); !errors.Is(err, metastore.ErrInvalid) {
		t.Errorf("settle without a witness: %v", err)
	}
	txn := when(put("checkpoint/1", "epoch 7", "latest", "1"), metastore.Absent("checkpoint/1"))
	for i, want := range []metastore.Outcome{metastore.Committed, metastore.ConditionFailed} {
		if got, err := metastore.Settle(e.ctx, l, txn); err != nil || got != want {
			t.Errorf("settle %d: %v, %v", i, got, err)
		}
	}
	if err := l.Resign(e.ctx); err != nil {
		t.Fatal(err)
	}
	if got, err := metastore.Settle(e.ctx, l, txn); err != nil || got != metastore.NotLeader {
		t.Errorf("settle by a former leader: %v, %v", got, err)
	}
}
