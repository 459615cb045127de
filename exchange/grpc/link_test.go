package grpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	ggrpc "google.golang.org/grpc"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/exchange/exchangetest"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

var loadFrames = record.NewFrames(exchangetest.Codec{})

// blob is a codec of byte slices of any length.
type blob struct{}

func (blob) Append(dst []byte, v *[]byte) ([]byte, error) { return append(dst, *v...), nil }
func (blob) Decode(src []byte, v *[]byte) (int, error) {
	*v = append([]byte(nil), src...)
	return len(src), nil
}
func (blob) Copy(dst, src *[]byte) { *dst = append([]byte(nil), *src...) }
func (blob) Schema() codec.Schema  { return codec.Schema{Codec: "test-blob", Version: 1} }

// open registers a gate with one port as channel 0>to and dials it.
func (p *peers) open(t *testing.T, to int, frames record.Frames) (*exchange.Gate, exchange.Out) {
	t.Helper()
	g := exchange.NewGate([]record.Frames{frames})
	t.Cleanup(g.Close)
	ch := job.Channel{To: to}
	p.dir.Register(p.run, ch, g.Port(0))
	o, err := p.dialer.Dial(t.Context(), p.addr, p.run, ch, frames)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.Close)
	return g, o
}

func records(n int) *record.Batch[exchangetest.Record] {
	b := record.PoolOf[exchangetest.Record]().Get()
	for i := range n {
		b.Append(exchangetest.Record{Key: uint64(i)}, int64(i))
	}
	return b
}

func expectError(t *testing.T, err error, class job.Class, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, s := range parts {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error %q does not contain %q", err, s)
		}
	}
	if got := job.FailureOf("", "", err).Class; got != class {
		t.Errorf("error %q is of class %s, want %s", err, got, class)
	}
}

// sendError sends until that fails.
func sendError(t *testing.T, o exchange.Out) error {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if err := o.Control(record.Control{Kind: record.Barrier, Checkpoint: 1}); err != nil {
			return err
		}
	}
	t.Fatal("sending goes on working")
	return nil
}

func TestRefusals(t *testing.T) {
	p := newPeers(t, Options{})
	g, _ := p.open(t, 0, loadFrames)
	dial := func(attempt job.Attempt, ch job.Channel) error {
		_, err := p.dialer.Dial(t.Context(), p.addr, job.Run{Job: p.run.Job, Attempt: attempt}, ch, loadFrames)
		return err
	}
	name := "job 0123456789abcdef"
	expectError(t, dial(2, job.Channel{}), job.ClassInfrastructure, p.addr, name, "refused", "attempt 2 is stale, attempt 3 runs here")
	expectError(t, dial(3, job.Channel{Edge: 7, From: 1, To: 2}), job.ClassInfrastructure, p.addr, "e7:1>2", "attempt 3 is not known here")
	expectError(t, dial(3, job.Channel{}), job.ClassInfrastructure, "e0:0>0", "is open already")
	if _, ok, err := g.Poll(); ok || err != nil {
		t.Errorf("a refusal disturbed an open channel: %v", err)
	}
}

func TestDialFails(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // Takes connections and says nothing.
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	d, err := NewDialer(Options{DialTimeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	dial := func(ctx context.Context, addr string) error {
		start := time.Now()
		_, err := d.Dial(ctx, addr, job.Run{Job: "j", Attempt: 1}, job.Channel{}, loadFrames)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("dial took %v", took)
		}
		return err
	}
	expectError(t, dial(t.Context(), silent.Addr().String()), job.ClassInfrastructure, silent.Addr().String(), "within 300ms")
	expectError(t, dial(t.Context(), gone.Addr().String()), job.ClassInfrastructure, gone.Addr().String(), "connection refused")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := dial(ctx, silent.Addr().String()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dial whose context ends: %v", err)
	}
	d.Close()
	if err := dial(t.Context(), gone.Addr().String()); err == nil || !strings.Contains(err.Error(), "the dialer is closed") {
		t.Errorf("dial with a closed dialer: %v", err)
	}
}

// The address may be that of a gRPC server of something else.
func TestNotAnExchange(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := ggrpc.NewServer()
	served := make(chan error, 1)
	go func() { served <- g.Serve(lis) }()
	d, err := NewDialer(Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Dial(t.Context(), lis.Addr().String(), job.Run{Job: "j", Attempt: 1}, job.Channel{}, loadFrames)
	expectError(t, err, job.ClassInfrastructure, lis.Addr().String(), "unknown service", serviceName)
	d.Close()
	g.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// Serve ends when its context does, with channels open.
func TestServe(t *testing.T) {
	dir := exchange.NewDirectory()
	s, err := NewServer(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, lis) }()
	d, err := NewDialer(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	g := exchange.NewGate([]record.Frames{loadFrames})
	run := job.Run{Job: "j", Attempt: 1}
	dir.Register(run, job.Channel{}, g.Port(0))
	o, err := d.Dial(t.Context(), lis.Addr().String(), run, job.Channel{}, loadFrames)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	cancel()
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Serve goes on")
	}
	expectError(t, sendError(t, o), job.ClassInfrastructure, "shutting down")
}

// The gate of a run that was removed is nobody's concern any more; that of a live run breaks.
func TestRemovedRunIsNotFailed(t *testing.T) {
	p := newPeers(t, Options{})
	removed, o := p.open(t, 0, loadFrames)
	p.dir.Remove(p.run)
	live, o2 := p.open(t, 1, loadFrames)
	o.Close()
	o2.Close()
	_, err := poll(live)
	expectError(t, err, job.ClassInfrastructure, "e0:0>1", "tm-sender", "127.0.0.1", "the sender stopped")
	if _, ok, err := removed.Poll(); ok || err != nil {
		t.Errorf("the removed run: %v", err)
	}
}

// A server that closes breaks its channels at both ends and lets GracefulStop end at once.
func TestServerClose(t *testing.T) {
	p := newPeers(t, Options{})
	g, o := p.open(t, 0, loadFrames)
	p.server.Close()
	stopped := make(chan struct{})
	go func() { p.grpc.GracefulStop(); close(stopped) }()
	select {
	case <-stopped:
	case <-time.After(10 * time.Second):
		t.Error("GracefulStop hangs")
	}
	_, err := poll(g)
	expectError(t, err, job.ClassInfrastructure, "tm-sender", "shutting down")
	expectError(t, sendError(t, o), job.ClassInfrastructure, "e0:0>0", p.addr, "shutting down")
}

func TestDialerClose(t *testing.T) {
	p := newPeers(t, Options{})
	g, o := p.open(t, 0, loadFrames)
	ended, done := p.open(t, 1, loadFrames)
	if err := done.Send(records(100)); err != nil {
		t.Fatal(err)
	}
	if err := done.Control(record.Control{Kind: record.Close}); err != nil {
		t.Fatal(err)
	}
	done.Close()
	if b := mustPoll(t, ended).Batch; b.Len() != 100 {
		t.Errorf("%d records", b.Len())
	}
	p.dialer.Close()
	expectError(t, sendError(t, o), job.ClassInfrastructure, "shutting down")
	_, err := poll(g)
	expectError(t, err, job.ClassInfrastructure, "tm-sender")
	if item := mustPoll(t, ended); item.Control.Kind != record.Close {
		t.Errorf("got %+v", item)
	}
}

// Everything that was sent before Close arrives, though the link ends with its last channel.
func TestNothingIsLostAtTheEnd(t *testing.T) {
	p := newPeers(t, Options{})
	for i := range 200 {
		g, o := p.open(t, i, loadFrames)
		if err := o.Send(records(1000)); err != nil {
			t.Fatal(err)
		}
		if err := o.Control(record.Control{Kind: record.Close}); err != nil {
			t.Fatal(err)
		}
		o.Close()
		b := mustPoll(t, g).Batch
		if b.Len() != 1000 {
			t.Errorf("%d records", b.Len())
		}
		b.Release()
		if item := mustPoll(t, g); item.Control.Kind != record.Close {
			t.Fatalf("got %+v", item)
		}
	}
	p.dialer.wg.Wait()
	if n, m := len(p.dialer.mu.conns), len(p.dialer.mu.links); n+m > 0 {
		t.Errorf("%d connections and %d links are left", n, m)
	}
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	if n := len(p.server.mu.live); n > 0 {
		t.Errorf("%d ports are still claimed", n)
	}
}

// Runs and channels to one address share a connection.
func TestSharedConnection(t *testing.T) {
	p := newPeers(t, Options{})
	p.open(t, 0, loadFrames)
	p.open(t, 1, loadFrames)
	p.run.Attempt++
	p.open(t, 0, loadFrames)
	p.dialer.mu.Lock()
	defer p.dialer.mu.Unlock()
	if n, m := len(p.dialer.mu.conns), len(p.dialer.mu.links); n != 1 || m != 2 {
		t.Errorf("%d connections and %d links, want 1 and 2", n, m)
	}
}

// Frames above the size of a message go in pieces, and above the limit not at all.
func TestLargeFrames(t *testing.T) {
	p := newPeers(t, Options{MaxFrame: 5 << 20})
	frames := record.NewFrames(blob{})
	g, o := p.open(t, 0, frames)
	send := func(n int) error {
		b := record.PoolOf[[]byte]().Get()
		v := make([]byte, n)
		for i := range v {
			v[i] = byte(i * 7)
		}
		b.Rows = append(b.Rows, v)
		return o.Send(b)
	}
	for _, n := range []int{0, 1, 1000, 1020, 1024, 1025, 16 << 10, 128 << 10, 256 << 10, 300_000, 1 << 20, 4_500_000} {
		if err := send(n); err != nil {
			t.Fatal(err)
		}
		b := mustPoll(t, g).Batch.(*record.Batch[[]byte])
		if len(b.Rows) != 1 || len(b.Rows[0]) != n {
			t.Fatalf("%d bytes arrived as %d rows", n, len(b.Rows))
		}
		for i, c := range b.Rows[0] {
			if c != byte(i*7) {
				t.Fatalf("byte %d of %d is %d", i, n, c)
			}
		}
		b.Release()
	}
	expectError(t, send(5<<20), job.ClassRecord, "e0:0>0", "5242884 bytes", "limit", "5242880", "max-frame")
}

// The receiver holds no more than it granted, whatever the size of frames.
func TestSmallFramesAreBoundedToo(t *testing.T) {
	p := newPeers(t, Options{Window: 64 << 10})
	var sent atomic.Int64
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g := exchange.NewGate([]record.Frames{loadFrames})
	defer g.Close()
	p.dir.Register(p.run, job.Channel{}, g.Port(0))
	o, err := p.dialer.Dial(ctx, p.addr, p.run, job.Channel{}, loadFrames)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	go func() {
		defer close(done)
		for o.Send(records(1)) == nil {
			sent.Add(1)
		}
	}()
	time.Sleep(100 * time.Millisecond)
	if n := sent.Load(); n == 0 || n > 64<<10/frameOverhead+1 {
		t.Errorf("%d frames of one record are under way", n)
	}
	cancel()
	<-done
}

// To a receiver that wants few rows at a time a few frames are under way, not a window full of them, and it gives credit
// back at once; one that has become fast gets a window full.
func TestPace(t *testing.T) {
	p := newPeers(t, Options{Window: 64 << 10})
	g := exchange.NewGate([]record.Frames{loadFrames})
	defer g.Close()
	g.SetRows(1)
	p.dir.Register(p.run, job.Channel{}, g.Port(0))
	ctx, cancel := context.WithCancel(t.Context())
	o, err := p.dialer.Dial(ctx, p.addr, p.run, job.Channel{}, loadFrames)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	rows := o.(exchange.Pacer).Rows
	if rows() != 1 {
		t.Errorf("batches of %d rows to a receiver that wants 1", rows())
	}
	var sent atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for o.Send(records(1)) == nil {
			sent.Add(1)
		}
	}()
	settle := func(taken, least, most int64) {
		t.Helper()
		deadline := time.Now().Add(10 * time.Second)
		for sent.Load()-taken < least && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond) // For frames that should not be sent: nothing says that none will be.
		if n := sent.Load() - taken; n < least || n > most {
			t.Errorf("%d frames are under way, want %d to %d", n, least, most)
		}
	}
	settle(0, slowFrames, slowFrames)
	for range 10 {
		mustPoll(t, g).Batch.Release()
	}
	settle(10, slowFrames, slowFrames)
	g.SetRows(5000)
	mustPoll(t, g).Batch.Release()
	settle(11, 64<<10/frameOverhead/2, 64<<10/frameOverhead+1)
	if rows() != 5000 {
		t.Errorf("batches of %d rows to a receiver that wants 5000", rows())
	}
	g.SetRows(2)
	mustPoll(t, g).Batch.Release()
	for deadline := time.Now().Add(10 * time.Second); rows() != 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("batches of %d rows to a receiver that wants 2", rows())
		}
	}
	cancel()
	<-done
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	p := newPeers(t, Options{Window: 16 << 10, Metrics: NewMetrics(reg)})
	g, o := p.open(t, 0, loadFrames)
	go func() {
		for range 10 {
			_ = o.Send(records(1000))
		}
	}()
	for range 10 {
		time.Sleep(time.Millisecond)
		mustPoll(t, g).Batch.Release()
	}
	want := `
# HELP cairn_exchange_frames_total Encoded batches that went to or came from other processes.
# TYPE cairn_exchange_frames_total counter
cairn_exchange_frames_total{direction="received"} 10
cairn_exchange_frames_total{direction="sent"} 10
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "cairn_exchange_frames_total"); err != nil {
		t.Error(err)
	}
	m := p.dialer.opts.Metrics
	if w := testutil.ToFloat64(m.creditWait); w <= 0 || w > 20 {
		t.Errorf("waited %v s for credit", w)
	}
	if s, r := testutil.ToFloat64(m.sentBytes), testutil.ToFloat64(m.receivedBytes); s != r || s < 240_000 {
		t.Errorf("%v bytes sent, %v received", s, r)
	}
}

func TestOptionsListProblems(t *testing.T) {
	_, err := NewDialer(Options{Window: 1, MaxFrame: 1, MaxMissed: -1, Beat: -1})
	for _, s := range []string{"4 problems", "window of 1", "max-frame of 1", "max-missed of -1", "beat -1"} {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("%v does not contain %q", err, s)
		}
	}
	if _, err := NewServer(nil, Options{Window: 1}); err == nil {
		t.Error("a server takes bad options")
	}
}

// proxy forwards TCP connections until it is told to let nothing through any more, as a network does
// that was cut.
type proxy struct {
	lis  net.Listener
	cut  chan struct{}
	wg   sync.WaitGroup
	stop chan struct{}
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{lis: lis, cut: make(chan struct{}), stop: make(chan struct{})}
	p.wg.Go(func() {
		for {
			a, err := lis.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				_ = a.Close()
				return
			}
			p.wg.Go(func() { p.copy(a, b) })
			p.wg.Go(func() { p.copy(b, a) })
		}
	})
	t.Cleanup(func() {
		close(p.stop)
		_ = lis.Close()
		p.wg.Wait()
	})
	return p
}

// copy forwards from one side until cut, and then keeps both open without a word.
func (p *proxy) copy(from, to net.Conn) {
	defer func() { _ = from.Close(); _ = to.Close() }()
	buf := make([]byte, 32<<10)
	for {
		_ = from.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		n, err := from.Read(buf)
		select {
		case <-p.stop:
			return
		case <-p.cut:
			continue
		default:
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}

// A connection that is cut without a word is noticed at both ends, idle or not, within about 5 s.
func TestHalfOpenConnection(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprintf("busy=%v", busy), func(t *testing.T) {
			t.Parallel()
			p := newPeers(t, Options{})
			px := newProxy(t, p.addr)
			p.addr = px.lis.Addr().String()
			g, o := p.open(t, 0, loadFrames)
			time.Sleep(1200 * time.Millisecond) // At least one beat.
			if _, ok, err := g.Poll(); ok || err != nil {
				t.Fatalf("an idle channel: %v", err)
			}
			close(px.cut)
			start := time.Now()
			var err error
			if busy {
				for err == nil && time.Since(start) < 20*time.Second {
					err = o.Send(records(1000))
				}
			} else {
				select {
				case <-o.(*out).dead:
				case <-time.After(20 * time.Second):
				}
				err = o.(*out).failure()
			}
			expectError(t, err, job.ClassInfrastructure, p.addr, "e0:0>0", "no sign of life for 4s")
			sender := time.Since(start)
			_, err = poll(g)
			expectError(t, err, job.ClassInfrastructure, "tm-sender", "e0:0>0")
			receiver := time.Since(start)
			if sender > 12*time.Second || receiver > 12*time.Second { // 5 s on a machine with nothing else to do.
				t.Errorf("noticed after %v by the sender and %v by the receiver", sender, receiver)
			}
		})
	}
}

// A receiving process that is killed ends the channels to it at once, with its address in the error.
func TestReceiverKilled(t *testing.T) {
	d, err := NewDialer(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), receiverEnv+"=1000000000")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var addr string
	if _, err := fmt.Fscanln(stdout, &addr); err != nil {
		t.Fatal(err)
	}
	killed := make(chan time.Time, 1)
	time.AfterFunc(200*time.Millisecond, func() {
		killed <- time.Now()
		_ = cmd.Process.Kill()
	})
	_, err = benchEdge(1_000_000_000, true).Send(t.Context(), d, addr)
	expectError(t, err, job.ClassInfrastructure, addr, "channel e0:")
	if took := time.Since(<-killed); took > 10*time.Second {
		t.Errorf("noticed after %v", took)
	}
	_ = cmd.Wait()
}
