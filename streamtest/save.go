package streamtest

import (
	"context"
	"time"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
)

// Save writes a snapshot of the job that runs to a store, as a cluster of that name would have written it, and returns the
// key of its manifest. It is for tests of what looks into checkpoints.
func (h *Harness) Save(s *Snapshot, store blob.Store, cluster string) (manifest string) {
	h.t.Helper()
	ctx := context.Background()
	m := &snapshot.Manifest{
		Job: "job", JobName: h.spec.Name, Program: h.spec.Program, Version: "test", Checkpoint: s.restore.Checkpoint,
		Attempt: h.attempt, Epoch: 1, Mode: h.spec.Settings.CheckpointMode, Created: time.Now(),
		K: h.spec.Settings.MaxParallelism, Hash: snapshot.HashName, Fingerprint: h.spec.Graph.Fingerprint(), Graph: h.spec.Graph,
		Operators: s.restore.Operators,
	}
	const from = "test/" // The keys of objects, of earlier checkpoints too, begin with the harness's cluster.
	to := cluster + "/"
	keys := snapshot.ObjectsOf(m)
	m.Rename(func(key string) string { return to + key[len(from):] })
	for _, key := range keys {
		data, err := blob.ReadAll(ctx, h.blob, key, 1<<30)
		if err == nil {
			err = blob.PutBytes(ctx, store, to+key[len(from):], data)
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
	st, err := snapshot.NewStore(store, cluster)
	if err == nil {
		manifest, err = st.WriteManifest(ctx, m)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return manifest
}

// Load makes a Snapshot of a checkpoint or savepoint in a store, to Restore the job from. The key is that of its manifest.
func (h *Harness) Load(store blob.Store, manifest string) *Snapshot {
	h.t.Helper()
	ctx := context.Background()
	m, err := snapshot.LoadManifest(ctx, store, manifest)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, key := range snapshot.ObjectsOf(m) {
		data, err := blob.ReadAll(ctx, store, key, 1<<30)
		if err == nil {
			err = blob.PutBytes(ctx, h.blob, key, data)
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
	s := &Snapshot{restore: job.Restore{Checkpoint: h.next, Manifest: manifest, Operators: map[string]job.OperatorSnapshot{}}, parallelism: 1}
	for name, op := range m.Operators {
		s.restore.Operators[name] = op
		s.parallelism = max(s.parallelism, op.Parallelism)
	}
	return s
}
