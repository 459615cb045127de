package snapshots

import (
	"context"
	"fmt"
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

	k           = 16
	parallelism = 2
)

// Whole makes a snapshot of each kind. Backends on disk work in dir.
func Whole(ctx context.Context, dir string) ([]Snapshot, error) {
	trees := &pebble.Factory{}
	var out []Snapshot
	for _, c := range []struct {
		name        string
		factory     statebackend.Factory
		inline      int // Limit.
		entries     int64
		checkpoints int
	}{
		{"memory inline", memory.Factory{}, 1 << 20, 300, 1},
		{"fs full", fs.Factory{}, -1, 20_000, 1},
		{"fs incremental", fs.Factory{FullBelow: 1}, -1, 3000, 4},
		{"pebble", trees, -1, 3000, 3},
	} {
		s := Snapshot{Name: c.name, Store: mem.New("snapshots")}
		j := &writer{store: s.Store, inline: c.inline}
		for i := range parallelism {
			b, err := c.factory.New(ctx, statebackend.Params{
				Job: Job, Task: job.Task{Vertex: Operator, Subtask: i}, Operator: Operator, Groups: job.GroupsOf(i, k, parallelism), K: k,
				MaxConcurrent: 1, Incremental: true, Dir: dir,
			})
			if err == nil {
				err = j.add(b)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
		}
		for n := range c.checkpoints {
			var err error
			j.change(int64(n), c.entries)
			if s.Manifest, err = j.checkpoint(ctx, job.CheckpointID(n+1)); err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
		}
		if err := j.close(); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
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

// change sets all entries in the first round, and some of them later.
func (w *writer) change(round, entries int64) {
	step := int64(1)
	if round > 0 {
		step = 23
	}
	for n := round; n < entries; n += step {
		g, s := hashInt(&n)
		c := w.counts[job.OwnerOf(job.GroupOf(g, k), k, parallelism)]
		if round > 0 && n%5 == 0 {
			c.Delete(g, s, &n)
			continue
		}
		v, _ := c.Upsert(g, s, &n)
		*v = n * round
		name := fmt.Sprint("order ", n)
		g, s = hashText(&name)
		o, _ := w.orders[job.OwnerOf(job.GroupOf(g, k), k, parallelism)].Upsert(g, s, &name)
		o.Total += n
		o.Note = fmt.Sprint("round ", round)
	}
}

// checkpoint writes all states and the manifest.
func (w *writer) checkpoint(ctx context.Context, id job.CheckpointID) (string, error) {
	m := &snapshot.Manifest{
		Job: Job, JobName: "orders", Program: "orders", Checkpoint: id, Attempt: 1, Epoch: 1, Mode: job.ExactlyOnce,
		Created: time.Unix(int64(id), 0), K: k, Hash: snapshot.HashName,
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

func (w *writer) close() (err error) {
	for _, b := range w.backends {
		if e := b.Close(); e != nil {
			err = e
		}
	}
	return err
}
