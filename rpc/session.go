package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	"github.com/cairnstream/cairn/internal/group"
	"github.com/cairnstream/cairn/job"
	pb "github.com/cairnstream/cairn/proto/cairn/v1"
)

// Handler is the TaskManager's end of a session.
type Handler interface {
	// Attach says where reports go from now on. It is called at the start of every session, before the first
	// command of it. report may be called by any goroutine and never blocks; after its session has ended it does
	// nothing.
	Attach(report func(job.Report))
	// Handle carries out a command. It does not block for long: the next ones wait for it.
	Handle(c job.Command)
	// Detach says that the session has ended: the leader takes what it started for lost.
	Detach()
}

// Welcome is what a JobManager says to a TaskManager that registers.
type Welcome struct {
	JobManager string // The address that answered.
	Epoch      job.Epoch
	Cluster    string
	Blob       string // URL of the cluster's blob store.
	Heartbeat  time.Duration
	Version    string // Of the JobManager.
}

// SessionConfig configures the TaskManager's end of sessions.
type SessionConfig struct {
	JobManagers []string // Addresses, host:port; at least one.
	Info        job.WorkerInfo
	Credentials credentials.TransportCredentials // nil: no TLS.
	// Welcomed is called at the start of every session and returns who handles it, usually the same each time. An
	// error ends the session, and another is tried later.
	Welcomed func(ctx context.Context, w Welcome) (Handler, error)
	Log      *zap.Logger // nil: none.
	// RetryInitial and RetryMax are the pauses between rounds of tries, which double from the first to the second.
	// Defaults 100 ms and 2 s: a JobManager that is back is found soon, one that is away is not flooded.
	RetryInitial, RetryMax time.Duration
	// MaxSilence is the number of heartbeats without an answer after which the session is given up; default 5.
	MaxSilence int
	dial       []grpc.DialOption
}

func (c SessionConfig) withDefaults() SessionConfig {
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.RetryInitial <= 0 {
		c.RetryInitial = 100 * time.Millisecond
	}
	if c.RetryMax <= 0 {
		c.RetryMax = 2 * time.Second
	}
	if c.MaxSilence <= 0 {
		c.MaxSilence = 5
	}
	return c
}

// Session keeps a TaskManager connected to the leading JobManager.
type Session struct {
	cfg   SessionConfig
	epoch job.Epoch // The highest one seen: an older leader is refused.
}

// NewSession makes a Session; Run does the work.
func NewSession(c SessionConfig) (*Session, error) {
	if len(c.JobManagers) == 0 {
		return nil, errors.New("session: no address of a JobManager")
	}
	if c.Welcomed == nil {
		return nil, errors.New("session: nobody to welcome")
	}
	return &Session{cfg: c.withDefaults()}, nil
}

// Run keeps a session until ctx is done: it asks the JobManagers in turn, follows hints to the leader, and begins anew
// when the stream breaks.
func (s *Session) Run(ctx context.Context) error {
	pause := s.cfg.RetryInitial
	told := time.Time{}
	for next := 0; ; next++ {
		began := time.Now()
		welcomed, err := s.round(ctx, next)
		if ctx.Err() != nil {
			return nil
		}
		if welcomed {
			pause = s.cfg.RetryInitial
			s.cfg.Log.Warn("session with the jobmanager ended; connecting again", zap.Error(err), zap.Duration("after", time.Since(began).Round(time.Millisecond)))
		} else if time.Since(told) >= time.Second {
			told = time.Now()
			s.cfg.Log.Warn("no jobmanager takes this taskmanager; trying again", zap.Strings("jobmanagers", s.cfg.JobManagers), zap.Error(err))
		}
		// Full jitter keeps many TaskManagers from coming back in step.
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause/2 + rand.N(pause/2+1)):
		}
		if !welcomed {
			pause = min(2*pause, s.cfg.RetryMax)
		}
	}
}

// round tries every JobManager once, beginning with number next, until one has had a session.
func (s *Session) round(ctx context.Context, next int) (welcomed bool, err error) {
	var problems []error
	tried := map[string]bool{}
	n := len(s.cfg.JobManagers)
	for i := range n {
		for addr := s.cfg.JobManagers[(next+i)%n]; addr != "" && !tried[addr]; {
			tried[addr] = true
			welcomed, err := s.session(ctx, addr)
			if welcomed || ctx.Err() != nil {
				return welcomed, err
			}
			problems = append(problems, err)
			addr = ""
			var e *Error
			if errors.As(err, &e) {
				addr = e.Leader // "" unless it knows.
			}
		}
	}
	return false, errors.Join(problems...)
}

// session holds one session with the JobManager at addr until it ends. It always returns an error, and whether it was
// welcomed.
func (s *Session) session(ctx context.Context, addr string) (welcomed bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := dial(addr, s.cfg.Credentials, s.cfg.dial...)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	stream, err := pb.NewWorkerServiceClient(conn).Session(ctx)
	if err != nil {
		return false, fromStatus(ctx, addr, err)
	}
	err = stream.Send(&pb.SessionRequest{Message: &pb.SessionRequest_Register{Register: &pb.Register{Worker: workerToProto(s.cfg.Info)}}})
	if err != nil && !errors.Is(err, io.EOF) { // After io.EOF the reason is in Recv.
		return false, fromStatus(ctx, addr, err)
	}
	silence := time.AfterFunc(registerTimeout, cancel)
	first, err := stream.Recv()
	if !silence.Stop() {
		return false, &Error{Kind: Unreachable, Err: fmt.Errorf("JobManager at %s: no answer within %v", addr, registerTimeout)}
	}
	if err != nil {
		return false, fromStatus(ctx, addr, err)
	}
	w, err := s.welcome(addr, first)
	if err != nil {
		return false, err
	}
	handler, err := s.cfg.Welcomed(ctx, w)
	if err != nil {
		return false, err
	}
	s.cfg.Log.Info("connected to the jobmanager", zap.String("jobmanager", addr), zap.Uint64("epoch", uint64(w.Epoch)), zap.String("cluster", w.Cluster))
	up := &uplink{
		cfg: s.cfg, addr: addr, stream: stream, cancel: cancel, epoch: w.Epoch,
		queue: newQueue[job.Report](maxQueued), heard: make(chan struct{}, 1),
	}
	handler.Attach(up.report)
	defer handler.Detach()
	return true, up.run(ctx, w.Heartbeat, handler)
}

func (s *Session) welcome(addr string, m *pb.SessionResponse) (Welcome, error) {
	p := m.GetWelcome()
	if p == nil {
		return Welcome{}, Errorf(Failed, "JobManager at %s began with %T instead of Welcome", addr, m.Message)
	}
	epoch := job.Epoch(m.Epoch)
	if epoch < s.epoch {
		return Welcome{}, Errorf(Unreachable, "JobManager at %s leads in epoch %d, which is over: epoch %d was seen", addr, epoch, s.epoch)
	}
	s.epoch = epoch
	d := &decoder{}
	w := Welcome{JobManager: addr, Epoch: epoch, Cluster: p.Cluster, Blob: p.Blob, Heartbeat: d.duration(p.Heartbeat), Version: p.Version}
	if w.Heartbeat <= 0 {
		w.Heartbeat = time.Second
	}
	return w, d.err
}

// uplink is a session in progress.
type uplink struct {
	cfg    SessionConfig
	addr   string
	stream grpc.BidiStreamingClient[pb.SessionRequest, pb.SessionResponse]
	cancel context.CancelFunc
	epoch  job.Epoch
	queue  *queue[job.Report] // nil stands for a heartbeat.
	heard  chan struct{}
}

// report queues r; any goroutine may call it.
func (u *uplink) report(r job.Report) {
	if !u.queue.put(r) {
		u.cfg.Log.Error("the jobmanager does not take reports; giving up the session", zap.Int("waiting", maxQueued))
		u.cancel()
	}
}

// run receives on this goroutine, and sends and watches on two others, until the stream breaks.
func (u *uplink) run(ctx context.Context, heartbeat time.Duration, h Handler) error {
	g := group.New(ctx)
	for name, f := range map[string]func(context.Context) error{
		"session: send":  u.send,
		"session: watch": func(ctx context.Context) error { return u.watch(ctx, heartbeat) },
	} {
		g.Go(name, func(ctx context.Context) error {
			defer u.cancel() // Ends Recv.
			return f(ctx)
		})
	}
	err := u.receive(ctx, h)
	u.cancel()
	u.queue.close()
	if e := g.Wait(); e != nil {
		return e
	}
	return err
}

// watch sends heartbeats and gives up a JobManager that does not answer. It returns nil when ctx ends.
func (u *uplink) watch(ctx context.Context, heartbeat time.Duration) error {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	silent := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-u.heard:
			silent = 0
		case <-ticker.C:
			if silent++; silent > u.cfg.MaxSilence {
				return &Error{Kind: Unreachable, Err: fmt.Errorf("JobManager at %s: %d heartbeats without an answer", u.addr, u.cfg.MaxSilence)}
			}
			u.report(nil)
		}
	}
}

// send returns nil when ctx ends, or when receive knows better why the stream broke.
func (u *uplink) send(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-u.queue.ready:
			for _, r := range u.queue.take() {
				if err := u.sendOne(r); errors.Is(err, io.EOF) || ctx.Err() != nil {
					return nil
				} else if err != nil {
					return err
				}
			}
		}
	}
}

func (u *uplink) sendOne(r job.Report) error {
	if r == nil {
		return u.stream.Send(&pb.SessionRequest{Epoch: uint64(u.epoch), Message: &pb.SessionRequest_Heartbeat{Heartbeat: &pb.Heartbeat{}}})
	}
	m, err := reportToProto(u.epoch, r)
	if err != nil {
		return err
	}
	size := proto.Size(m)
	if size <= MaxMessage {
		return u.stream.Send(m)
	}
	ack, ok := r.(job.Ack)
	if !ok {
		u.cfg.Log.Warn("message is over the limit and is dropped", zap.String("message", fmt.Sprintf("%T", r)),
			zap.Int("bytes", size), zap.Int("limit", MaxMessage))
		return nil
	}
	return u.sendOne(job.Decline{
		Run: ack.Run, Task: ack.Task, Checkpoint: ack.Checkpoint,
		Failure: job.Failure{
			Class: job.ClassRefused, Task: ack.Task.String(), Worker: u.cfg.Info.ID,
			Message: fmt.Sprintf("snapshot of %d bytes is to be kept inline: the limit is %d; use state.backend fs", size, MaxMessage),
		},
	})
}

func (u *uplink) receive(ctx context.Context, h Handler) error {
	for {
		m, err := u.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return &Error{Kind: Unreachable, Err: fmt.Errorf("JobManager at %s ended the session", u.addr)}
		case err != nil:
			return fromStatus(ctx, u.addr, err)
		}
		select {
		case u.heard <- struct{}{}:
		default:
		}
		if job.Epoch(m.Epoch) != u.epoch {
			u.cfg.Log.Warn("message of another epoch is dropped", zap.Uint64("epoch", m.Epoch), zap.Uint64("want", uint64(u.epoch)))
			continue
		}
		if m.GetHeartbeat() != nil {
			continue
		}
		c, err := commandFromProto(m)
		if err != nil {
			return Errorf(Failed, "JobManager at %s: message that cannot be read: %w", u.addr, err)
		}
		h.Handle(c)
	}
}
