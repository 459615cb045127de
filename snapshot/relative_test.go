package snapshot_test

import (
	"testing"
	"time"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
)

// The objects of a savepoint lie beside its manifest, wherever that is.
func TestRelativeObjects(t *testing.T) {
	handle := func(object string) job.SubtaskSnapshot {
		return job.SubtaskSnapshot{States: []job.StateHandle{{Name: "s", Kind: snapshot.KindList, Object: object, Length: 3, Groups: job.GroupRange{Last: -1}}}}
	}
	m := &snapshot.Manifest{
		Job: "j", Checkpoint: 1, K: 1, Hash: snapshot.HashName, Created: time.Unix(1, 0),
		Operators: map[string]job.OperatorSnapshot{"op": {Parallelism: 2, Subtasks: []job.SubtaskSnapshot{handle("./part"), handle("c/jobs/j/x")}}},
	}
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	store := mem.New("m")
	for _, dir := range []string{"", "a/b/"} {
		if err := blob.PutBytes(ctx, store, dir+"_metadata", data); err != nil {
			t.Fatal(err)
		}
		got, err := snapshot.LoadManifest(ctx, store, dir+"_metadata")
		if err != nil {
			t.Fatal(err)
		}
		if keys := snapshot.ObjectsOf(got); len(keys) != 2 || keys[0] != dir+"part" && keys[1] != dir+"part" {
			t.Errorf("in %q: objects %q", dir, keys)
		}
	}
	m.Operators["op"].Subtasks[0].States[0].Object = "./../x"
	if _, err := m.Encode(); err == nil {
		t.Error("a key that leads out of the folder is accepted")
	}
}
