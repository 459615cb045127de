package rpc

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cairnstream/cairn/job"
	pb "github.com/cairnstream/cairn/proto/cairn/v1"
)

var (
	partitions = newEnum("partition", map[job.Partition]pb.Partition{
		job.Forward:   pb.Partition_PARTITION_FORWARD,
		job.Hash:      pb.Partition_PARTITION_HASH,
		job.Rebalance: pb.Partition_PARTITION_REBALANCE,
		job.Broadcast: pb.Partition_PARTITION_BROADCAST,
		job.Splits:    pb.Partition_PARTITION_SPLITS,
	})
	modes = newEnum("checkpoint mode", map[job.Mode]pb.CheckpointMode{
		job.ExactlyOnce: pb.CheckpointMode_CHECKPOINT_MODE_EXACTLY_ONCE,
		job.AtLeastOnce: pb.CheckpointMode_CHECKPOINT_MODE_AT_LEAST_ONCE,
		job.Off:         pb.CheckpointMode_CHECKPOINT_MODE_OFF,
	})
	onCancels = newEnum("checkpoint.on-cancel", map[string]pb.OnCancel{
		"retain": pb.OnCancel_ON_CANCEL_RETAIN,
		"delete": pb.OnCancel_ON_CANCEL_DELETE,
	})
	strategies = newEnum("restart.strategy", map[string]pb.RestartStrategy{
		"exponential": pb.RestartStrategy_RESTART_STRATEGY_EXPONENTIAL,
		"fixed-delay": pb.RestartStrategy_RESTART_STRATEGY_FIXED_DELAY,
		"none":        pb.RestartStrategy_RESTART_STRATEGY_NONE,
	})
	classes = newEnum("class of failure", map[job.Class]pb.FailureClass{
		job.ClassUser:           pb.FailureClass_FAILURE_CLASS_USER_CODE,
		job.ClassRecord:         pb.FailureClass_FAILURE_CLASS_RECORD,
		job.ClassExternal:       pb.FailureClass_FAILURE_CLASS_EXTERNAL,
		job.ClassInfrastructure: pb.FailureClass_FAILURE_CLASS_INFRASTRUCTURE,
		job.ClassInternal:       pb.FailureClass_FAILURE_CLASS_INTERNAL,
		job.ClassRefused:        pb.FailureClass_FAILURE_CLASS_REFUSED,
	})
)

func specToProto(s job.Spec) *pb.Spec {
	return &pb.Spec{
		Name: s.Name, Program: s.Program, Version: s.Version, Args: s.Args,
		Settings: settingsToProto(s.Settings), Graph: graphToProto(s.Graph), Overwrite: s.Overwrite,
	}
}

func (d *decoder) spec(p *pb.Spec) job.Spec {
	if !need(d, p, "spec") {
		return job.Spec{}
	}
	s := job.Spec{
		Name: p.Name, Program: p.Program, Version: p.Version,
		Settings: d.settings(p.Settings), Graph: d.graph(p.Graph), Overwrite: p.Overwrite,
	}
	if len(p.Args) > 0 {
		s.Args = p.Args
	}
	return s
}

func settingsToProto(s job.Settings) *pb.Settings {
	return &pb.Settings{
		Parallelism:        int32(s.Parallelism),
		MaxParallelism:     int32(s.MaxParallelism),
		FlushTimeout:       durationpb.New(s.FlushTimeout),
		CheckpointInterval: durationpb.New(s.CheckpointInterval),
		CheckpointMode:     modes.encode(s.CheckpointMode),
		CheckpointTimeout:  durationpb.New(s.CheckpointTimeout),
		MinPause:           durationpb.New(s.MinPause),
		MaxConcurrent:      int32(s.MaxConcurrent),
		TolerableFailures:  int32(s.TolerableFailures),
		Retained:           int32(s.Retained),
		OnCancel:           onCancels.encode(s.OnCancel),
		Incremental:        s.Incremental,
		StateBackend:       s.StateBackend,
		StateBackends:      s.StateBackends,
		StateCompression:   s.StateCompression,
		MaxValue:           int64(s.MaxValue),
		RestartStrategy:    strategies.encode(s.RestartStrategy),
		RestartInitial:     durationpb.New(s.RestartInitial),
		RestartMax:         durationpb.New(s.RestartMax),
	}
}

func (d *decoder) settings(p *pb.Settings) job.Settings {
	if !need(d, p, "settings") {
		return job.Settings{}
	}
	s := job.Settings{
		Parallelism:        int(p.Parallelism),
		MaxParallelism:     int(p.MaxParallelism),
		FlushTimeout:       d.duration(p.FlushTimeout),
		CheckpointInterval: d.duration(p.CheckpointInterval),
		CheckpointMode:     modes.decode(d, p.CheckpointMode),
		CheckpointTimeout:  d.duration(p.CheckpointTimeout),
		MinPause:           d.duration(p.MinPause),
		MaxConcurrent:      int(p.MaxConcurrent),
		TolerableFailures:  int(p.TolerableFailures),
		Retained:           int(p.Retained),
		OnCancel:           onCancels.decode(d, p.OnCancel),
		Incremental:        p.Incremental,
		StateBackend:       p.StateBackend,
		StateCompression:   p.StateCompression,
		MaxValue:           job.Bytes(p.MaxValue),
		RestartStrategy:    strategies.decode(d, p.RestartStrategy),
		RestartInitial:     d.duration(p.RestartInitial),
		RestartMax:         d.duration(p.RestartMax),
	}
	if len(p.StateBackends) > 0 {
		s.StateBackends = p.StateBackends
	}
	return s
}

func graphToProto(g job.Graph) *pb.Graph {
	return &pb.Graph{Operators: convertAll(g.Operators, operatorToProto)}
}

func (d *decoder) graph(p *pb.Graph) job.Graph {
	if !need(d, p, "graph") {
		return job.Graph{}
	}
	return job.Graph{Operators: convertAll(p.Operators, d.operator)}
}

func operatorToProto(o job.Operator) *pb.Operator {
	return &pb.Operator{
		Name: o.Name, Named: o.Named, Kind: string(o.Kind), Stateful: o.Stateful, Parallelism: int32(o.Parallelism),
		Inputs: convertAll(o.Inputs, func(e job.Edge) *pb.Edge {
			return &pb.Edge{From: int32(e.From), Partition: partitions.encode(e.Partition), Codec: e.Codec, Key: e.Key, Output: e.Output}
		}),
		State: convertAll(o.State, func(s job.StateDecl) *pb.StateDecl {
			return &pb.StateDecl{Name: s.Name, Kind: s.Kind, Key: s.Key, Value: s.Value}
		}),
		Params: text(o.Params), Sides: o.Sides, Warnings: convertAll(o.Warnings, text), Bounded: o.Bounded, TwoPhase: o.TwoPhase,
	}
}

func (d *decoder) operator(p *pb.Operator) job.Operator {
	return job.Operator{
		Name: p.GetName(), Named: p.GetNamed(), Kind: job.Kind(p.GetKind()), Stateful: p.GetStateful(),
		Parallelism: int(p.GetParallelism()),
		Inputs: convertAll(p.GetInputs(), func(e *pb.Edge) job.Edge {
			return job.Edge{
				From: int(e.GetFrom()), Partition: partitions.decode(d, e.GetPartition()), Codec: e.GetCodec(), Key: e.GetKey(),
				Output: e.GetOutput(),
			}
		}),
		State: convertAll(p.GetState(), func(s *pb.StateDecl) job.StateDecl {
			return job.StateDecl{Name: s.GetName(), Kind: s.GetKind(), Key: s.GetKey(), Value: s.GetValue()}
		}),
		Params: p.GetParams(), Sides: p.GetSides(), Warnings: p.GetWarnings(), Bounded: p.GetBounded(), TwoPhase: p.GetTwoPhase(),
	}
}

func hotToProto(h job.HotKeys) *pb.HotKeys {
	return &pb.HotKeys{Operator: h.Operator, Total: h.Total, Keys: convertAll(h.Keys, func(k job.HotKey) *pb.HotKey {
		return &pb.HotKey{Key: text(k.Key), Records: k.Records}
	})}
}

func hotFromProto(p *pb.HotKeys) job.HotKeys {
	return job.HotKeys{Operator: p.GetOperator(), Total: p.GetTotal(), Keys: convertAll(p.GetKeys(), func(k *pb.HotKey) job.HotKey {
		return job.HotKey{Key: k.GetKey(), Records: k.GetRecords()}
	})}
}

func failureToProto(f job.Failure) *pb.Failure {
	return &pb.Failure{
		Class: classes.encode(f.Class), Task: f.Task, Worker: string(f.Worker), Message: text(f.Message), Stack: text(f.Stack),
	}
}

func (d *decoder) failure(p *pb.Failure) job.Failure {
	if !need(d, p, "failure") {
		return job.Failure{}
	}
	return job.Failure{
		Class: classes.decode(d, p.Class), Task: p.Task, Worker: job.WorkerID(p.Worker), Message: p.Message, Stack: p.Stack,
	}
}

func optionalFailureToProto(f *job.Failure) *pb.Failure {
	if f == nil {
		return nil
	}
	return failureToProto(*f)
}

func (d *decoder) optionalFailure(p *pb.Failure) *job.Failure {
	if p == nil {
		return nil
	}
	f := d.failure(p)
	return &f
}
