package rpc

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cairnstream/cairn/job"
	pb "github.com/cairnstream/cairn/proto/cairn/v1"
)

var taskStates = newEnum("state of a task", map[job.TaskState]pb.TaskState{
	job.TaskReady:     pb.TaskState_TASK_STATE_READY,
	job.TaskRunning:   pb.TaskState_TASK_STATE_RUNNING,
	job.TaskEndOfData: pb.TaskState_TASK_STATE_END_OF_DATA,
	job.TaskFinished:  pb.TaskState_TASK_STATE_FINISHED,
	job.TaskCancelled: pb.TaskState_TASK_STATE_CANCELLED,
	job.TaskFailed:    pb.TaskState_TASK_STATE_FAILED,
})

func runToProto(r job.Run) *pb.Run { return &pb.Run{Job: string(r.Job), Attempt: uint64(r.Attempt)} }

func (d *decoder) run(p *pb.Run) job.Run {
	if p.GetJob() == "" {
		d.bad("the message does not say which job it is about")
	}
	return job.Run{Job: job.ID(p.GetJob()), Attempt: job.Attempt(p.GetAttempt())}
}

func taskToProto(t job.Task) *pb.Task { return &pb.Task{Vertex: t.Vertex, Subtask: int32(t.Subtask)} }

func (d *decoder) task(p *pb.Task) job.Task {
	if p.GetVertex() == "" {
		d.bad("the message does not say which task it is about")
	}
	return job.Task{Vertex: p.GetVertex(), Subtask: int(p.GetSubtask())}
}

func placementToProto(p job.Placement) *pb.Placement {
	return &pb.Placement{Task: taskToProto(p.Task), Worker: string(p.Worker), Data: p.Data}
}

func (d *decoder) placement(p *pb.Placement) job.Placement {
	return job.Placement{Task: d.task(p.GetTask()), Worker: job.WorkerID(p.GetWorker()), Data: p.GetData()}
}

func handleToProto(h job.StateHandle) *pb.StateHandle {
	return &pb.StateHandle{
		Name: h.Name, Kind: h.Kind, Key: h.Key, Codec: h.Codec,
		Groups:  &pb.GroupRange{First: int32(h.Groups.First), Last: int32(h.Groups.Last)},
		Entries: h.Entries, Inline: h.Inline, Object: h.Object, Offset: h.Offset, Length: h.Length, Hash: h.Hash,
		Index: h.Index, Base: h.Base,
	}
}

func (d *decoder) handle(p *pb.StateHandle) job.StateHandle {
	h := job.StateHandle{
		Name: p.GetName(), Kind: p.GetKind(), Key: p.GetKey(), Codec: p.GetCodec(),
		Groups:  job.GroupRange{First: int(p.GetGroups().GetFirst()), Last: int(p.GetGroups().GetLast())},
		Entries: p.GetEntries(), Object: p.GetObject(), Offset: p.GetOffset(), Length: p.GetLength(), Hash: p.GetHash(),
		Index: p.GetIndex(), Base: p.GetBase(),
	}
	if len(p.GetInline()) > 0 {
		h.Inline = p.GetInline()
	}
	return h
}

func subtaskToProto(s job.SubtaskSnapshot) *pb.SubtaskSnapshot {
	return &pb.SubtaskSnapshot{EndOfData: s.EndOfData, Watermark: s.Watermark, States: convertAll(s.States, handleToProto)}
}

func (d *decoder) subtask(p *pb.SubtaskSnapshot) job.SubtaskSnapshot {
	return job.SubtaskSnapshot{
		EndOfData: p.GetEndOfData(), Watermark: p.GetWatermark(), States: convertAll(p.GetStates(), d.handle),
	}
}

func restoreToProto(r *job.Restore) *pb.Restore {
	if r == nil {
		return nil
	}
	return &pb.Restore{
		Checkpoint: uint64(r.Checkpoint), Job: string(r.Job), Store: r.Store, Manifest: r.Manifest,
		Operators: convertValues(r.Operators, func(o job.OperatorSnapshot) *pb.OperatorSnapshot {
			return &pb.OperatorSnapshot{Parallelism: int32(o.Parallelism), Subtasks: convertAll(o.Subtasks, subtaskToProto)}
		}),
	}
}

func (d *decoder) restore(p *pb.Restore) *job.Restore {
	if p == nil {
		return nil
	}
	return &job.Restore{
		Checkpoint: job.CheckpointID(p.Checkpoint), Job: job.ID(p.Job), Store: p.Store, Manifest: p.Manifest,
		Operators: convertValues(p.Operators, func(o *pb.OperatorSnapshot) job.OperatorSnapshot {
			return job.OperatorSnapshot{Parallelism: int(o.GetParallelism()), Subtasks: convertAll(o.GetSubtasks(), d.subtask)}
		}),
	}
}

func statsToProto(s job.CheckpointStats) *pb.CheckpointStats {
	return &pb.CheckpointStats{
		Start: durationpb.New(s.Start), Align: durationpb.New(s.Align), Sync: durationpb.New(s.Sync),
		Async: durationpb.New(s.Async), Upload: durationpb.New(s.Upload), Bytes: s.Bytes,
	}
}

func (d *decoder) stats(p *pb.CheckpointStats) job.CheckpointStats {
	return job.CheckpointStats{
		Start: d.duration(p.GetStart()), Align: d.duration(p.GetAlign()), Sync: d.duration(p.GetSync()),
		Async: d.duration(p.GetAsync()), Upload: d.duration(p.GetUpload()), Bytes: p.GetBytes(),
	}
}

func workerToProto(w job.WorkerInfo) *pb.WorkerInfo {
	return &pb.WorkerInfo{
		Id: string(w.ID), Slots: int32(w.Slots), Data: w.Data, Http: w.HTTP, Host: w.Host, Pid: int32(w.PID),
		Programs: convertAll(w.Programs, func(p job.ProgramInfo) *pb.Program {
			return &pb.Program{Name: p.Name, Version: p.Version}
		}),
		Version: w.Version,
	}
}

func (d *decoder) worker(p *pb.WorkerInfo) job.WorkerInfo {
	if p.GetId() == "" {
		d.bad("the TaskManager has no id")
	}
	return job.WorkerInfo{
		ID: job.WorkerID(p.GetId()), Slots: int(p.GetSlots()), Data: p.GetData(), HTTP: p.GetHttp(), Host: p.GetHost(),
		PID: int(p.GetPid()),
		Programs: convertAll(p.GetPrograms(), func(p *pb.Program) job.ProgramInfo {
			return job.ProgramInfo{Name: p.GetName(), Version: p.GetVersion()}
		}),
		Version: p.GetVersion(),
	}
}
