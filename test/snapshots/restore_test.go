package snapshots_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
	"github.com/cairnstream/cairn/statebackend/memory"
	"github.com/cairnstream/cairn/statebackend/pebble"
	"github.com/cairnstream/cairn/test/snapshots"
)

// content is what a restore gives: entries of both states and items of the lists, as text.
type content map[string]string

func restore(ctx context.Context, store blob.Store, manifest string, f statebackend.Factory, dir string) (content, error) {
	m, err := snapshot.LoadManifest(ctx, store, manifest)
	if err != nil {
		return nil, err
	}
	if n, ok := snapshot.CheckpointOf(snapshots.Cluster, snapshots.Job, manifest); ok && n != m.Checkpoint {
		return nil, fmt.Errorf("it is the manifest of checkpoint %d", uint64(m.Checkpoint)) // As a coordinator looks.
	}
	out := content{}
	r := snapshot.NewReader(store)
	op := m.Operators[snapshots.Operator]
	for i := range op.Subtasks {
		if err := snapshots.Restore(ctx, f, r, m, i, dir, func(state, key, value string) { out[state+" "+key] = value }); err != nil {
			return nil, err
		}
		for _, state := range []string{"positions", "rules"} {
			parts, _ := snapshot.Redistribute(op, state, i, len(op.Subtasks))
			items, err := r.ReadList(ctx, parts)
			if err != nil {
				return nil, err
			}
			for _, item := range items {
				out[fmt.Sprintf("%s %q", state, item)] += "|" // Which subtask has it does not matter.
			}
		}
	}
	return out, nil
}

// A restore from something damaged fails, or gives what was there: never anything else.
func TestRestoreDamaged(t *testing.T) {
	for _, s := range whole(t) {
		var f statebackend.Factory = fs.Factory{}
		switch {
		case strings.HasPrefix(s.Name, "memory"):
			f = memory.Factory{}
		case s.Name == "pebble":
			f = &pebble.Factory{}
		}
		want, err := restore(t.Context(), s.Store, s.Manifest, f, t.TempDir())
		if err != nil || len(want) < 300 {
			t.Fatalf("%s: %d entries, %v", s.Name, len(want), err)
		}
		damages, err := snapshots.Damages(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		refused := 0
		tried := 0
		for i, d := range damages {
			f := f
			switch {
			case s.Name != "pebble":
			case i%3 == 1:
				f = fs.Factory{Trees: pebble.OpenTrees}
			case i%3 == 2:
				continue // Its restores take longest.
			}
			tried++
			store, err := d.Apply()
			if err != nil {
				t.Fatal(err)
			}
			got, err := restore(t.Context(), store, s.Manifest, f, t.TempDir())
			switch {
			case err == nil && !maps.Equal(got, want):
				t.Errorf("%s/%s: a restore gives other entries without an error", s.Name, d.Name)
			case err != nil && d.Gone && !errors.Is(err, blob.ErrNotExist):
				t.Errorf("%s/%s: %v", s.Name, d.Name, err)
			case err != nil:
				refused++
			}
		}
		t.Logf("%s: %d of %d damages are refused, the others do not matter to a restore", s.Name, refused, tried)
		if refused < tried/2 {
			t.Errorf("%s: only %d of %d damages are refused", s.Name, refused, tried)
		}
	}
}
