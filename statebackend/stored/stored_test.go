package stored_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/segment"
	"github.com/cairnstream/cairn/statebackend/stored"
)

var ctx = context.Background()

// metered counts the bytes that are read from a store.
type metered struct {
	blob.Store
	bytes, reads atomic.Int64
}

func (m *metered) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	m.bytes.Add(n)
	m.reads.Add(1)
	return m.Store.GetRange(ctx, key, off, n)
}

// pair is an entry of the table that the tests write.
type pair struct{ key, value []byte }

// write makes a checkpoint with one state of int64 to bytes on some subtasks.
func write(t rapid.TB, store blob.Store, k, parallelism int, entries []pair) string {
	t.Helper()
	byGroup := make([][]byte, k)
	counts := make([]int64, k)
	for _, e := range entries {
		g := job.GroupOf(codec.Hash(e.key), k)
		byGroup[g] = append(append(byGroup[g], e.key...), e.value...)
		counts[g]++
	}
	m := &snapshot.Manifest{
		Job: "j", JobName: "j", Checkpoint: 7, Attempt: 1, Epoch: 1, Created: time.Unix(1, 0), K: k, Hash: snapshot.HashName,
		Operators: map[string]job.OperatorSnapshot{},
	}
	op := job.OperatorSnapshot{Parallelism: parallelism}
	for i := range parallelism {
		w, err := snapshot.NewWriter(snapshot.WriterConfig{
			Store: store, Cluster: "c", Job: "j", Checkpoint: 7, Attempt: 1, Epoch: 1, Task: job.Task{Vertex: "op", Subtask: i}, InlineLimit: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
		groups := job.GroupsOf(i, k, parallelism)
		var sum segment.Summary
		h, err := w.Operator("op").Section(ctx, "s", func(out io.Writer) error {
			sw := segment.NewWriter(out, segment.Descriptor{
				Operator: "op", Subtask: i, State: "s", Key: "int64", Value: "bytes", K: k, First: groups.First, Last: groups.Last, Checkpoint: 7,
			})
			for g := groups.First; g <= groups.Last; g++ {
				if err := addRuns(sw, g, counts[g], byGroup[g]); err != nil {
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
		w.Close()
		h.Name, h.Kind, h.Key, h.Codec, h.Groups, h.Entries, h.Index = "s", statebackend.KindKeyed, "int64", "bytes", groups, sum.Entries, sum.Index
		op.Subtasks = append(op.Subtasks, job.SubtaskSnapshot{States: []job.StateHandle{h}})
	}
	m.Operators["op"] = op
	st, err := snapshot.NewStore(store, "c")
	if err != nil {
		t.Fatal(err)
	}
	key, err := st.WriteManifest(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// addRuns adds the entries of a group in runs of about 32 KiB, as backends do.
func addRuns(w *segment.Writer, group int, n int64, data []byte) error {
	const width = 8 + 2 // Of a key and a length; the values are of one size.
	if n == 0 {
		return nil
	}
	size := len(data) / int(n)
	per := max(32<<10/size, 1)
	_ = width
	for len(data) > 0 {
		take := min(per*size, len(data))
		if err := w.Add(group, int64(take/size), data[:take]); err != nil {
			return err
		}
		data = data[take:]
	}
	return nil
}

func numbered(n, size int) []pair {
	out := make([]pair, n)
	for i := range out {
		v := binary.AppendUvarint(nil, uint64(size)+1)
		v = append(v, bytes.Repeat([]byte{byte(i)}, size)...)
		if size >= 8 {
			binary.LittleEndian.PutUint64(v[len(v)-8:], uint64(i)*0x9E3779B97F4A7C15)
		}
		out[i] = pair{binary.LittleEndian.AppendUint64(nil, uint64(i)), v}
	}
	return out
}

func open(t rapid.TB, store blob.Store, key string) *stored.State {
	t.Helper()
	s, err := stored.Open(ctx, store, key, stored.Options{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := s.State("op", "s")
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// All entries are found, by walking and one by one, whatever the number of groups and subtasks.
func TestEntries(t *testing.T) {
	for _, c := range []struct{ k, parallelism, n int }{{1, 1, 100}, {7, 3, 1000}, {720, 4, 20_000}, {16, 16, 0}} {
		store := mem.New("m")
		entries := numbered(c.n, 40)
		st := open(t, store, write(t, store, c.k, c.parallelism, entries))
		if st.Entries != int64(c.n) || st.Subtasks != c.parallelism || st.Kind != stored.Value {
			t.Errorf("%+v: %+v", c, st)
		}
		got := map[string]string{}
		last := 0
		err := st.Each(ctx, st.All(), func(e *stored.Entry) error {
			if e.Group < last {
				t.Fatalf("group %d after %d", e.Group, last)
			}
			last = e.Group
			got[string(e.Key)] = string(e.Value)
			return nil
		})
		if err != nil || len(got) != c.n {
			t.Fatalf("%+v: %d entries, %v", c, len(got), err)
		}
		for i, e := range entries {
			if got[string(e.key)] != string(e.value) {
				t.Fatalf("%+v: entry %d is %x", c, i, got[string(e.key)])
			}
			if i%97 == 0 {
				found, err := st.Get(ctx, e.key)
				if err != nil || len(found) != 1 || !bytes.Equal(found[0].Value, e.value) {
					t.Fatalf("%+v: key %d is %v, %v", c, i, found, err)
				}
			}
		}
		if found, err := st.Get(ctx, binary.LittleEndian.AppendUint64(nil, uint64(c.n))); err != nil || len(found) != 0 {
			t.Errorf("%+v: a key that is not there: %v, %v", c, found, err)
		}
	}
}

// One key costs the index and its group, not the state.
func TestGetReadsLittle(t *testing.T) {
	const n = 300_000
	m := &metered{Store: mem.New("m")}
	key := write(t, m.Store, 720, 2, numbered(n, 200)) // 64 MB before compression.
	st := open(t, m, key)
	if found, err := st.Get(ctx, binary.LittleEndian.AppendUint64(nil, 4711)); err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	if read := m.bytes.Load(); read > 400<<10 || m.reads.Load() > 4 {
		t.Errorf("%d bytes in %d reads for one of %d keys in %d bytes", read, m.reads.Load(), n, st.Bytes)
	}
}

// BenchmarkGet finds one key in a gigabyte of incompressible values, opened anew each time.
func BenchmarkGet(b *testing.B) {
	const n, size = 1 << 20, 1000
	m := &metered{Store: mem.New("m")}
	entries := numbered(n, size)
	x := uint64(1)
	for _, e := range entries {
		for i := 2; i+8 <= len(e.value); i += 8 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			binary.LittleEndian.PutUint64(e.value[i:], x)
		}
	}
	key := write(b, m.Store, 720, 2, entries)
	for b.Loop() {
		m.bytes.Store(0)
		st := open(b, m, key)
		if found, err := st.Get(ctx, entries[4711].key); err != nil || len(found) != 1 || !bytes.Equal(found[0].Value, entries[4711].value) {
			b.Fatal(found, err)
		}
	}
	b.ReportMetric(float64(m.bytes.Load())/1e6, "MB-read")
	b.ReportMetric(float64(open(b, m, key).Bytes)/1e6, "MB-state")
}

// Whatever byte of an object or of a manifest is damaged, the entries are right or there is an error that names the place.
func TestDamage(t *testing.T) {
	store := mem.New("m")
	entries := numbered(200, 20)
	key := write(t, store, 8, 2, entries)
	m, err := snapshot.LoadManifest(ctx, store, key)
	if err != nil {
		t.Fatal(err)
	}
	object := snapshot.ObjectsOf(m)[1]
	data, err := blob.ReadAll(ctx, store, object, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	walk := func() (n int, err error) {
		st := open(t, store, key)
		err = st.Each(ctx, st.All(), func(e *stored.Entry) error {
			i := int(binary.LittleEndian.Uint64(e.Key))
			if i >= len(entries) || !bytes.Equal(entries[i].value, e.Value) {
				t.Fatalf("entry %d is %x", i, e.Value)
			}
			n++
			return nil
		})
		return n, err
	}
	for at := range data {
		bad := slices.Clone(data)
		bad[at] ^= 0x40
		if err := blob.PutBytes(ctx, store, object, bad); err != nil {
			t.Fatal(err)
		}
		n, err := walk()
		if err == nil && n != len(entries) {
			t.Fatalf("byte %d is damaged: %d entries and no error", at, n)
		}
		if err != nil && (!errors.Is(err, statebackend.ErrCorrupt) || !strings.Contains(err.Error(), object)) {
			t.Fatalf("byte %d is damaged: %v", at, err)
		}
	}
	if err := store.Delete(ctx, object); err != nil {
		t.Fatal(err)
	}
	if _, err := walk(); !errors.Is(err, blob.ErrNotExist) || !strings.Contains(err.Error(), object) {
		t.Errorf("without an object: %v", err)
	}
	raw, err := blob.ReadAll(ctx, store, key, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for at := range raw {
		bad := slices.Clone(raw)
		bad[at] ^= 0x40
		if err := blob.PutBytes(ctx, store, key, bad); err != nil {
			t.Fatal(err)
		}
		if _, err := stored.Open(ctx, store, key, stored.Options{}); err == nil || !strings.Contains(err.Error(), "manifest") {
			t.Fatalf("byte %d of the manifest is damaged: %v", at, err)
		}
	}
}

// Another kind of handles has a reader of its own, which is passed in.
func TestOpeners(t *testing.T) {
	store := mem.New("m")
	key := write(t, store, 4, 1, numbered(10, 8))
	m, err := snapshot.LoadManifest(ctx, store, key)
	if err != nil {
		t.Fatal(err)
	}
	m.Operators["op"].Subtasks[0].States[0].Kind = "lsm"
	s := stored.New(m, snapshot.NewReader(store), stored.Options{})
	st, err := s.State("op", "s")
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Each(ctx, st.All(), nil); err == nil || !strings.Contains(err.Error(), `its kind is "lsm": this program reads keyed`) {
		t.Errorf("an unknown kind: %v", err)
	}
	fake := func(_ context.Context, _ statebackend.Reader, k int, handles []job.StateHandle) (map[string]stored.Source, error) {
		if k != 4 || len(handles) != 1 {
			return nil, fmt.Errorf("%d groups, %d handles", k, len(handles))
		}
		return map[string]stored.Source{"s": one{}}, nil
	}
	s = stored.New(m, snapshot.NewReader(store), stored.Options{Openers: map[string]stored.Opener{"lsm": fake}})
	if st, err = s.State("op", "s"); err != nil {
		t.Fatal(err)
	}
	found, err := st.Get(ctx, make([]byte, 8))
	if err != nil || len(found) != 1 || string(found[0].Value) != "\x02x" {
		t.Errorf("%v, %v", found, err)
	}
}

// one is a Source with one entry.
type one struct{}

func (one) Each(_ context.Context, _ job.GroupRange, visit func(int, []byte, []byte) error) error {
	return visit(0, make([]byte, 8), []byte("\x02x"))
}

func (one) Get(context.Context, int, []byte) ([]byte, bool, error) { return []byte("\x02x"), true, nil }

// FuzzHandles reads states whose handles and bytes are anything.
func FuzzHandles(f *testing.F) {
	var out bytes.Buffer
	w := segment.NewWriter(&out, segment.Descriptor{Operator: "op", State: "s", Key: "string", Value: "map-head:string", K: 4, Last: 3})
	if err := w.Add(1, 1, []byte("\x01k\x01\x00\x00\x00\x00\x00\x00\x00\x01a")); err != nil {
		f.Fatal(err)
	}
	sum, err := w.Finish()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes(), "string", "map-head:string", sum.Index, int64(1), 0, 3, "s")
	f.Add(out.Bytes(), "key-time:string", "list-head:bytes", sum.Index, int64(1), 0, 3, "s.items")
	f.Add(snapshot.EncodeList([][]byte{{1, 2}, nil}), "", "bytes", "", int64(2), 0, -1, "list")
	f.Fuzz(func(t *testing.T, data []byte, key, value, index string, entries int64, first, last int, name string) {
		for _, kind := range []string{statebackend.KindKeyed, snapshot.KindList, snapshot.KindBroadcast} {
			h := job.StateHandle{
				Name: name, Kind: kind, Key: key, Codec: value, Groups: job.GroupRange{First: first, Last: last}, Entries: entries,
				Inline: data, Length: int64(len(data)), Hash: segment.HashText(data), Index: index,
			}
			m := &snapshot.Manifest{
				Job: "j", Checkpoint: 1, K: 4, Hash: snapshot.HashName,
				Operators: map[string]job.OperatorSnapshot{"op": {Parallelism: 1, Subtasks: []job.SubtaskSnapshot{{States: []job.StateHandle{h}}}}},
			}
			if m.Validate() != nil {
				return
			}
			s := stored.New(m, snapshot.NewReader(mem.New("m")), stored.Options{})
			for _, st := range s.States() {
				_ = st.Each(ctx, st.All(), func(e *stored.Entry) error {
					_, err := e.Record()
					return err
				})
				if st.Key != nil {
					_, _ = st.Get(ctx, data[:min(len(data), 8)])
				}
			}
		}
	})
}
