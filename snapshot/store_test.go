package snapshot_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/faulty"
	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
)

func newStore(t testing.TB, b blob.Store) *snapshot.Store {
	t.Helper()
	s, err := snapshot.NewStore(b, "test")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func manifest(id job.CheckpointID, handles ...job.StateHandle) *snapshot.Manifest {
	return &snapshot.Manifest{
		Job: "00000000000000aa", JobName: "flights-daily", Program: "flights", Version: "v1", Checkpoint: id, Attempt: 3, Epoch: 2,
		Mode: job.ExactlyOnce, Created: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), K: 720, Hash: snapshot.HashName, Fingerprint: "f",
		Graph: job.Graph{Operators: []job.Operator{{Name: "sum", Kind: job.KindWindow, Stateful: true, Named: true}}},
		Operators: map[string]job.OperatorSnapshot{
			"sum":  {Parallelism: 1, Subtasks: []job.SubtaskSnapshot{{Watermark: 12, States: handles}}},
			"read": {Parallelism: 2, Subtasks: []job.SubtaskSnapshot{{EndOfData: true}, {}}},
		},
	}
}

func TestManifest(t *testing.T) {
	m := manifest(7,
		job.StateHandle{Name: "counts", Kind: "keyed", Key: "int64", Codec: "int64", Groups: job.GroupRange{First: 0, Last: 719}, Entries: 3, Object: "x/y", Offset: 9, Length: 100, Hash: "h", Index: "i"},
		job.StateHandle{Name: "small", Kind: "list", Groups: job.GroupRange{First: 0, Last: -1}, Inline: []byte{1, 2}, Length: 2})
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, _ := m.Encode()
	if !bytes.Equal(data, again) {
		t.Error("two encodings differ")
	}
	got, err := snapshot.DecodeManifest(data)
	if err != nil {
		t.Fatal(err)
	}
	want := *m
	want.Bytes = 102
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("read back %+v, want %+v", got, want)
	}
	if got := snapshot.ObjectsOf(m); !slices.Equal(got, []string{"x/y"}) {
		t.Errorf("objects %q", got)
	}
	for at := range data {
		bad := slices.Clone(data)
		bad[at] ^= 0x10
		if _, err := snapshot.DecodeManifest(bad); err == nil {
			t.Fatalf("byte %d changed without an error", at)
		}
		if _, err := snapshot.DecodeManifest(data[:at]); !errors.Is(err, statebackend.ErrCorrupt) {
			t.Fatalf("cut after %d bytes: %v", at, err)
		}
	}
}

func TestManifestListsItsProblems(t *testing.T) {
	m := manifest(7, job.StateHandle{Name: "counts", Object: "../x", Length: -1}, job.StateHandle{Name: "b", Inline: []byte{1}, Length: 3})
	m.Job, m.K, m.Hash = "", 0, "md5"
	m.Operators["read"] = job.OperatorSnapshot{Parallelism: 3}
	_, err := m.Encode()
	for _, want := range []string{"no job id", "key groups is 0", "md5", `"read": parallelism 3`, `"counts"`, "bad key", "1 bytes inline, 3"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}

func TestTooMuchInline(t *testing.T) {
	big := make([]byte, statebackend.MaxInlineCheckpoint/2)
	h := job.StateHandle{Name: "counts", Kind: statebackend.KindKeyed, Inline: big, Length: int64(len(big))}
	if _, err := manifest(7, h, h).Encode(); err != nil {
		t.Error(err)
	}
	small := h
	small.Name, small.Inline, small.Length = "few", big[:1], 1
	_, err := manifest(7, h, h, small).Encode()
	var e *statebackend.InlineError
	if !errors.As(err, &e) || e.State != "counts" || e.Operator != "sum" {
		t.Errorf("error is %v", err)
	}
}

func TestManifestOfChains(t *testing.T) {
	full := job.StateHandle{Name: "counts", Kind: statebackend.KindKeyed, Key: "int64", Codec: "int64", Groups: job.GroupRange{First: 0, Last: 9}, Index: "aa", Object: "x/1"}
	first, second := full, full
	first.Base, first.Index, first.Object = "aa", "bb", "x/2"
	second.Base, second.Index, second.Object = "bb", "cc", "x/3"
	other := full
	other.Name = "totals"
	for _, hs := range [][]job.StateHandle{{full}, {full, first}, {other, full, first, second, {Name: "splits", Kind: snapshot.KindList}}} {
		data, err := manifest(7, hs...).Encode()
		if err != nil {
			t.Fatal(err)
		}
		want := byte(1)
		if slices.ContainsFunc(hs, func(h job.StateHandle) bool { return h.Base != "" }) {
			want = 2
		}
		m, err := snapshot.DecodeManifest(data)
		if err != nil || data[8] != want || len(m.Operators["sum"].Subtasks[0].States) != len(hs) {
			t.Errorf("version %d, %v", data[8], err)
		}
		data[8] = 3
		if _, err := snapshot.DecodeManifest(data); err == nil || !strings.Contains(err.Error(), "version 3") {
			t.Errorf("a later version: %v", err)
		}
	}
	with := func(change func(h *job.StateHandle)) []job.StateHandle {
		h := first
		change(&h)
		return []job.StateHandle{full, h}
	}
	for what, hs := range map[string][]job.StateHandle{
		"changes to nothing":          {first},
		"a gap":                       {full, second},
		"the other order":             {full, second, first},
		"another state between":       {full, other, first},
		"changes to another state":    {other, first},
		"changes of a list":           with(func(h *job.StateHandle) { h.Kind = snapshot.KindList }),
		"changes of other key groups": with(func(h *job.StateHandle) { h.Groups.Last-- }),
		"changes of another schema":   with(func(h *job.StateHandle) { h.Codec = "string" }),
	} {
		if _, err := manifest(7, hs...).Encode(); err == nil || !strings.Contains(err.Error(), `"counts"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestStore(t *testing.T) {
	inner := mem.New("m")
	b := faulty.Wrap(inner, 1)
	s := newStore(t, b)
	for _, id := range []job.CheckpointID{1, 2, 10} {
		c := config(inner)
		c.Checkpoint = id
		w := newWriter(t, c)
		h := section(t, w, "sum", "counts", random(30_000))
		if err := w.Finish(ctx); err != nil {
			t.Fatal(err)
		}
		key, err := s.WriteManifest(ctx, manifest(id, h))
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.LoadManifest(ctx, key)
		if err != nil || m.Checkpoint != id {
			t.Fatal(m, err)
		}
		if err := s.VerifyManifest(ctx, m); err != nil {
			t.Error(err)
		}
	}
	other := manifest(1)
	other.Job = "00000000000000ab"
	if _, err := s.WriteManifest(ctx, other); err != nil {
		t.Fatal(err)
	}

	// The same again is good, whether or not an answer was lost; another one under the same name is not.
	lost := manifest(3)
	b.Set(faulty.Rule{Op: "put-if-absent", Times: 1, AfterEffect: true})
	if _, err := s.WriteManifest(ctx, lost); !blob.IsTransient(err) {
		t.Errorf("a lost answer: %v", err)
	}
	key, err := s.WriteManifest(ctx, lost)
	if err != nil {
		t.Errorf("the same manifest again: %v", err)
	}
	lost.Epoch++
	if _, err := s.WriteManifest(ctx, lost); !errors.Is(err, blob.ErrExists) {
		t.Errorf("another manifest under the same name: %v", err)
	}
	b.Set(faulty.Rule{Op: "get", Damage: faulty.Flip})
	if _, err := s.LoadManifest(ctx, key); err == nil || blob.IsTransient(err) || !strings.Contains(err.Error(), key) {
		t.Errorf("a damaged manifest: %v", err)
	}
	b.Set()
	if _, err := s.LoadManifest(ctx, "test/none"); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("a missing manifest: %v", err)
	}

	infos, err := s.ListCheckpoints(ctx, "00000000000000aa")
	var ids []job.CheckpointID
	for _, i := range infos {
		ids = append(ids, i.Checkpoint)
	}
	if err != nil || !slices.Equal(ids, []job.CheckpointID{1, 2, 3, 10}) {
		t.Errorf("checkpoints %v, %v", ids, err)
	}
	if all, err := s.ListCheckpoints(ctx, ""); err != nil || len(all) != 5 || all[4].Job != other.Job {
		t.Errorf("checkpoints of all jobs %v, %v", all, err)
	}

	// A failure in the middle leaves no manifest without its objects.
	b.Set(faulty.Rule{Op: "delete", Skip: 1, Times: 1})
	if err := s.DeleteJob(ctx, "00000000000000aa"); !blob.IsTransient(err) {
		t.Errorf("a failed deletion: %v", err)
	}
	if infos, _ := s.ListCheckpoints(ctx, "00000000000000aa"); len(infos) > 0 {
		t.Errorf("manifests are there: %v", infos)
	}
	if err := s.DeleteJob(ctx, "00000000000000aa"); err != nil {
		t.Error(err)
	}
	if got := keysOf(t, inner); len(got) != 1 {
		t.Errorf("objects left: %q", got)
	}
}

func TestVerifyNamesEveryBadObject(t *testing.T) {
	inner := mem.New("m")
	s := newStore(t, inner)
	var handles []job.StateHandle
	for i := range 3 {
		c := config(inner)
		c.Task.Subtask = i
		w := newWriter(t, c)
		handles = append(handles, section(t, w, "sum", "counts", random(30_000+i)))
		if err := w.Finish(ctx); err != nil {
			t.Fatal(err)
		}
	}
	data, _ := blob.ReadAll(ctx, inner, handles[0].Object, 1<<20)
	data[20_000]++
	if err := blob.PutBytes(ctx, inner, handles[0].Object, data); err != nil {
		t.Fatal(err)
	}
	if err := inner.Delete(ctx, handles[1].Object); err != nil {
		t.Fatal(err)
	}
	err := s.VerifyManifest(ctx, manifest(7, handles...))
	if err == nil || !strings.Contains(err.Error(), handles[0].Object) || !strings.Contains(err.Error(), handles[1].Object) ||
		strings.Contains(err.Error(), handles[2].Object) || !errors.Is(err, statebackend.ErrCorrupt) || !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
