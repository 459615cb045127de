package stored_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/faulty"
	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
	"github.com/cairnstream/cairn/statebackend/segment"
	"github.com/cairnstream/cairn/statebackend/stored"
)

// rehashed makes a savepoint of a checkpoint and verifies it.
func rehashed(t rapid.TB, store, to blob.Store, key, folder string, n int, o stored.RehashOptions) string {
	t.Helper()
	s, err := stored.Open(ctx, store, key, stored.Options{})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := stored.Rehash(ctx, s, to, folder, n, o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := stored.Verify(ctx, to, manifest, stored.VerifyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err != nil || len(r.Undecoded) > 0 || len(r.Unlisted) > 0 {
		t.Fatalf("verify: %+v, %v", r, err)
	}
	return manifest
}

func contentOf(t rapid.TB, store blob.Store, manifest string) map[string]string {
	t.Helper()
	st := open(t, store, manifest)
	got := map[string]string{}
	if err := st.Each(ctx, st.All(), func(e *stored.Entry) error {
		if _, ok := got[string(e.Key)]; ok {
			return fmt.Errorf("key %x is there twice", e.Key)
		}
		got[string(e.Key)] = string(e.Value)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

// Whatever the numbers of key groups, what was there is there, also when little of it fits into memory.
func TestRehash(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		k, parallelism := rapid.IntRange(1, 50).Draw(t, "key groups"), rapid.IntRange(1, 5).Draw(t, "parallelism")
		k = max(k, parallelism)
		n := max(rapid.IntRange(1, 200).Draw(t, "to"), parallelism)
		memory := rapid.SampledFrom([]int{1, 1000, 20_000, 0}).Draw(t, "memory")
		entries := numbered(rapid.IntRange(1, 400).Draw(t, "entries"), rapid.SampledFrom([]int{0, 9, 500}).Draw(t, "size"))
		store, to := mem.New("m"), mem.New("to")
		key := write(t, store, k, parallelism, entries)
		manifest := rehashed(t, store, to, key, "sp/1", n, stored.RehashOptions{Memory: memory, TempDir: dir})
		m, err := snapshot.LoadManifest(ctx, to, manifest)
		if err != nil || m.K != n || m.Derived == "" {
			t.Fatalf("manifest of %d key groups, want %d: %v", m.K, n, err)
		}
		got := contentOf(t, to, manifest)
		if len(got) != len(entries) {
			t.Fatalf("%d entries, want %d", len(got), len(entries))
		}
		for _, e := range entries {
			if got[string(e.key)] != string(e.value) {
				t.Fatalf("key %x has %x, want %x", e.key, got[string(e.key)], e.value)
			}
		}
		// There and back again: the same content is the same savepoint, but for what it was made from.
		back := rehashed(t, to, to, manifest, "sp/2", k, stored.RehashOptions{})
		once := rehashed(t, store, to, key, "sp/3", k, stored.RehashOptions{Memory: memory, TempDir: dir})
		if a, b := segmentsOf(t, to, back), segmentsOf(t, to, once); !slices.Equal(a, b) {
			t.Fatalf("segments are %v and %v", a, b)
		}
	})
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%d files are left: %v", len(left), err)
	}
}

func segmentsOf(t rapid.TB, store blob.Store, manifest string) (hashes []string) {
	t.Helper()
	m, err := snapshot.LoadManifest(ctx, store, manifest)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range m.Operators["op"].Subtasks {
		for _, h := range s.States {
			hashes = append(hashes, fmt.Sprintf("%v %s %s", h.Groups, h.Hash, h.Index))
		}
	}
	return hashes
}

// Files of files: there are more than are read at a time.
func TestRehashInManyFiles(t *testing.T) {
	dir := t.TempDir()
	store := mem.New("m")
	entries := numbered(5000, 9)
	key := write(t, store, 16, 3, entries)
	manifest := rehashed(t, store, store, key, "sp", 100, stored.RehashOptions{Memory: 1, TempDir: dir})
	if got := contentOf(t, store, manifest); len(got) != len(entries) {
		t.Fatalf("%d entries of %d", len(got), len(entries))
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%d files are left: %v", len(left), err)
	}
}

// What a backend wrote is restored by one with the new number of key groups, at another parallelism.
func TestRehashedIsRestored(t *testing.T) {
	const k, to, entries = 24, 100, 3000
	store := mem.New("m")
	hash := codec.NewHasher(codec.Int64())
	desc := statebackend.ValueDesc[int64, int64]{
		Name: "s", Key: codec.Int64(), Value: codec.Int64(), Hash: func(k *int64) (uint64, uint64) { h := hash(k); return h, h },
	}
	var numbers []pair
	want := map[int64]int64{}
	for i := range int64(entries) {
		numbers = append(numbers, pair{mustEncode(t, i), nil})
		want[i] = i * i
	}
	b, err := fs.Factory{}.New(ctx, statebackend.Params{Operator: "op", Groups: job.GroupsOf(0, k, 1), K: k})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	v, err := statebackend.OpenValue(b, desc)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(len(numbers)) {
		v.Set(hash(&i), hash(&i), &i, new(i*i))
	}
	snap, err := b.Freeze(1)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	w, err := snapshot.NewWriter(snapshot.WriterConfig{
		Store: store, Cluster: "c", Job: "j", Checkpoint: 1, Attempt: 1, Epoch: 1, Task: job.Task{Vertex: "op"}, InlineLimit: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ow := w.Operator("op")
	states, err := snap.WriteCanonical(ctx, ow)
	if err != nil {
		t.Fatal(err)
	}
	list, err := ow.List(ctx, "positions", snapshot.KindList, "bytes", [][]byte{[]byte("at 17"), []byte("at 18")})
	if err == nil {
		err = w.Finish(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	all, err := snapshot.NewStore(store, "c")
	if err != nil {
		t.Fatal(err)
	}
	key, err := all.WriteManifest(ctx, &snapshot.Manifest{
		Job: "j", JobName: "j", Checkpoint: 1, Attempt: 1, Epoch: 1, K: k, Hash: snapshot.HashName,
		Operators: map[string]job.OperatorSnapshot{"op": {Parallelism: 1, Subtasks: []job.SubtaskSnapshot{{Watermark: 5, States: append(states, list)}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	// With the same number it is what the backend wrote as a savepoint.
	if a, b := segmentsOf(t, store, rehashed(t, store, store, key, "same", k, stored.RehashOptions{})), segmentsOf(t, store, key); a[0] != b[0] {
		t.Errorf("segment is %s, the backend's is %s", a[0], b[0])
	}
	manifest := rehashed(t, store, store, key, "sp", to, stored.RehashOptions{Memory: 5000})
	m, err := snapshot.LoadManifest(ctx, store, manifest)
	if err != nil {
		t.Fatal(err)
	}
	op := m.Operators["op"]
	r := snapshot.NewReader(store)
	parts, _ := snapshot.Redistribute(op, "positions", 0, 1)
	items, err := r.ReadList(ctx, parts)
	if err != nil || len(items) != 2 || string(items[1]) != "at 18" || op.Subtasks[0].Watermark != 5 {
		t.Errorf("items %q, %+v, %v", items, op, err)
	}
	got := map[int64]int64{}
	for i := range 3 {
		b, err := fs.Factory{}.New(ctx, statebackend.Params{Operator: "op", Groups: job.GroupsOf(i, to, 3), K: to})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		v, err := statebackend.OpenValue(b, desc)
		if err == nil {
			err = b.Restore(ctx, r, snapshot.Keyed(op))
		}
		if err != nil {
			t.Fatal(err)
		}
		for k, x := range v.All() {
			got[*k] = *x
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%d entries are restored, want %d", len(got), len(want))
	}
}

func mustEncode(t testing.TB, i int64) []byte {
	t.Helper()
	b, err := codec.Int64().Append(nil, &i)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRehashRefuses(t *testing.T) {
	store := mem.New("m")
	key := write(t, store, 16, 4, numbered(2000, 40))
	s, err := stored.Open(ctx, store, key, stored.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		n      int
		folder string
		want   string
	}{
		{0, "sp", "want 1 to 32768"}, {1 << 20, "sp", "want 1 to 32768"}, {3, "sp", `operator "op" has parallelism 4`},
		{8, "c/jobs/j", "exists"}, {8, "/", "folder"},
	} {
		_, err := stored.Rehash(ctx, s, store, c.folder, c.n, stored.RehashOptions{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d key groups in %s: %v", c.n, c.folder, err)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := stored.Rehash(cancelled, s, store, "sp", 8, stored.RehashOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := stored.Rehash(ctx, s, store, "sp", 8, stored.RehashOptions{Memory: 1, TempDir: t.TempDir() + "/none"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder for files: %v", err)
	}
	nothingIn(t, store, "sp")
}

func nothingIn(t *testing.T, store blob.Store, folder string) {
	t.Helper()
	for info, err := range store.List(ctx, folder+"/") {
		t.Errorf("%s is left, %v", info.Key, err)
	}
}

// A store that fails at any moment leaves nothing, and what is damaged is not copied.
func TestRehashFails(t *testing.T) {
	source := mem.New("m")
	key := write(t, source, 16, 4, numbered(20_000, 100))
	wrote, read := 0, 0
	for i := range 40 {
		to := mem.New("to")
		f := faulty.Wrap(to, 1)
		f.Set(faulty.Rule{Op: []string{"put", "put-if-absent"}[i%2], Skip: i / 2, Times: 1, Err: errors.New("no more room")})
		s, err := stored.Open(ctx, source, key, stored.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = stored.Rehash(ctx, s, f, "sp", 30, stored.RehashOptions{Memory: 100_000}); err != nil {
			wrote++
			nothingIn(t, to, "sp")
		}
		f = faulty.Wrap(source, uint64(i))
		if s, err = stored.Open(ctx, f, key, stored.Options{}); err != nil {
			t.Fatal(err)
		}
		f.Set(faulty.Rule{Op: "get-range", Skip: i % 8, Times: 1, Damage: []faulty.Damage{faulty.Flip, faulty.Truncate, faulty.Break}[i%3]})
		if manifest, err := stored.Rehash(ctx, s, to, "again", 30, stored.RehashOptions{}); err != nil {
			read++
			nothingIn(t, to, "again")
		} else if got := contentOf(t, to, manifest); len(got) != 20_000 {
			t.Errorf("%d entries without an error", len(got))
		}
	}
	if wrote < 4 || read < 20 {
		t.Errorf("only %d writes and %d reads failed", wrote, read)
	}
}

// A segment that says that it is sorted, and is not, is a fault of its content.
func TestVerifyOrder(t *testing.T) {
	for _, c := range []struct {
		name  string
		swap  bool
		twice bool
	}{{name: "in order"}, {name: "out of order", swap: true}, {name: "a key twice", twice: true}} {
		t.Run(c.name, func(t *testing.T) {
			store := mem.New("m")
			entries := numbered(100, 9)
			if c.swap {
				entries[10], entries[11] = entries[11], entries[10]
			}
			if c.twice {
				entries[10].key = entries[11].key
			}
			key := writeSorted(t, store, entries)
			r, err := stored.Verify(ctx, store, key, stored.VerifyOptions{})
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case !c.swap && !c.twice:
				if r.Err() != nil {
					t.Error(r.Err())
				}
			case len(r.Faults) != 1 || r.Faults[0].Kind != stored.FaultContent || !strings.Contains(r.Faults[0].Detail, "sorted"):
				t.Errorf("faults are %v", r.Faults)
			}
		})
	}
}

// writeSorted writes a checkpoint of one key group whose segment is said to be sorted.
func writeSorted(t *testing.T, store blob.Store, entries []pair) string {
	t.Helper()
	w, err := snapshot.NewWriter(snapshot.WriterConfig{
		Store: store, Cluster: "c", Job: "j", Checkpoint: 7, Attempt: 1, Epoch: 1, Task: job.Task{Vertex: "op"}, InlineLimit: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var sum segment.Summary
	h, err := w.Operator("op").Section(ctx, "s", func(out io.Writer) error {
		sw := segment.NewWriter(out, segment.Descriptor{Operator: "op", State: "s", Key: "int64", Value: "bytes", K: 1, Checkpoint: 7, Sorted: true})
		for _, e := range entries {
			if err := sw.Add(0, 1, slices.Concat(e.key, e.value)); err != nil {
				return err
			}
		}
		var err error
		sum, err = sw.Finish()
		return err
	})
	if err == nil {
		err = w.Finish(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	h.Name, h.Kind, h.Key, h.Codec, h.Entries, h.Index = "s", statebackend.KindKeyed, "int64", "bytes", sum.Entries, sum.Index
	all, err := snapshot.NewStore(store, "c")
	if err != nil {
		t.Fatal(err)
	}
	key, err := all.WriteManifest(ctx, &snapshot.Manifest{
		Job: "j", JobName: "j", Checkpoint: 7, Attempt: 1, Epoch: 1, K: 1, Hash: snapshot.HashName,
		Operators: map[string]job.OperatorSnapshot{"op": {Parallelism: 1, Subtasks: []job.SubtaskSnapshot{{States: []job.StateHandle{h}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return key
}
