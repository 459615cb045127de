package snapshot_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
)

func TestRedistribute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var old job.OperatorSnapshot
		old.Parallelism = rapid.IntRange(1, 8).Draw(t, "old")
		var all []string
		for i := range old.Parallelism {
			n := rapid.IntRange(0, 12).Draw(t, "items")
			s := job.SubtaskSnapshot{}
			if n > 0 || rapid.Bool().Draw(t, "there") {
				s.States = append(s.States,
					job.StateHandle{Name: "other", Kind: snapshot.KindList, Entries: 3},
					job.StateHandle{Name: "splits", Kind: snapshot.KindList, Entries: int64(n), Object: fmt.Sprint(i)})
			}
			for j := range n {
				all = append(all, fmt.Sprintf("%d/%d", i, j))
			}
			old.Subtasks = append(old.Subtasks, s)
		}
		p := rapid.IntRange(1, 8).Draw(t, "new")
		var got []string
		least, most := 1<<30, 0
		for i := range p {
			parts, _ := snapshot.Redistribute(old, "splits", i, p)
			n := 0
			for _, part := range parts {
				n += int(part.Len())
				for j := part.First; j < part.Handle.Entries; j += part.Step {
					got = append(got, fmt.Sprintf("%s/%d", part.Handle.Object, j))
				}
				if p == old.Parallelism && (part.Handle.Object != fmt.Sprint(i) || part.Step != 1) {
					t.Fatalf("at the same parallelism subtask %d gets %+v", i, part)
				}
			}
			least, most = min(least, n), max(most, n)
		}
		slices.Sort(got)
		slices.Sort(all)
		if !slices.Equal(got, all) {
			t.Fatalf("items %q, want %q", got, all)
		}
		if p != old.Parallelism && most-least > 1 {
			t.Fatalf("shares of %d to %d items", least, most)
		}
	})
}

func TestRedistributeBroadcast(t *testing.T) {
	old := job.OperatorSnapshot{Parallelism: 3, Subtasks: []job.SubtaskSnapshot{
		{States: []job.StateHandle{{Name: "rules", Kind: snapshot.KindBroadcast, Entries: 4, Object: "0"}}},
		{},
		{States: []job.StateHandle{{Name: "rules", Kind: snapshot.KindBroadcast, Entries: 4, Object: "2"}}},
	}}
	for i, want := range []string{"0", "2", "2", "0", "2"} {
		parts, ok := snapshot.Redistribute(old, "rules", i, 5)
		if !ok || len(parts) != 1 || parts[0].Len() != 4 || parts[0].Handle.Object != want {
			t.Errorf("subtask %d gets %+v", i, parts)
		}
	}
	if parts, ok := snapshot.Redistribute(old, "splits", 0, 3); ok || parts != nil {
		t.Errorf("a state that is not there gives %+v", parts)
	}
}

func TestLists(t *testing.T) {
	store := mem.New("m")
	w := newWriter(t, config(store))
	items := [][]byte{[]byte("a"), nil, bytes.Repeat([]byte("x"), 30_000), []byte("d")}
	h, err := w.Operator("read").List(ctx, "splits", snapshot.KindList, "split", items)
	if err != nil {
		t.Fatal(err)
	}
	small, err := w.Operator("read").List(ctx, "none", snapshot.KindList, "split", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Operator("read").List(ctx, "x", "keyed", "", nil); err == nil {
		t.Error("a list of another kind is written")
	}
	if err := w.Finish(ctx); err != nil {
		t.Fatal(err)
	}
	r := snapshot.NewReader(store)
	got, err := r.ReadList(ctx, []snapshot.Part{{Handle: h, First: 0, Step: 1}, {Handle: small, First: 0, Step: 1}, {Handle: h, First: 1, Step: 2}})
	if err != nil || len(got) != 6 || string(got[0]) != "a" || len(got[1]) != 0 || len(got[2]) != 30_000 || len(got[4]) != 0 || string(got[5]) != "d" {
		t.Errorf("%d items, %v", len(got), err)
	}
	wrong := h
	wrong.Entries++
	if _, err := r.ReadList(ctx, []snapshot.Part{{Handle: wrong, Step: 1}}); !errors.Is(err, statebackend.ErrCorrupt) || !strings.Contains(err.Error(), h.Object) {
		t.Errorf("wrong number of entries: %v", err)
	}
	data := snapshot.EncodeList(items[:2])
	for at := range data {
		bad := slices.Clone(data)
		bad[at] ^= 1
		if _, err := snapshot.DecodeList(bad); err == nil {
			t.Errorf("byte %d changed without an error", at)
		}
		if _, err := snapshot.DecodeList(data[:at]); err == nil {
			t.Errorf("cut after %d bytes without an error", at)
		}
	}
}
