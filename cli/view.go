package cli

import (
	"time"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/rpc"
)

// What follows is what -o json and -o yaml print. Scripts rely on it: fields are added, never renamed. Times are RFC
// 3339 in UTC, durations are seconds, sizes are bytes. Field names are those of the API's messages.

type jobView struct {
	ID           string           `json:"id"`
	Name         string           `json:"name"`
	Program      string           `json:"program"`
	Version      string           `json:"version"`
	State        string           `json:"state"`
	Reason       string           `json:"reason,omitempty"`
	Attempt      uint64           `json:"attempt"`
	Restarts     int64            `json:"restarts"`
	Parallelism  int              `json:"parallelism"`
	Slots        int              `json:"slots"`
	Submitted    *time.Time       `json:"submitted,omitempty"`
	Started      *time.Time       `json:"started,omitempty"`
	Ended        *time.Time       `json:"ended,omitempty"`
	Checkpoint   uint64           `json:"checkpoint"`
	Checkpointed *time.Time       `json:"checkpointed,omitempty"`
	Failure      *failureView     `json:"failure,omitempty"`
	Counters     map[string]int64 `json:"counters"`
}

type failureView struct {
	Class   string `json:"class"`
	Task    string `json:"task,omitempty"`
	Worker  string `json:"worker,omitempty"`
	Message string `json:"message"`
	Stack   string `json:"stack,omitempty"`
}

type taskView struct {
	Subtask  int              `json:"subtask"`
	State    string           `json:"state"`
	Worker   string           `json:"worker"`
	Counters map[string]int64 `json:"counters"`
}

type vertexView struct {
	Name        string     `json:"name"`
	Operators   []string   `json:"operators"`
	Parallelism int        `json:"parallelism"`
	Tasks       []taskView `json:"tasks,omitempty"`
}

type eventView struct {
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"`
	Message string    `json:"message"`
}

type incidentView struct {
	Time            time.Time   `json:"time"`
	Attempt         uint64      `json:"attempt"`
	Cause           string      `json:"cause"`
	Failure         failureView `json:"failure"`
	RecoverySeconds float64     `json:"recoverySeconds"`
}

type detailView struct {
	Job                  jobView           `json:"job"`
	Fingerprint          string            `json:"fingerprint"`
	Args                 map[string]string `json:"args"`
	Settings             map[string]string `json:"settings"`
	Restored             uint64            `json:"restored"`
	Vertices             []vertexView      `json:"vertices"`
	CheckpointsCompleted int64             `json:"checkpointsCompleted"`
	CheckpointsFailed    int64             `json:"checkpointsFailed"`
	CheckpointsSkipped   int64             `json:"checkpointsSkipped"`
	RunningSince         *time.Time        `json:"runningSince,omitempty"`
	Incidents            []incidentView    `json:"incidents"`
	Events               []eventView       `json:"events"`
	HotKeys              []hotKeysView     `json:"hotKeys,omitempty"`
}

type hotKeysView struct {
	Operator string       `json:"operator"`
	Keys     []hotKeyView `json:"keys"`
}

type hotKeyView struct {
	Key   string  `json:"key"`
	Share float64 `json:"share"`
}

type checkpointView struct {
	ID              uint64                   `json:"id"`
	State           string                   `json:"state"`
	Mode            string                   `json:"mode"`
	Attempt         uint64                   `json:"attempt"`
	Triggered       *time.Time               `json:"triggered,omitempty"`
	DurationSeconds float64                  `json:"durationSeconds"`
	Bytes           int64                    `json:"bytes"`
	Acknowledged    int                      `json:"acknowledged"`
	Tasks           int                      `json:"tasks"`
	Reason          string                   `json:"reason,omitempty"`
	Final           bool                     `json:"final"`
	Manifest        string                   `json:"manifest,omitempty"`
	ByTask          []taskCheckpointView     `json:"byTask,omitempty"`
	ByOperator      []operatorCheckpointView `json:"byOperator,omitempty"`
}

type taskCheckpointView struct {
	Task          string  `json:"task"`
	Worker        string  `json:"worker"`
	StartSeconds  float64 `json:"startSeconds"`
	AlignSeconds  float64 `json:"alignSeconds"`
	SyncSeconds   float64 `json:"syncSeconds"`
	AsyncSeconds  float64 `json:"asyncSeconds"`
	UploadSeconds float64 `json:"uploadSeconds"`
	Bytes         int64   `json:"bytes"`
}

type operatorCheckpointView struct {
	Name        string `json:"name"`
	Parallelism int    `json:"parallelism"`
	Entries     int64  `json:"entries"`
	Bytes       int64  `json:"bytes"`
}

type nodeView struct {
	ID        string        `json:"id"`
	Host      string        `json:"host"`
	PID       int           `json:"pid"`
	Data      string        `json:"data"`
	HTTP      string        `json:"http,omitempty"`
	Version   string        `json:"version"`
	Slots     int           `json:"slots"`
	FreeSlots int           `json:"freeSlots"`
	Tasks     int           `json:"tasks"`
	Connected time.Time     `json:"connected"`
	Heartbeat time.Time     `json:"heartbeat"`
	Programs  []programView `json:"programs"`
}

type programView struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

type versionView struct {
	Version   string             `json:"version"`
	GoVersion string             `json:"goVersion"`
	Server    *serverVersionView `json:"server,omitempty"`
}

type serverVersionView struct {
	Version       string `json:"version"`
	GoVersion     string `json:"goVersion"`
	Cluster       string `json:"cluster"`
	Leader        bool   `json:"leader"`
	LeaderAddress string `json:"leaderAddress,omitempty"`
	Epoch         uint64 `json:"epoch"`
}

type submittedView struct {
	Job         jobView  `json:"job"`
	ResumedFrom uint64   `json:"resumedFrom"`
	Notes       []string `json:"notes"`
	Existed     bool     `json:"existed"`
}

func timeView(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// views converts a list; an empty one is [], not null.
func views[A, B any](in []A, f func(A) B) []B {
	out := make([]B, 0, len(in))
	for _, v := range in {
		out = append(out, f(v))
	}
	return out
}

func orEmpty[V any](m map[string]V) map[string]V {
	if m == nil {
		return map[string]V{}
	}
	return m
}

func viewFailure(f job.Failure) failureView {
	return failureView{Class: string(f.Class), Task: f.Task, Worker: string(f.Worker), Message: f.Message, Stack: f.Stack}
}

func viewJob(j coordinator.Job) jobView {
	v := jobView{
		ID: string(j.ID), Name: j.Name, Program: j.Program, Version: j.Version, State: string(j.State), Reason: j.Reason,
		Attempt: uint64(j.Attempt), Restarts: j.Restarts, Parallelism: j.Parallelism, Slots: j.Slots,
		Submitted: timeView(j.Submitted), Started: timeView(j.Started), Ended: timeView(j.Ended),
		Checkpoint: uint64(j.Checkpoint), Checkpointed: timeView(j.Checkpointed), Counters: orEmpty(j.Counters),
	}
	if j.Failure != nil {
		f := viewFailure(*j.Failure)
		v.Failure = &f
	}
	return v
}

func viewDetail(d coordinator.JobDetail) detailView {
	return detailView{
		Job: viewJob(d.Job), Fingerprint: d.Fingerprint, Args: orEmpty(d.Spec.Args), Settings: d.Spec.Settings.Map(),
		Restored: uint64(d.Restored),
		Vertices: views(d.Vertices, func(v coordinator.Vertex) vertexView {
			return vertexView{
				Name: v.Name, Operators: v.Operators, Parallelism: v.Parallelism,
				Tasks: views(v.Tasks, func(t coordinator.TaskStatus) taskView {
					return taskView{Subtask: t.Task.Subtask, State: string(t.State), Worker: string(t.Worker), Counters: orEmpty(t.Counters)}
				}),
			}
		}),
		CheckpointsCompleted: d.Progress.CheckpointsCompleted, CheckpointsFailed: d.Progress.CheckpointsFailed,
		CheckpointsSkipped: d.Progress.CheckpointsSkipped, RunningSince: timeView(d.Progress.RunningSince),
		Incidents: views(d.Progress.Incidents, func(i coordinator.Incident) incidentView {
			return incidentView{
				Time: i.Time.UTC(), Attempt: uint64(i.Attempt), Cause: string(i.Cause), Failure: viewFailure(i.Failure),
				RecoverySeconds: i.Recovery.Seconds(),
			}
		}),
		Events: views(d.Events, func(e coordinator.JobEvent) eventView {
			return eventView{Time: e.Time.UTC(), Kind: e.Kind, Message: e.Message}
		}),
		HotKeys: views(d.HotKeys, func(h job.HotKeys) hotKeysView {
			return hotKeysView{h.Operator, views(h.Keys, func(k job.HotKey) hotKeyView { return hotKeyView{k.Key, h.Share(k)} })}
		}),
	}
}

func viewCheckpoint(c coordinator.Checkpoint) checkpointView {
	return checkpointView{
		ID: uint64(c.ID), State: string(c.State), Mode: string(c.Mode), Attempt: uint64(c.Attempt), Triggered: timeView(c.Triggered),
		DurationSeconds: c.Duration.Seconds(), Bytes: c.Bytes, Acknowledged: c.Acknowledged, Tasks: c.Tasks, Reason: c.Reason,
		Final: c.Final, Manifest: c.Manifest,
	}
}

func viewCheckpointDetail(c coordinator.CheckpointDetail) checkpointView {
	v := viewCheckpoint(c.Checkpoint)
	v.ByTask = views(c.Tasks, func(t coordinator.TaskCheckpoint) taskCheckpointView {
		return taskCheckpointView{
			Task: t.Task.String(), Worker: string(t.Worker), StartSeconds: t.Stats.Start.Seconds(), AlignSeconds: t.Stats.Align.Seconds(),
			SyncSeconds: t.Stats.Sync.Seconds(), AsyncSeconds: t.Stats.Async.Seconds(), UploadSeconds: t.Stats.Upload.Seconds(), Bytes: t.Stats.Bytes,
		}
	})
	v.ByOperator = views(c.Operators, func(o coordinator.OperatorCheckpoint) operatorCheckpointView {
		return operatorCheckpointView{Name: o.Name, Parallelism: o.Parallelism, Entries: o.Entries, Bytes: o.Bytes}
	})
	return v
}

func viewProgram(p job.ProgramInfo) programView { return programView{p.Name, p.Version} }

func viewNode(n coordinator.Node) nodeView {
	return nodeView{
		ID: string(n.Worker.ID), Host: n.Worker.Host, PID: n.Worker.PID, Data: n.Worker.Data, HTTP: n.Worker.HTTP,
		Version: n.Worker.Version, Slots: n.Worker.Slots, FreeSlots: n.FreeSlots, Tasks: n.Tasks,
		Connected: n.Connected.UTC(), Heartbeat: n.Heartbeat.UTC(), Programs: views(n.Worker.Programs, viewProgram),
	}
}

func viewSubmitted(s coordinator.Submitted) submittedView {
	return submittedView{
		Job: viewJob(s.Job), ResumedFrom: uint64(s.ResumedFrom), Existed: s.Existed,
		Notes: views(s.Notes, func(n string) string { return n }),
	}
}

func viewServer(v rpc.Version) *serverVersionView {
	return &serverVersionView{
		Version: v.Version, GoVersion: v.GoVersion, Cluster: v.Cluster, Leader: v.Leader, LeaderAddress: v.LeaderAddress,
		Epoch: uint64(v.Epoch),
	}
}
