package grpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	ggrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/cairnstream/cairn/exchange"
)

// Server receives the channels that other processes open and delivers to the ports of a directory.
type Server struct {
	opts    Options
	dir     *exchange.Directory
	closing chan struct{}
	wg      sync.WaitGroup // The goroutines of links.

	mu struct {
		sync.Mutex
		closed bool
		live   map[*exchange.Port]struct{} // Ports that a channel delivers to.
	}
}

var errShutdown = errors.New("the receiving process is shutting down")

// NewServer makes a server that finds ports in dir. The error lists what is wrong with opts.
func NewServer(dir *exchange.Directory, opts Options) (*Server, error) {
	opts = opts.WithDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	s := &Server{opts: opts, dir: dir, closing: make(chan struct{})}
	s.mu.live = map[*exchange.Port]struct{}{}
	return s, nil
}

// Register adds the service to a gRPC server, which was made with ServerOptions.
func (s *Server) Register(g ggrpc.ServiceRegistrar) {
	desc := ggrpc.ServiceDesc{
		ServiceName: serviceName,
		HandlerType: (*any)(nil),
		Streams:     []ggrpc.StreamDesc{linkDesc},
	}
	desc.Streams[0].Handler = func(_ any, stream ggrpc.ServerStream) error { return s.handle(stream) }
	g.RegisterService(&desc, s)
}

// Serve runs a gRPC server of its own for s on lis until ctx is done, and then closes s. It is for
// processes that have no other gRPC service on that address.
func (s *Server) Serve(ctx context.Context, lis net.Listener) error {
	g := ggrpc.NewServer(ServerOptions()...)
	s.Register(g)
	stop := context.AfterFunc(ctx, func() {
		s.Close()
		hard := time.AfterFunc(stopGrace, g.Stop)
		defer hard.Stop()
		g.GracefulStop()
	})
	defer stop()
	return g.Serve(lis)
}

// stopGrace is how long the peers have to see their links end before connections are closed. All
// links have ended by then, so it is a matter of a round trip.
const stopGrace = time.Second

// Close breaks all channels and waits for the end of their goroutines. It comes before GracefulStop
// of the gRPC server, which waits for the links to end and would wait for as long as jobs run.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.mu.closed {
		s.mu.closed = true
		close(s.closing)
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// handle is the life of one link on the receiving side.
func (s *Server) handle(stream ggrpc.ServerStream) error {
	run, from, err := linkMeta(stream.Context())
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if p, ok := peer.FromContext(stream.Context()); ok {
		from = fmt.Sprintf("%s (%v)", from, p.Addr)
	}
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return status.Error(codes.Unavailable, errShutdown.Error())
	}
	s.wg.Add(2)
	s.mu.Unlock()
	defer s.wg.Done()

	in := newInbound(s, stream, run, from)
	received := make(chan error, 1)
	go func() {
		defer s.wg.Done()
		err := in.receive()
		in.end(err)
		received <- err
	}()
	return in.answer(received)
}

// claim makes the caller the only one that delivers to p.
func (s *Server) claim(p *exchange.Port) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.mu.live[p]; taken {
		return false
	}
	s.mu.live[p] = struct{}{}
	return true
}

func (s *Server) unclaim(p *exchange.Port) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.live, p)
}

// cause is why a link ended with err.
func (s *Server) cause(err error) error {
	select {
	case <-s.closing:
		return errShutdown
	default:
	}
	if errors.Is(err, context.Canceled) {
		return errors.New("the connection is lost, or the peer cut it")
	}
	return reason(err)
}
