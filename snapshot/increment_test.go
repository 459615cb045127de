package snapshot_test

import (
	"testing"

	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
)

// A state that seldom changes does not keep alive, for ever, all that a busy one has written into the same objects.
func TestObjectsOfIncrementsAreNotKeptForLittle(t *testing.T) {
	store := mem.New("m")
	b, err := fs.Factory{FullBelow: 1}.New(ctx, statebackend.Params{Operator: "sum", Groups: job.GroupsOf(0, 720, 1), K: 720, Incremental: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	states := map[string]statebackend.Value[int64, int64]{}
	for _, name := range []string{"busy", "calm"} {
		states[name], err = statebackend.OpenValue(b, statebackend.ValueDesc[int64, int64]{Name: name, Key: codec.Int64(), Value: codec.Int64(), Hash: hashInt})
		if err != nil {
			t.Fatal(err)
		}
	}
	put := func(state string, from, to, value int64) {
		for k := from; k < to; k++ {
			g, s := hashInt(&k)
			x, _ := states[state].Upsert(g, s, &k)
			*x = value
		}
	}
	put("calm", 0, 3000, 1)
	shared := 0
	for id := job.CheckpointID(1); id <= 60; id++ {
		put("busy", 0, 20_000, int64(id)*0x9E3779B9)
		put("calm", int64(id), int64(id)+1, int64(id))
		b.Committed(id - 1)
		snap, err := b.Freeze(id)
		if err != nil {
			t.Fatal(err)
		}
		c := config(store)
		c.Checkpoint, c.InlineLimit = id, -1
		w := newWriter(t, c)
		handles, err := snap.Write(ctx, w.Operator("sum"))
		snap.Release()
		if err == nil {
			err = w.Finish(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		need, kept := int64(0), int64(0)
		for _, h := range handles {
			need += h.Length
		}
		objects := snapshot.ObjectsOf(manifest(id, handles...))
		for _, o := range objects {
			info, err := store.Stat(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			kept += info.Size
		}
		if len(objects) > 1 {
			shared++
		}
		// What waste there was when the base was written, and what the newest object adds to it.
		if kept > 3*need {
			t.Fatalf("checkpoint %v keeps %d bytes in %d objects for %d", id, kept, len(objects), need)
		}
	}
	if shared < 3 { // The calm one is small: it is written again soon.
		t.Errorf("only %d checkpoints refer to objects of earlier ones", shared)
	}
}
