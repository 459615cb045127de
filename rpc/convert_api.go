package rpc

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cairnstream/cairn/job"
	pb "github.com/cairnstream/cairn/proto/cairn/v1"
)

var (
	jobStates = newEnum("state of a job", map[JobState]pb.JobState{
		JobCreated:    pb.JobState_JOB_STATE_CREATED,
		JobWaiting:    pb.JobState_JOB_STATE_WAITING,
		JobDeploying:  pb.JobState_JOB_STATE_DEPLOYING,
		JobRunning:    pb.JobState_JOB_STATE_RUNNING,
		JobFinishing:  pb.JobState_JOB_STATE_FINISHING,
		JobRestarting: pb.JobState_JOB_STATE_RESTARTING,
		JobCancelling: pb.JobState_JOB_STATE_CANCELLING,
		JobFinished:   pb.JobState_JOB_STATE_FINISHED,
		JobCancelled:  pb.JobState_JOB_STATE_CANCELLED,
		JobFailed:     pb.JobState_JOB_STATE_FAILED,
	})
	checkpointStates = newEnum("state of a checkpoint", map[CheckpointState]pb.CheckpointState{
		CheckpointInProgress: pb.CheckpointState_CHECKPOINT_STATE_IN_PROGRESS,
		CheckpointCompleted:  pb.CheckpointState_CHECKPOINT_STATE_COMPLETED,
		CheckpointFailed:     pb.CheckpointState_CHECKPOINT_STATE_FAILED,
		CheckpointSubsumed:   pb.CheckpointState_CHECKPOINT_STATE_SUBSUMED,
	})
)

func submissionToProto(s Submission) *pb.SubmitJobRequest {
	return &pb.SubmitJobRequest{Spec: specToProto(s.Spec), RequestId: s.RequestID, Fresh: s.Fresh, Overwrite: s.Overwrite}
}

func (d *decoder) submission(p *pb.SubmitJobRequest) Submission {
	return Submission{Spec: d.spec(p.GetSpec()), RequestID: p.GetRequestId(), Fresh: p.GetFresh(), Overwrite: p.GetOverwrite()}
}

func submittedToProto(s Submitted) *pb.SubmitJobResponse {
	return &pb.SubmitJobResponse{Job: jobToProto(s.Job), Notes: convertAll(s.Notes, text), Existed: s.Existed}
}

func (d *decoder) submitted(p *pb.SubmitJobResponse) Submitted {
	return Submitted{Job: d.job(p.GetJob()), Notes: p.GetNotes(), Existed: p.GetExisted()}
}

func jobToProto(j Job) *pb.Job {
	return &pb.Job{
		Id: string(j.ID), Name: j.Name, Program: j.Program, Version: j.Version,
		State: jobStates.encode(j.State), Reason: text(j.Reason), Attempt: uint64(j.Attempt), Restarts: j.Restarts,
		Parallelism: int32(j.Parallelism), Slots: int32(j.Slots),
		Submitted: timestamp(j.Submitted), Started: timestamp(j.Started), Ended: timestamp(j.Ended),
		Checkpoint: uint64(j.Checkpoint), Checkpointed: timestamp(j.Checkpointed),
		Failure: optionalFailureToProto(j.Failure), Counters: j.Counters,
	}
}

func (d *decoder) job(p *pb.Job) Job {
	if !need(d, p, "job") {
		return Job{}
	}
	return Job{
		ID: job.ID(p.Id), Name: p.Name, Program: p.Program, Version: p.Version,
		State: jobStates.decode(d, p.State), Reason: p.Reason, Attempt: job.Attempt(p.Attempt), Restarts: p.Restarts,
		Parallelism: int(p.Parallelism), Slots: int(p.Slots),
		Submitted: d.time(p.Submitted), Started: d.time(p.Started), Ended: d.time(p.Ended),
		Checkpoint: job.CheckpointID(p.Checkpoint), Checkpointed: d.time(p.Checkpointed),
		Failure: d.optionalFailure(p.Failure), Counters: counters(p.Counters),
	}
}

func counters(m map[string]int64) map[string]int64 {
	if len(m) == 0 {
		return nil
	}
	return m
}

func vertexToProto(v Vertex) *pb.Vertex {
	return &pb.Vertex{
		Name: v.Name, Operators: v.Operators, Parallelism: int32(v.Parallelism),
		Tasks: convertAll(v.Tasks, func(t TaskStatus) *pb.TaskStatus {
			return &pb.TaskStatus{
				Task: taskToProto(t.Task), State: taskStates.encode(t.State), Worker: string(t.Worker), Counters: t.Counters,
			}
		}),
	}
}

func (d *decoder) vertex(p *pb.Vertex) Vertex {
	return Vertex{
		Name: p.GetName(), Operators: p.GetOperators(), Parallelism: int(p.GetParallelism()),
		Tasks: convertAll(p.GetTasks(), func(t *pb.TaskStatus) TaskStatus {
			return TaskStatus{
				Task: d.task(t.GetTask()), State: taskStates.optional(d, t.GetState()), Worker: job.WorkerID(t.GetWorker()),
				Counters: counters(t.GetCounters()),
			}
		}),
	}
}

func detailToProto(j JobDetail) *pb.JobDetail {
	return &pb.JobDetail{
		Job: jobToProto(j.Job), Spec: specToProto(j.Spec), Fingerprint: j.Fingerprint,
		Vertices: convertAll(j.Vertices, vertexToProto),
		Events: convertAll(j.Events, func(e JobEvent) *pb.JobEvent {
			return &pb.JobEvent{Time: timestamp(e.Time), Kind: e.Kind, Message: text(e.Message)}
		}),
		Restored: uint64(j.Restored),
	}
}

func (d *decoder) detail(p *pb.JobDetail) JobDetail {
	if !need(d, p, "job") {
		return JobDetail{}
	}
	return JobDetail{
		Job: d.job(p.Job), Spec: d.spec(p.Spec), Fingerprint: p.Fingerprint,
		Vertices: convertAll(p.Vertices, d.vertex),
		Events: convertAll(p.Events, func(e *pb.JobEvent) JobEvent {
			return JobEvent{Time: d.time(e.GetTime()), Kind: e.GetKind(), Message: e.GetMessage()}
		}),
		Restored: job.CheckpointID(p.Restored),
	}
}

func checkpointToProto(c Checkpoint) *pb.Checkpoint {
	return &pb.Checkpoint{
		Id: uint64(c.ID), State: checkpointStates.encode(c.State), Mode: modes.encode(c.Mode), Attempt: uint64(c.Attempt),
		Triggered: timestamp(c.Triggered), Duration: durationpb.New(c.Duration), Bytes: c.Bytes,
		Acknowledged: int32(c.Acknowledged), Tasks: int32(c.Tasks), Reason: text(c.Reason), Final: c.Final, Manifest: c.Manifest,
	}
}

func (d *decoder) checkpoint(p *pb.Checkpoint) Checkpoint {
	if !need(d, p, "checkpoint") {
		return Checkpoint{}
	}
	return Checkpoint{
		ID: job.CheckpointID(p.Id), State: checkpointStates.decode(d, p.State), Mode: modes.optional(d, p.Mode),
		Attempt: job.Attempt(p.Attempt), Triggered: d.time(p.Triggered), Duration: d.duration(p.Duration), Bytes: p.Bytes,
		Acknowledged: int(p.Acknowledged), Tasks: int(p.Tasks), Reason: p.Reason, Final: p.Final, Manifest: p.Manifest,
	}
}

func checkpointDetailToProto(c CheckpointDetail) *pb.GetCheckpointResponse {
	return &pb.GetCheckpointResponse{
		Checkpoint: checkpointToProto(c.Checkpoint),
		Tasks: convertAll(c.Tasks, func(t TaskCheckpoint) *pb.TaskCheckpoint {
			return &pb.TaskCheckpoint{Task: taskToProto(t.Task), Worker: string(t.Worker), Stats: statsToProto(t.Stats)}
		}),
	}
}

func (d *decoder) checkpointDetail(p *pb.GetCheckpointResponse) CheckpointDetail {
	return CheckpointDetail{
		Checkpoint: d.checkpoint(p.GetCheckpoint()),
		Tasks: convertAll(p.GetTasks(), func(t *pb.TaskCheckpoint) TaskCheckpoint {
			return TaskCheckpoint{Task: d.task(t.GetTask()), Worker: job.WorkerID(t.GetWorker()), Stats: d.stats(t.GetStats())}
		}),
	}
}

func nodeToProto(n Node) *pb.Node {
	return &pb.Node{
		Worker: workerToProto(n.Worker), FreeSlots: int32(n.FreeSlots), Tasks: int32(n.Tasks),
		Connected: timestamp(n.Connected), Heartbeat: timestamp(n.Heartbeat),
	}
}

func (d *decoder) node(p *pb.Node) Node {
	return Node{
		Worker: d.worker(p.GetWorker()), FreeSlots: int(p.GetFreeSlots()), Tasks: int(p.GetTasks()),
		Connected: d.time(p.GetConnected()), Heartbeat: d.time(p.GetHeartbeat()),
	}
}

func versionToProto(v Version) *pb.GetVersionResponse {
	return &pb.GetVersionResponse{
		Version: v.Version, GoVersion: v.GoVersion, Cluster: v.Cluster, Leader: v.Leader, LeaderAddress: v.LeaderAddress,
		Epoch: uint64(v.Epoch),
	}
}

func versionFromProto(p *pb.GetVersionResponse) Version {
	return Version{
		Version: p.GetVersion(), GoVersion: p.GetGoVersion(), Cluster: p.GetCluster(), Leader: p.GetLeader(),
		LeaderAddress: p.GetLeaderAddress(), Epoch: job.Epoch(p.GetEpoch()),
	}
}
