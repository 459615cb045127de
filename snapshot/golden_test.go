package snapshot_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
	"github.com/cairnstream/cairn/statebackend/memory"
)

var update = flag.Bool("update", false, "write the golden files of the current version")

const (
	goldenManifest = "testdata/manifest.v1.golden"
	goldenObject   = "testdata/object.v1.golden"
	goldenKeys     = 20_000

	// A manifest with changes, and the objects of its chain.
	goldenChain = "testdata/manifest.v2.golden"
	goldenLinks = "testdata/object.v2.%d.golden"

	// A manifest of a savepoint, with keyed state inline too, and the object beside it.
	goldenSavepoint = "testdata/savepoint.v1.golden"
	goldenPart      = "testdata/savepoint.v1.part.golden"
)

// The files were written by the first release of version 1 of the formats. Every later version must open them.
func TestGoldenCheckpoint(t *testing.T) {
	if *update {
		writeGolden(t)
	}
	data, err := os.ReadFile(goldenManifest)
	if err != nil {
		t.Fatal(err)
	}
	m, err := snapshot.DecodeManifest(data)
	if err != nil {
		t.Fatal(err)
	}
	object, err := os.ReadFile(goldenObject)
	if err != nil {
		t.Fatal(err)
	}
	info, sections, err := snapshot.ParseObject(object)
	if err != nil || len(sections) != 2 || info.Checkpoint != 7 {
		t.Fatalf("%+v, %d sections, %v", info, len(sections), err)
	}
	keys := snapshot.ObjectsOf(m)
	if len(keys) != 1 {
		t.Fatalf("objects %q", keys)
	}
	store := mem.New("m")
	if err := blob.PutBytes(ctx, store, keys[0], object); err != nil {
		t.Fatal(err)
	}
	if err := newStore(t, store).VerifyManifest(ctx, m); err != nil {
		t.Fatal(err)
	}
	r := snapshot.NewReader(store)
	b, v := counts(t, 0, 1)
	if err := b.Restore(ctx, r, snapshot.Keyed(m.Operators["sum"])); err != nil {
		t.Fatal(err)
	}
	for k := range int64(goldenKeys) {
		g, s := hashInt(&k)
		if x := v.Get(g, s, &k); x == nil || *x != 3*k {
			t.Fatalf("key %d has %v", k, x)
		}
	}
	if v.Len() != goldenKeys {
		t.Errorf("%d keys", v.Len())
	}
	for state, want := range map[string][]string{"splits": {"a", "", "c"}, "large": {string(random(25_000))}} {
		parts, ok := snapshot.Redistribute(m.Operators["read"], state, 0, 1)
		items, err := r.ReadList(ctx, parts)
		if !ok || err != nil || len(items) != len(want) {
			t.Fatalf("list %s: %q, %v", state, items, err)
		}
		for i := range want {
			if string(items[i]) != want[i] {
				t.Errorf("item %d of %s is %q", i, state, items[i])
			}
		}
	}
}

func writeGolden(t *testing.T) {
	store := mem.New("m")
	b, v := counts(t, 0, 1)
	for k := range int64(goldenKeys) {
		g, s := hashInt(&k)
		x, _ := v.Upsert(g, s, &k)
		*x = 3 * k
	}
	snap, err := b.Freeze(7)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	c := config(store)
	c.InlineLimit = 1000
	w := newWriter(t, c)
	keyed, err := snap.Write(ctx, w.Operator("sum"))
	if err != nil {
		t.Fatal(err)
	}
	var lists []job.StateHandle
	for state, items := range map[string][][]byte{"splits": {[]byte("a"), nil, []byte("c")}, "large": {random(25_000)}} {
		h, err := w.Operator("read").List(ctx, state, snapshot.KindList, "split", items)
		if err != nil {
			t.Fatal(err)
		}
		lists = append(lists, h)
	}
	if err := w.Finish(ctx); err != nil {
		t.Fatal(err)
	}
	m := manifest(7, keyed...)
	m.Operators["read"] = job.OperatorSnapshot{Parallelism: 1, Subtasks: []job.SubtaskSnapshot{{States: lists}}}
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	object, err := blob.ReadAll(ctx, store, w.Object(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{goldenManifest: data, goldenObject: object} {
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The same of version 2: keyed state in three segments, two of which hold changes.
func TestGoldenChain(t *testing.T) {
	if *update {
		writeGoldenChain(t)
	}
	data, err := os.ReadFile(goldenChain)
	if err != nil {
		t.Fatal(err)
	}
	m, err := snapshot.DecodeManifest(data)
	if err != nil {
		t.Fatal(err)
	}
	keys := snapshot.ObjectsOf(m)
	if len(keys) != 3 {
		t.Fatalf("objects %q", keys)
	}
	store := mem.New("m")
	for i, key := range keys {
		object, err := os.ReadFile(fmt.Sprintf(goldenLinks, i))
		if err != nil {
			t.Fatal(err)
		}
		if info, _, err := snapshot.ParseObject(object); err != nil || info.Checkpoint != job.CheckpointID(7+i) {
			t.Fatalf("%+v, %v", info, err)
		}
		if err := blob.PutBytes(ctx, store, key, object); err != nil {
			t.Fatal(err)
		}
	}
	if err := newStore(t, store).VerifyManifest(ctx, m); err != nil {
		t.Fatal(err)
	}
	b, v := counts(t, 0, 1)
	if err := b.Restore(ctx, snapshot.NewReader(store), snapshot.Keyed(m.Operators["sum"])); err != nil {
		t.Fatal(err)
	}
	for k := range int64(goldenKeys) {
		g, s := hashInt(&k)
		x := v.Get(g, s, &k)
		if want, there := goldenValue(k); there != (x != nil) || there && *x != want {
			t.Fatalf("key %d has %v, want %d: %v", k, x, want, there)
		}
	}
}

// goldenValue is what the chain makes of a key; most of them are as they were at first.
func goldenValue(k int64) (value int64, there bool) {
	switch {
	case k%500 == 3: // Came again in the last segment.
		return 5 * k, true
	case k%500 < 4:
		return 0, false
	case k%500 < 8:
		return 4 * k, true
	}
	return 3 * k, true
}

func writeGoldenChain(t *testing.T) {
	store := mem.New("m")
	b, err := fs.Factory{FullBelow: 1}.New(ctx, statebackend.Params{Operator: "sum", Groups: job.GroupsOf(0, 720, 1), K: 720, Incremental: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	v, err := statebackend.OpenValue(b, statebackend.ValueDesc[int64, int64]{Name: "counts", Key: codec.Int64(), Value: codec.Int64(), Hash: hashInt})
	if err != nil {
		t.Fatal(err)
	}
	var handles []job.StateHandle
	for id := job.CheckpointID(7); id < 10; id++ {
		for k := range int64(goldenKeys) {
			g, s := hashInt(&k)
			switch r := k % 500; {
			case id == 7:
				v.Set(g, s, &k, new(3*k))
			case id == 8 && r < 4:
				v.Delete(g, s, &k)
			case id == 8 && r < 8:
				v.Set(g, s, &k, new(4*k))
			case id == 9 && r == 3:
				v.Set(g, s, &k, new(5*k))
			}
		}
		b.Committed(id - 1)
		snap, err := b.Freeze(id)
		if err != nil {
			t.Fatal(err)
		}
		c := config(store)
		c.Checkpoint, c.InlineLimit = id, -1
		w := newWriter(t, c)
		if handles, err = snap.Write(ctx, w.Operator("sum")); err != nil {
			t.Fatal(err)
		}
		snap.Release()
		if err := w.Finish(ctx); err != nil {
			t.Fatal(err)
		}
		object, err := blob.ReadAll(ctx, store, w.Object(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(fmt.Sprintf(goldenLinks, id-7), object, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := manifest(9, handles...).Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(goldenChain, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// A savepoint lists its objects by their names beside its manifest, and keyed state may be in that itself.
func TestGoldenSavepoint(t *testing.T) {
	const folder, part = "copied/to/any/place", "part"
	if *update {
		writeGoldenSavepoint(t, part)
	}
	store := mem.New("m")
	for name, file := range map[string]string{"_metadata": goldenSavepoint, part: goldenPart} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := blob.PutBytes(ctx, store, folder+"/"+name, data); err != nil {
			t.Fatal(err)
		}
	}
	m, err := snapshot.LoadManifest(ctx, store, folder+"/_metadata")
	if err != nil {
		t.Fatal(err)
	}
	if err := newStore(t, store).VerifyManifest(ctx, m); err != nil {
		t.Fatal(err)
	}
	if keys := snapshot.ObjectsOf(m); len(keys) != 1 || keys[0] != folder+"/"+part {
		t.Fatalf("objects %q", keys)
	}
	for op, factor := range map[string]int64{"sum": 3, "small": 5} {
		b, v := counts(t, 0, 1)
		handles := snapshot.Keyed(m.Operators[op])
		if inline := len(handles) == 1 && len(handles[0].Inline) > 0; inline != (op == "small") {
			t.Errorf("operator %q: inline is %v", op, inline)
		}
		if err := b.Restore(ctx, snapshot.NewReader(store), handles); err != nil {
			t.Fatal(err)
		}
		n := 0
		for k, x := range v.All() {
			if n++; *x != factor**k {
				t.Errorf("operator %q: key %d has %d", op, *k, *x)
			}
		}
		if want := goldenSmall(op); n != int(want) {
			t.Errorf("operator %q: %d keys, want %d", op, n, want)
		}
	}
}

func goldenSmall(op string) int64 {
	if op == "small" {
		return 20
	}
	return 1000
}

func writeGoldenSavepoint(t *testing.T, part string) {
	store := mem.New("m")
	c := config(store)
	c.Object, c.InlineLimit = "here/"+part, 1000
	w := newWriter(t, c)
	m := manifest(7)
	for op, factor := range map[string]int64{"sum": 3, "small": 5} {
		var b statebackend.Backend
		var v statebackend.Value[int64, int64]
		if op == "sum" {
			b, v = counts(t, 0, 1)
		} else {
			var err error
			b, err = memory.New(memory.Config{Operator: op, Groups: job.GroupsOf(0, 720, 1), K: 720})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			v, err = statebackend.OpenValue(b, statebackend.ValueDesc[int64, int64]{Name: "counts", Key: codec.Int64(), Value: codec.Int64(), Hash: hashInt})
			if err != nil {
				t.Fatal(err)
			}
		}
		for k := range goldenSmall(op) {
			g, s := hashInt(&k)
			v.Set(g, s, &k, new(factor*k))
		}
		snap, err := b.Freeze(7)
		if err != nil {
			t.Fatal(err)
		}
		handles, err := snap.Write(ctx, w.Operator(op))
		snap.Release()
		if err != nil {
			t.Fatal(err)
		}
		m.Operators[op] = job.OperatorSnapshot{Parallelism: 1, Subtasks: []job.SubtaskSnapshot{{States: handles}}}
	}
	if err := w.Finish(ctx); err != nil {
		t.Fatal(err)
	}
	key, err := snapshot.WriteSavepoint(ctx, store, "here", m)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]string{goldenSavepoint: key, goldenPart: c.Object} {
		data, err := blob.ReadAll(ctx, store, key, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
