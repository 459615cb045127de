package rpc

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
	pb "github.com/cairnstream/cairn/proto/cairn/v1"
)

// ClientConfig configures a Client.
type ClientConfig struct {
	JobManagers []string                         // Addresses, host:port; at least one.
	Credentials credentials.TransportCredentials // nil: no TLS.
	// ElectionPatience is how long a call waits while JobManagers answer but none of them leads; default 10 s, in
	// which a leader that died is succeeded.
	ElectionPatience time.Duration
	// WatchPatience is how long Watch waits for any JobManager when it has lost the one that it watched; default 1 min.
	WatchPatience time.Duration
	dial          []grpc.DialOption
}

// retryPause is the time between two tries: short for somebody who waits, long against a round trip.
const retryPause = 100 * time.Millisecond

// Client asks JobManagers. It implements Jobs and finds the one that leads.
type Client struct {
	cfg ClientConfig

	mu struct {
		sync.Mutex
		conns map[string]*grpc.ClientConn
		last  string // Who answered last.
	}
}

var _ Jobs = (*Client)(nil)

// NewClient makes a Client, which Close frees. It connects at the first call.
func NewClient(c ClientConfig) (*Client, error) {
	if len(c.JobManagers) == 0 {
		return nil, Errorf(Invalid, "no address of a JobManager")
	}
	if c.ElectionPatience <= 0 {
		c.ElectionPatience = 10 * time.Second
	}
	if c.WatchPatience <= 0 {
		c.WatchPatience = time.Minute
	}
	cl := &Client{cfg: c}
	cl.mu.conns = map[string]*grpc.ClientConn{}
	return cl, nil
}

// Close ends all connections.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, conn := range c.mu.conns {
		errs = append(errs, conn.Close())
	}
	clear(c.mu.conns)
	return errors.Join(errs...)
}

func (c *Client) service(addr string) (pb.JobServiceClient, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.mu.conns[addr]
	if conn == nil {
		var err error
		if conn, err = dial(addr, c.cfg.Credentials, c.cfg.dial...); err != nil {
			return nil, &Error{Kind: Invalid, Err: err}
		}
		c.mu.conns[addr] = conn
	}
	return pb.NewJobServiceClient(conn), nil
}

// order lists whom to ask: who answered last comes first.
func (c *Client) order() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := slices.Clone(c.cfg.JobManagers)
	if c.mu.last != "" {
		out = append([]string{c.mu.last}, slices.DeleteFunc(out, func(a string) bool { return a == c.mu.last })...)
	}
	return out
}

// call runs f against the JobManager that leads.
func (c *Client) call(ctx context.Context, f func(context.Context, pb.JobServiceClient) error) error {
	deadline := time.Now().Add(c.cfg.ElectionPatience)
	for {
		electing, err := c.round(ctx, f)
		if err == nil || !electing || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return &Error{Kind: Interrupted, Err: ctx.Err()}
		case <-time.After(retryPause):
		}
	}
}

// round asks each JobManager once. electing tells that one answered and that none leads.
func (c *Client) round(ctx context.Context, f func(context.Context, pb.JobServiceClient) error) (electing bool, err error) {
	var problems []string
	tried := map[string]bool{}
	for todo := c.order(); len(todo) > 0; todo = todo[1:] {
		addr := todo[0]
		if tried[addr] {
			continue
		}
		tried[addr] = true
		svc, err := c.service(addr)
		if err != nil {
			return false, err
		}
		raw := f(ctx, svc)
		err = fromStatus(ctx, addr, raw)
		if KindOf(err) != Unreachable || err == nil {
			if err == nil {
				c.mu.Lock()
				c.mu.last = addr
				c.mu.Unlock()
			}
			return false, err
		}
		electing = electing || isNotLeader(raw)
		problems = append(problems, err.Error())
		var e *Error
		if errors.As(err, &e) && e.Leader != "" {
			todo = slices.Insert(slices.Clone(todo), 1, e.Leader)
		}
	}
	return electing, &Error{Kind: Unreachable, Err: errors.New(strings.Join(problems, "; "))}
}

// Submit implements Jobs. It chooses a RequestID if there is none, so that its own repetitions start one job.
func (c *Client) Submit(ctx context.Context, s coordinator.Submission) (coordinator.Submitted, error) {
	if s.RequestID == "" {
		s.RequestID = newRequestID()
	}
	return ask(ctx, c, func(ctx context.Context, svc pb.JobServiceClient) (*pb.SubmitJobResponse, error) {
		return svc.SubmitJob(ctx, submissionToProto(s))
	}, (*decoder).submitted)
}

func newRequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // Never fails.
	return hex.EncodeToString(b[:])
}

// ask makes one call and converts its answer.
func ask[P, D any](ctx context.Context, c *Client, call func(context.Context, pb.JobServiceClient) (P, error), convert func(*decoder, P) D) (D, error) {
	var res P
	err := c.call(ctx, func(ctx context.Context, svc pb.JobServiceClient) (err error) {
		res, err = call(ctx, svc)
		return err
	})
	var out D
	if err != nil {
		return out, err
	}
	d := &decoder{}
	out = convert(d, res)
	if d.err != nil {
		return out, fmt.Errorf("answer of the JobManager: %w", d.err)
	}
	return out, nil
}

// List implements Jobs.
func (c *Client) List(ctx context.Context) ([]coordinator.Job, error) {
	return ask(ctx, c, func(ctx context.Context, svc pb.JobServiceClient) (*pb.ListJobsResponse, error) {
		return svc.ListJobs(ctx, &pb.ListJobsRequest{})
	}, func(d *decoder, p *pb.ListJobsResponse) []coordinator.Job { return convertAll(p.GetJobs(), d.job) })
}

// Get implements Jobs.
func (c *Client) Get(ctx context.Context, ref string) (coordinator.JobDetail, error) {
	return ask(ctx, c, func(ctx context.Context, svc pb.JobServiceClient) (*pb.GetJobResponse, error) {
		return svc.GetJob(ctx, &pb.GetJobRequest{Job: ref})
	}, func(d *decoder, p *pb.GetJobResponse) coordinator.JobDetail { return d.detail(p.GetJob()) })
}

// Watch implements Jobs. It outlives the JobManager that it watches, if another one leads within WatchPatience; the
// first call after that has all events that the new one knows of.
func (c *Client) Watch(ctx context.Context, ref string, f func(coordinator.JobDetail) error) error {
	lost := time.Time{}
	for {
		seen := false
		var own error // Of f.
		err := c.call(ctx, func(ctx context.Context, svc pb.JobServiceClient) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := svc.WatchJob(ctx, &pb.WatchJobRequest{Job: ref})
			if err != nil {
				return err
			}
			for {
				p, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return err
				}
				d := &decoder{}
				j := d.detail(p.GetJob())
				if d.err != nil {
					own = fmt.Errorf("answer of the JobManager: %w", d.err)
					return nil
				}
				seen = true
				ref = string(j.Job.ID) // A later job of the same name is not meant.
				if own = f(j); own != nil {
					return nil
				}
			}
		})
		switch {
		case own != nil:
			return own
		case err == nil || KindOf(err) != Unreachable:
			return err
		case seen:
			lost = time.Now()
		case lost.IsZero() || time.Since(lost) > c.cfg.WatchPatience:
			return err // Never reached, or lost for too long.
		}
		select {
		case <-ctx.Done():
			return &Error{Kind: Interrupted, Err: ctx.Err()}
		case <-time.After(retryPause):
		}
	}
}

// Cancel implements Jobs.
func (c *Client) Cancel(ctx context.Context, ref string) (coordinator.Job, error) {
	return ask(ctx, c, func(ctx context.Context, svc pb.JobServiceClient) (*pb.CancelJobResponse, error) {
		return svc.CancelJob(ctx, &pb.CancelJobRequest{Job: ref})
	}, func(d *decoder, p *pb.CancelJobResponse) coordinator.Job { return d.job(p.GetJob()) })
}

// TriggerCheckpoint implements Jobs.
func (c *Client) TriggerCheckpoint(ctx context.Context, ref string, o coordinator.TriggerOptions) (coordinator.Checkpoint, error) {
	return ask(ctx, c, func(ctx context.Context, svc pb.JobServiceClient) (*pb.TriggerCheckpointResponse, error) {
		return svc.TriggerCheckpoint(ctx, &pb.TriggerCheckpointRequest{Job: ref, Full: o.Full, Incremental: o.Incremental})
	}, func(d *decoder, p *pb.TriggerCheckpointResponse) coordinator.Checkpoint {
		return d.checkpoint(p.GetCheckpoint())
	})
}

// TakeSavepoint implements Jobs.
func (c *Client) TakeSavepoint(ctx context.Context, ref string, o coordinator.SavepointOptions) (coordinator.Savepoint, error) {
	return ask(ctx, c, func(ctx context.Context, svc pb.JobServiceClient) (*pb.TakeSavepointResponse, error) {
		return svc.TakeSavepoint(ctx, &pb.TakeSavepointRequest{Job: ref, To: o.To, Stop: o.Stop})
	}, func(d *decoder, p *pb.TakeSavepointResponse) coordinator.Savepoint {
		return d.savepoint(p.GetSavepoint())
	})
}

// ListSavepoints implements Jobs.
func (c *Client) ListSavepoints(ctx context.Context, ref string) ([]coordinator.Savepoint, error) {
	return ask(ctx, c, func(ctx context.Context, svc pb.JobServiceClient) (*pb.ListSavepointsResponse, error) {
		return svc.ListSavepoints(ctx, &pb.ListSavepointsRequest{Job: ref})
	}, func(d *decoder, p *pb.ListSavepointsResponse) []coordinator.Savepoint {
		return convertAll(p.GetSavepoints(), d.savepoint)
	})
}

// DeleteSavepoint implements Jobs.
func (c *Client) DeleteSavepoint(ctx context.Context, id string) (coordinator.Savepoint, error) {
	return ask(ctx, c, func(ctx context.Context, svc pb.JobServiceClient) (*pb.DeleteSavepointResponse, error) {
		return svc.DeleteSavepoint(ctx, &pb.DeleteSavepointRequest{Id: id})
	}, func(d *decoder, p *pb.DeleteSavepointResponse) coordinator.Savepoint {
		return d.savepoint(p.GetSavepoint())
	})
}

// ListCheckpoints implements Jobs.
func (c *Client) ListCheckpoints(ctx context.Context, ref string) ([]coordinator.Checkpoint, error) {
	return ask(ctx, c, func(ctx context.Context, svc pb.JobServiceClient) (*pb.ListCheckpointsResponse, error) {
		return svc.ListCheckpoints(ctx, &pb.ListCheckpointsRequest{Job: ref})
	}, func(d *decoder, p *pb.ListCheckpointsResponse) []coordinator.Checkpoint {
		return convertAll(p.GetCheckpoints(), d.checkpoint)
	})
}

// GetCheckpoint implements Jobs.
func (c *Client) GetCheckpoint(ctx context.Context, ref string, id job.CheckpointID) (coordinator.CheckpointDetail, error) {
	return ask(ctx, c, func(ctx context.Context, svc pb.JobServiceClient) (*pb.GetCheckpointResponse, error) {
		return svc.GetCheckpoint(ctx, &pb.GetCheckpointRequest{Job: ref, Checkpoint: uint64(id)})
	}, (*decoder).checkpointDetail)
}

// Nodes implements Jobs.
func (c *Client) Nodes(ctx context.Context) ([]coordinator.Node, error) {
	return ask(ctx, c, func(ctx context.Context, svc pb.JobServiceClient) (*pb.ListNodesResponse, error) {
		return svc.ListNodes(ctx, &pb.ListNodesRequest{})
	}, func(d *decoder, p *pb.ListNodesResponse) []coordinator.Node { return convertAll(p.GetNodes(), d.node) })
}

// Version implements Jobs.
func (c *Client) Version(ctx context.Context) (Version, error) {
	return ask(ctx, c, func(ctx context.Context, svc pb.JobServiceClient) (*pb.GetVersionResponse, error) {
		return svc.GetVersion(ctx, &pb.GetVersionRequest{})
	}, func(_ *decoder, p *pb.GetVersionResponse) Version { return versionFromProto(p) })
}
