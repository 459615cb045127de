package pebble_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/faulty"
	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
	"github.com/cairnstream/cairn/statebackend/memory"
	"github.com/cairnstream/cairn/statebackend/pebble"
)

// stored is a backend with the writer and the reader of checkpoints over a store that fails on cue.
type stored struct {
	t     *testing.T
	f     statebackend.Factory
	dir   string
	store *faulty.Store
	c     counter
	want  map[int64]int64
	id    job.CheckpointID
}

// eachStored runs a test with every backend that has objects in the store. What memory writes has them as soon as there is much.
func eachStored(t *testing.T, test func(t *testing.T, s *stored)) {
	for name, f := range map[string]statebackend.Factory{
		"memory": memory.Factory{}, "fs": fs.Factory{}, "fs increments": fs.Factory{FullBelow: 1}, "pebble": &pebble.Factory{},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stored{t: t, f: f, dir: t.TempDir(), store: faulty.Wrap(mem.New("m"), 1), want: map[int64]int64{}}
			s.c = s.start(0, 1)
			for k := range int64(5000) {
				s.set(k, k)
			}
			test(t, s)
		})
	}
}

func (s *stored) start(subtask, parallelism int) counter {
	s.t.Helper()
	b, err := s.f.New(s.t.Context(), statebackend.Params{
		Task: job.Task{Vertex: "sum", Subtask: subtask}, Operator: "sum", Dir: s.dir, K: 16, Groups: job.GroupsOf(subtask, 16, parallelism), Incremental: true,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = b.Close() })
	return counter{b, counts(s.t, b)}
}

func (s *stored) set(k, n int64) {
	s.c.set(k, n)
	s.want[k] = n
}

// take takes a checkpoint.
func (s *stored) take(ctx context.Context) ([]job.StateHandle, error) {
	s.id++
	w, err := snapshot.NewWriter(snapshot.WriterConfig{
		Store: s.store, Cluster: "test", Job: "j", Checkpoint: s.id, Attempt: 1, Epoch: 1,
		Task: job.Task{Vertex: "sum"}, InlineLimit: -1, SpoolMemory: 1000, TempDir: s.dir,
	})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	snap, err := s.c.b.Freeze(s.id)
	if err != nil {
		return nil, err
	}
	defer snap.Release()
	handles, err := snap.Write(ctx, w.Operator("sum"))
	if err == nil {
		err = w.Finish(ctx)
	}
	if err == nil {
		s.c.b.Committed(s.id)
	}
	return handles, err
}

func (s *stored) restore(ctx context.Context, parallelism int, handles []job.StateHandle) (map[int64]int64, error) {
	got := map[int64]int64{}
	for i := range parallelism {
		c := s.start(i, parallelism)
		err := c.b.Restore(ctx, snapshot.NewReader(s.store), handles)
		if err == nil {
			maps.Copy(got, c.all())
		}
		if cerr := c.b.Close(); cerr != nil {
			s.t.Error(cerr)
		}
		if err != nil {
			return nil, err
		}
	}
	return got, nil
}

// objects are the keys of the objects that handles refer to.
func objects(handles []job.StateHandle) (keys []string) {
	for _, h := range handles {
		if h.Object != "" {
			keys = append(keys, h.Object)
		}
	}
	return keys
}

// names tells whether an error names an object of the job.
func names(err error) bool {
	return err != nil && strings.Contains(err.Error(), "test/jobs/j/checkpoints/")
}

// A store that does not answer ends with the context, for a snapshot and for a restore, and the next try is as if nothing had been.
func TestHangingStore(t *testing.T) {
	eachStored(t, func(t *testing.T, s *stored) {
		handles, err := s.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		hangs := func(what string, f func(ctx context.Context) error) {
			t.Helper()
			s.store.Set(faulty.Rule{Latency: time.Hour})
			defer s.store.Set()
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			begin := time.Now()
			if err := f(ctx); !errors.Is(err, context.DeadlineExceeded) || !names(err) || time.Since(begin) > 10*time.Second {
				t.Errorf("%s: %v after %v", what, err, time.Since(begin))
			}
		}
		if len(objects(handles)) == 0 {
			return // All of it is inline.
		}
		for i := range int64(3) {
			s.set(i, -i)
			hangs("write", func(ctx context.Context) error { _, err := s.take(ctx); return err })
		}
		before := maps.Clone(s.want)
		if handles, err = s.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		for p := range 3 {
			hangs(fmt.Sprintf("restore by %d", p+1), func(ctx context.Context) error {
				_, err := s.restore(ctx, p+1, handles)
				return err
			})
			got, err := s.restore(t.Context(), p+1, handles)
			if err != nil {
				t.Fatal(err)
			}
			same(t, got, before)
		}
	})
}

// A store that is busy now and then fails a checkpoint or a restore with an error that names the object and says that it may pass, also
// when it has done what was asked. What succeeds is right.
func TestBusyStore(t *testing.T) {
	eachStored(t, func(t *testing.T, s *stored) {
		for _, rule := range []faulty.Rule{{Chance: 0.05}, {Chance: 0.2, AfterEffect: true, Op: "put"}, {Chance: 0.1, Op: "get-range"}} {
			busy, calls := 0, s.store.Calls("put")
			for round := range int64(12) {
				s.store.Set(rule)
				for k := range int64(100) {
					s.set(k*(round+3), round)
				}
				handles, err := s.take(t.Context())
				for ; err != nil; handles, err = s.take(t.Context()) {
					if busy++; !blob.IsTransient(err) || !names(err) {
						t.Fatalf("a busy store: %v", err)
					}
				}
				for p := range 2 {
					got, err := s.restore(t.Context(), p+1, handles)
					for ; err != nil; got, err = s.restore(t.Context(), p+1, handles) {
						if busy++; !blob.IsTransient(err) || !names(err) {
							t.Fatalf("a busy store: %v", err)
						}
					}
					same(t, got, s.want)
				}
			}
			if s.store.Calls("put") > calls+100 && busy == 0 {
				t.Errorf("of %d calls none was refused", s.store.Calls("put"))
			}
		}
		s.store.Set()
	})
}

// Objects that arrive damaged, short, or not to their end are found, and the object is named.
func TestDamagedByStore(t *testing.T) {
	eachStored(t, func(t *testing.T, s *stored) {
		for i := range int64(3) {
			for k := range int64(200) {
				s.set(k*7+i, -k)
			}
			if _, err := s.take(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		handles, err := s.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all := objects(handles)
		for _, d := range []faulty.Damage{faulty.Flip, faulty.Truncate, faulty.Break} {
			for p := range 2 {
				for _, key := range all {
					found := 0
					for skip := range 4 {
						s.store.Set(faulty.Rule{Op: "get-range", Contains: key, Damage: d, Skip: skip, Times: 1})
						got, err := s.restore(t.Context(), p+1, handles)
						hit := s.store.Hits() > 0
						switch {
						case err == nil: // It was not read so often, or there was nothing to damage: an empty file, the first bytes of a segment.
							same(t, got, s.want)
							continue
						case !hit:
							t.Fatal(err)
						case !strings.Contains(err.Error(), key):
							t.Errorf("damage %d of %s: %v does not name it", d, key, err)
						case d == faulty.Break && !blob.IsTransient(err):
							t.Errorf("a connection that broke: %v is not said to pass", err)
						case d == faulty.Flip && !errors.Is(err, statebackend.ErrCorrupt):
							t.Errorf("a flipped bit: %v is not said to be damage", err)
						}
						found++
					}
					if found == 0 {
						t.Errorf("damage %d of %s, restored by %d: none is found", d, key, p+1)
					}
				}
			}
		}
		s.store.Set()
	})
}
