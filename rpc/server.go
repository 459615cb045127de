package rpc

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	pb "github.com/cairnstream/cairn/proto/cairn/v1"
)

// MaxMessage is the largest message that either side takes, in bytes. The largest ones are a Deploy and an Ack with
// state inline; what is over the limit is turned into a failure that names it before it is sent, since a stream that
// breaks on it would break again on the next try.
const MaxMessage = 64 << 20

// Keepalive notices a peer whose machine or network is gone, where no packet says so. A process that dies is noticed
// at once by its broken connection, and one that hangs by its heartbeats.
const (
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
)

// Server is the gRPC server of a JobManager.
type Server struct {
	grpc   *grpc.Server
	health *health.Server
	worker *WorkerServer
	stop   sync.Once
}

// ServerConfig says what a Server serves.
type ServerConfig struct {
	Jobs        Jobs                             // The API of jobs.
	Workers     *WorkerServer                    // Sessions of TaskManagers; nil: none.
	Credentials credentials.TransportCredentials // nil: no TLS.
}

// NewServer makes a server with health and reflection. Its health is NOT_SERVING until SetServing.
func NewServer(c ServerConfig) *Server {
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessage), grpc.MaxSendMsgSize(MaxMessage),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveTime / 2, PermitWithoutStream: true}),
	}
	if c.Credentials != nil {
		opts = append(opts, grpc.Creds(c.Credentials))
	}
	s := &Server{grpc: grpc.NewServer(opts...), health: health.NewServer(), worker: c.Workers}
	pb.RegisterJobServiceServer(s.grpc, &jobServer{jobs: c.Jobs})
	if c.Workers != nil {
		pb.RegisterWorkerServiceServer(s.grpc, c.Workers)
	}
	healthpb.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	s.SetServing(false)
	return s
}

// SetServing sets what health checks answer: whether this JobManager leads.
func (s *Server) SetServing(serving bool) {
	st := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		st = healthpb.HealthCheckResponse_SERVING
	}
	for _, name := range []string{"", pb.JobService_ServiceDesc.ServiceName, pb.WorkerService_ServiceDesc.ServiceName} {
		s.health.SetServingStatus(name, st)
	}
}

// Serve answers on l until Stop.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// Stop ends every session, lets the other calls finish until ctx is done, and then cuts them off.
func (s *Server) Stop(ctx context.Context) {
	s.stop.Do(func() {
		s.health.Shutdown()
		if s.worker != nil {
			s.worker.CloseAll(Errorf(Unreachable, "the JobManager is shutting down"))
		}
		stop(ctx, s.grpc)
		if s.worker != nil {
			s.worker.wait()
		}
	})
}

// stop lets calls finish until ctx is done, and then cuts them off.
func stop(ctx context.Context, s *grpc.Server) {
	cut := context.AfterFunc(ctx, s.Stop)
	defer cut()
	s.GracefulStop()
}

// DataServer is the gRPC server of a TaskManager, for the exchange of data.
type DataServer struct{ grpc *grpc.Server }

// NewDataServer makes a server with the given options and services, to which it adds nothing but health: limits and
// flow control are the exchange's own.
func NewDataServer(opts []grpc.ServerOption, register func(grpc.ServiceRegistrar)) *DataServer {
	s := &DataServer{grpc: grpc.NewServer(opts...)}
	register(s.grpc)
	healthpb.RegisterHealthServer(s.grpc, health.NewServer())
	return s
}

// Serve answers on l until Stop.
func (s *DataServer) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// Stop lets calls finish until ctx is done, and then cuts them off.
func (s *DataServer) Stop(ctx context.Context) { stop(ctx, s.grpc) }
