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

func TestStore(t *testing.T) {
	inner := mem.New("m")
	b := faulty.Wrap(inner, 1)
	s := newStore(t, b)
	ms := s.Manifests("00000000000000aa")
	for _, id := range []job.CheckpointID{1, 2, 10} {
		c := config(inner)
		c.Checkpoint = id
		w := newWriter(t, c)
		h := section(t, w, "sum", "counts", random(30_000))
		if err := w.Finish(ctx); err != nil {
			t.Fatal(err)
		}
		key, err := ms.Write(ctx, *manifest(id, h))
		if err != nil {
			t.Fatal(err)
		}
		m, err := ms.Load(ctx, key)
		if err != nil || m.Checkpoint != id {
			t.Fatal(m, err)
		}
		if err := s.VerifyManifest(ctx, m); err != nil {
			t.Error(err)
		}
	}
	other := manifest(1)
	other.Job = "00000000000000ab"
	if _, err := ms.Write(ctx, *other); err == nil {
		t.Error("another job's manifest is written")
	}
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

	infos, err := ms.List(ctx)
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
	if err := ms.Delete(ctx, 1); !blob.IsTransient(err) {
		t.Errorf("a failed deletion: %v", err)
	}
	if infos, _ := ms.List(ctx); infos[0].Checkpoint != 2 {
		t.Errorf("the manifest is there: %v", infos)
	}
	for range 2 {
		if err := ms.Delete(ctx, 1); err != nil {
			t.Error(err)
		}
	}
	left := keysOf(t, inner)
	if len(left) != 6 {
		t.Errorf("objects left: %q", left)
	}
	for _, key := range left {
		if strings.Contains(key, "aa/checkpoints/1/") {
			t.Errorf("left over: %s", key)
		}
	}

	w := newWriter(t, config(inner))
	section(t, w, "sum", "counts", random(30_000))
	if err := w.Finish(ctx); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{snapshot.ManifestKey("test", "00000000000000aa", 7), "test/jobs/00000000000000aa/checkpoints/10/x", "other"} {
		if err := ms.Release(ctx, 7, key); err == nil {
			t.Errorf("%s is released", key)
		}
	}
	for range 2 {
		if err := ms.Release(ctx, 7, w.Object()); err != nil {
			t.Error(err)
		}
	}
	if len(keysOf(t, inner)) != 6 {
		t.Errorf("objects left: %q", keysOf(t, inner))
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
