// Package exchangetest is the specification of what joins an exchange.Out to an exchange.Port: the
// suite that every transport passes.
package exchangetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// Transport is what is under test.
type Transport struct {
	// Connect joins a new sending end to a port.
	Connect func(ctx context.Context, ch job.Channel, port *exchange.Port) (exchange.Out, error)
	// Window bounds the batches of BatchRows rows that a channel takes while its receiver takes
	// none.
	Window int
	// Kill, if set, ends the sending process as kill -9 would.
	Kill func()
}

// BatchRows is the number of rows of the batches that the suite sends: full ones.
var BatchRows = record.RowsFor[Record]()

// patience is how long something that must happen may take on a busy machine.
const patience = 30 * time.Second

// quiet is how long the suite watches that something does not happen.
const quiet = 50 * time.Millisecond

// Run runs the suite; open makes a fresh transport and leaves it to t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Transport) {
	tests := []struct {
		name string
		run  func(*testing.T, Transport)
	}{
		{"data and control keep their order", testOrder},
		{"marks and times arrive", testContent},
		{"a full channel makes its sender wait", testBackpressure},
		{"control needs no room", testControlWithoutRoom},
		{"a barrier stays behind data that waits for room", testBarrierBehindWait},
		{"a slow channel stops no other", testIsolation},
		{"each input blocked in turn", testBlockInTurn},
		{"a closed gate ends the sender", testReceiverClosed},
		{"a closed gate wakes a waiting sender", testReceiverClosedWhileWaiting},
		{"the end of the context ends the sender", testContext},
		{"the end of the context wakes a waiting sender", testContextWhileWaiting},
		{"close without a close event breaks the gate", testBroken},
		{"close after the close event is clean", testCleanClose},
		{"a lost sender breaks the gate", testKilled},
		{"batches have one owner", testOwnership},
		{"many channels at once", testMany},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

// channel is one channel to a gate of its own.
type channel struct {
	gate *exchange.Gate
	out  exchange.Out
}

func newGate(ports int) *exchange.Gate {
	frames := make([]record.Frames, ports)
	for i := range frames {
		frames[i] = record.NewFrames(Codec{})
	}
	return exchange.NewGate(frames)
}

func connect(ctx context.Context, t *testing.T, tr Transport, from, to int, p *exchange.Port) exchange.Out {
	t.Helper()
	out, err := tr.Connect(ctx, job.Channel{From: from, To: to}, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.Close)
	return out
}

func newChannel(ctx context.Context, t *testing.T, tr Transport) channel {
	t.Helper()
	g := newGate(1)
	t.Cleanup(g.Close)
	return channel{g, connect(ctx, t, tr, 0, 0, g.Port(0))}
}

// batch makes a batch whose records say which one it is.
func batch(n, rows int) *record.Batch[Record] {
	b := record.PoolOf[Record]().Get()
	for i := range rows {
		b.Rows = append(b.Rows, Record{Key: uint64(n), Value: uint64(i)})
	}
	return b
}

// check releases a batch after looking at its content.
func check(a record.Any, n, rows int) error {
	b := a.(*record.Batch[Record])
	defer b.Release()
	if len(b.Rows) != rows {
		return fmt.Errorf("batch %d has %d rows, want %d", n, len(b.Rows), rows)
	}
	for i, r := range b.Rows {
		if want := (Record{Key: uint64(n), Value: uint64(i)}); r != want {
			return fmt.Errorf("batch %d row %d is %+v, want %+v", n, i, r, want)
		}
	}
	return nil
}

func take(g *exchange.Gate) (exchange.Item, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		item, ok, err := g.Poll()
		if ok || err != nil {
			return item, err
		}
		select {
		case <-g.Ready():
		case <-late.C:
			return item, fmt.Errorf("nothing arrived for %v", patience)
		}
	}
}

func mustTake(t *testing.T, g *exchange.Gate) exchange.Item {
	t.Helper()
	item, err := take(g)
	if err != nil {
		t.Fatal(err)
	}
	return item
}

// failure waits until g is broken.
func failure(t *testing.T, g *exchange.Gate) error {
	t.Helper()
	for {
		item, err := take(g)
		if err != nil {
			return err
		}
		if item.Batch != nil {
			item.Batch.Release()
		}
	}
}

func mustSend(t *testing.T, o exchange.Out, b record.Any) {
	t.Helper()
	if err := o.Send(b); err != nil {
		t.Fatal(err)
	}
}

func mustControl(t *testing.T, o exchange.Out, c record.Control) {
	t.Helper()
	if err := o.Control(c); err != nil {
		t.Fatal(err)
	}
}

func barrier(n int) record.Control {
	return record.Control{Kind: record.Barrier, Checkpoint: job.CheckpointID(n), Mode: job.ExactlyOnce}
}

// flood sends batches from 0 on until one fails, which it returns. It says on sent how many it sent.
func flood(o exchange.Out, sent *counter) error {
	for n := 0; ; n++ {
		if err := o.Send(batch(n, BatchRows)); err != nil {
			return err
		}
		sent.add()
	}
}

// counter counts and lets others wait for the count to stand still.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) add() { c.mu.Lock(); c.n++; c.mu.Unlock() }
func (c *counter) get() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// settle waits until the sender that counts in c was stopped by a full channel: it waited for all
// of a quiet time, whatever else the machine does.
func (c *counter) settle(t *testing.T, o exchange.Out) int {
	t.Helper()
	w, ok := o.(exchange.Waiter)
	if !ok {
		t.Fatal("the sending end does not measure its waits")
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		n, waited, start := c.get(), w.Waited(), time.Now()
		time.Sleep(quiet)
		if took := time.Since(start); n > 0 && c.get() == n && w.Waited()-waited >= took-quiet/10 {
			return n
		}
	}
	t.Fatal("the sender is never stopped by a full channel, or its wait is not measured")
	return 0
}

// reach waits until c is at least n.
func (c *counter) reach(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(patience); c.get() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the sender stays at %d, want %d", c.get(), n)
		}
	}
}

func wait(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatalf("still waiting after %v", patience)
		return nil
	}
}

func testOrder(t *testing.T, tr Transport) {
	c := newChannel(t.Context(), t, tr)
	const rounds = 300
	done := make(chan error, 1)
	go func() {
		for n := range rounds {
			if err := c.out.Send(batch(n, 1+n*7%BatchRows)); err != nil {
				done <- err
				return
			}
			for i := range n % 4 {
				if err := c.out.Control(barrier(4*n + i)); err != nil {
					done <- err
					return
				}
			}
		}
		done <- nil
	}()
	for n := range rounds {
		item := mustTake(t, c.gate)
		if item.Batch == nil {
			t.Fatalf("%v in place of batch %d", item.Control, n)
		}
		if err := check(item.Batch, n, 1+n*7%BatchRows); err != nil {
			t.Fatal(err)
		}
		for i := range n % 4 {
			if item := mustTake(t, c.gate); item.Control != barrier(4*n+i) {
				t.Fatalf("round %d: %+v, want %+v", n, item, barrier(4*n+i))
			}
		}
	}
	if err := wait(t, done); err != nil {
		t.Fatal(err)
	}
}

func testContent(t *testing.T, tr Transport) {
	c := newChannel(t.Context(), t, tr)
	b := record.PoolOf[Record]().Get()
	b.Mark(record.Watermark, 5)
	b.Append(Record{Key: 1}, 10)
	b.Mark(record.Watermark, 7)
	b.Append(Record{Key: 2}, -20)
	b.Mark(record.Idle, 0)
	mustSend(t, c.out, b)
	empty := record.PoolOf[Record]().Get()
	empty.Mark(record.Watermark, record.MaxTime)
	mustSend(t, c.out, empty)
	controls := []record.Control{
		{Kind: record.Barrier, Checkpoint: 2, Full: true, Savepoint: true, Mode: job.ExactlyOnce},
		{Kind: record.Barrier, Checkpoint: 3, Savepoint: true, Stop: true, Mode: job.AtLeastOnce},
		{Kind: record.Barrier, Checkpoint: 1 << 60, Final: true, Mode: job.AtLeastOnce, Committed: 1<<60 - 1, Started: 1_700_000_000_000_000_000},
		{Kind: record.CancelBarrier, Checkpoint: 7},
		{Kind: record.EndOfData},
		{Kind: record.Close},
	}
	for _, ctl := range controls {
		mustControl(t, c.out, ctl)
	}
	got := mustTake(t, c.gate).Batch.(*record.Batch[Record])
	if s := fmt.Sprint(got.Rows, got.Times, got.Marks); s != "[{1 0 0} {2 0 0}] [10 -20] [{5 0 0} {7 1 0} {0 2 1}]" {
		t.Errorf("batch is %s", s)
	}
	got.Release()
	got = mustTake(t, c.gate).Batch.(*record.Batch[Record])
	if len(got.Rows) != 0 || len(got.Marks) != 1 || got.Marks[0].Time != record.MaxTime {
		t.Errorf("batch without rows is %+v", got)
	}
	got.Release()
	for _, want := range controls {
		if item := mustTake(t, c.gate); item.Batch != nil || item.Control != want {
			t.Errorf("got %+v, want %+v", item.Control, want)
		}
	}
}

func testBackpressure(t *testing.T, tr Transport) {
	ctx, cancel := context.WithCancel(t.Context())
	c := newChannel(ctx, t, tr)
	var sent counter
	done := make(chan error, 1)
	go func() { done <- flood(c.out, &sent) }()
	before := sent.settle(t, c.out)
	if before > tr.Window {
		t.Errorf("%d batches are under way to a receiver that takes none, want at most %d", before, tr.Window)
	}
	for n := range 3 * tr.Window {
		if err := check(mustTake(t, c.gate).Batch, n, BatchRows); err != nil {
			t.Fatal(err)
		}
	}
	sent.reach(t, before+2*tr.Window) // Some of the credit may be kept back.
	cancel()
	_ = wait(t, done)
}

func testControlWithoutRoom(t *testing.T, tr Transport) {
	c := newChannel(t.Context(), t, tr)
	c.gate.Block(0)
	sent := 0
	for ; sent < max(1, tr.Window/2); sent++ {
		mustSend(t, c.out, batch(sent, BatchRows))
	}
	const events = 1000
	done := make(chan error, 1)
	go func() {
		var err error
		for n := 0; n < events && err == nil; n++ {
			err = c.out.Control(barrier(n))
		}
		done <- err
	}()
	if err := wait(t, done); err != nil {
		t.Fatal(err)
	}
	c.gate.Unblock(0)
	for n := range sent {
		if err := check(mustTake(t, c.gate).Batch, n, BatchRows); err != nil {
			t.Fatal(err)
		}
	}
	for n := range events {
		if item := mustTake(t, c.gate); item.Control != barrier(n) {
			t.Fatalf("got %+v in place of barrier %d", item, n)
		}
	}
}

// testBarrierBehindWait: a barrier behind data that waits for room neither overtakes it nor is lost.
func testBarrierBehindWait(t *testing.T, tr Transport) {
	c := newChannel(t.Context(), t, tr)
	total := 3 * tr.Window
	done := make(chan error, 1)
	go func() {
		for n := range total {
			if err := c.out.Send(batch(n, BatchRows)); err != nil {
				done <- err
				return
			}
			if err := c.out.Control(barrier(n)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	time.Sleep(quiet) // The sender waits for room by now, or will.
	for n := range total {
		if err := check(mustTake(t, c.gate).Batch, n, BatchRows); err != nil {
			t.Fatal(err)
		}
		if item := mustTake(t, c.gate); item.Control != barrier(n) {
			t.Fatalf("got %+v in place of barrier %d", item, n)
		}
	}
	if err := wait(t, done); err != nil {
		t.Fatal(err)
	}
}

// testIsolation: one receiving subtask takes nothing, and one port of another gate is blocked. All
// other channels flow.
func testIsolation(t *testing.T, tr Transport) {
	ctx, cancel := context.WithCancel(t.Context())
	stuck, gate := newGate(1), newGate(2)
	t.Cleanup(stuck.Close)
	t.Cleanup(gate.Close)
	toStuck := connect(ctx, t, tr, 0, 0, stuck.Port(0))
	toBlocked := connect(ctx, t, tr, 0, 1, gate.Port(0))
	flowing := connect(ctx, t, tr, 1, 1, gate.Port(1))
	gate.Block(0)
	var a, b counter
	done := make(chan error, 3)
	go func() { done <- flood(toStuck, &a) }()
	go func() { done <- flood(toBlocked, &b) }()
	a.settle(t, toStuck)
	blocked := b.settle(t, toBlocked)
	var c counter
	go func() { done <- flood(flowing, &c) }()
	for n := range 500 {
		item := mustTake(t, gate)
		if item.Port != 1 {
			t.Fatalf("port %d gave an item while it was blocked", item.Port)
		}
		if err := check(item.Batch, n, BatchRows); err != nil {
			t.Fatal(err)
		}
	}
	if b.get() != blocked {
		t.Errorf("the sender to the blocked port went on from %d to %d", blocked, b.get())
	}
	gate.Unblock(0)
	for seen := 0; seen < blocked; {
		item := mustTake(t, gate)
		if item.Port == 0 {
			if err := check(item.Batch, seen, BatchRows); err != nil {
				t.Fatal(err)
			}
			seen++
			continue
		}
		item.Batch.Release()
	}
	cancel()
	for range 3 {
		_ = wait(t, done)
	}
}

// testBlockInTurn blocks one input after the other, as an alignment does whose barriers come in any
// order: all senders get on all the same.
func testBlockInTurn(t *testing.T, tr Transport) {
	const ports = 5
	g := newGate(ports)
	t.Cleanup(g.Close)
	done := make(chan error, ports)
	total := 4 * tr.Window
	for p := range ports {
		out := connect(t.Context(), t, tr, p, 0, g.Port(p))
		go func() {
			for n := range total {
				if err := out.Send(batch(n, BatchRows)); err != nil {
					done <- err
					return
				}
				if err := out.Control(barrier(n)); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for n := range total { // One checkpoint after the other: the port that brought its barrier waits.
		for range 2 * ports {
			item := mustTake(t, g)
			if item.Batch != nil {
				if err := check(item.Batch, n, BatchRows); err != nil {
					t.Fatalf("port %d: %v", item.Port, err)
				}
				continue
			}
			if item.Control != barrier(n) {
				t.Fatalf("port %d: got %+v during checkpoint %d", item.Port, item.Control, n)
			}
			g.Block(item.Port)
		}
		for p := range ports {
			g.Unblock(p)
		}
	}
	for range ports {
		if err := wait(t, done); err != nil {
			t.Fatal(err)
		}
	}
}

func testReceiverClosed(t *testing.T, tr Transport) {
	c := newChannel(t.Context(), t, tr)
	mustSend(t, c.out, batch(0, 1))
	c.gate.Close()
	var err error
	for deadline := time.Now().Add(patience); err == nil && time.Now().Before(deadline); {
		err = c.out.Send(batch(1, 1))
	}
	if !errors.Is(err, exchange.ErrClosed) {
		t.Errorf("Send to a closed gate: %v, want %v", err, exchange.ErrClosed)
	}
	if err := c.out.Control(barrier(1)); !errors.Is(err, exchange.ErrClosed) {
		t.Errorf("Control to a closed gate: %v, want %v", err, exchange.ErrClosed)
	}
}

func testReceiverClosedWhileWaiting(t *testing.T, tr Transport) {
	c := newChannel(t.Context(), t, tr)
	var sent counter
	done := make(chan error, 1)
	go func() { done <- flood(c.out, &sent) }()
	sent.settle(t, c.out)
	c.gate.Close()
	if err := wait(t, done); !errors.Is(err, exchange.ErrClosed) {
		t.Errorf("Send to a closed gate: %v, want %v", err, exchange.ErrClosed)
	}
}

func testContext(t *testing.T, tr Transport) {
	ctx, cancel := context.WithCancelCause(t.Context())
	c := newChannel(ctx, t, tr)
	mustSend(t, c.out, batch(0, 1))
	reason := errors.New("the job was cancelled")
	cancel(reason)
	if err := c.out.Send(batch(1, 1)); !errors.Is(err, reason) {
		t.Errorf("Send after the end of the context: %v", err)
	}
	if err := c.out.Control(barrier(1)); !errors.Is(err, reason) {
		t.Errorf("Control after the end of the context: %v", err)
	}
	err := failure(t, c.gate)
	expectBroken(t, err, reason.Error())
	if errors.Is(err, reason) || errors.Is(err, context.Canceled) {
		t.Errorf("the receiver takes the end of the sender's context for that of its own: %v", err)
	}
}

func testContextWhileWaiting(t *testing.T, tr Transport) {
	ctx, cancel := context.WithCancel(t.Context())
	c := newChannel(ctx, t, tr)
	var sent counter
	done := make(chan error, 1)
	go func() { done <- flood(c.out, &sent) }()
	sent.settle(t, c.out)
	cancel()
	if err := wait(t, done); !errors.Is(err, context.Canceled) {
		t.Errorf("Send that waits at the end of its context: %v", err)
	}
}

func expectBroken(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, s := range append(parts, "channel e0:0>0") {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error %q does not name %q", err, s)
		}
	}
	if f := job.FailureOf("", "", err); f.Class != job.ClassInfrastructure {
		t.Errorf("error %q is of class %s, want %s", err, f.Class, job.ClassInfrastructure)
	}
}

func testBroken(t *testing.T, tr Transport) {
	c := newChannel(t.Context(), t, tr)
	mustControl(t, c.out, record.Control{Kind: record.EndOfData})
	c.out.Close()
	c.out.Close()
	expectBroken(t, failure(t, c.gate))
	if err := c.out.Send(batch(0, 1)); err == nil {
		t.Error("Send after Close works")
	}
	if err := c.out.Control(barrier(1)); err == nil {
		t.Error("Control after Close works")
	}
}

func testCleanClose(t *testing.T, tr Transport) {
	ctx, cancel := context.WithCancel(t.Context())
	c := newChannel(ctx, t, tr)
	mustSend(t, c.out, batch(0, BatchRows))
	mustControl(t, c.out, record.Control{Kind: record.Close})
	c.out.Close()
	cancel()
	if err := check(mustTake(t, c.gate).Batch, 0, BatchRows); err != nil {
		t.Fatal(err)
	}
	if item := mustTake(t, c.gate); item.Control.Kind != record.Close {
		t.Fatalf("got %+v", item)
	}
	time.Sleep(quiet)
	if item, ok, err := c.gate.Poll(); ok || err != nil {
		t.Errorf("after the end: %+v %v", item, err)
	}
}

func testKilled(t *testing.T, tr Transport) {
	if tr.Kill == nil {
		t.Skip("the sender cannot be lost alone")
	}
	c := newChannel(t.Context(), t, tr)
	mustSend(t, c.out, batch(0, 1))
	mustTake(t, c.gate).Batch.Release()
	tr.Kill()
	expectBroken(t, failure(t, c.gate))
	var err error
	for deadline := time.Now().Add(patience); err == nil && time.Now().Before(deadline); {
		err = c.out.Send(batch(1, 1))
	}
	if err == nil {
		t.Error("Send goes on over a lost connection")
	}
}

// testOwnership: a batch belongs to the transport from Send on, and what arrives belongs to the
// receiver. Debug builds overwrite what was released, so a breach shows in the content.
func testOwnership(t *testing.T, tr Transport) {
	c := newChannel(t.Context(), t, tr)
	const total = 400
	done := make(chan error, 1)
	go func() {
		var err error
		for n := 0; n < total && err == nil; n++ {
			err = c.out.Send(batch(n, BatchRows))
		}
		done <- err
	}()
	var held []record.Any // The receiver keeps some while their successors arrive.
	for n := range total {
		held = append(held, mustTake(t, c.gate).Batch)
		if len(held) == 10 {
			for i, b := range held {
				if err := check(b, n-9+i, BatchRows); err != nil {
					t.Fatal(err)
				}
			}
			held = held[:0]
		}
	}
	if err := wait(t, done); err != nil {
		t.Fatal(err)
	}
}

// testMany runs 1,000 channels, 50 senders to each of 20 gates, at once.
func testMany(t *testing.T, tr Transport) {
	const senders, gates, rounds = 50, 20, 10
	done := make(chan error, senders+gates)
	var outs [senders][gates]exchange.Out
	for to := range gates {
		g := newGate(senders)
		t.Cleanup(g.Close)
		for from := range senders {
			outs[from][to] = connect(t.Context(), t, tr, from, to, g.Port(from))
		}
		go func() { done <- takeRounds(g, senders, rounds) }()
	}
	for from := range senders {
		go func() { done <- sendRounds(outs[from][:], rounds) }()
	}
	for range senders + gates {
		if err := wait(t, done); err != nil {
			t.Fatal(err)
		}
	}
}

func sendRounds(outs []exchange.Out, rounds int) error {
	for n := range rounds {
		for _, o := range outs {
			if err := o.Send(batch(n, 20)); err != nil {
				return err
			}
		}
		for _, o := range outs {
			if err := o.Control(barrier(n)); err != nil {
				return err
			}
		}
	}
	for _, o := range outs {
		if err := o.Control(record.Control{Kind: record.Close}); err != nil {
			return err
		}
		o.Close()
	}
	return nil
}

// takeRounds aligns the barriers of each round.
func takeRounds(g *exchange.Gate, senders, rounds int) error {
	for n := range rounds {
		for range 2 * senders {
			item, err := take(g)
			if err != nil {
				return err
			}
			if item.Batch != nil {
				if err := check(item.Batch, n, 20); err != nil {
					return fmt.Errorf("port %d: %w", item.Port, err)
				}
				continue
			}
			if item.Control != barrier(n) {
				return fmt.Errorf("port %d: got %+v in round %d", item.Port, item.Control, n)
			}
			g.Block(item.Port)
		}
		for p := range senders {
			g.Unblock(p)
		}
	}
	for range senders {
		item, err := take(g)
		if err != nil {
			return err
		}
		if item.Control.Kind != record.Close {
			return fmt.Errorf("port %d: got %+v at the end", item.Port, item)
		}
	}
	return nil
}
