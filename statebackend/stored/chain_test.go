package stored_test

import (
	"fmt"
	"io"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/segment"
	"github.com/cairnstream/cairn/statebackend/stored"
)

// Segments of changes apply one after the other: a later value wins, a key that is gone is gone until it is set again. A
// savepoint that is made of them holds the same.
func TestChains(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const k = 5
		store := mem.New("m")
		want := map[string]string{}
		parallelism := rapid.IntRange(1, 3).Draw(t, "parallelism")
		op := job.OperatorSnapshot{Parallelism: parallelism, Subtasks: make([]job.SubtaskSnapshot, parallelism)}
		steps := rapid.IntRange(1, 5).Draw(t, "steps")
		writers := make([]*snapshot.Writer, parallelism)
		for i := range writers {
			w, err := snapshot.NewWriter(snapshot.WriterConfig{
				Store: store, Cluster: "c", Job: "j", Checkpoint: 7, Attempt: 1, Epoch: 1, Task: job.Task{Vertex: "op", Subtask: i}, InlineLimit: rapid.SampledFrom([]int{-1, 0}).Draw(t, "limit"),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			writers[i] = w
		}
		totals := make([]int64, parallelism)
		for step := range steps {
			puts, removed := map[string]string{}, map[string]bool{}
			for range rapid.IntRange(1, 30).Draw(t, "changes") {
				key := fmt.Sprint("k", rapid.IntRange(0, 40).Draw(t, "key"))
				if _, ok := want[key]; ok && step > 0 && puts[key] == "" && rapid.Bool().Draw(t, "remove") {
					delete(want, key)
					removed[key] = true
					continue
				}
				if removed[key] {
					continue
				}
				puts[key] = fmt.Sprint("v", rapid.IntRange(0, 9).Draw(t, "value"))
				want[key] = puts[key]
			}
			for i := range parallelism {
				groups := job.GroupsOf(i, k, parallelism)
				totals[i] = 0
				for key := range want {
					if groups.Contains(groupOf(key, k)) {
						totals[i]++
					}
				}
				d := segment.Descriptor{Operator: "op", Subtask: i, State: "s", Key: "string", Value: "string", K: k, First: groups.First, Last: groups.Last, Checkpoint: 7}
				states := &op.Subtasks[i].States
				if step > 0 {
					d.Base, d.Total = (*states)[step-1].Index, totals[i]
				}
				var sum segment.Summary
				h, err := writers[i].Operator("op").Section(ctx, "s", func(out io.Writer) (err error) {
					sum, err = writeChanges(out, d, k, puts, removed)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				h.Name, h.Kind, h.Key, h.Codec, h.Groups, h.Index, h.Base = "s", statebackend.KindKeyed, "string", "string", groups, sum.Index, d.Base
				h.Entries = totals[i]
				*states = append(*states, h)
			}
		}
		for _, w := range writers {
			if err := w.Finish(ctx); err != nil {
				t.Fatal(err)
			}
		}
		m := &snapshot.Manifest{
			Job: "j", JobName: "j", Checkpoint: 7, Attempt: 1, Epoch: 1, Created: time.Unix(1, 0), K: k, Hash: snapshot.HashName,
			Operators: map[string]job.OperatorSnapshot{"op": op},
		}
		st, err := snapshot.NewStore(store, "c")
		if err != nil {
			t.Fatal(err)
		}
		key, err := st.WriteManifest(ctx, m)
		if err != nil {
			t.Fatal(err)
		}
		same(t, store, key, want)

		// Carried over as it is, and written anew.
		s, err := stored.Open(ctx, store, key, stored.Options{})
		if err != nil {
			t.Fatal(err)
		}
		key, err = stored.NewEditor(s, time.Unix(1, 0)).Write(ctx, store, "copy")
		if err != nil {
			t.Fatal(err)
		}
		same(t, store, key, want)
		key = edited(t, store, key, "edited", `{"operator":"op","state":"s","key":"k0","value":"new"}`, `{"operator":"op","state":"s","key":"k1","delete":true}`)
		want = maps.Clone(want)
		want["k0"] = "new"
		delete(want, "k1")
		same(t, store, key, want)
	})
}

func groupOf(key string, k int) int {
	b, _ := codec.String().Append(nil, &key) // It cannot fail.
	return job.GroupOf(codec.Hash(b), k)
}

func writeChanges(out io.Writer, d segment.Descriptor, k int, puts map[string]string, removed map[string]bool) (segment.Summary, error) {
	w := segment.NewWriter(out, d)
	for g := d.First; g <= d.Last; g++ {
		for key := range removed {
			if groupOf(key, k) == g {
				b, _ := codec.String().Append(nil, &key)
				if err := w.Remove(g, 1, b); err != nil {
					return segment.Summary{}, err
				}
			}
		}
		for key, value := range puts {
			if groupOf(key, k) == g {
				b, _ := codec.String().Append(nil, &key)
				b, _ = codec.String().Append(b, &value)
				if err := w.Add(g, 1, b); err != nil {
					return segment.Summary{}, err
				}
			}
		}
	}
	return w.Finish()
}

func same(t *rapid.T, store *mem.Store, key string, want map[string]string) {
	t.Helper()
	s := open(t, store, key)
	if s.Entries != int64(len(want)) {
		t.Fatalf("%d entries, want %d", s.Entries, len(want))
	}
	got := map[string]string{}
	if err := s.Each(ctx, s.All(), func(e *stored.Entry) error {
		got[string(e.Key[1:])] = string(e.Value[1:])
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range 41 {
		name := fmt.Sprint("k", i)
		b, _ := codec.String().Append(nil, &name)
		found, err := s.Get(ctx, b)
		if err != nil {
			t.Fatal(err)
		}
		if value, ok := want[name]; ok != (len(found) == 1) || ok && string(found[0].Value[1:]) != value {
			t.Fatalf("%s: %v, want %q", name, found, value)
		}
	}
}
