package rpc

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/coordinator/lifecycle"
	"github.com/cairnstream/cairn/job"
	pb "github.com/cairnstream/cairn/proto/cairn/v1"
)

var (
	jobStates = newEnum("state of a job", map[coordinator.JobState]pb.JobState{
		coordinator.JobCreated:    pb.JobState_JOB_STATE_CREATED,
		coordinator.JobWaiting:    pb.JobState_JOB_STATE_WAITING,
		coordinator.JobDeploying:  pb.JobState_JOB_STATE_DEPLOYING,
		coordinator.JobRunning:    pb.JobState_JOB_STATE_RUNNING,
		coordinator.JobFinishing:  pb.JobState_JOB_STATE_FINISHING,
		coordinator.JobRestarting: pb.JobState_JOB_STATE_RESTARTING,
		coordinator.JobFailing:    pb.JobState_JOB_STATE_FAILING,
		coordinator.JobCancelling: pb.JobState_JOB_STATE_CANCELLING,
		coordinator.JobFinished:   pb.JobState_JOB_STATE_FINISHED,
		coordinator.JobCancelled:  pb.JobState_JOB_STATE_CANCELLED,
		coordinator.JobFailed:     pb.JobState_JOB_STATE_FAILED,
	})
	checkpointStates = newEnum("state of a checkpoint", map[coordinator.CheckpointState]pb.CheckpointState{
		coordinator.CheckpointInProgress: pb.CheckpointState_CHECKPOINT_STATE_IN_PROGRESS,
		coordinator.CheckpointCompleted:  pb.CheckpointState_CHECKPOINT_STATE_COMPLETED,
		coordinator.CheckpointFailed:     pb.CheckpointState_CHECKPOINT_STATE_FAILED,
		coordinator.CheckpointSubsumed:   pb.CheckpointState_CHECKPOINT_STATE_SUBSUMED,
	})
)

func submissionToProto(s coordinator.Submission) *pb.SubmitJobRequest {
	return &pb.SubmitJobRequest{
		Spec: specToProto(s.Spec), RequestId: s.RequestID, Fresh: s.Fresh, Overwrite: s.Overwrite, From: s.From, Claim: s.Claim,
		Adaptation: &pb.Adaptation{
			AllowDropped: s.Adapt.AllowDropped, AllowDrained: s.Adapt.AllowDrained, DropStates: s.Adapt.DropStates, Rename: s.Adapt.Rename,
		},
	}
}

func (d *decoder) submission(p *pb.SubmitJobRequest) coordinator.Submission {
	a := p.GetAdaptation()
	s := coordinator.Submission{
		Spec: d.spec(p.GetSpec()), RequestID: p.GetRequestId(), Fresh: p.GetFresh(), Overwrite: p.GetOverwrite(), From: p.GetFrom(), Claim: p.GetClaim(),
		Adapt: coordinator.Adaptation{AllowDropped: a.GetAllowDropped(), AllowDrained: a.GetAllowDrained()},
	}
	if len(a.GetDropStates()) > 0 {
		s.Adapt.DropStates = a.GetDropStates()
	}
	if len(a.GetRename()) > 0 {
		s.Adapt.Rename = a.GetRename()
	}
	return s
}

func submittedToProto(s coordinator.Submitted) *pb.SubmitJobResponse {
	return &pb.SubmitJobResponse{Job: jobToProto(s.Job), Notes: convertAll(s.Notes, text), Existed: s.Existed, ResumedFrom: uint64(s.ResumedFrom)}
}

func (d *decoder) submitted(p *pb.SubmitJobResponse) coordinator.Submitted {
	return coordinator.Submitted{
		Job: d.job(p.GetJob()), Notes: p.GetNotes(), Existed: p.GetExisted(), ResumedFrom: job.CheckpointID(p.GetResumedFrom()),
	}
}

func jobToProto(j coordinator.Job) *pb.Job {
	return &pb.Job{
		Id: string(j.ID), Name: j.Name, Program: j.Program, Version: j.Version,
		State: jobStates.encode(j.State), Reason: text(j.Reason), Attempt: uint64(j.Attempt), Restarts: j.Restarts,
		Parallelism: int32(j.Parallelism), Slots: int32(j.Slots),
		Submitted: timestamp(j.Submitted), Started: timestamp(j.Started), Ended: timestamp(j.Ended),
		Checkpoint: uint64(j.Checkpoint), Checkpointed: timestamp(j.Checkpointed),
		Failure: optionalFailureToProto(j.Failure), Counters: j.Counters, From: text(j.From),
	}
}

func (d *decoder) job(p *pb.Job) coordinator.Job {
	if !need(d, p, "job") {
		return coordinator.Job{}
	}
	return coordinator.Job{
		ID: job.ID(p.Id), Name: p.Name, Program: p.Program, Version: p.Version,
		State: jobStates.decode(d, p.State), Reason: p.Reason, Attempt: job.Attempt(p.Attempt), Restarts: p.Restarts,
		Parallelism: int(p.Parallelism), Slots: int(p.Slots),
		Submitted: d.time(p.Submitted), Started: d.time(p.Started), Ended: d.time(p.Ended),
		Checkpoint: job.CheckpointID(p.Checkpoint), Checkpointed: d.time(p.Checkpointed),
		Failure: d.optionalFailure(p.Failure), Counters: counters(p.Counters), From: p.From,
	}
}

func counters(m map[string]int64) map[string]int64 {
	if len(m) == 0 {
		return nil
	}
	return m
}

func vertexToProto(v coordinator.Vertex) *pb.Vertex {
	return &pb.Vertex{
		Name: v.Name, Operators: v.Operators, Parallelism: int32(v.Parallelism),
		Tasks: convertAll(v.Tasks, func(t coordinator.TaskStatus) *pb.TaskStatus {
			return &pb.TaskStatus{
				Task: taskToProto(t.Task), State: taskStates.encode(t.State), Worker: string(t.Worker), Counters: t.Counters,
			}
		}),
	}
}

func (d *decoder) vertex(p *pb.Vertex) coordinator.Vertex {
	return coordinator.Vertex{
		Name: p.GetName(), Operators: p.GetOperators(), Parallelism: int(p.GetParallelism()),
		Tasks: convertAll(p.GetTasks(), func(t *pb.TaskStatus) coordinator.TaskStatus {
			return coordinator.TaskStatus{
				Task: d.task(t.GetTask()), State: taskStates.optional(d, t.GetState()), Worker: job.WorkerID(t.GetWorker()),
				Counters: counters(t.GetCounters()),
			}
		}),
	}
}

func detailToProto(j coordinator.JobDetail) *pb.JobDetail {
	return &pb.JobDetail{
		Job: jobToProto(j.Job), Spec: specToProto(j.Spec), Fingerprint: j.Fingerprint,
		Vertices: convertAll(j.Vertices, vertexToProto),
		Events: convertAll(j.Events, func(e coordinator.JobEvent) *pb.JobEvent {
			return &pb.JobEvent{Time: timestamp(e.Time), Kind: e.Kind, Message: text(e.Message)}
		}),
		Restored: uint64(j.Restored), Progress: progressToProto(j.Progress), HotKeys: convertAll(j.HotKeys, hotToProto),
	}
}

func (d *decoder) detail(p *pb.JobDetail) coordinator.JobDetail {
	if !need(d, p, "job") {
		return coordinator.JobDetail{}
	}
	return coordinator.JobDetail{
		Job: d.job(p.Job), Spec: d.spec(p.Spec), Fingerprint: p.Fingerprint,
		Vertices: convertAll(p.Vertices, d.vertex),
		Events: convertAll(p.Events, func(e *pb.JobEvent) coordinator.JobEvent {
			return coordinator.JobEvent{Time: d.time(e.GetTime()), Kind: e.GetKind(), Message: e.GetMessage()}
		}),
		Restored: job.CheckpointID(p.Restored), Progress: d.progress(p.Progress), HotKeys: convertAll(p.HotKeys, hotFromProto),
	}
}

func progressToProto(p coordinator.Progress) *pb.Progress {
	out := &pb.Progress{
		Incidents: convertAll(p.Incidents, func(i coordinator.Incident) *pb.Incident {
			return &pb.Incident{
				Time: timestamp(i.Time), Attempt: uint64(i.Attempt), Cause: string(i.Cause), Failure: failureToProto(i.Failure),
				Recovery: durationpb.New(i.Recovery),
			}
		}),
		CheckpointsCompleted: p.CheckpointsCompleted, CheckpointsFailed: p.CheckpointsFailed,
		CheckpointsSkipped: p.CheckpointsSkipped, RunningSince: timestamp(p.RunningSince),
	}
	if p.LastCheckpoint != nil {
		out.LastCheckpoint = checkpointToProto(*p.LastCheckpoint)
	}
	return out
}

func (d *decoder) progress(p *pb.Progress) coordinator.Progress {
	out := coordinator.Progress{
		Incidents: convertAll(p.GetIncidents(), func(i *pb.Incident) coordinator.Incident {
			return coordinator.Incident{
				Time: d.time(i.GetTime()), Attempt: job.Attempt(i.GetAttempt()), Cause: lifecycle.Cause(i.GetCause()),
				Failure: d.failure(i.GetFailure()), Recovery: d.duration(i.GetRecovery()),
			}
		}),
		CheckpointsCompleted: p.GetCheckpointsCompleted(), CheckpointsFailed: p.GetCheckpointsFailed(),
		CheckpointsSkipped: p.GetCheckpointsSkipped(), RunningSince: d.time(p.GetRunningSince()),
	}
	if p.GetLastCheckpoint() != nil {
		c := d.checkpoint(p.GetLastCheckpoint())
		out.LastCheckpoint = &c
	}
	return out
}

func checkpointToProto(c coordinator.Checkpoint) *pb.Checkpoint {
	return &pb.Checkpoint{
		Id: uint64(c.ID), State: checkpointStates.encode(c.State), Mode: modes.encode(c.Mode), Attempt: uint64(c.Attempt),
		Triggered: timestamp(c.Triggered), Duration: durationpb.New(c.Duration), Bytes: c.Bytes,
		Acknowledged: int32(c.Acknowledged), Tasks: int32(c.Tasks), Reason: text(c.Reason), Final: c.Final, Manifest: c.Manifest,
	}
}

func (d *decoder) checkpoint(p *pb.Checkpoint) coordinator.Checkpoint {
	if !need(d, p, "checkpoint") {
		return coordinator.Checkpoint{}
	}
	return coordinator.Checkpoint{
		ID: job.CheckpointID(p.Id), State: checkpointStates.decode(d, p.State), Mode: modes.optional(d, p.Mode),
		Attempt: job.Attempt(p.Attempt), Triggered: d.time(p.Triggered), Duration: d.duration(p.Duration), Bytes: p.Bytes,
		Acknowledged: int(p.Acknowledged), Tasks: int(p.Tasks), Reason: p.Reason, Final: p.Final, Manifest: p.Manifest,
	}
}

func checkpointDetailToProto(c coordinator.CheckpointDetail) *pb.GetCheckpointResponse {
	return &pb.GetCheckpointResponse{
		Checkpoint: checkpointToProto(c.Checkpoint),
		Tasks: convertAll(c.Tasks, func(t coordinator.TaskCheckpoint) *pb.TaskCheckpoint {
			return &pb.TaskCheckpoint{Task: taskToProto(t.Task), Worker: string(t.Worker), Stats: statsToProto(t.Stats)}
		}),
		Operators: convertAll(c.Operators, func(o coordinator.OperatorCheckpoint) *pb.OperatorCheckpoint {
			return &pb.OperatorCheckpoint{Name: o.Name, Parallelism: int32(o.Parallelism), Entries: o.Entries, Bytes: o.Bytes}
		}),
	}
}

func (d *decoder) checkpointDetail(p *pb.GetCheckpointResponse) coordinator.CheckpointDetail {
	return coordinator.CheckpointDetail{
		Checkpoint: d.checkpoint(p.GetCheckpoint()),
		Tasks: convertAll(p.GetTasks(), func(t *pb.TaskCheckpoint) coordinator.TaskCheckpoint {
			return coordinator.TaskCheckpoint{Task: d.task(t.GetTask()), Worker: job.WorkerID(t.GetWorker()), Stats: d.stats(t.GetStats())}
		}),
		Operators: convertAll(p.GetOperators(), func(o *pb.OperatorCheckpoint) coordinator.OperatorCheckpoint {
			return coordinator.OperatorCheckpoint{
				Name: o.GetName(), Parallelism: int(o.GetParallelism()), Entries: o.GetEntries(), Bytes: o.GetBytes(),
			}
		}),
	}
}

func savepointToProto(s coordinator.Savepoint) *pb.Savepoint {
	return &pb.Savepoint{
		Id: s.ID, Url: text(s.URL), Job: string(s.Job), Name: s.Name, Checkpoint: uint64(s.Checkpoint), Taken: timestamp(s.Taken),
		Bytes: s.Bytes, Stopped: s.Stopped,
	}
}

func (d *decoder) savepoint(p *pb.Savepoint) coordinator.Savepoint {
	if !need(d, p, "savepoint") {
		return coordinator.Savepoint{}
	}
	return coordinator.Savepoint{
		ID: p.Id, URL: p.Url, Job: job.ID(p.Job), Name: p.Name, Checkpoint: job.CheckpointID(p.Checkpoint), Taken: d.time(p.Taken),
		Bytes: p.Bytes, Stopped: p.Stopped,
	}
}

func nodeToProto(n coordinator.Node) *pb.Node {
	return &pb.Node{
		Worker: workerToProto(n.Worker), FreeSlots: int32(n.FreeSlots), Tasks: int32(n.Tasks),
		Connected: timestamp(n.Connected), Heartbeat: timestamp(n.Heartbeat),
	}
}

func (d *decoder) node(p *pb.Node) coordinator.Node {
	return coordinator.Node{
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
