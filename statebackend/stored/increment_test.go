package stored_test

import (
	"encoding/binary"
	"maps"
	"testing"
	"time"

	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
	"github.com/cairnstream/cairn/statebackend/stored"
)

// A state that a backend wrote in several segments is what they make of it: what changed is new, what was removed is gone, and what came
// again is there.
func TestChainsOfBackend(t *testing.T) {
	const k, parallelism, n, last = 24, 2, 3000, 5
	store := mem.New("m")
	hash := codec.NewHasher(codec.Int64())
	want := map[int64]int64{}
	op := job.OperatorSnapshot{Parallelism: parallelism}
	longest := 0
	for i := range parallelism {
		groups := job.GroupsOf(i, k, parallelism)
		b, err := fs.Factory{FullBelow: 1}.New(ctx, statebackend.Params{Operator: "op", Groups: groups, K: k, Incremental: true})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		v, err := statebackend.OpenValue(b, statebackend.ValueDesc[int64, int64]{
			Name: "s", Key: codec.Int64(), Value: codec.Int64(), Hash: func(k *int64) (uint64, uint64) { h := hash(k); return h, h },
		})
		if err != nil {
			t.Fatal(err)
		}
		var handles []job.StateHandle
		for id := job.CheckpointID(1); id <= last; id++ {
			for key := range int64(n) {
				h := hash(&key)
				switch {
				case !groups.Contains(job.GroupOf(h, k)):
				case id == 1 || key%50 == int64(id):
					v.Set(h, h, &key, new(key*int64(id)))
				case key%50 == 7 && id == 3 || key%50 == 8 && id == 2:
					v.Delete(h, h, &key)
				case key%50 == 8 && id == 4:
					v.Set(h, h, &key, new(-key))
				}
			}
			b.Committed(id - 1)
			snap, err := b.Freeze(id)
			if err != nil {
				t.Fatal(err)
			}
			w, err := snapshot.NewWriter(snapshot.WriterConfig{
				Store: store, Cluster: "c", Job: "j", Checkpoint: id, Attempt: 1, Epoch: 1, Task: job.Task{Vertex: "op", Subtask: i}, InlineLimit: -1,
			})
			if err != nil {
				t.Fatal(err)
			}
			if handles, err = snap.Write(ctx, w.Operator("op")); err != nil {
				t.Fatal(err)
			}
			snap.Release()
			if err := w.Finish(ctx); err != nil {
				t.Fatal(err)
			}
			w.Close()
		}
		for key, x := range v.All() {
			want[*key] = *x
		}
		longest = max(longest, len(handles))
		op.Subtasks = append(op.Subtasks, job.SubtaskSnapshot{States: handles})
	}
	if longest != last {
		t.Fatalf("the longest chain is of %d segments", longest)
	}
	sn, err := snapshot.NewStore(store, "c")
	if err != nil {
		t.Fatal(err)
	}
	key, err := sn.WriteManifest(ctx, &snapshot.Manifest{
		Job: "j", JobName: "j", Checkpoint: last, Attempt: 1, Epoch: 1, Created: time.Unix(1, 0), K: k, Hash: snapshot.HashName,
		Operators: map[string]job.OperatorSnapshot{"op": op},
	})
	if err != nil {
		t.Fatal(err)
	}
	st := open(t, store, key)
	if st.Entries != int64(len(want)) || st.Subtasks != parallelism {
		t.Errorf("%d entries of %d subtasks, want %d", st.Entries, st.Subtasks, len(want))
	}
	got := map[int64]int64{}
	err = st.Each(ctx, st.All(), func(e *stored.Entry) error {
		var k, x int64
		if _, err := codec.Int64().Decode(e.Key, &k); err != nil {
			return err
		}
		_, err := codec.Int64().Decode(e.Value, &x)
		got[k] = x
		return err
	})
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%d entries, want %d: %v", len(got), len(want), err)
	}
	for key := range int64(200) {
		found, err := st.Get(ctx, binary.LittleEndian.AppendUint64(nil, uint64(key)))
		x, there := want[key]
		if err != nil || there != (len(found) == 1) {
			t.Fatalf("key %d: %v, %v, want %d: %v", key, found, err, x, there)
		}
		if there {
			var y int64
			if _, err := codec.Int64().Decode(found[0].Value, &y); err != nil || y != x {
				t.Errorf("key %d is %d, want %d: %v", key, y, x, err)
			}
		}
	}
}
