package rpc

import (
	"fmt"

	"github.com/cairnstream/cairn/job"
	pb "github.com/cairnstream/cairn/proto/cairn/v1"
)

// commandToProto wraps a command for the stream down to a TaskManager.
func commandToProto(epoch job.Epoch, c job.Command) (*pb.SessionResponse, error) {
	m := &pb.SessionResponse{Epoch: uint64(epoch)}
	switch c := c.(type) {
	case job.Deploy:
		m.Message = &pb.SessionResponse_Deploy{Deploy: &pb.Deploy{
			Run: runToProto(c.Run), Spec: specToProto(c.Spec), Fingerprint: c.Fingerprint,
			Placements: convertAll(c.Placements, placementToProto), Tasks: convertAll(c.Tasks, taskToProto),
			Restore: restoreToProto(c.Restore),
		}}
	case job.Start:
		m.Message = &pb.SessionResponse_Start{Start: &pb.Start{Run: runToProto(c.Run)}}
	case job.Cancel:
		m.Message = &pb.SessionResponse_Cancel{Cancel: &pb.Cancel{Run: runToProto(c.Run)}}
	case job.Trigger:
		m.Message = &pb.SessionResponse_Trigger{Trigger: &pb.Trigger{
			Run: runToProto(c.Run), Checkpoint: uint64(c.Checkpoint), Final: c.Final, To: convertAll(c.To, taskToProto),
			Committed: uint64(c.Committed), Mode: modes.encode(c.Mode), Full: c.Full, Stop: c.Stop, Savepoint: targetToProto(c.Savepoint),
		}}
	case job.Complete:
		m.Message = &pb.SessionResponse_Complete{Complete: &pb.Complete{Run: runToProto(c.Run), UpTo: uint64(c.UpTo)}}
	case job.Abort:
		m.Message = &pb.SessionResponse_Abort{Abort: &pb.Abort{
			Run: runToProto(c.Run), Checkpoint: uint64(c.Checkpoint), Reason: text(c.Reason),
		}}
	case job.ReadersDone:
		m.Message = &pb.SessionResponse_ReadersDone{ReadersDone: &pb.ReadersDone{Run: runToProto(c.Run), Task: taskToProto(c.Task)}}
	case job.Finish:
		m.Message = &pb.SessionResponse_Finish{Finish: &pb.Finish{Run: runToProto(c.Run)}}
	case job.Deliver:
		m.Message = &pb.SessionResponse_Deliver{Deliver: &pb.Deliver{
			Run: runToProto(c.Run), To: taskToProto(c.To), From: taskToProto(c.From), Body: c.Body,
		}}
	default:
		return nil, fmt.Errorf("command %T has no form on the wire", c)
	}
	return m, nil
}

// commandFromProto is the inverse of commandToProto.
func commandFromProto(m *pb.SessionResponse) (job.Command, error) {
	d := &decoder{}
	var c job.Command
	switch p := m.Message.(type) {
	case *pb.SessionResponse_Deploy:
		c = job.Deploy{
			Run: d.run(p.Deploy.GetRun()), Spec: d.spec(p.Deploy.GetSpec()), Fingerprint: p.Deploy.GetFingerprint(),
			Placements: convertAll(p.Deploy.GetPlacements(), d.placement), Tasks: convertAll(p.Deploy.GetTasks(), d.task),
			Restore: d.restore(p.Deploy.GetRestore()),
		}
	case *pb.SessionResponse_Start:
		c = job.Start{Run: d.run(p.Start.GetRun())}
	case *pb.SessionResponse_Cancel:
		c = job.Cancel{Run: d.run(p.Cancel.GetRun())}
	case *pb.SessionResponse_Trigger:
		c = job.Trigger{
			Run: d.run(p.Trigger.GetRun()), Checkpoint: job.CheckpointID(p.Trigger.GetCheckpoint()), Final: p.Trigger.GetFinal(),
			To: convertAll(p.Trigger.GetTo(), d.task), Committed: job.CheckpointID(p.Trigger.GetCommitted()),
			Mode: modes.decode(d, p.Trigger.GetMode()), Full: p.Trigger.GetFull(), Stop: p.Trigger.GetStop(),
			Savepoint: targetFromProto(p.Trigger.GetSavepoint()),
		}
	case *pb.SessionResponse_Complete:
		c = job.Complete{Run: d.run(p.Complete.GetRun()), UpTo: job.CheckpointID(p.Complete.GetUpTo())}
	case *pb.SessionResponse_Abort:
		c = job.Abort{
			Run: d.run(p.Abort.GetRun()), Checkpoint: job.CheckpointID(p.Abort.GetCheckpoint()), Reason: p.Abort.GetReason(),
		}
	case *pb.SessionResponse_ReadersDone:
		c = job.ReadersDone{Run: d.run(p.ReadersDone.GetRun()), Task: d.task(p.ReadersDone.GetTask())}
	case *pb.SessionResponse_Finish:
		c = job.Finish{Run: d.run(p.Finish.GetRun())}
	case *pb.SessionResponse_Deliver:
		c = job.Deliver{
			Run: d.run(p.Deliver.GetRun()), To: d.task(p.Deliver.GetTo()), From: d.task(p.Deliver.GetFrom()),
			Body: body(p.Deliver.GetBody()),
		}
	default:
		return nil, errEmptyMessage
	}
	if d.err != nil {
		return nil, fmt.Errorf("%T: %w", c, d.err)
	}
	return c, nil
}

// reportToProto wraps a report for the stream up to the JobManager.
func reportToProto(epoch job.Epoch, r job.Report) (*pb.SessionRequest, error) {
	m := &pb.SessionRequest{Epoch: uint64(epoch)}
	switch r := r.(type) {
	case job.TaskChanged:
		m.Message = &pb.SessionRequest_TaskChanged{TaskChanged: &pb.TaskChanged{
			Run: runToProto(r.Run), Task: taskToProto(r.Task), State: taskStates.encode(r.State),
			Failure: optionalFailureToProto(r.Failure),
		}}
	case job.Ack:
		m.Message = &pb.SessionRequest_Ack{Ack: &pb.Ack{
			Run: runToProto(r.Run), Task: taskToProto(r.Task), Checkpoint: uint64(r.Checkpoint),
			Operators: convertValues(r.Operators, subtaskToProto), Savepoint: convertValues(r.Savepoint, subtaskToProto), Stats: statsToProto(r.Stats),
		}}
	case job.Decline:
		m.Message = &pb.SessionRequest_Decline{Decline: &pb.Decline{
			Run: runToProto(r.Run), Task: taskToProto(r.Task), Checkpoint: uint64(r.Checkpoint), Failure: failureToProto(r.Failure),
		}}
	case job.Mail:
		m.Message = &pb.SessionRequest_Mail{Mail: &pb.Mail{
			Run: runToProto(r.Run), From: taskToProto(r.From), To: taskToProto(r.To), Body: r.Body,
		}}
	case job.Counters:
		m.Message = &pb.SessionRequest_Counters{Counters: &pb.Counters{
			Run: runToProto(r.Run), Task: taskToProto(r.Task), Values: r.Values, Hot: convertAll(r.Hot, hotToProto),
		}}
	default:
		return nil, fmt.Errorf("report %T has no form on the wire", r)
	}
	return m, nil
}

// reportFromProto is the inverse of reportToProto.
func reportFromProto(m *pb.SessionRequest) (job.Report, error) {
	d := &decoder{}
	var r job.Report
	switch p := m.Message.(type) {
	case *pb.SessionRequest_TaskChanged:
		r = job.TaskChanged{
			Run: d.run(p.TaskChanged.GetRun()), Task: d.task(p.TaskChanged.GetTask()),
			State: taskStates.decode(d, p.TaskChanged.GetState()), Failure: d.optionalFailure(p.TaskChanged.GetFailure()),
		}
	case *pb.SessionRequest_Ack:
		r = job.Ack{
			Run: d.run(p.Ack.GetRun()), Task: d.task(p.Ack.GetTask()), Checkpoint: job.CheckpointID(p.Ack.GetCheckpoint()),
			Operators: convertValues(p.Ack.GetOperators(), d.subtask), Savepoint: convertValues(p.Ack.GetSavepoint(), d.subtask), Stats: d.stats(p.Ack.GetStats()),
		}
	case *pb.SessionRequest_Decline:
		r = job.Decline{
			Run: d.run(p.Decline.GetRun()), Task: d.task(p.Decline.GetTask()),
			Checkpoint: job.CheckpointID(p.Decline.GetCheckpoint()), Failure: d.failure(p.Decline.GetFailure()),
		}
	case *pb.SessionRequest_Mail:
		r = job.Mail{
			Run: d.run(p.Mail.GetRun()), From: d.task(p.Mail.GetFrom()), To: d.task(p.Mail.GetTo()), Body: body(p.Mail.GetBody()),
		}
	case *pb.SessionRequest_Counters:
		c := job.Counters{
			Run: d.run(p.Counters.GetRun()), Task: d.task(p.Counters.GetTask()), Hot: convertAll(p.Counters.GetHot(), hotFromProto),
		}
		if len(p.Counters.GetValues()) > 0 {
			c.Values = p.Counters.GetValues()
		}
		r = c
	default:
		return nil, errEmptyMessage
	}
	if d.err != nil {
		return nil, fmt.Errorf("%T: %w", r, d.err)
	}
	return r, nil
}

func targetToProto(t *job.SavepointTarget) *pb.SavepointTarget {
	if t == nil {
		return nil
	}
	return &pb.SavepointTarget{Store: t.Store, Folder: t.Folder}
}

func targetFromProto(p *pb.SavepointTarget) *job.SavepointTarget {
	if p == nil {
		return nil
	}
	return &job.SavepointTarget{Store: p.GetStore(), Folder: p.GetFolder()}
}

func body(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}
