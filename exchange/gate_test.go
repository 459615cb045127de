package exchange_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/exchange/exchangetest"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newGate(ports int) *exchange.Gate {
	frames := make([]record.Frames, ports)
	for i := range frames {
		frames[i] = record.NewFrames(exchangetest.Codec{})
	}
	return exchange.NewGate(frames)
}

func control(n int) record.Control {
	return record.Control{Kind: record.Barrier, Checkpoint: job.CheckpointID(n)}
}

// put delivers control events, which need no transport.
func put(t *testing.T, g *exchange.Gate, port int, ns ...int) {
	t.Helper()
	for _, n := range ns {
		if err := g.Port(port).Control(control(n)); err != nil {
			t.Fatal(err)
		}
	}
}

// drain polls until there is nothing and says what came, as port:event.
func drain(t *testing.T, g *exchange.Gate) string {
	t.Helper()
	s := ""
	for {
		item, ok, err := g.Poll()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return s
		}
		s += fmt.Sprintf(" %d:%d", item.Port, item.Control.Checkpoint)
	}
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func signalled(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A busy port does not starve the others: they are served in turn.
func TestPortsAreServedInTurn(t *testing.T) {
	g := newGate(3)
	put(t, g, 2, 1, 2, 3, 4)
	put(t, g, 0, 1, 2)
	put(t, g, 1, 1)
	expect(t, drain(t, g), " 2:1 0:1 1:1 2:2 0:2 2:3 2:4")
}

// A blocked port keeps what arrives, in order, while the others flow.
func TestBlockedPortKeepsItsQueue(t *testing.T) {
	g := newGate(2)
	put(t, g, 0, 1)
	g.Block(0)
	put(t, g, 0, 2)
	put(t, g, 1, 1)
	expect(t, drain(t, g), " 1:1")
	put(t, g, 0, 3)
	put(t, g, 1, 2)
	expect(t, drain(t, g), " 1:2")
	g.Unblock(0)
	g.Unblock(0)
	expect(t, drain(t, g), " 0:1 0:2 0:3")
}

// Ready is signalled when there is something to poll, and not for a port that is blocked.
func TestReadySignals(t *testing.T) {
	g := newGate(2)
	g.Block(0)
	put(t, g, 0, 1)
	if signalled(g.Ready()) {
		t.Error("ready for a blocked port")
	}
	put(t, g, 1, 1)
	if !signalled(g.Ready()) {
		t.Error("not ready for an open port")
	}
	expect(t, drain(t, g), " 1:1")
	g.Unblock(0)
	if !signalled(g.Ready()) {
		t.Error("not ready after unblock")
	}
	expect(t, drain(t, g), " 0:1")
	g.Port(0).Fail(errors.New("x"))
	if !signalled(g.Ready()) {
		t.Error("not ready after a failure")
	}
}

// The first failure of any channel is what Poll returns from then on, before what is queued.
func TestFailBreaksTheGate(t *testing.T) {
	g := newGate(2)
	put(t, g, 0, 1)
	first := errors.New("first")
	g.Port(1).Fail(first)
	g.Port(0).Fail(errors.New("second"))
	for range 2 {
		if _, ok, err := g.Poll(); ok || !errors.Is(err, first) {
			t.Errorf("poll of a broken gate: %v %v", ok, err)
		}
	}
}

// Close gives everything back, blocked ports included, and wakes senders; what comes later is
// given back too.
func TestCloseReleasesEverything(t *testing.T) {
	g := newGate(3)
	frames, batches := 0, 0
	frame := exchange.Frame{Bytes: []byte{1}, Free: func() { frames++ }}
	g.Block(1)
	for i := range 3 {
		if err := g.Port(i).Frame(frame); err != nil {
			t.Fatal(err)
		}
		if err := g.Port(i).Batch(&counted{n: &batches}); err != nil {
			t.Fatal(err)
		}
	}
	g.Close()
	g.Close()
	if frames != 3 || batches != 3 {
		t.Errorf("%d frames and %d batches came back, want 3 and 3", frames, batches)
	}
	if !signalled(g.Port(1).Room()) {
		t.Error("a sender that waits for room is not woken")
	}
	if _, ok, err := g.Poll(); ok || err != nil {
		t.Errorf("poll of a closed gate: %v %v", ok, err)
	}
	if err := g.Port(0).Frame(frame); !errors.Is(err, exchange.ErrClosed) || frames != 4 {
		t.Errorf("frame to a closed gate: %v, %d came back", err, frames)
	}
	if err := g.Port(0).Batch(&counted{n: &batches}); !errors.Is(err, exchange.ErrClosed) || batches != 4 {
		t.Errorf("batch to a closed gate: %v, %d came back", err, batches)
	}
	b := &counted{n: &batches}
	if ok, err := g.Port(0).TryBatch(b, 1); ok || !errors.Is(err, exchange.ErrClosed) || batches != 4 {
		t.Errorf("TryBatch to a closed gate: %v %v; the batch must stay with the sender", ok, err)
	}
	if err := g.Port(0).Control(control(1)); !errors.Is(err, exchange.ErrClosed) {
		t.Errorf("control to a closed gate: %v", err)
	}
	g.Block(2)
	g.Unblock(2)
}

// counted is a batch that counts its releases.
type counted struct {
	record.Any
	n *int
}

func (c *counted) Release() { *c.n++ }

// TryBatch holds to its limit, which counts data only, and room is signalled when data was taken.
func TestRoom(t *testing.T) {
	g := newGate(1)
	p := g.Port(0)
	n := 0
	for i := range 3 {
		put(t, g, 0, i)
		ok, err := p.TryBatch(&counted{n: &n}, 2)
		if err != nil || ok != (i < 2) {
			t.Fatalf("batch %d: %v %v", i, ok, err)
		}
	}
	if p.Queued() != 2 || signalled(p.Room()) {
		t.Errorf("%d queued", p.Queued())
	}
	taken := 0
	p.OnTaken(func(n int) { taken += n })
	for range 2 { // A control event makes no room, a batch does.
		if _, ok, err := g.Poll(); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if !signalled(p.Room()) || taken != 1 || p.Queued() != 1 {
		t.Errorf("after a batch was taken: %d taken, %d queued", taken, p.Queued())
	}
}

// A frame that cannot be decoded is an error that names the input; its bytes come back once.
func TestBadFrame(t *testing.T) {
	g := newGate(2)
	freed := 0
	if err := g.Port(1).Frame(exchange.Frame{Bytes: []byte{9, 9}, Free: func() { freed++ }}); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := g.Poll(); ok || err == nil || err.Error() != "input 1: decode frame of 2 bytes: not a version 1 frame" {
		t.Errorf("got %v %v", ok, err)
	}
	if freed != 1 {
		t.Errorf("freed %d times", freed)
	}
}

// Queues that never run empty and queues that do keep their order however long they get.
func TestQueueOrder(t *testing.T) {
	g := newGate(1)
	in, out := 0, 0
	for round := range 400 {
		for range 1 + round%37 {
			put(t, g, 0, in)
			in++
		}
		for range round % 36 {
			item, ok, err := g.Poll()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			if item.Control != control(out) {
				t.Fatalf("got %v, want %v", item.Control, control(out))
			}
			out++
		}
	}
	for ; out < in; out++ {
		if item, ok, _ := g.Poll(); !ok || item.Control != control(out) {
			t.Fatalf("got %v, want %v", item.Control, control(out))
		}
	}
}

func TestDirectory(t *testing.T) {
	d := exchange.NewDirectory()
	g := newGate(1)
	old, now := job.Run{Job: "j", Attempt: 1}, job.Run{Job: "j", Attempt: 2}
	ch := job.Channel{Edge: 1, From: 2, To: 3}
	d.Register(old, ch, g.Port(0))
	if p, err := d.Lookup(old, ch); p != g.Port(0) || err != nil {
		t.Errorf("lookup: %v %v", p, err)
	}
	text := func(run job.Run) string {
		_, err := d.Lookup(run, ch)
		return fmt.Sprint(err)
	}
	d.Remove(old)
	expect(t, text(old), "channel e1:2>3 of job j attempt 1 is not known here")
	d.Register(now, job.Channel{}, g.Port(0))
	expect(t, text(old), "channel e1:2>3 of job j: attempt 1 is stale, attempt 2 runs here")
	expect(t, text(now), "channel e1:2>3 of job j attempt 2 is not known here")
	d.Forget("j")
	expect(t, text(old), "channel e1:2>3 of job j attempt 1 is not known here")
}

func TestWaitClock(t *testing.T) {
	var c exchange.WaitClock
	c.Start()
	time.Sleep(2 * time.Millisecond)
	if w := c.Waited(); w < time.Millisecond {
		t.Errorf("the wait that is going on counts %v", w)
	}
	d := c.Stop()
	if w := c.Waited(); w != d || d < 2*time.Millisecond {
		t.Errorf("waited %v, the only wait took %v", w, d)
	}
}

// BenchmarkPoll takes from a gate of 10,000 ports, all of which have something.
func BenchmarkPoll(b *testing.B) {
	const ports = 10_000
	g := exchange.NewGate(make([]record.Frames, ports))
	for i := range ports {
		_ = g.Port(i).Control(control(1))
	}
	b.ReportAllocs()
	for b.Loop() {
		item, _, _ := g.Poll()
		_ = g.Port(item.Port).Control(control(1))
	}
}
