package rpc

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
	pb "github.com/cairnstream/cairn/proto/cairn/v1"
)

// jobServer serves Jobs.
type jobServer struct {
	pb.UnimplementedJobServiceServer
	jobs Jobs
}

func (s *jobServer) SubmitJob(ctx context.Context, r *pb.SubmitJobRequest) (*pb.SubmitJobResponse, error) {
	d := &decoder{}
	sub := d.submission(r)
	if d.err != nil {
		return nil, statusOf(&Error{Kind: Invalid, Err: fmt.Errorf("submission: %w", d.err)})
	}
	res, err := s.jobs.Submit(ctx, sub)
	if err != nil {
		return nil, statusOf(err)
	}
	return submittedToProto(res), nil
}

func (s *jobServer) ListJobs(ctx context.Context, _ *pb.ListJobsRequest) (*pb.ListJobsResponse, error) {
	jobs, err := s.jobs.List(ctx)
	if err != nil {
		return nil, statusOf(err)
	}
	return &pb.ListJobsResponse{Jobs: convertAll(jobs, jobToProto)}, nil
}

func (s *jobServer) GetJob(ctx context.Context, r *pb.GetJobRequest) (*pb.GetJobResponse, error) {
	j, err := s.jobs.Get(ctx, r.GetJob())
	if err != nil {
		return nil, statusOf(err)
	}
	return &pb.GetJobResponse{Job: detailToProto(j)}, nil
}

func (s *jobServer) WatchJob(r *pb.WatchJobRequest, stream grpc.ServerStreamingServer[pb.WatchJobResponse]) error {
	return statusOf(s.jobs.Watch(stream.Context(), r.GetJob(), func(j coordinator.JobDetail) error {
		return stream.Send(&pb.WatchJobResponse{Job: detailToProto(j)})
	}))
}

func (s *jobServer) CancelJob(ctx context.Context, r *pb.CancelJobRequest) (*pb.CancelJobResponse, error) {
	j, err := s.jobs.Cancel(ctx, r.GetJob())
	if err != nil {
		return nil, statusOf(err)
	}
	return &pb.CancelJobResponse{Job: jobToProto(j)}, nil
}

func (s *jobServer) TriggerCheckpoint(ctx context.Context, r *pb.TriggerCheckpointRequest) (*pb.TriggerCheckpointResponse, error) {
	c, err := s.jobs.TriggerCheckpoint(ctx, r.GetJob(), coordinator.TriggerOptions{Full: r.GetFull(), Incremental: r.GetIncremental()})
	if err != nil {
		return nil, statusOf(err)
	}
	return &pb.TriggerCheckpointResponse{Checkpoint: checkpointToProto(c)}, nil
}

func (s *jobServer) TakeSavepoint(ctx context.Context, r *pb.TakeSavepointRequest) (*pb.TakeSavepointResponse, error) {
	p, err := s.jobs.TakeSavepoint(ctx, r.GetJob(), coordinator.SavepointOptions{To: r.GetTo(), Stop: r.GetStop()})
	if err != nil {
		return nil, statusOf(err)
	}
	return &pb.TakeSavepointResponse{Savepoint: savepointToProto(p)}, nil
}

func (s *jobServer) ListSavepoints(ctx context.Context, r *pb.ListSavepointsRequest) (*pb.ListSavepointsResponse, error) {
	list, err := s.jobs.ListSavepoints(ctx, r.GetJob())
	if err != nil {
		return nil, statusOf(err)
	}
	return &pb.ListSavepointsResponse{Savepoints: convertAll(list, savepointToProto)}, nil
}

func (s *jobServer) DeleteSavepoint(ctx context.Context, r *pb.DeleteSavepointRequest) (*pb.DeleteSavepointResponse, error) {
	p, err := s.jobs.DeleteSavepoint(ctx, r.GetId())
	if err != nil {
		return nil, statusOf(err)
	}
	return &pb.DeleteSavepointResponse{Savepoint: savepointToProto(p)}, nil
}

func (s *jobServer) ListCheckpoints(ctx context.Context, r *pb.ListCheckpointsRequest) (*pb.ListCheckpointsResponse, error) {
	cs, err := s.jobs.ListCheckpoints(ctx, r.GetJob())
	if err != nil {
		return nil, statusOf(err)
	}
	return &pb.ListCheckpointsResponse{Checkpoints: convertAll(cs, checkpointToProto)}, nil
}

func (s *jobServer) GetCheckpoint(ctx context.Context, r *pb.GetCheckpointRequest) (*pb.GetCheckpointResponse, error) {
	c, err := s.jobs.GetCheckpoint(ctx, r.GetJob(), job.CheckpointID(r.GetCheckpoint()))
	if err != nil {
		return nil, statusOf(err)
	}
	return checkpointDetailToProto(c), nil
}

func (s *jobServer) ListNodes(ctx context.Context, _ *pb.ListNodesRequest) (*pb.ListNodesResponse, error) {
	nodes, err := s.jobs.Nodes(ctx)
	if err != nil {
		return nil, statusOf(err)
	}
	return &pb.ListNodesResponse{Nodes: convertAll(nodes, nodeToProto)}, nil
}

func (s *jobServer) GetVersion(ctx context.Context, _ *pb.GetVersionRequest) (*pb.GetVersionResponse, error) {
	v, err := s.jobs.Version(ctx)
	if err != nil {
		return nil, statusOf(err)
	}
	return versionToProto(v), nil
}
