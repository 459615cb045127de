package pebble_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/pebble"
)

var update = flag.Bool("update", false, "write the golden files of the current version")

const (
	goldenManifest = "testdata/tree24.manifest.golden"
	goldenObject   = "testdata/tree24.object.%d.golden"
	goldenKeys     = 400
	goldenK        = 16
)

// The types of the values before the first golden checkpoint and before the second.
type bill1 struct {
	Sum  int32
	Text string
}

type bill2 struct {
	Total int64 `cairn:"Total,alias=Sum"`
	Text  string
}

// visit is a value that ages.
type visit struct {
	from int64
	n    int64
}

type visitCodec struct{ codec.Codec[int64] }

func (c visitCodec) Append(dst []byte, v *visit) ([]byte, error) {
	dst, err := c.Codec.Append(dst, &v.from)
	if err != nil {
		return dst, err
	}
	return c.Codec.Append(dst, &v.n)
}

func (c visitCodec) Decode(src []byte, v *visit) (int, error) {
	n, err := c.Codec.Decode(src, &v.from)
	if err != nil {
		return n, err
	}
	m, err := c.Codec.Decode(src[n:], &v.n)
	return n + m, err
}

func (c visitCodec) Copy(dst, src *visit) { *dst = *src }

func (c visitCodec) Schema() codec.Schema { return codec.Schema{Codec: "visit", Version: 1} }

var textHash = codec.NewHasher(codec.String())

// golden is a subtask with the states of the golden files.
type golden[B any] struct {
	b      statebackend.Backend
	counts statebackend.Value[int64, int64]
	bills  statebackend.Value[string, B]
	visits statebackend.Value[int64, visit]
}

func openGolden[B any](t *testing.T, subtask, parallelism int, r statebackend.Reader, handles []job.StateHandle) *golden[B] {
	t.Helper()
	b, err := (&pebble.Factory{}).New(context.Background(), statebackend.Params{
		Task: job.Task{Vertex: "sum", Subtask: subtask}, Operator: "sum", Dir: t.TempDir(), K: goldenK,
		Groups: job.GroupsOf(subtask, goldenK, parallelism), Incremental: true, Own: true, Restored: 7,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	if handles != nil {
		if err := b.Restore(context.Background(), r, handles); err != nil {
			t.Fatal(err)
		}
	}
	g := &golden[B]{b: b, counts: counts(t, b)}
	g.bills = opened(t, b, statebackend.ValueDesc[string, B]{
		Name: "bills", Key: codec.String(), Value: codec.MustStruct[B](), Hash: func(k *string) (uint64, uint64) { return textHash(k), textHash(k) },
	})
	g.visits = opened(t, b, statebackend.ValueDesc[int64, visit]{
		Name: "visits", Key: codec.Int64(), Value: visitCodec{codec.Int64()}, Hash: func(k *int64) (uint64, uint64) { return at(*k) }, Aged: true,
	})
	return g
}

// content is what the golden checkpoint has, in all subtasks.
type content struct {
	counts map[int64]int64
	bills  map[string]bill2
	visits map[int64]visit
}

func newContent() content { return content{map[int64]int64{}, map[string]bill2{}, map[int64]visit{}} }

func (c content) add(g *golden[bill2]) {
	for k, v := range g.counts.All() {
		c.counts[*k] = *v
	}
	for k, v := range g.bills.All() {
		c.bills[*k] = *v
	}
	for k, v := range g.visits.All() {
		c.visits[*k] = *v
	}
}

// goldenContent is made in two steps: some keys change or go in the second.
func goldenContent() content {
	c := newContent()
	for k := range int64(goldenKeys) {
		name := goldenName(k)
		switch k % 20 {
		case 3:
		case 4:
			c.counts[k], c.bills[name], c.visits[k] = -k, bill2{k << 40, "second"}, visit{goldenTime + k, 2}
		default:
			c.counts[k], c.bills[name], c.visits[k] = 3*k, bill2{k, goldenText(k)}, visit{goldenTime - k, 1}
		}
	}
	return c
}

const goldenTime = 1_800_000_000_000

func goldenName(k int64) string { return fmt.Sprintf("bill %d", k) }
func goldenText(k int64) string { return strings.Repeat("text ", int(k%5)) }

// The files were written by the first release with this format of trees. Every later version must open them.
func TestGolden(t *testing.T) {
	if *update {
		writeGolden(t)
	}
	store, m := readGolden(t)
	s, err := snapshot.NewStore(store, "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.VerifyManifest(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	want := goldenContent()
	for _, parallelism := range []int{2, 1, 3, goldenK} {
		t.Run(fmt.Sprint("restored by ", parallelism), func(t *testing.T) {
			got := newContent()
			var newest int64
			for i := range parallelism {
				g := openGolden[bill2](t, i, parallelism, snapshot.NewReader(store), snapshot.Keyed(m.Operators["sum"]))
				got.add(g)
				newest = max(newest, g.visits.(statebackend.Expiring[int64]).Newest())
				// What is restored can be written again.
				snap, err := g.b.Freeze(9)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := snap.Write(t.Context(), discard{}); err != nil {
					t.Error(err)
				}
				snap.Release()
			}
			if !maps.Equal(got.counts, want.counts) || !maps.Equal(got.bills, want.bills) || !maps.Equal(got.visits, want.visits) {
				t.Errorf("%d, %d and %d entries differ from %d, %d and %d", len(got.counts), len(got.bills), len(got.visits), len(want.counts), len(want.bills), len(want.visits))
			}
			if newest != goldenTime+goldenKeys-16 {
				t.Errorf("the latest visit is said to be of %d", newest)
			}
		})
	}
}

// discard is a Writer that keeps nothing.
type discard struct{}

func (discard) Section(_ context.Context, _ string, fill func(io.Writer) error) (job.StateHandle, error) {
	return job.StateHandle{}, fill(io.Discard)
}

func (discard) Object(context.Context, string, io.ReaderAt, int64) (job.StateHandle, error) {
	return job.StateHandle{}, nil
}

// The golden files are read by what FORMAT.md says and the library alone.
func TestGoldenIsOfTheFormat(t *testing.T) {
	store, m := readGolden(t)
	r := snapshot.NewReader(store)
	got := newContent()
	for _, sub := range m.Operators["sum"].Subtasks {
		dir := t.TempDir()
		states := map[byte]*described{}
		for _, h := range sub.States {
			data, err := r.ReadAll(t.Context(), h, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			switch h.Kind {
			case statebackend.KindFile:
				if err := os.WriteFile(filepath.Join(dir, h.Name), data, 0o644); err != nil {
					t.Fatal(err)
				}
			case statebackend.KindTree:
				s := &described{StateHandle: h}
				if err := json.Unmarshal(data, &s.text); err != nil {
					t.Fatal(err)
				}
				if s.text.K != goldenK || s.text.Next != 3 {
					t.Errorf("state %q is described as %+v", h.Name, s.text)
				}
				for counts := s.text.Counts; len(counts) > 0; {
					n, took := binary.Uvarint(counts)
					counts = counts[took:]
					s.counts = append(s.counts, int64(n))
				}
				states[s.text.Number] = s
			}
		}
		db, err := pebbledb.Open(dir, &pebbledb.Options{FormatMajorVersion: 24, Logger: silent{}})
		if err != nil {
			t.Fatal(err)
		}
		it, err := db.NewIter(nil)
		if err != nil {
			t.Fatal(err)
		}
		for ok := it.First(); ok; ok = it.Next() {
			s := states[it.Key()[2]]
			group := int(it.Key()[0])<<8 | int(it.Key()[1])
			s.counts[group-s.Groups.First]--
			s.add(t, got, it.Key()[3:], it.Value())
		}
		if err := it.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		for _, s := range states {
			for i, left := range s.counts {
				if left != 0 {
					t.Errorf("state %q: %d entries of key group %d are missing", s.Name, left, s.Groups.First+i)
				}
			}
			if s.Name == "bills" && (len(s.text.Schemas) != 2 || s.used != [2]bool{true, true}) {
				t.Errorf("values of state %q are of schemas %q: %v", s.Name, s.text.Schemas, s.used)
			}
		}
	}
	want := goldenContent()
	if !maps.Equal(got.counts, want.counts) || !maps.Equal(got.bills, want.bills) || !maps.Equal(got.visits, want.visits) {
		t.Errorf("%d, %d and %d entries differ from %d, %d and %d", len(got.counts), len(got.bills), len(got.visits), len(want.counts), len(want.bills), len(want.visits))
	}
}

// silent is a logger of the library.
type silent struct{}

func (silent) Infof(string, ...any)              {}
func (silent) Errorf(string, ...any)             {}
func (silent) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// described is a state as FORMAT.md has it.
type described struct {
	job.StateHandle
	text struct {
		Number  byte     `json:"number"`
		Next    int      `json:"next"`
		K       int      `json:"key_groups"`
		Newest  int64    `json:"newest"`
		Schemas []string `json:"schemas"`
		Counts  []byte   `json:"counts"`
	}
	counts []int64
	used   [2]bool // The schemas of values.
}

// add decodes an entry.
func (s *described) add(t *testing.T, c content, key, value []byte) {
	t.Helper()
	var n int64
	var err error
	switch schema := value[0] &^ 0x80; s.Name {
	case "counts":
		if _, err = codec.Int64().Decode(key, &n); err == nil {
			var v int64
			_, err = codec.Int64().Decode(value[1:], &v)
			c.counts[n] = v
		}
	case "bills":
		s.used[schema] = true
		var k string
		if _, err = codec.String().Decode(key, &k); err != nil {
			break
		}
		var v bill2
		if schema == 0 {
			var old bill1
			_, err = codec.MustStruct[bill1]().Decode(value[1:], &old)
			v = bill2{int64(old.Sum), old.Text}
		} else {
			_, err = codec.MustStruct[bill2]().Decode(value[1:], &v)
		}
		c.bills[k] = v
	case "visits":
		from := int64(binary.LittleEndian.Uint64(value[1:]))
		if value[0]&0x80 == 0 || from > s.text.Newest {
			t.Errorf("a visit of %d, the newest is of %d", from, s.text.Newest)
		}
		if _, err = codec.Int64().Decode(key, &n); err == nil {
			v := visit{from: from}
			_, err = codec.Int64().Decode(value[9:], &v.n)
			c.visits[n] = v
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func readGolden(t *testing.T) (blob.Store, *snapshot.Manifest) {
	t.Helper()
	data, err := os.ReadFile(goldenManifest)
	if err != nil {
		t.Fatal(err)
	}
	m, err := snapshot.DecodeManifest(data)
	if err != nil {
		t.Fatal(err)
	}
	store := mem.New("m")
	for i, key := range snapshot.ObjectsOf(m) {
		object, err := os.ReadFile(fmt.Sprintf(goldenObject, i))
		if err != nil {
			t.Fatal(err)
		}
		if err := blob.PutBytes(t.Context(), store, key, object); err != nil {
			t.Fatal(err)
		}
	}
	return store, m
}

// writeGolden makes a checkpoint that refers to files of the one before, with values of two types.
func writeGolden(t *testing.T) {
	defer pebble.SetRewriteAtOnce(pebble.SetRewriteAtOnce(0))
	store := mem.New("m")
	m := &snapshot.Manifest{
		Job: "00000000000000aa", JobName: "golden", Program: "golden", Version: "v1", Checkpoint: 8, Attempt: 1, Epoch: 1,
		Mode: job.ExactlyOnce, Created: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), K: goldenK, Hash: snapshot.HashName, Fingerprint: "f",
		Graph: job.Graph{Operators: []job.Operator{{Name: "sum", Kind: job.KindWindow, Stateful: true, Named: true}}},
	}
	op := job.OperatorSnapshot{Parallelism: 2}
	for i := range 2 {
		w := func(id job.CheckpointID, b statebackend.Backend) []job.StateHandle {
			w, err := snapshot.NewWriter(snapshot.WriterConfig{
				Store: store, Cluster: "test", Job: m.Job, Checkpoint: id, Attempt: 1, Epoch: 1,
				Task: job.Task{Vertex: "sum", Subtask: i}, InlineLimit: 1000,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			snap, err := b.Freeze(id)
			if err != nil {
				t.Fatal(err)
			}
			defer snap.Release()
			handles, err := snap.Write(t.Context(), w.Operator("sum"))
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Finish(t.Context()); err != nil {
				t.Fatal(err)
			}
			return handles
		}
		groups := job.GroupsOf(i, goldenK, 2)
		ours := func(hash uint64) bool { return groups.Contains(job.GroupOf(hash, goldenK)) }
		first := openGolden[bill1](t, i, 2, nil, nil)
		for k := range int64(goldenKeys) {
			if g, s := at(k); ours(g) {
				first.counts.Set(g, s, &k, new(3*k))
				first.visits.Set(g, s, &k, &visit{goldenTime - k, 1})
			}
			if name := goldenName(k); ours(textHash(&name)) {
				first.bills.Set(textHash(&name), textHash(&name), &name, &bill1{int32(k), goldenText(k)})
			}
		}
		second := openGolden[bill2](t, i, 2, snapshot.NewReader(store), w(7, first.b))
		for k := range int64(goldenKeys) {
			name := goldenName(k)
			g, s := at(k)
			h := textHash(&name)
			switch k % 20 {
			case 3:
				if ours(g) {
					second.counts.Delete(g, s, &k)
					second.visits.Delete(g, s, &k)
				}
				if ours(h) {
					second.bills.Delete(h, h, &name)
				}
			case 4:
				if ours(g) {
					second.counts.Set(g, s, &k, new(-k))
					second.visits.Set(g, s, &k, &visit{goldenTime + k, 2})
				}
				if ours(h) {
					second.bills.Set(h, h, &name, &bill2{k << 40, "second"})
				}
			}
		}
		second.b.Committed(7)
		op.Subtasks = append(op.Subtasks, job.SubtaskSnapshot{States: w(8, second.b)})
	}
	m.Operators = map[string]job.OperatorSnapshot{"sum": op}
	old, err := filepath.Glob("testdata/tree24.*.golden")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(goldenManifest, data, 0o644); err != nil {
		t.Fatal(err)
	}
	for i, key := range snapshot.ObjectsOf(m) {
		object, err := blob.ReadAll(t.Context(), store, key, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(fmt.Sprintf(goldenObject, i), object, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
