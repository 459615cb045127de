package snapshots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
	"github.com/cairnstream/cairn/statebackend/memory"
	"github.com/cairnstream/cairn/statebackend/pebble"
	"github.com/cairnstream/cairn/statebackend/stored"
)

// Snapshot is a whole one.
type Snapshot struct {
	Name     string // Of how it was made.
	Store    *mem.Store
	Manifest string // Key.
}

const (
	// Cluster, Job and Operator are what the snapshots are of.
	Cluster  = "prod"
	Job      = job.ID("0123456789abcdef")
	Operator = "sum"

	parallelism = 2
)

// Spec says how a snapshot is made.
type Spec struct {
	Name        string
	Factory     statebackend.Factory
	Inline      int   // Most bytes of a task that are kept in the manifest; negative for none.
	Entries     int64 // Of the states, about.
	Checkpoints int   // Each but the first changes some entries; the last one is the snapshot.
	Groups      int   // Key groups; 0 for 16.
	Payload     int   // Bytes of a text in each value of one of the states, which do not compress well.
}

// Make makes a snapshot in a store and returns the key of its manifest. Backends on disk work in dir.
func (c Spec) Make(ctx context.Context, store blob.Store, dir string) (manifest string, err error) {
	k := cmp.Or(c.Groups, 16)
	j := &writer{store: store, inline: c.Inline, k: k, payload: c.Payload}
	for i := range parallelism {
		b, err := c.Factory.New(ctx, statebackend.Params{
			Job: Job, Task: job.Task{Vertex: Operator, Subtask: i}, Operator: Operator, Groups: job.GroupsOf(i, k, parallelism), K: k,
			MaxConcurrent: 1, Incremental: true, Dir: dir, Budget: statebackend.NewBudget(256 << 20),
		})
		if err == nil {
			err = j.add(b)
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	for n := range c.Checkpoints {
		j.change(int64(n), c.Entries)
		if manifest, err = j.checkpoint(ctx, job.CheckpointID(n+1)); err != nil {
			return "", fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	if err := j.close(); err != nil {
		return "", fmt.Errorf("%s: %w", c.Name, err)
	}
	return manifest, nil
}

// Whole makes a snapshot of each kind. Backends on disk work in dir.
func Whole(ctx context.Context, dir string) ([]Snapshot, error) {
	var out []Snapshot
	for _, c := range []Spec{
		{"memory inline", memory.Factory{}, 1 << 20, 300, 1, 0, 0},
		{"fs full", fs.Factory{}, -1, 20_000, 1, 0, 0},
		{"fs incremental", fs.Factory{FullBelow: 1}, -1, 3000, 4, 0, 0},
		{"pebble", &pebble.Factory{}, -1, 3000, 3, 0, 0},
	} {
		s := Snapshot{Name: c.Name, Store: mem.New("snapshots")}
		var err error
		if s.Manifest, err = c.Make(ctx, s.Store, dir); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	savepoint := Snapshot{Name: "savepoint", Store: out[1].clone()}
	from, err := stored.Open(ctx, savepoint.Store, out[1].Manifest, stored.Options{})
	if err == nil {
		savepoint.Manifest, err = stored.NewEditor(from, time.Unix(1, 0)).Write(ctx, savepoint.Store, "savepoints/first")
	}
	if err != nil {
		return nil, fmt.Errorf("savepoint: %w", err)
	}
	return append(out, savepoint), nil
}

// Find gives the snapshot of that name, and nothing if there is none.
func Find(all []Snapshot, name string) Snapshot {
	i := slices.IndexFunc(all, func(s Snapshot) bool { return s.Name == name })
	if i < 0 {
		return Snapshot{}
	}
	return all[i]
}

// clone copies the objects.
func (s Snapshot) clone() *mem.Store {
	ctx := context.Background()
	to := mem.New("snapshots")
	for info, err := range s.Store.List(ctx, "") {
		var data []byte
		if err == nil {
			data, err = blob.ReadAll(ctx, s.Store, info.Key, info.Size)
		}
		if err == nil {
			err = blob.PutBytes(ctx, to, info.Key, data)
		}
		if err != nil {
			panic(fmt.Sprintf("copy a store in memory: %v", err)) // Nothing in it can fail.
		}
	}
	return to
}

// order is the value of a state.
type order struct {
	Total int64
	Note  string
}

// writer plays the tasks of a job.
type writer struct {
	store    blob.Store
	inline   int
	k        int // Number of key groups.
	payload  int
	backends []statebackend.Backend
	counts   []statebackend.Value[int64, int64]
	orders   []statebackend.Value[string, order]
	base     job.CheckpointID
}

func hashOf[K any](c codec.Codec[K]) func(*K) (uint64, uint64) {
	return func(key *K) (uint64, uint64) {
		b, err := c.Append(nil, key)
		if err != nil {
			panic(err) // Of numbers and short texts there is none.
		}
		h := codec.Hash(b)
		return h, h
	}
}

var (
	hashInt  = hashOf(codec.Int64())
	hashText = hashOf(codec.String())
)

func (w *writer) add(b statebackend.Backend) error {
	w.backends = append(w.backends, b)
	c, err := statebackend.OpenValue(b, statebackend.ValueDesc[int64, int64]{Name: "counts", Key: codec.Int64(), Value: codec.Int64(), Hash: hashInt})
	if err != nil {
		return err
	}
	o, err := statebackend.OpenValue(b, statebackend.ValueDesc[string, order]{Name: "orders", Key: codec.String(), Value: codec.MustStruct[order](), Hash: hashText})
	w.counts, w.orders = append(w.counts, c), append(w.orders, o)
	return err
}

// owner is the subtask of a key.
func (w *writer) owner(hash uint64) int { return job.OwnerOf(job.GroupOf(hash, w.k), w.k, parallelism) }

// change sets all entries in the first round, and some of them later.
func (w *writer) change(round, entries int64) {
	step := int64(1)
	if round > 0 {
		step = 23
	}
	for n := round; n < entries; n += step {
		g, s := hashInt(&n)
		c := w.counts[w.owner(g)]
		if round > 0 && n%5 == 0 {
			c.Delete(g, s, &n)
			continue
		}
		v, _ := c.Upsert(g, s, &n)
		*v = n * round
		name := fmt.Sprint("order ", n)
		g, s = hashText(&name)
		o, _ := w.orders[w.owner(g)].Upsert(g, s, &name)
		o.Total += n
		o.Note = w.note(n, round)
	}
}

func (w *writer) note(n, round int64) string {
	if w.payload == 0 {
		return fmt.Sprint("round ", round)
	}
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	random := rand.NewPCG(uint64(n), uint64(round))
	b := make([]byte, w.payload)
	for i := range b {
		b[i] = letters[random.Uint64()>>58]
	}
	return string(b)
}

// checkpoint writes all states and the manifest.
func (w *writer) checkpoint(ctx context.Context, id job.CheckpointID) (string, error) {
	m := &snapshot.Manifest{
		Job: Job, JobName: "orders", Program: "orders", Checkpoint: id, Attempt: 1, Epoch: 1, Mode: job.ExactlyOnce,
		Created: time.Unix(int64(id), 0), K: w.k, Hash: snapshot.HashName,
	}
	op := job.OperatorSnapshot{Parallelism: parallelism}
	for i, b := range w.backends {
		sub, err := w.subtask(ctx, id, i, b)
		if err != nil {
			return "", err
		}
		op.Subtasks = append(op.Subtasks, sub)
	}
	m.Operators = map[string]job.OperatorSnapshot{Operator: op}
	w.base = id
	all, err := snapshot.NewStore(w.store, Cluster)
	if err != nil {
		return "", err
	}
	return all.WriteManifest(ctx, m)
}

func (w *writer) subtask(ctx context.Context, id job.CheckpointID, i int, b statebackend.Backend) (out job.SubtaskSnapshot, err error) {
	sw, err := snapshot.NewWriter(snapshot.WriterConfig{
		Store: w.store, Cluster: Cluster, Job: Job, Checkpoint: id, Attempt: 1, Epoch: 1, Task: job.Task{Vertex: Operator, Subtask: i}, InlineLimit: w.inline,
	})
	if err != nil {
		return out, err
	}
	defer sw.Close()
	b.Committed(w.base)
	frozen, err := b.Freeze(id)
	if err != nil {
		return out, err
	}
	defer frozen.Release()
	ow := sw.Operator(Operator)
	if out.States, err = frozen.Write(ctx, ow); err != nil {
		return out, err
	}
	list, err := ow.List(ctx, "positions", snapshot.KindList, "", [][]byte{fmt.Appendf(nil, "file %d", i), []byte("at 17")})
	if err != nil {
		return out, err
	}
	entry, err := codec.String().Append(nil, new("limit"))
	if err != nil {
		return out, err
	}
	rules, err := ow.List(ctx, "rules", snapshot.KindBroadcast, "entry:string,int64", [][]byte{append(entry, 1, 0, 0, 0, 0, 0, 0, 0)})
	if err != nil {
		return out, err
	}
	out.States = append(out.States, list, rules)
	return out, sw.Finish(ctx)
}

// Restore restores one subtask of a snapshot and visits its entries as text. The backend works in dir.
func Restore(ctx context.Context, f statebackend.Factory, r *snapshot.Reader, m *snapshot.Manifest, subtask int, dir string, visit func(state, key, value string)) (err error) {
	op := m.Operators[Operator]
	b, err := f.New(ctx, statebackend.Params{
		Job: Job, Task: job.Task{Vertex: Operator, Subtask: subtask}, Operator: Operator, Groups: job.GroupsOf(subtask, m.K, len(op.Subtasks)), K: m.K,
		MaxConcurrent: 1, Incremental: true, Own: true, Restored: m.Checkpoint, Dir: dir, Budget: statebackend.NewBudget(64 << 20),
	})
	if err != nil {
		return err
	}
	w := &writer{k: m.K}
	err = w.add(b)
	if err == nil {
		err = b.Restore(ctx, r, snapshot.Keyed(op))
	}
	if err == nil {
		for k, v := range w.counts[0].All() {
			visit("counts", fmt.Sprint(*k), fmt.Sprint(*v))
		}
		for k, v := range w.orders[0].All() {
			visit("orders", *k, fmt.Sprint(*v))
		}
	}
	return errors.Join(err, w.close())
}

func (w *writer) close() (err error) {
	for _, b := range w.backends {
		if e := b.Close(); e != nil {
			err = e
		}
	}
	return err
}
