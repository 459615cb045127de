package snapshots

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/stored"
)

// Damage is one thing that is wrong with a snapshot.
type Damage struct {
	Name   string
	Object string           // Key of what is damaged.
	Of     []stored.Concern // States whose bytes those are. Empty for damage to the manifest as a whole.
	Gone   bool             // There is no manifest, and so no snapshot.

	s     Snapshot
	apply func(ctx context.Context, store *mem.Store) error
}

// Apply gives a copy of the snapshot's store with the damage.
func (d Damage) Apply() (*mem.Store, error) {
	store := d.s.clone()
	return store, d.apply(context.Background(), store)
}

// Damages lists what can be done to a snapshot: to each object, to the manifest, and to what the manifest says.
func Damages(ctx context.Context, s Snapshot) ([]Damage, error) {
	m, err := snapshot.LoadManifest(ctx, s.Store, s.Manifest)
	if err != nil {
		return nil, err
	}
	g := &generator{s: s, m: m}
	sections := map[string][]section{}
	for _, name := range slices.Sorted(maps.Keys(m.Operators)) {
		for i, sub := range m.Operators[name].Subtasks {
			for j, h := range sub.States {
				sections[h.Object] = append(sections[h.Object], section{h, at{name, i, j}})
			}
		}
	}
	keys := slices.Sorted(maps.Keys(sections))
	for _, key := range keys {
		if key != "" {
			if err := g.object(ctx, key, sections[key], keys); err != nil {
				return nil, err
			}
		}
	}
	if err := g.manifest(ctx); err != nil {
		return nil, err
	}
	g.handles()
	return g.out, nil
}

// at is a handle's place in a manifest.
type at struct {
	operator     string
	subtask, pos int
}

type section struct {
	h  job.StateHandle
	at at
}

type generator struct {
	s   Snapshot
	m   *snapshot.Manifest
	out []Damage
}

// concerns are the states of a handle: of a tree's file all that are in the tree.
func (g *generator) concerns(list ...section) (out []stored.Concern) {
	for _, s := range list {
		if s.h.Kind != statebackend.KindFile {
			out = append(out, stored.Concern{Operator: s.at.operator, Subtask: s.at.subtask, State: s.h.Name})
			continue
		}
		for _, h := range g.m.Operators[s.at.operator].Subtasks[s.at.subtask].States {
			if h.Kind == statebackend.KindTree {
				out = append(out, stored.Concern{Operator: s.at.operator, Subtask: s.at.subtask, State: h.Name})
			}
		}
	}
	return out
}

// kindOf names an object by what it is to the snapshot.
func (g *generator) kindOf(key string, users []section) string {
	switch {
	case users[0].h.Kind == statebackend.KindFile && users[0].h.Offset == 0:
		return "file of a tree " + path.Base(key)
	case path.Dir(key) != path.Dir(g.s.Manifest):
		return "earlier object " + strings.TrimPrefix(key, snapshot.JobPrefix(Cluster, Job)+"checkpoints/")
	}
	return "object " + path.Base(key)
}

func (g *generator) add(name, object string, of []stored.Concern, apply func(ctx context.Context, store *mem.Store) error) {
	g.out = append(g.out, Damage{Name: name, Object: object, Of: of, s: g.s, apply: apply})
}

// put replaces an object by what change makes of it.
func put(key string, change func([]byte) []byte) func(context.Context, *mem.Store) error {
	return func(ctx context.Context, store *mem.Store) error {
		data, err := blob.ReadAll(ctx, store, key, 1<<30)
		if err != nil {
			return err
		}
		return blob.PutBytes(ctx, store, key, change(bytes.Clone(data)))
	}
}

func flip(n int64) func([]byte) []byte {
	return func(b []byte) []byte {
		b[n] ^= 0x10
		return b
	}
}

func cut(n int64) func([]byte) []byte { return func(b []byte) []byte { return b[:n] } }

func (g *generator) object(ctx context.Context, key string, users []section, keys []string) error {
	info, err := g.s.Store.Stat(ctx, key)
	if err != nil {
		return err
	}
	what, all := g.kindOf(key, users), g.concerns(users...)
	g.add(what+"/missing", key, all, func(ctx context.Context, store *mem.Store) error { return store.Delete(ctx, key) })
	for _, n := range []int64{0, info.Size / 2, info.Size - 1} {
		g.add(fmt.Sprintf("%s/truncated to %d of %d", what, n, info.Size), key, nil, put(key, cut(n)))
	}
	g.add(what+"/with a byte more", key, nil, put(key, func(b []byte) []byte { return append(b, 0) }))
	for _, u := range users {
		for name, n := range map[string]int64{"first": 0, "middle": u.h.Length / 2, "last": u.h.Length - 1} {
			if u.h.Length > 0 {
				g.add(fmt.Sprintf("%s/flipped: %s byte of %s", what, name, u.h.Name), key, g.concerns(u), put(key, flip(u.h.Offset+n)))
			}
		}
	}
	if users[0].h.Offset > 0 { // With what a task's object has around its sections.
		for _, n := range []int64{0, 8, 9, 20, info.Size - 1, info.Size - 10, info.Size - 20, info.Size - 24} {
			g.add(fmt.Sprintf("%s/flipped: byte %d of %d", what, n, info.Size), key, nil, put(key, flip(n)))
		}
	}
	for _, other := range keys {
		if other == "" || other == key {
			continue
		}
		data, err := blob.ReadAll(ctx, g.s.Store, other, 1<<30)
		if err != nil {
			return err
		}
		g.add(fmt.Sprintf("%s/swapped: the bytes of %s", what, path.Base(other)), key, nil, put(key, func([]byte) []byte { return data }))
	}
	return nil
}

func (g *generator) manifest(ctx context.Context) error {
	key := g.s.Manifest
	info, err := g.s.Store.Stat(ctx, key)
	if err != nil {
		return err
	}
	g.add("manifest/missing", key, nil, func(ctx context.Context, store *mem.Store) error { return store.Delete(ctx, key) })
	g.out[len(g.out)-1].Gone = true
	for _, n := range []int64{0, 20, info.Size / 2, info.Size - 1} {
		g.add(fmt.Sprintf("manifest/truncated to %d of %d", n, info.Size), key, nil, put(key, cut(n)))
	}
	for _, n := range []int64{0, 10, 20, 40, info.Size / 2, info.Size - 1} {
		g.add(fmt.Sprintf("manifest/flipped: byte %d", n), key, nil, put(key, flip(n)))
	}
	if g.m.Checkpoint > 1 {
		before := snapshot.ManifestKey(Cluster, Job, g.m.Checkpoint-1)
		data, err := blob.ReadAll(ctx, g.s.Store, before, 1<<30)
		if err != nil {
			return err
		}
		g.add("manifest/swapped: the one before", key, nil, put(key, func([]byte) []byte { return data }))
	}
	return nil
}

// edit writes the manifest anew, with a handle changed.
func (g *generator) edit(a at, change func(h *job.StateHandle)) func(context.Context, *mem.Store) error {
	return func(ctx context.Context, store *mem.Store) error {
		m, err := snapshot.LoadManifest(ctx, store, g.s.Manifest)
		if err != nil {
			return err
		}
		change(&m.Operators[a.operator].Subtasks[a.subtask].States[a.pos])
		return g.write(ctx, store, m)
	}
}

func (g *generator) write(ctx context.Context, store *mem.Store, m *snapshot.Manifest) error {
	data, err := m.Encode()
	if err != nil {
		return err
	}
	return blob.PutBytes(ctx, store, g.s.Manifest, data)
}

// handles are manifests that are whole, and say what is not so.
func (g *generator) handles() {
	for _, name := range slices.Sorted(maps.Keys(g.m.Operators)) {
		for i, sub := range g.m.Operators[name].Subtasks {
			for j, h := range sub.States {
				a := at{name, i, j}
				of := g.concerns(section{h, a})
				object := h.Object
				if object == "" {
					object = g.s.Manifest
				}
				what := fmt.Sprintf("handle %d of subtask %d, %s %s/", j, i, h.Kind, h.Name)
				if h.Object == "" && h.Length > 0 {
					for _, n := range []int64{0, h.Length / 2, h.Length - 1} {
						g.add(fmt.Sprintf("%sflipped inline byte %d", what, n), object, of, g.edit(a, func(h *job.StateHandle) {
							h.Inline = flip(n)(bytes.Clone(h.Inline))
						}))
					}
					g.add(what+"truncated inline", object, of, g.edit(a, func(h *job.StateHandle) {
						h.Inline = h.Inline[:h.Length-1]
						h.Length--
					}))
				}
				if newest := j+1 == len(sub.States) || sub.States[j+1].Base == ""; h.Kind != statebackend.KindFile && newest {
					g.add(what+"another number of entries", object, of, g.edit(a, func(h *job.StateHandle) { h.Entries++ }))
				}
				if h.Object != "" {
					g.add(what+"elsewhere", "elsewhere/object", of, func(ctx context.Context, store *mem.Store) error {
						data, err := blob.ReadAll(ctx, store, h.Object, 1<<30)
						if err != nil {
							return err
						}
						if err := blob.PutBytes(ctx, store, "elsewhere/object", data); err != nil {
							return err
						}
						return g.edit(a, func(h *job.StateHandle) { h.Object = "elsewhere/object" })(ctx, store)
					})
				}
			}
		}
		g.swaps(name)
	}
}

// swaps exchange the states of two subtasks.
func (g *generator) swaps(operator string) {
	subs := g.m.Operators[operator].Subtasks
	for i := 1; i < len(subs); i++ {
		g.add(fmt.Sprintf("manifest/swapped: subtasks %d and %d of %s", i-1, i, operator), g.s.Manifest, nil, func(ctx context.Context, store *mem.Store) error {
			m, err := snapshot.LoadManifest(ctx, store, g.s.Manifest)
			if err != nil {
				return err
			}
			s := m.Operators[operator].Subtasks
			s[i-1], s[i] = s[i], s[i-1]
			return g.write(ctx, store, m)
		})
	}
}
