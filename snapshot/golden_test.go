package snapshot_test

import (
	"flag"
	"os"
	"testing"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
)

var update = flag.Bool("update", false, "write the golden files of the current version")

const (
	goldenManifest = "testdata/manifest.v1.golden"
	goldenObject   = "testdata/object.v1.golden"
	goldenKeys     = 20_000
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
