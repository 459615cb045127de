package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/cairnstream/cairn/job"
	pb "github.com/cairnstream/cairn/proto/cairn/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

func within[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s within %v", what, patience)
		panic("unreachable")
	}
}

// leader is a Coordinator that hands out what happens.
type leader struct {
	epoch     job.Epoch
	refuse    error
	connected chan *fakeConnection
}

func newLeader(epoch job.Epoch) *leader {
	return &leader{epoch: epoch, connected: make(chan *fakeConnection, 16)}
}

type fakeConnection struct {
	epoch   job.Epoch
	info    job.WorkerInfo
	worker  Worker
	reports chan job.Report
	lost    chan error
	beats   chan struct{}
}

func (l *leader) Connect(info job.WorkerInfo, w Worker) (Connection, error) {
	if l.refuse != nil {
		return nil, l.refuse
	}
	c := &fakeConnection{
		epoch: l.epoch, info: info, worker: w, reports: make(chan job.Report, 1024), lost: make(chan error, 2),
		beats: make(chan struct{}, 1),
	}
	l.connected <- c
	return c, nil
}

func (c *fakeConnection) Epoch() job.Epoch     { return c.epoch }
func (c *fakeConnection) Report(r job.Report)  { c.reports <- r }
func (c *fakeConnection) Disconnect(err error) { c.lost <- err }
func (c *fakeConnection) Heartbeat() {
	select {
	case c.beats <- struct{}{}:
	default:
	}
}

// serveOn starts a JobManager on l, or on a free port.
func serveOn(t *testing.T, l net.Listener, c Coordinator, more ...func(*WorkerServerConfig)) (addr string, stop func()) {
	t.Helper()
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	cfg := WorkerServerConfig{Coordinator: c, Cluster: "test", Blob: "mem://test", Heartbeat: 50 * time.Millisecond}
	for _, f := range more {
		f(&cfg)
	}
	srv := NewServer(ServerConfig{Jobs: &fakeJobs{}, Workers: NewWorkerServer(cfg)})
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			srv.Stop(ctx)
			<-done
		})
	}
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// tm is a Handler that hands out what happens.
type tm struct {
	attached chan func(job.Report)
	commands chan job.Command
	welcomes chan Welcome
	detached chan struct{}
}

// taskManager starts the TaskManager's end.
func taskManager(t *testing.T, more func(*SessionConfig), addrs ...string) (*tm, func()) {
	t.Helper()
	h := &tm{attached: make(chan func(job.Report), 16), commands: make(chan job.Command, 1<<17), welcomes: make(chan Welcome, 16), detached: make(chan struct{}, 16)}
	cfg := SessionConfig{
		JobManagers: addrs, Info: job.WorkerInfo{ID: "w1", Slots: 2, Data: "127.0.0.1:1", Programs: []job.ProgramInfo{{Name: "p", Version: "v"}}},
		Welcomed:     func(_ context.Context, w Welcome) (Handler, error) { h.welcomes <- w; return h, nil },
		RetryInitial: time.Millisecond, RetryMax: 20 * time.Millisecond, MaxSilence: 100,
	}
	if more != nil {
		more(&cfg)
	}
	s, err := NewSession(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := within(t, done, "end of Run"); err != nil {
				t.Errorf("run: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return h, stop
}

func (h *tm) Attach(report func(job.Report)) { h.attached <- report }
func (h *tm) Handle(c job.Command)           { h.commands <- c }
func (h *tm) Detach()                        { h.detached <- struct{}{} }

var run1 = job.Run{Job: "00112233aabbccdd", Attempt: 3}

func TestSession(t *testing.T) {
	l := newLeader(5)
	addr, _ := serveOn(t, nil, l)
	h, stop := taskManager(t, nil, addr)
	c := within(t, l.connected, "connection")
	if want := (job.WorkerInfo{ID: "w1", Slots: 2, Data: "127.0.0.1:1", Programs: []job.ProgramInfo{{Name: "p", Version: "v"}}}); !reflect.DeepEqual(c.info, want) {
		t.Errorf("registered %+v, want %+v", c.info, want)
	}
	w := within(t, h.welcomes, "welcome")
	if want := (Welcome{JobManager: addr, Epoch: 5, Cluster: "test", Blob: "mem://test", Heartbeat: 50 * time.Millisecond}); w != want {
		t.Errorf("welcome %+v, want %+v", w, want)
	}
	report := within(t, h.attached, "report func")

	const n = 1000
	for i := range n {
		c.worker.Send(job.Complete{Run: run1, UpTo: job.CheckpointID(i)})
		report(job.Mail{Run: run1, From: job.Task{Vertex: "r"}, To: job.Task{Vertex: "e"}, Body: fmt.Append(nil, i)})
	}
	for i := range n {
		if got, want := within(t, h.commands, "command"), (job.Complete{Run: run1, UpTo: job.CheckpointID(i)}); got != want {
			t.Fatalf("command %d: got %+v", i, got)
		}
		if got := within(t, c.reports, "report").(job.Mail); string(got.Body) != fmt.Sprint(i) {
			t.Fatalf("report %d: got %+v", i, got)
		}
	}
	within(t, c.beats, "heartbeat")

	stop()
	if err := within(t, c.lost, "Disconnect"); !errors.Is(err, errConnectionEnded) {
		t.Errorf("lost because of %v", err)
	}
	within(t, h.detached, "Detach")
	report(job.Counters{Run: run1}) // Dropped.
	c.worker.Send(job.Start{Run: run1})
}

// The broken connection of a process that died is noticed at once, not after missed heartbeats.
func TestBrokenConnectionIsNoticedAtOnce(t *testing.T) {
	l := newLeader(1)
	addr, _ := serveOn(t, nil, l, func(c *WorkerServerConfig) { c.Heartbeat = time.Hour })
	var conns []net.Conn
	var mu sync.Mutex
	_, _ = taskManager(t, func(c *SessionConfig) {
		c.dial = []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", addr)
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, conn)
			return conn, err
		})}
	}, addr)
	c := within(t, l.connected, "connection")
	mu.Lock()
	began := time.Now()
	_ = conns[0].(*net.TCPConn).SetLinger(0) // Reset, as the kernel does for a killed process.
	_ = conns[0].Close()
	mu.Unlock()
	within(t, c.lost, "Disconnect")
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("noticed after %v", took)
	}
	within(t, l.connected, "another session")
}

// A TaskManager that hangs reads nothing: its receive window is full. That must not keep the coordinator from ending the
// session.
func TestHungTaskManager(t *testing.T) {
	l := newLeader(1)
	addr, _ := serveOn(t, nil, l)
	conn, err := dial(addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := pb.NewWorkerServiceClient(conn).Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	register := &pb.SessionRequest{Message: &pb.SessionRequest_Register{Register: &pb.Register{Worker: &pb.WorkerInfo{Id: "hung"}}}}
	if err := stream.Send(register); err != nil {
		t.Fatal(err)
	}
	c := within(t, l.connected, "connection")
	for range 64 {
		c.worker.Send(job.Deliver{Run: run1, To: job.Task{Vertex: "r"}, From: job.Task{Vertex: "e"}, Body: make([]byte, 1<<16)})
	}
	silent := errors.New("3 heartbeats missed")
	c.worker.Close(silent)
	if err := within(t, c.lost, "Disconnect"); !errors.Is(err, silent) {
		t.Errorf("lost because of %v", err)
	}
}

// One that leaves too much unread is given up: its queue is bounded.
func TestTooManyCommands(t *testing.T) {
	l := newLeader(1)
	addr, _ := serveOn(t, nil, l)
	blocked := make(chan struct{})
	defer close(blocked)
	_, _ = taskManager(t, func(c *SessionConfig) {
		c.Welcomed = func(ctx context.Context, _ Welcome) (Handler, error) {
			select {
			case <-blocked:
			case <-ctx.Done():
			}
			return nil, errors.New("too late")
		}
	}, addr)
	c := within(t, l.connected, "connection")
	for range 2 * maxQueued {
		c.worker.Send(job.Deliver{Run: run1, To: job.Task{Vertex: "r"}, From: job.Task{Vertex: "e"}, Body: make([]byte, 64)})
	}
	if err := within(t, c.lost, "Disconnect"); err == nil || !strings.Contains(err.Error(), "does not take them") {
		t.Errorf("lost because of %v", err)
	}
}

// A TaskManager that comes back before its old session has ended has one session, and the old one ends first.
func TestSecondSessionReplacesFirst(t *testing.T) {
	l := newLeader(1)
	addr, _ := serveOn(t, nil, l)
	_, _ = taskManager(t, func(c *SessionConfig) { c.RetryInitial = time.Hour }, addr)
	first := within(t, l.connected, "first connection")
	_, _ = taskManager(t, nil, addr)
	within(t, l.connected, "second connection")
	select {
	case err := <-first.lost:
		if err == nil || !strings.Contains(err.Error(), "another session") {
			t.Errorf("lost because of %v", err)
		}
	default:
		t.Error("the second session began before the first was over")
	}
}

func TestReconnectsToNewLeader(t *testing.T) {
	old := newLeader(1)
	oldAddr, stop := serveOn(t, nil, old)
	next := newLeader(2)
	nextAddr, _ := serveOn(t, nil, next)
	standby := newLeader(0)
	standby.refuse = NotLeaderError(nextAddr)
	standbyAddr, _ := serveOn(t, nil, standby)

	h, _ := taskManager(t, nil, oldAddr, standbyAddr) // It is told of the new leader by the standby.
	c := within(t, old.connected, "connection to the old leader")
	within(t, h.attached, "first report func")
	stop()
	within(t, c.lost, "Disconnect")
	within(t, next.connected, "connection to the new leader")
	within(t, h.welcomes, "first welcome")
	if w := within(t, h.welcomes, "second welcome"); w.Epoch != 2 || w.JobManager != nextAddr {
		t.Errorf("welcome %+v", w)
	}
	report := within(t, h.attached, "second report func")
	report(job.Counters{Run: run1, Task: job.Task{Vertex: "v"}})
}

func TestOldLeaderIsRefused(t *testing.T) {
	l := newLeader(9)
	addr, stop := serveOn(t, nil, l)
	stale := newLeader(8)
	staleAddr, _ := serveOn(t, nil, stale)
	h, _ := taskManager(t, nil, addr, staleAddr)
	within(t, l.connected, "connection")
	within(t, h.welcomes, "welcome")
	stop()
	for range 3 { // It may register there, but must not take orders.
		c := within(t, stale.connected, "try at the stale leader")
		within(t, c.lost, "end of the try")
	}
	select {
	case w := <-h.welcomes:
		t.Errorf("welcomed by epoch %d after epoch 9", w.Epoch)
	default:
	}
}

func TestMessagesOfAnotherEpochAreDropped(t *testing.T) {
	l := newLeader(4)
	addr, _ := serveOn(t, nil, l)
	conn, err := dial(addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := pb.NewWorkerServiceClient(conn).Session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send := func(m *pb.SessionRequest) {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	send(&pb.SessionRequest{Message: &pb.SessionRequest_Register{Register: &pb.Register{Worker: &pb.WorkerInfo{Id: "w"}}}})
	c := within(t, l.connected, "connection")
	for _, epoch := range []job.Epoch{3, 5, 0, 4} {
		m, err := reportToProto(epoch, job.Counters{Run: run1, Task: job.Task{Vertex: "v", Subtask: int(epoch)}})
		if err != nil {
			t.Fatal(err)
		}
		send(m)
	}
	if got := within(t, c.reports, "report").(job.Counters); got.Task.Subtask != 4 {
		t.Errorf("took the report of epoch %d", got.Task.Subtask)
	}
}

func TestOverTheLimit(t *testing.T) {
	l := newLeader(1)
	addr, _ := serveOn(t, nil, l)
	h, _ := taskManager(t, nil, addr)
	c := within(t, l.connected, "connection")
	report := within(t, h.attached, "report func")
	big := bytes.Repeat([]byte{1}, MaxMessage)
	task := job.Task{Vertex: "sum", Subtask: 1}
	state := job.SubtaskSnapshot{States: []job.StateHandle{{Name: "s", Inline: big}}}

	report(job.Ack{Run: run1, Task: task, Checkpoint: 7, Operators: map[string]job.SubtaskSnapshot{"sum": state}})
	d, ok := within(t, c.reports, "Decline").(job.Decline)
	if !ok || d.Run != run1 || d.Task != task || d.Checkpoint != 7 || !strings.Contains(d.Failure.Message, fmt.Sprint(MaxMessage)) {
		t.Errorf("got %+v", d)
	}
	c.worker.Send(job.Deploy{
		Run: run1, Spec: job.Spec{Settings: job.DefaultSettings()}, Tasks: []job.Task{task},
		Restore: &job.Restore{Operators: map[string]job.OperatorSnapshot{"sum": {Subtasks: []job.SubtaskSnapshot{state}}}},
	})
	f, ok := within(t, c.reports, "TaskChanged").(job.TaskChanged)
	if !ok || f.State != job.TaskFailed || f.Failure == nil || f.Failure.Retriable() || !strings.Contains(f.Failure.Message, fmt.Sprint(MaxMessage)) {
		t.Errorf("got %+v", f)
	}
	c.worker.Send(job.Start{Run: run1}) // The session lives.
	if got := within(t, h.commands, "command"); got != (job.Start{Run: run1}) {
		t.Errorf("got %+v", got)
	}
}

func TestBadRegistration(t *testing.T) {
	addr, _ := serveOn(t, nil, newLeader(1))
	conn, err := dial(addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, c := range []struct {
		first *pb.SessionRequest
		want  string
	}{
		{&pb.SessionRequest{Message: &pb.SessionRequest_Heartbeat{}}, "a session begins with Register"},
		{&pb.SessionRequest{Message: &pb.SessionRequest_Register{}}, "the TaskManager has no id"},
	} {
		stream, err := pb.NewWorkerServiceClient(conn).Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(c.first)
		_, err = stream.Recv()
		if err = fromStatus(t.Context(), addr, err); KindOf(err) != Invalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v (%v), want %q", err, KindOf(err), c.want)
		}
	}
}

// A JobManager that ends all sessions, as one does that lost the election, makes the TaskManager look for another.
func TestCloseAll(t *testing.T) {
	l := newLeader(1)
	ws := NewWorkerServer(WorkerServerConfig{Coordinator: l})
	srv := NewServer(ServerConfig{Jobs: &fakeJobs{}, Workers: ws})
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(lis) }()
	_, stop := taskManager(t, nil, lis.Addr().String())
	c := within(t, l.connected, "connection")
	ws.CloseAll(NotLeaderError(""))
	if err := within(t, c.lost, "Disconnect"); KindOf(err) != Unreachable {
		t.Errorf("lost because of %v", err)
	}
	within(t, l.connected, "another session")
	stop()
	srv.Stop(t.Context())
	if err := within(t, done, "end of Serve"); err != nil {
		t.Errorf("serve: %v", err)
	}
}
