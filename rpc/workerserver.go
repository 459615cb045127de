package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cairnstream/cairn/internal/group"
	"github.com/cairnstream/cairn/job"
	pb "github.com/cairnstream/cairn/proto/cairn/v1"
)

// Coordinator is what TaskManagers report to.
type Coordinator interface {
	// Connect begins the session of a TaskManager. Its commands go to w from now on. An error refuses it; that of a
	// JobManager that does not lead is made by NotLeaderError. A TaskManager has one session at a time: the former
	// one was disconnected before. It must not block for long.
	Connect(info job.WorkerInfo, w Worker) (Connection, error)
}

// Connection is the coordinator's end of a session. None of its methods may block.
type Connection interface {
	// Epoch is the leader's term, the same for the whole session.
	Epoch() job.Epoch
	// Report takes what the TaskManager says, in order. After Disconnect it does nothing.
	Report(r job.Report)
	// Heartbeat says that the TaskManager lives.
	Heartbeat()
	// Disconnect says that the session is over: the TaskManager is lost. It is called once, and last.
	Disconnect(reason error)
}

// Worker is the way to a TaskManager, for the coordinator. Any goroutine may call it; nothing blocks.
type Worker interface {
	// Send queues a command. Commands arrive in order, or not at all once the session has ended.
	Send(c job.Command)
	// Close ends the session. Disconnect follows.
	Close(reason error)
}

// WorkerServerConfig configures a WorkerServer.
type WorkerServerConfig struct {
	Coordinator Coordinator
	Cluster     string // Told to TaskManagers.
	Blob        string // URL of the cluster's blob store, told to TaskManagers.
	Version     string // Of this binary.
	// Heartbeat is how often TaskManagers are told to say that they live; default 1 s. It is the coordinator that
	// counts the missed ones.
	Heartbeat time.Duration
	Log       *zap.Logger // nil: none.
}

func (c WorkerServerConfig) withDefaults() WorkerServerConfig {
	if c.Heartbeat <= 0 {
		c.Heartbeat = time.Second
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	return c
}

const (
	// registerTimeout is how long a stream may be open before it says who it is.
	registerTimeout = 10 * time.Second
	// maxQueued bounds what waits for one TaskManager. Mail between readers and enumerators is most of it; a
	// TaskManager that leaves so much unread has stalled.
	maxQueued = 1 << 17
)

// WorkerServer serves the sessions of TaskManagers.
type WorkerServer struct {
	pb.UnimplementedWorkerServiceServer
	cfg WorkerServerConfig
	g   *group.Group // Sending and receiving goroutines.

	mu struct {
		sync.Mutex
		sessions map[job.WorkerID]*workerSession
		all      map[*workerSession]bool
	}
}

// NewWorkerServer makes a WorkerServer, to be served by a Server.
func NewWorkerServer(c WorkerServerConfig) *WorkerServer {
	s := &WorkerServer{cfg: c.withDefaults(), g: group.New(context.Background())}
	s.mu.sessions = map[job.WorkerID]*workerSession{}
	s.mu.all = map[*workerSession]bool{}
	return s
}

// CloseAll ends every session, as a JobManager does that leads no more.
func (s *WorkerServer) CloseAll(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ws := range s.mu.all {
		ws.Close(reason)
	}
}

func (s *WorkerServer) wait() { _ = s.g.Wait() } // How they end is told to the coordinator.

// workerSession is one stream. The handler's goroutine watches, one sends, and the one that receives calls conn.
type workerSession struct {
	server *WorkerServer
	stream grpc.BidiStreamingServer[pb.SessionRequest, pb.SessionResponse]
	queue  *queue[outgoing]
	log    *zap.Logger

	welcomed     chan struct{} // Closed when conn is set.
	conn         Connection
	closed       chan struct{} // Closed with reason set.
	disconnected chan struct{} // Closed when the receiving goroutine has ended.
	once         sync.Once
	reason       error
}

// outgoing is a command, or a heartbeat when it is nil.
type outgoing struct{ command job.Command }

// Send implements Worker.
func (w *workerSession) Send(c job.Command) {
	if !w.queue.put(outgoing{c}) {
		w.Close(fmt.Errorf("%d commands are waiting: the TaskManager does not take them", maxQueued))
	}
}

// Close implements Worker.
func (w *workerSession) Close(reason error) {
	w.once.Do(func() {
		w.reason = reason
		close(w.closed)
	})
}

// Session implements the WorkerService. It runs on the stream's own goroutine, which watches over the two others and is
// never blocked by the stream: its return is what ends them.
func (s *WorkerServer) Session(stream grpc.BidiStreamingServer[pb.SessionRequest, pb.SessionResponse]) error {
	w := &workerSession{
		server: s, stream: stream, queue: newQueue[outgoing](maxQueued), log: s.cfg.Log,
		welcomed: make(chan struct{}), closed: make(chan struct{}), disconnected: make(chan struct{}),
	}
	s.mu.Lock()
	s.mu.all[w] = true
	s.mu.Unlock()
	for name, f := range map[string]func(context.Context) error{"session: receive": w.receive, "session: send": w.send} {
		s.g.Go(name, func(ctx context.Context) error {
			w.Close(group.Call(ctx, name, f)) // A panic ends the session, not the process.
			return nil
		})
	}
	err := w.watch(stream.Context())
	w.Close(err)
	w.queue.close()
	return statusOf(err)
}

// watch returns why the session ends.
func (w *workerSession) watch(ctx context.Context) error {
	registering := time.NewTimer(registerTimeout)
	defer registering.Stop()
	select {
	case <-w.welcomed:
	case <-registering.C:
		return status.Errorf(codes.DeadlineExceeded, "no Register within %v", registerTimeout)
	case <-w.closed:
		return w.reason
	case <-ctx.Done():
		return errConnectionEnded
	}
	select {
	case <-w.closed:
		return w.reason
	case <-ctx.Done():
		return errConnectionEnded
	}
}

var errConnectionEnded = errors.New("the connection to the TaskManager ended")

// send sends Welcome and then what is queued, until the session is closed or the stream breaks.
func (w *workerSession) send(context.Context) error {
	select {
	case <-w.welcomed:
	case <-w.closed:
		return w.reason
	}
	cfg := w.server.cfg
	err := w.stream.Send(&pb.SessionResponse{
		Epoch: uint64(w.conn.Epoch()),
		Message: &pb.SessionResponse_Welcome{Welcome: &pb.Welcome{
			Cluster: cfg.Cluster, Blob: cfg.Blob, Heartbeat: durationpb.New(cfg.Heartbeat), Version: cfg.Version,
		}},
	})
	for err == nil {
		select {
		case <-w.closed:
			return w.reason
		case <-w.queue.ready:
			for _, o := range w.queue.take() {
				if err = w.sendOne(o); err != nil {
					break
				}
			}
		}
	}
	return fmt.Errorf("%w: %w", errConnectionEnded, err)
}

func (w *workerSession) sendOne(o outgoing) error {
	if o.command == nil {
		return w.stream.Send(&pb.SessionResponse{
			Epoch: uint64(w.conn.Epoch()), Message: &pb.SessionResponse_Heartbeat{Heartbeat: &pb.Heartbeat{}},
		})
	}
	m, err := commandToProto(w.conn.Epoch(), o.command)
	if err != nil {
		return err
	}
	if size := proto.Size(m); size > MaxMessage {
		return w.tooLarge(o.command, size)
	}
	return w.stream.Send(m)
}

// tooLarge answers for the TaskManager when a command cannot be sent to it.
func (w *workerSession) tooLarge(c job.Command, size int) error {
	deploy, ok := c.(job.Deploy)
	if !ok {
		w.log.Warn("message is over the limit and is dropped", zap.String("message", fmt.Sprintf("%T", c)),
			zap.Int("bytes", size), zap.Int("limit", MaxMessage))
		return nil
	}
	for _, t := range deploy.Tasks {
		f := job.Failure{
			Class: job.ClassRefused, Task: t.String(),
			Message: fmt.Sprintf("deployment has %d bytes, most of them state kept inline: the limit is %d; use state.backend fs", size, MaxMessage),
		}
		w.conn.Report(job.TaskChanged{Run: deploy.Run, Task: t, State: job.TaskFailed, Failure: &f})
	}
	return nil
}

// receive registers the TaskManager, passes on what it says, and says when it is lost.
func (w *workerSession) receive(context.Context) error {
	defer close(w.disconnected)
	defer func() {
		w.server.mu.Lock()
		delete(w.server.mu.all, w)
		w.server.mu.Unlock()
	}()
	info, err := w.register()
	if err != nil {
		return err
	}
	w.log = w.log.With(zap.String("worker", string(info.ID)))
	if err := w.replace(info.ID); err != nil {
		return err
	}
	defer w.unlist(info.ID)
	if w.conn, err = w.server.cfg.Coordinator.Connect(info, w); err != nil {
		return err
	}
	defer func() {
		w.Close(errConnectionEnded)
		w.conn.Disconnect(w.reason)
	}()
	close(w.welcomed)
	w.Close(w.reports())
	return nil
}

func (w *workerSession) register() (job.WorkerInfo, error) {
	m, err := w.stream.Recv()
	if err != nil {
		return job.WorkerInfo{}, err
	}
	r := m.GetRegister()
	if r == nil {
		return job.WorkerInfo{}, Errorf(Invalid, "a session begins with Register, not with %T", m.Message)
	}
	d := &decoder{}
	info := d.worker(r.Worker)
	if d.err != nil {
		return job.WorkerInfo{}, &Error{Kind: Invalid, Err: fmt.Errorf("register: %w", d.err)}
	}
	return info, nil
}

// replace ends the former session of the same TaskManager, which is dead though nothing has said so yet.
func (w *workerSession) replace(id job.WorkerID) error {
	for {
		w.server.mu.Lock()
		old := w.server.mu.sessions[id]
		if old == nil {
			w.server.mu.sessions[id] = w
			w.server.mu.Unlock()
			return nil
		}
		w.server.mu.Unlock()
		old.Close(errors.New("the TaskManager has opened another session"))
		select {
		case <-old.disconnected:
		case <-w.closed:
			return w.reason
		}
	}
}

func (w *workerSession) unlist(id job.WorkerID) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	if w.server.mu.sessions[id] == w {
		delete(w.server.mu.sessions, id)
	}
}

// reports passes on reports until the stream ends.
func (w *workerSession) reports() error {
	epoch := w.conn.Epoch()
	for {
		m, err := w.stream.Recv()
		if err != nil {
			return fmt.Errorf("%w: %w", errConnectionEnded, err)
		}
		w.conn.Heartbeat()
		if got := job.Epoch(m.Epoch); got != epoch {
			w.log.Warn("message of another epoch is dropped", zap.Uint64("epoch", m.Epoch), zap.Uint64("want", uint64(epoch)))
			continue
		}
		if m.GetHeartbeat() != nil {
			w.queue.put(outgoing{})
			continue
		}
		r, err := reportFromProto(m)
		if err != nil {
			return Errorf(Invalid, "message that cannot be read: %w", err)
		}
		w.conn.Report(r)
	}
}
