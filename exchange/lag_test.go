package exchange_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/cairnstream/cairn/exchange"
)

// lagGate is a gate whose clock stands until it is moved.
func lagGate(n int) (*exchange.Gate, *time.Time) {
	g := newGate(n)
	now := time.Unix(1000, 0)
	g.SetClock(func() time.Time { return now })
	return g, &now
}

// The port that is behind has several turns for each of the others, which have theirs.
func TestThePortBehindIsServedFirst(t *testing.T) {
	g, _ := lagGate(2)
	put(t, g, 0, 1, 2, 3)
	put(t, g, 1, 1, 2, 3, 4, 5, 6, 7)
	g.Prefer(1)
	got := ""
	for range 8 {
		got += poll(t, g)
	}
	expect(t, got, " 1:1 1:2 1:3 0:1 1:4 1:5 1:6 1:7")
	g.Prefer(-1)
	expect(t, drain(t, g), " 0:2 0:3")
}

// While the port that is behind has nothing the others wait, for a little while, and not again before it brought something.
func TestTheOthersWait(t *testing.T) {
	g, now := lagGate(3)
	g.Prefer(1)
	put(t, g, 0, 1, 2, 3)
	put(t, g, 2, 1)
	signalled(g.Ready())
	expect(t, drain(t, g), "")
	if at, waits := g.WaitsUntil(); !waits || !at.Equal(now.Add(exchange.LagWait)) {
		t.Fatalf("waits until %v: %v", at, waits)
	}
	put(t, g, 0, 4)
	if signalled(g.Ready()) {
		t.Fatal("what waits anyway is signalled")
	}
	put(t, g, 1, 1)
	if !signalled(g.Ready()) {
		t.Fatal("what they wait for is not signalled")
	}
	expect(t, poll(t, g), " 1:1")
	expect(t, drain(t, g), "")
	*now = now.Add(exchange.LagWait)
	if _, waits := g.WaitsUntil(); !waits {
		t.Fatal("nobody waits")
	}
	expect(t, drain(t, g), " 0:1 2:1 0:2 0:3 0:4")
	put(t, g, 2, 2)
	expect(t, drain(t, g), " 2:2")
	if _, waits := g.WaitsUntil(); waits {
		t.Fatal("somebody waits for a port that brings nothing")
	}
	put(t, g, 1, 2)
	expect(t, poll(t, g), " 1:2")
	put(t, g, 2, 3)
	expect(t, drain(t, g), "")
	g.Prefer(-1)
	expect(t, drain(t, g), " 2:3")
}

// A port that is blocked is not waited for.
func TestABlockedPortIsNotWaitedFor(t *testing.T) {
	g, _ := lagGate(2)
	g.Prefer(1)
	g.Block(1)
	put(t, g, 1, 1)
	put(t, g, 0, 1)
	expect(t, drain(t, g), " 0:1")
	g.Unblock(1)
	expect(t, drain(t, g), " 1:1")
}

// When those that wait have nothing left, since a barrier was taken past the queue, nobody waits any more: a subtask would
// call Poll again and again.
func TestNobodyWaitsWithNothing(t *testing.T) {
	for _, blocked := range []int{0, 1} {
		g, now := lagGate(2)
		g.Prefer(1)
		put(t, g, 0, 1)
		expect(t, drain(t, g), "")
		if _, waits := g.WaitsUntil(); !waits {
			t.Fatal("nobody waits")
		}
		if blocked == 1 {
			put(t, g, 1, 1)
		}
		if i, ok := g.PollBarrier(); !ok || i.Port != 0 {
			t.Fatalf("took %+v: %v", i, ok)
		}
		g.Block(blocked)
		*now = now.Add(time.Hour)
		drain(t, g)
		if at, waits := g.WaitsUntil(); waits {
			t.Errorf("port %d is blocked: somebody waits until %v", blocked, at)
		}
	}
}

// However often the port that is behind brings a little, waiting for it takes a sixteenth of the time.
func TestWaitingIsBounded(t *testing.T) {
	g, now := lagGate(2)
	g.Prefer(1)
	begun, waited := *now, time.Duration(0)
	for i := range 3000 {
		put(t, g, 1, i)
		put(t, g, 0, i)
		for n := 0; n < 2; {
			_, ok, err := g.Poll()
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				n++
				continue
			}
			*now = now.Add(exchange.LagWait)
			waited += exchange.LagWait
		}
		*now = now.Add(exchange.LagWait) // Work.
	}
	if limit := now.Sub(begun)/exchange.LagShare + exchange.LagCredit + exchange.LagWait; waited > limit || waited < limit/2 {
		t.Errorf("waited for %v of %v, want about %v", waited, now.Sub(begun), limit)
	}
}

// poll takes one item.
func poll(t *testing.T, g *exchange.Gate) string {
	t.Helper()
	i, ok, err := g.Poll()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return fmt.Sprintf(" %d:%d", i.Port, i.Control.Checkpoint)
}
