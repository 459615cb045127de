package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
)

// bucket is a store with jobs' checkpoints for sweeps.
type bucket struct {
	t     testing.TB
	store *mem.Store
	all   *snapshot.Store
}

func newBucket(t testing.TB) *bucket {
	store := mem.New("sweep")
	all, err := snapshot.NewStore(store, "c")
	if err != nil {
		t.Fatal(err)
	}
	return &bucket{t, store, all}
}

func (b *bucket) object(id job.ID, n job.CheckpointID, name string) string {
	key := snapshot.CheckpointPrefix("c", id, n) + name
	if err := blob.PutBytes(b.t.Context(), b.store, key, []byte(key)); err != nil {
		b.t.Fatal(err)
	}
	return key
}

// manifest writes one that refers to objects.
func (b *bucket) manifest(id job.ID, n job.CheckpointID, objects ...string) string {
	m := &snapshot.Manifest{Job: id, JobName: "j", Checkpoint: n, Attempt: 1, Epoch: 1, Mode: job.ExactlyOnce, Created: time.Unix(1, 0), K: 4, Hash: snapshot.HashName}
	var states []job.StateHandle
	for i, o := range objects {
		states = append(states, job.StateHandle{Name: fmt.Sprint("s", i), Kind: snapshot.KindList, Object: o, Length: 1, Groups: job.GroupRange{First: 0, Last: -1}})
	}
	m.Operators = map[string]job.OperatorSnapshot{"op": {Parallelism: 1, Subtasks: []job.SubtaskSnapshot{{States: states}}}}
	key, err := b.all.WriteManifest(b.t.Context(), m)
	if err != nil {
		b.t.Fatal(err)
	}
	return key
}

func (b *bucket) keys() (out []string) {
	for info, err := range b.store.List(b.t.Context(), "") {
		if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, info.Key)
	}
	return out
}

// old is a time at which everything that a test has written is old.
func old() time.Time { return time.Now().Add(2 * time.Hour) }

func record(jobs map[job.ID]snapshot.JobCheckpoints) func(context.Context) (map[job.ID]snapshot.JobCheckpoints, error) {
	return func(context.Context) (map[job.ID]snapshot.JobCheckpoints, error) { return jobs, nil }
}

func found(s *snapshot.Swept) (out []string) {
	for _, g := range s.Garbage {
		out = append(out, g.Key)
	}
	slices.Sort(out)
	return out
}

// What is deleted is what nothing refers to; all else stays, and everything that is referred to is there.
func TestSweep(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		b := newBucket(t)
		jobs := map[job.ID]snapshot.JobCheckpoints{}
		offline := rapid.Bool().Draw(r, "offline")
		stay := map[string]bool{}
		keep := func(keys ...string) {
			for _, k := range keys {
				stay[k] = true
			}
		}
		for i := range rapid.IntRange(1, 3).Draw(r, "jobs") {
			id := job.ID(fmt.Sprint("job", i))
			c := snapshot.JobCheckpoints{Ended: rapid.Bool().Draw(r, "ended"), Committed: map[job.CheckpointID]string{}}
			onRecord := !offline && rapid.IntRange(0, 3).Draw(r, "record") > 0
			var base []string // Of the newest committed one.
			newest := job.CheckpointID(0)
			last := job.CheckpointID(rapid.IntRange(1, 6).Draw(r, "checkpoints"))
			type written struct {
				n    job.CheckpointID
				keys []string
			}
			var rest []written // By checkpoints that did not commit.
			for n := job.CheckpointID(1); n <= last; n++ {
				own := []string{b.object(id, n, "a1.e1.v-0.0"), b.object(id, n, "a1.e1.v-0.1")}
				refers := append(slices.Clone(own[:1]), base[:rapid.IntRange(0, len(base)).Draw(r, "shared")]...)
				switch rapid.SampledFrom([]string{"committed", "given up", "aborted", "manifest only"}).Draw(r, "outcome") {
				case "committed": // Its second object was of a task that was asked again.
					m := b.manifest(id, n, refers...)
					c.Committed[n] = m
					keep(append(refers, m)...)
					base, newest = refers, n
					rest = append(rest, written{n, own[1:]})
				case "given up": // Retained no more, but for what later ones refer to.
					base = refers
					rest = append(rest, written{n, own})
				case "aborted":
					rest = append(rest, written{n, own})
				case "manifest only": // The commit failed after the manifest was written.
					m := b.manifest(id, n, refers...)
					rest = append(rest, written{n, append(own, m)})
					if !onRecord {
						keep(append(refers, m)...)
					}
				}
			}
			if !onRecord {
				// Of checkpoints with a manifest nothing is lost.
				continue
			}
			if !c.Ended && rapid.Bool().Draw(r, "in progress") {
				c.InProgress = last
			}
			for _, w := range rest {
				if !c.Ended && (w.n > newest || c.InProgress > 0 && w.n >= c.InProgress) {
					keep(w.keys...)
				}
			}
			jobs[id] = c
		}
		elsewhere := []string{"c/jobs/job0/notes/x", "c/savepoints/sp/object", "other/jobs/job0/checkpoints/1/a1"}
		for _, key := range elsewhere {
			if err := blob.PutBytes(t.Context(), b.store, key, nil); err != nil {
				t.Fatal(err)
			}
		}
		keep(elsewhere...)
		// What a kept checkpoint refers to of one that was given up is there in a store that nobody has swept.
		o := snapshot.SweepOptions{Cluster: "c", MinAge: time.Hour, Now: old()}
		if !offline {
			o.Jobs = record(jobs)
		}
		before := b.keys()
		s, err := snapshot.FindGarbage(t.Context(), b.store, o)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Problems) > 0 || len(s.Missing) > 0 {
			t.Fatalf("problems %v, missing %v", s.Problems, s.Missing)
		}
		var want []string
		for _, k := range before {
			if !stay[k] {
				want = append(want, k)
			}
		}
		if got := found(s); !slices.Equal(got, want) {
			t.Fatalf("garbage %q\nwant %q", got, want)
		}
		if s.Live+len(s.Garbage)+s.Young+s.Foreign != s.Objects {
			t.Errorf("%+v does not add up", s)
		}
		for i, g := range s.Garbage[:max(len(s.Garbage)-1, 0)] {
			if !strings.HasSuffix(g.Key, "/_metadata") && strings.HasSuffix(s.Garbage[i+1].Key, "/_metadata") {
				t.Errorf("a manifest is deleted after objects")
			}
		}
		if err := s.Delete(t.Context(), b.store, func(int) {}); err != nil {
			t.Fatal(err)
		}
		again, err := snapshot.FindGarbage(t.Context(), b.store, o)
		if err != nil || len(again.Garbage) > 0 || len(again.Missing) > 0 {
			t.Fatalf("after the sweep: %+v, %v", again, err)
		}
		for k := range stay {
			if !slices.Contains(b.keys(), k) {
				t.Fatalf("%s is gone", k)
			}
		}
	})
}

// Young objects stay, and a job alone can be swept.
func TestSweepIsNarrow(t *testing.T) {
	b := newBucket(t)
	b.object("a", 1, "x")
	b.object("b", 1, "x")
	o := snapshot.SweepOptions{Cluster: "c", MinAge: time.Hour, Now: time.Now()}
	if s, err := snapshot.FindGarbage(t.Context(), b.store, o); err != nil || len(s.Garbage) != 0 || s.Young != 2 {
		t.Errorf("young: %+v, %v", s, err)
	}
	o.Now, o.Job = old(), "b"
	s, err := snapshot.FindGarbage(t.Context(), b.store, o)
	if err != nil || !slices.Equal(found(s), []string{"c/jobs/b/checkpoints/1/x"}) || s.Objects != 1 {
		t.Errorf("one job: %+v, %v", s, err)
	}
	if _, err := snapshot.FindGarbage(t.Context(), b.store, snapshot.SweepOptions{Cluster: "no/../way"}); err == nil {
		t.Error("a cluster of that name was taken")
	}
}

// Of a job of which a manifest cannot be read nothing is garbage; others are swept.
func TestSweepDamagedManifest(t *testing.T) { synctest.Test(t, testSweepDamagedManifest) }

func testSweepDamagedManifest(t *testing.T) {
	for _, what := range []string{"damaged", "gone"} {
		b := newBucket(t)
		m := b.manifest("a", 2, b.object("a", 2, "x"))
		b.object("a", 1, "x")
		b.object("b", 1, "x")
		jobs := map[job.ID]snapshot.JobCheckpoints{"a": {Ended: true, Committed: map[job.CheckpointID]string{2: m}}}
		var err error
		if what == "gone" {
			err = b.store.Delete(t.Context(), m)
		} else {
			err = blob.PutBytes(t.Context(), b.store, m, []byte("CAIRNMAN?"))
		}
		if err != nil {
			t.Fatal(err)
		}
		s, err := snapshot.FindGarbage(t.Context(), b.store, snapshot.SweepOptions{Cluster: "c", Jobs: record(jobs), Now: old()})
		if err != nil || s.Problems["a"] == nil || !slices.Equal(found(s), []string{"c/jobs/b/checkpoints/1/x"}) {
			t.Errorf("%s: %+v, %v", what, s, err)
		}
	}
}

// Of a job that is not wholly known nothing is garbage.
func TestSweepUnknown(t *testing.T) {
	b := newBucket(t)
	b.manifest("a", 1, b.object("a", 1, "x"))
	b.object("a", 1, "y")
	jobs := map[job.ID]snapshot.JobCheckpoints{"a": {Ended: true, Err: errors.New("of a later version")}}
	s, err := snapshot.FindGarbage(t.Context(), b.store, snapshot.SweepOptions{Cluster: "c", Jobs: record(jobs), Now: old()})
	if err != nil || s.Problems["a"] == nil || len(s.Garbage) > 0 || s.Live != 3 {
		t.Errorf("%+v, %v", s, err)
	}
}

// A checkpoint that is given up while it is looked at is no problem, and one that commits meanwhile is not lost: the record is
// asked after the objects were listed, and again.
func TestSweepRaces(t *testing.T) { synctest.Test(t, testSweepRaces) }

func testSweepRaces(t *testing.T) {
	b := newBucket(t)
	gone := b.manifest("a", 1, b.object("a", 1, "x"))
	if err := b.store.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	asked := 0
	s, err := snapshot.FindGarbage(t.Context(), b.store, snapshot.SweepOptions{Cluster: "c", Now: old(), Jobs: func(context.Context) (map[job.ID]snapshot.JobCheckpoints, error) {
		if asked++; asked == 1 {
			return map[job.ID]snapshot.JobCheckpoints{"a": {Committed: map[job.CheckpointID]string{1: gone}}}, nil
		}
		// Checkpoint 2 was on its way when the objects were listed.
		return map[job.ID]snapshot.JobCheckpoints{"a": {Committed: map[job.CheckpointID]string{2: b.manifest("a", 2, b.object("a", 2, "y"))}}}, nil
	}})
	if err != nil || asked != 2 || len(s.Problems) > 0 || !slices.Equal(found(s), []string{"c/jobs/a/checkpoints/1/x"}) {
		t.Errorf("asked %d times: %+v, %v", asked, s, err)
	}
}

// leaving has uploads that nobody completes.
type leaving struct {
	*mem.Store
	left []blob.Upload
}

func (l *leaving) Uploads(_ context.Context, prefix string) iter.Seq2[blob.Upload, error] {
	return func(yield func(blob.Upload, error) bool) {
		for _, u := range l.left {
			if strings.HasPrefix(u.Key, prefix) && !yield(u, nil) {
				return
			}
		}
	}
}

func (l *leaving) AbortUpload(_ context.Context, u blob.Upload) error {
	l.left = slices.DeleteFunc(l.left, func(x blob.Upload) bool { return x == u })
	return nil
}

// Uploads of checkpoints that have ended are taken back, others not.
func TestSweepUploads(t *testing.T) {
	b := newBucket(t)
	m := b.manifest("a", 3, b.object("a", 3, "x"))
	at := time.Now()
	store := &leaving{b.store, []blob.Upload{
		{Key: "c/jobs/a/checkpoints/2/big", ID: "1", Begun: at}, {Key: "c/jobs/a/checkpoints/4/big", ID: "2", Begun: at}, // The second is on its way.
		{Key: "c/jobs/gone/checkpoints/1/big", ID: "3", Begun: at}, {Key: "c/savepoints/s/big", ID: "4", Begun: at},
		{Key: "c/jobs/a/checkpoints/2/new", ID: "5", Begun: old()},
	}}
	o := snapshot.SweepOptions{Cluster: "c", MinAge: time.Hour, Now: old(), Jobs: record(map[job.ID]snapshot.JobCheckpoints{"a": {Committed: map[job.CheckpointID]string{3: m}}})}
	s, err := snapshot.FindGarbage(t.Context(), store, o)
	if err != nil || len(s.Uploads) != 2 || len(s.Garbage) != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	n := 0
	if err := s.Delete(t.Context(), store, func(done int) { n = done }); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	var ids []string
	for _, u := range store.left {
		ids = append(ids, u.ID)
	}
	if !slices.Equal(ids, []string{"2", "4", "5"}) {
		t.Errorf("left: %q", ids)
	}
}

// A store that is away ends a sweep with an error before anything is deleted.
func TestSweepStoreAway(t *testing.T) {
	b := newBucket(t)
	b.manifest("a", 1, b.object("a", 1, "x"))
	away := errors.New("away")
	if _, err := snapshot.FindGarbage(t.Context(), b.store, snapshot.SweepOptions{Cluster: "c", Jobs: func(context.Context) (map[job.ID]snapshot.JobCheckpoints, error) {
		return nil, away
	}}); !errors.Is(err, away) {
		t.Errorf("the record is away: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := snapshot.FindGarbage(ctx, b.store, snapshot.SweepOptions{Cluster: "c"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
