package coordinator

import (
	"context"

	"github.com/cairnstream/cairn/coordinator/checkpoint"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
)

// Manifests keeps the manifests of checkpoints; *snapshot.Store is one. Its methods are called by
// goroutines that may wait, several at once, and return soon after ctx is done.
type Manifests interface {
	// WriteManifest stores a manifest under snapshot.ManifestKey and returns when it is durable. After an
	// error it may be there or not, and is deleted.
	WriteManifest(ctx context.Context, m *snapshot.Manifest) (key string, err error)
	// LoadManifest reads and checks a manifest. An error that blob.IsTransient is tried again; any other
	// one means that the checkpoint is lost.
	LoadManifest(ctx context.Context, key string) (*snapshot.Manifest, error)
}

// manifestOf puts the acknowledged snapshots of tasks together by operator.
func manifestOf(plan *job.Plan, snapshots map[job.Task]checkpoint.Snapshot) map[string]job.OperatorSnapshot {
	out := map[string]job.OperatorSnapshot{}
	for _, v := range plan.Vertices {
		for i := range v.Parallelism {
			for name, sub := range snapshots[job.Task{Vertex: v.Name, Subtask: i}].Operators {
				op, ok := out[name]
				if !ok {
					op = job.OperatorSnapshot{Parallelism: v.Parallelism, Subtasks: make([]job.SubtaskSnapshot, v.Parallelism)}
				}
				op.Subtasks[i] = sub
				out[name] = op
			}
		}
	}
	return out
}

// restoreFor cuts a manifest down to the operators of some tasks. store is the URL of another store than the cluster's.
func restoreFor(plan *job.Plan, m *snapshot.Manifest, store, key string, tasks []job.Task) *job.Restore {
	if m == nil {
		return nil
	}
	r := &job.Restore{Checkpoint: m.Checkpoint, Job: m.Job, Store: store, Manifest: key, Operators: map[string]job.OperatorSnapshot{}}
	for _, t := range tasks {
		v := plan.Vertices[plan.Vertex(t.Vertex)]
		for _, i := range v.Operators {
			name := plan.Graph.Operators[i].Name
			if op, ok := m.Operators[name]; ok {
				r.Operators[name] = op
			}
		}
	}
	return r
}

// sizesOf lists the operators of a manifest in the order of the plan.
func sizesOf(plan *job.Plan, m *snapshot.Manifest) []OperatorCheckpoint {
	var out []OperatorCheckpoint
	for _, op := range plan.Graph.Operators {
		s, ok := m.Operators[op.Name]
		if !ok {
			continue
		}
		c := OperatorCheckpoint{Name: op.Name, Parallelism: s.Parallelism}
		for _, sub := range s.Subtasks {
			for h := range sub.Newest() {
				c.Entries += h.Entries
			}
			for _, h := range sub.States {
				c.Bytes += h.Length // Inline or not.
			}
		}
		out = append(out, c)
	}
	return out
}
