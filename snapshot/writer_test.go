package snapshot_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/faulty"
	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

func config(s blob.Store) snapshot.WriterConfig {
	return snapshot.WriterConfig{
		Store: s, Cluster: "test", Job: "00000000000000aa", Checkpoint: 7, Attempt: 3, Epoch: 2,
		Task: job.Task{Vertex: "per minute/Größe", Subtask: 1},
	}
}

func newWriter(t testing.TB, c snapshot.WriterConfig) *snapshot.Writer {
	t.Helper()
	w, err := snapshot.NewWriter(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func section(t testing.TB, w *snapshot.Writer, operator, state string, data []byte) job.StateHandle {
	t.Helper()
	h, err := w.Operator(operator).Section(ctx, state, func(out io.Writer) error {
		for chunk := range slices.Chunk(data, 1000) {
			if _, err := out.Write(chunk); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func random(n int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func keysOf(t testing.TB, s blob.Store) []string {
	t.Helper()
	var out []string
	for info, err := range s.List(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, info.Key)
	}
	return out
}

func TestWriter(t *testing.T) {
	for _, memory := range []int{0, 1, 50_000} { // Spooled in memory, in a file, and in both.
		t.Run(fmt.Sprint("memory ", memory), func(t *testing.T) {
			store := mem.New("m")
			c := config(store)
			c.SpoolMemory, c.TempDir = memory, t.TempDir()
			w := newWriter(t, c)
			sizes := []int{0, 10, 15_000, 6_000, 100_000, 4_000, 70_000, 400}
			var handles []job.StateHandle
			inline := 0
			for i, n := range sizes {
				h := section(t, w, "sum", fmt.Sprint("s", i), random(n))
				h.Name = fmt.Sprint("s", i)
				inline += len(h.Inline)
				handles = append(handles, h)
				if i == 4 {
					_, err := w.Operator("sum").Section(ctx, "broken", func(out io.Writer) error {
						_, _ = out.Write(random(90_000))
						return errors.New("no more")
					})
					if err == nil {
						t.Error("a section that fails succeeds")
					}
				}
			}
			if inline == 0 || inline > snapshot.DefaultInlineLimit {
				t.Errorf("%d bytes are inline", inline)
			}
			if files, _ := os.ReadDir(c.TempDir); len(files) > 0 {
				t.Errorf("the spool has a name: %v", files)
			}
			if err := w.Finish(ctx); err != nil {
				t.Fatal(err)
			}
			if err := w.Finish(ctx); err != nil {
				t.Fatal(err)
			}
			if got := keysOf(t, store); !slices.Equal(got, []string{w.Object()}) {
				t.Errorf("objects %q, want one", got)
			}
			if !strings.HasPrefix(w.Object(), "test/jobs/00000000000000aa/checkpoints/7/a3.e2.") {
				t.Errorf("key %s", w.Object())
			}
			r := snapshot.NewReader(store)
			for i, h := range handles {
				data, err := r.ReadAll(ctx, h, 1<<20)
				if err != nil || !bytes.Equal(data, random(sizes[i])) {
					t.Errorf("section %d of %d bytes: %d read, %v", i, sizes[i], len(data), err)
				}
				if err := r.Verify(ctx, h); err != nil {
					t.Error(err)
				}
				if n := int64(sizes[i]); n > 10 {
					body, err := r.Range(ctx, h, 3, n-5)
					if err != nil {
						t.Fatal(err)
					}
					data, err := io.ReadAll(body)
					if err != nil || !bytes.Equal(data, random(sizes[i])[3:n-2]) {
						t.Errorf("a range of section %d: %v", i, err)
					}
					if err := body.Close(); err != nil {
						t.Error(err)
					}
					if _, err := r.Range(ctx, h, 3, n); !errors.Is(err, statebackend.ErrCorrupt) {
						t.Errorf("a range beyond section %d: %v", i, err)
					}
				}
			}
			whole, err := blob.ReadAll(ctx, store, w.Object(), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			info, sections, err := snapshot.ParseObject(whole)
			if err != nil || info.Vertex != c.Task.Vertex || info.Checkpoint != 7 || info.Attempt != 3 {
				t.Errorf("the object says it is %+v, %v", info, err)
			}
			for _, s := range sections {
				i := slices.IndexFunc(handles, func(h job.StateHandle) bool { return h.Name == s.State })
				if h := handles[i]; s.Operator != "sum" || s.Offset != h.Offset || s.Length != h.Length || s.Hash != h.Hash {
					t.Errorf("section %+v, handle %+v", s, h)
				}
			}
			for at := range whole {
				if at < 1000 || at > len(whole)-1000 {
					bad := slices.Clone(whole)
					bad[at] ^= 4
					_, _, _ = snapshot.ParseObject(bad)
					_, _, _ = snapshot.ParseObject(whole[:at])
				}
			}
		})
	}
}

func TestLittleStateNeedsNoObject(t *testing.T) {
	store := mem.New("m")
	w := newWriter(t, config(store))
	h := section(t, w, "sum", "counts", random(100))
	if err := w.Finish(ctx); err != nil {
		t.Fatal(err)
	}
	if len(keysOf(t, store)) > 0 || len(h.Inline) != 100 || h.Object != "" {
		t.Errorf("handle %+v, objects %v", h, keysOf(t, store))
	}
}

func TestFailedUploadIsRepeated(t *testing.T) {
	inner := mem.New("m")
	store := faulty.Wrap(inner, 1)
	c := config(store)
	w := newWriter(t, c)
	h := section(t, w, "sum", "counts", random(50_000))
	for _, after := range []bool{false, true} {
		store.Set(faulty.Rule{Op: "put", Times: 1, AfterEffect: after})
		err := w.Finish(ctx)
		if err == nil || !strings.Contains(err.Error(), w.Object()) || !blob.IsTransient(err) {
			t.Errorf("failed upload: %v", err)
		}
	}
	if err := w.Finish(ctx); err != nil {
		t.Fatal(err)
	}
	if err := snapshot.NewReader(inner).Verify(ctx, h); err != nil {
		t.Error(err)
	}
	data, _ := blob.ReadAll(ctx, inner, w.Object(), 1<<20)
	if _, _, err := snapshot.ParseObject(data); err != nil {
		t.Error(err)
	}
}

func TestCancelledSection(t *testing.T) {
	w := newWriter(t, config(mem.New("m")))
	c, cancel := context.WithCancel(ctx)
	cancel()
	_, err := w.Operator("sum").Section(c, "counts", func(out io.Writer) error {
		_, err := out.Write(random(100))
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func hashInt(k *int64) (uint64, uint64) {
	h := uint64(*k) * 0x9E3779B97F4A7C15
	h ^= h >> 29
	h *= 0xBF58476D1CE4E5B9
	h ^= h >> 32
	return h, h
}

func counts(t testing.TB, subtask, parallelism int) (statebackend.Backend, statebackend.Value[int64, int64]) {
	t.Helper()
	b, err := fs.New(fs.Config{Task: job.Task{Vertex: "sum", Subtask: subtask}, Operator: "sum", Groups: job.GroupsOf(subtask, 720, parallelism), K: 720})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	v, err := statebackend.OpenValue(b, statebackend.ValueDesc[int64, int64]{Name: "counts", Key: codec.Int64(), Value: codec.Int64(), Hash: hashInt})
	if err != nil {
		t.Fatal(err)
	}
	return b, v
}

// writeCounts stores a snapshot of a state with n keys.
func writeCounts(t testing.TB, store blob.Store, n int64) job.StateHandle {
	t.Helper()
	b, v := counts(t, 0, 1)
	for k := range n {
		g, s := hashInt(&k)
		x, _ := v.Upsert(g, s, &k)
		*x = k
	}
	snap, err := b.Freeze(7)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	w := newWriter(t, config(store))
	handles, err := snap.Write(ctx, w.Operator("sum"))
	if err == nil {
		err = w.Finish(ctx)
	}
	if err != nil || len(handles) != 1 {
		t.Fatal(handles, err)
	}
	return handles[0]
}

// Whatever happens to an object on its way, a restore gives the right state or an error that names the object.
func TestRestoreOfDamagedObjects(t *testing.T) {
	inner := mem.New("m")
	const n = 40_000
	h := writeCounts(t, inner, n)
	store := faulty.Wrap(inner, 5)
	restore := func(p int) (int, error) {
		b, v := counts(t, 0, p)
		defer b.Close()
		err := b.Restore(ctx, snapshot.NewReader(store), []job.StateHandle{h})
		return v.Len(), err
	}
	if got, err := restore(1); got != n || err != nil {
		t.Fatalf("%d keys, %v", got, err)
	}
	cases := map[string]faulty.Rule{
		"flip":     {Op: "get-range", Damage: faulty.Flip},
		"truncate": {Op: "get-range", Damage: faulty.Truncate},
		"break":    {Op: "get-range", Damage: faulty.Break},
		"late":     {Op: "get-range", Damage: faulty.Flip, Skip: 1},
		"busy":     {Op: "get-range"},
		"missing":  {Op: "get-range", Err: blob.WrapError("get-range", h.Object, blob.ErrNotExist)},
	}
	for name, rule := range cases {
		for range 8 {
			store.Set(rule)
			_, err := restore(3)
			if err == nil || !strings.Contains(err.Error(), h.Object) || !strings.Contains(err.Error(), `"counts"`) {
				t.Fatalf("%s: error %v", name, err)
			}
			transient := name == "break" || name == "busy"
			if blob.IsTransient(err) != transient {
				t.Fatalf("%s: transient is %v: %v", name, !transient, err)
			}
			if name == "flip" && !errors.Is(err, statebackend.ErrCorrupt) {
				t.Fatalf("%s: error %v", name, err)
			}
		}
	}
}

// A subtask that restores a part of the groups reads little more than that part.
func TestRestoreReadsOnlyItsGroups(t *testing.T) {
	inner := mem.New("m")
	h := writeCounts(t, inner, 200_000)
	b, v := counts(t, 3, 20)
	r := &counting{Reader: snapshot.NewReader(inner)}
	if err := b.Restore(ctx, r, []job.StateHandle{h}); err != nil {
		t.Fatal(err)
	}
	if v.Len() < 8_000 || v.Len() > 12_000 {
		t.Errorf("%d keys of 200000", v.Len())
	}
	if r.n > h.Length/8+70_000 {
		t.Errorf("%d bytes read of %d", r.n, h.Length)
	}
}

type counting struct {
	*snapshot.Reader
	n int64
}

func (c *counting) Range(ctx context.Context, h job.StateHandle, off, n int64) (io.ReadCloser, error) {
	c.n += n
	return c.Reader.Range(ctx, h, off, n)
}
