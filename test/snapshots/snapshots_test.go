package snapshots_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/pebble"
	"github.com/cairnstream/cairn/statebackend/stored"
	"github.com/cairnstream/cairn/test/snapshots"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func whole(t *testing.T) []snapshots.Snapshot {
	t.Helper()
	all, err := snapshots.Whole(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func options() stored.VerifyOptions { return stored.VerifyOptions{Trees: pebble.VerifyStored} }

// What was written is found to be whole, and all of it was read.
func TestWhole(t *testing.T) {
	for _, s := range whole(t) {
		t.Run(s.Name, func(t *testing.T) {
			r, err := stored.Verify(t.Context(), s.Store, s.Manifest, options())
			if err != nil {
				t.Fatal(err)
			}
			if r.Err() != nil {
				t.Error(r.Err())
			}
			var sum int64
			var entries int64
			chains := false
			for _, op := range r.Manifest.Operators {
				for _, sub := range op.Subtasks {
					for _, h := range sub.States {
						sum += h.Length
						if h.Base != "" {
							chains = true
						}
						if h.Kind != statebackend.KindFile {
							entries += h.Entries
						}
					}
				}
			}
			if r.Bytes != sum || len(r.Undecoded) > 0 || len(r.Unlisted) > 0 {
				t.Errorf("%d bytes read of %d, undecoded %v, unlisted %v", r.Bytes, sum, r.Undecoded, r.Unlisted)
			}
			if chains != (s.Name == "fs incremental") || !chains && r.Entries != entries {
				t.Errorf("%d entries read, the handles have %d; chains: %v", r.Entries, entries, chains)
			}
		})
	}
}

// Every damage is found, and the object and the states that it hit are named.
func TestDamages(t *testing.T) {
	for _, s := range whole(t) {
		damages, err := snapshots.Damages(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d damages", s.Name, len(damages))
		for _, d := range damages {
			t.Run(s.Name+"/"+d.Name, func(t *testing.T) { found(t, s, d) })
		}
	}
}

func found(t *testing.T, s snapshots.Snapshot, d snapshots.Damage) {
	store, err := d.Apply()
	if err != nil {
		t.Fatal(err)
	}
	r, err := stored.Verify(t.Context(), store, s.Manifest, options())
	if d.Gone {
		if !errors.Is(err, blob.ErrNotExist) {
			t.Fatalf("no manifest: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if r.Err() == nil || !errors.Is(r.Err(), statebackend.ErrCorrupt) {
		t.Fatalf("not found: %+v", r)
	}
	var of []stored.Concern
	named := false
	for _, f := range r.Faults {
		if f.Object == d.Object {
			named = true
			of = append(of, f.Of...)
		}
		if f.Detail == "" || f.Kind == "" {
			t.Errorf("a fault without words: %+v", f)
		}
	}
	if !named {
		t.Errorf("%s is not named: %v", d.Object, r.Err())
	}
	for _, c := range d.Of {
		if !slices.Contains(of, c) {
			t.Errorf("%v is not named: %v", c, r.Err())
		}
	}
}

// Objects that nothing lists are told of, and are no damage.
func TestUnlisted(t *testing.T) {
	s := snapshots.Find(whole(t), "fs full")
	extra := strings.TrimSuffix(s.Manifest, "_metadata") + "a9.e9.left-over.0"
	if err := blob.PutBytes(t.Context(), s.Store, extra, []byte("x")); err != nil {
		t.Fatal(err)
	}
	r, err := stored.Verify(t.Context(), s.Store, s.Manifest, options())
	if err != nil || r.Err() != nil || !slices.Equal(r.Unlisted, []string{extra}) {
		t.Errorf("%v, %v, unlisted %v", err, r.Err(), r.Unlisted)
	}
}

// A store that is away is an error, not damage.
func TestStoreAway(t *testing.T) {
	for _, s := range whole(t) {
		ctx, cancel := context.WithCancel(t.Context())
		o := options()
		o.Progress = func(int64, int64) { cancel() }
		if r, err := stored.Verify(ctx, s.Store, s.Manifest, o); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: cancelled: %+v, %v", s.Name, r, err)
		}
		cancel()
	}
}

// A copied folder is verified where it is.
func TestCopied(t *testing.T) {
	all := whole(t)
	for _, name := range []string{"fs full", "savepoint"} {
		s := snapshots.Find(all, name)
		m, err := snapshot.LoadManifest(t.Context(), s.Store, s.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		dir := strings.TrimSuffix(s.Manifest, "_metadata")
		for _, key := range append(snapshot.ObjectsOf(m), s.Manifest) {
			data, err := blob.ReadAll(t.Context(), s.Store, key, 1<<30)
			if err == nil {
				err = blob.PutBytes(t.Context(), s.Store, "copies/here/"+strings.TrimPrefix(key, dir), data)
			}
			if err == nil {
				err = s.Store.Delete(t.Context(), key)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		r, err := stored.Verify(t.Context(), s.Store, "copies/here/_metadata", options())
		if err != nil || r.Err() != nil {
			t.Errorf("%s: %v, %v", name, err, r.Err())
		}
	}
}
