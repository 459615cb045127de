package grpc

import (
	"context"
	"fmt"
	"strconv"

	ggrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/cairnstream/cairn/job"
)

// The service has one method, and its messages are not protobuf: frames would be copied for
// nothing. A change of the layout of messages is a new version of the service.
const (
	serviceName = "cairn.exchange.v1.Exchange"
	linkMethod  = "/" + serviceName + "/Link"
	codecName   = "cairn-exchange"
)

// Metadata of a link.
const (
	metaJob     = "cairn-job"
	metaAttempt = "cairn-attempt"
	metaFrom    = "cairn-from"
)

var linkDesc = ggrpc.StreamDesc{StreamName: "Link", ServerStreams: true, ClientStreams: true}

func init() { encoding.RegisterCodecV2(passthrough{}) } // gRPC finds codecs by name, in this table only.

func linkContext(ctx context.Context, run job.Run, self job.WorkerID) context.Context {
	return metadata.AppendToOutgoingContext(ctx,
		metaJob, string(run.Job), metaAttempt, strconv.FormatUint(uint64(run.Attempt), 10), metaFrom, string(self))
}

// linkMeta reads what linkContext wrote.
func linkMeta(ctx context.Context) (run job.Run, from string, err error) {
	md, _ := metadata.FromIncomingContext(ctx)
	get := func(key string) string {
		v := md.Get(key)
		if len(v) != 1 || v[0] == "" {
			err = fmt.Errorf("metadata %s is missing", key)
			return ""
		}
		return v[0]
	}
	from = get(metaFrom)
	run.Job = job.ID(get(metaJob))
	n, perr := strconv.ParseUint(get(metaAttempt), 10, 64)
	if perr != nil && err == nil {
		err = fmt.Errorf("metadata %s: %w", metaAttempt, perr)
	}
	run.Attempt = job.Attempt(n)
	return run, from, err
}

// reason is the part of a gRPC error that says something.
func reason(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	if s.Code() == codes.Canceled {
		return fmt.Errorf("the connection is lost, or the peer cut it (%s)", s.Message())
	}
	return fmt.Errorf("%s (%v)", s.Message(), s.Code())
}
