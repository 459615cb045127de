package state

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cairnstream/cairn/blob"
	bloblocal "github.com/cairnstream/cairn/blob/local"
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
)

// Config says how to measure.
type Config struct {
	Keys int    // Zero means 10 M.
	Dir  string // For the objects of checkpoints: some 200 MB.
}

// The bars.
const (
	incrementLimit  = 0.05 // Of a full checkpoint, bytes and time, after a hundredth of the keys changed.
	freezeLimit     = 10   // Milliseconds.
	throughputLimit = 0.85 // Of that without a snapshot.
	residentLimit   = 40   // Bytes per entry of a key and a value of 8 bytes each.
	collectLimit    = 0.05 // Of the CPU time.
	mapLimit        = 1    // Of the speed of a loop over a Go map.
)

const batchSize = 256

// world is a backend with one state, and a store for its checkpoints.
type world struct {
	keys   uint64
	b      statebackend.Backend
	counts statebackend.Value[uint64, uint64]
	hash   func(*uint64) uint64
	store  blob.Store
	next   job.CheckpointID
	drawn  uint64 // Of the generator of keys.
	rows   [batchSize]uint64
	hashes [batchSize]uint64
}

func newWorld(ctx context.Context, f statebackend.Factory, keys int, store blob.Store, p statebackend.Params) (*world, error) {
	numbers, err := codec.Default[uint64]()
	if err != nil {
		return nil, err
	}
	p.Operator, p.K, p.Groups, p.MaxConcurrent = "count", job.DefaultMaxParallelism, job.GroupsOf(0, job.DefaultMaxParallelism, 1), 1
	b, err := f.New(ctx, p)
	if err != nil {
		return nil, err
	}
	w := &world{keys: uint64(keys), b: b, hash: codec.NewHasher(numbers), store: store, next: 1}
	w.counts, err = statebackend.OpenValue(b, statebackend.ValueDesc[uint64, uint64]{
		Name: "counts", Key: numbers, Value: numbers, Hash: func(k *uint64) (uint64, uint64) { h := w.hash(k); return h, h },
	})
	return w, err
}

// fill counts each key once.
func (w *world) fill() {
	k := new(uint64)
	for *k = 0; *k < w.keys; *k++ {
		h := w.hash(k)
		p, _ := w.counts.Upsert(h, h, k)
		*p = *k
	}
}

// draw makes a batch of keys that are as good as random.
func (w *world) draw() {
	for i := range w.rows {
		w.drawn++
		z := w.drawn * 0x9E3779B97F4A7C15
		z ^= z >> 29
		w.rows[i] = (z >> 32) * w.keys >> 32
	}
}

// count counts a batch of keys drawn at random.
func (w *world) count() {
	w.draw()
	w.update()
}

// update counts a batch, as a keyed operator does: it says beforehand which keys will be used.
func (w *world) update() {
	for i := range w.rows {
		w.hashes[i] = w.hash(&w.rows[i])
	}
	if a, ok := w.counts.(statebackend.Ahead); ok && a.Far() {
		a.Fetch(w.hashes[:], w.hashes[:])
	}
	for i := range w.rows {
		p, _ := w.counts.Upsert(w.hashes[i], w.hashes[i], &w.rows[i])
		*p++
	}
}

// checkpoint is what taking one cost.
type checkpoint struct {
	freeze, write took
	bytes         int64
	handles       []job.StateHandle
}

// take takes a checkpoint and commits it. meanwhile, if not nil, is called until it is written.
func (w *world) take(ctx context.Context, meanwhile func()) (c checkpoint, err error) {
	id := w.next
	w.next++
	var snap statebackend.Snapshot
	c.freeze, err = timed(func() (err error) {
		w.b.Committed(id - 1)
		snap, err = w.b.Freeze(id)
		return err
	})
	if err != nil {
		return c, err
	}
	var done atomic.Bool
	failed := make(chan error, 1)
	written := &c
	go func() {
		var err error
		written.write, err = timed(func() error { return w.write(ctx, snap, id, written) })
		snap.Release()
		done.Store(true)
		failed <- err
	}()
	for meanwhile != nil && !done.Load() {
		meanwhile()
	}
	if err = <-failed; err != nil {
		return c, err
	}
	for w.b.Merge(time.Millisecond) {
	}
	return c, nil
}

func (w *world) write(ctx context.Context, snap statebackend.Snapshot, id job.CheckpointID, c *checkpoint) error {
	sw, err := snapshot.NewWriter(snapshot.WriterConfig{
		Store: w.store, Cluster: "bench", Job: "state", Checkpoint: id, Attempt: 1, Epoch: 1, Task: job.Task{Vertex: "count"},
	})
	if err != nil {
		return err
	}
	defer sw.Close()
	c.handles, err = snap.Write(ctx, sw.Operator("count"))
	c.bytes = sw.Bytes()
	return errors.Join(err, sw.Finish(ctx))
}

// perSecond is how many records a second of the owner's CPU time counts.
func perSecond(step func(), atLeast time.Duration) float64 {
	n := 0
	t, _ := timed(func() error {
		for start := time.Now(); time.Since(start) < atLeast; n += batchSize {
			step()
		}
		return nil
	})
	return float64(n) / t.cpu.Seconds()
}

// Measure measures the backend fs.
func Measure(ctx context.Context, c Config) (out []Figure, err error) {
	if c.Keys == 0 {
		c.Keys = 10_000_000
	}
	store, err := bloblocal.Open(blob.Location{Scheme: blob.SchemeFile, Path: filepath.Join(c.Dir, "state")})
	if err != nil {
		return nil, err
	}
	add := func(f Figure) { out = append(out, f) }
	before, err := resident()
	if err != nil {
		return nil, err
	}
	w, err := newWorld(ctx, fs.Factory{}, c.Keys, store, statebackend.Params{Incremental: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.b.Close() }() // Memory only.
	w.fill()
	after, err := resident()
	if err != nil {
		return nil, err
	}
	add(Figure{What: fmt.Sprintf("memory of an entry, %d keys", c.Keys), Value: float64(after-before) / float64(c.Keys), Unit: "B", Limit: residentLimit})

	const sample = 2 * time.Second
	gc, cpu := collected(), cpuOf(processClock)
	plain := perSecond(w.count, sample)
	full, err := w.take(ctx, nil)
	if err != nil {
		return out, err
	}
	add(Figure{What: "  a full checkpoint", Value: float64(full.bytes), Unit: "B", Note: full.write.String()})
	increments, err := w.measureIncrements(ctx, full)
	out = append(out, increments...)
	if err != nil {
		return out, err
	}
	busy, err := w.measureBusy(ctx, plain, sample)
	out = append(out, busy...)
	if err != nil {
		return out, err
	}
	gc, cpu = collected()-gc, cpuOf(processClock)-cpu
	add(Figure{What: "the garbage collector's part of the CPU time", Value: gc.Seconds() / cpu.Seconds(), Limit: collectLimit,
		Note: "over all of the above, 4 forced collections included"})
	last, err := w.take(ctx, nil)
	if err != nil {
		return out, err
	}
	_ = w.b.Close()

	restored, err := restore(ctx, c.Keys, store, last)
	out = append(out, restored...)
	if err != nil {
		return out, err
	}
	return append(out, w.measureMap(plain, sample)), nil
}

// measureIncrements changes a hundredth of the keys and takes a checkpoint, three times.
func (w *world) measureIncrements(ctx context.Context, full checkpoint) (out []Figure, err error) {
	var bytes, write, cpu, freeze float64
	for range 3 {
		for range w.keys / 100 / batchSize {
			w.count()
		}
		c, err := w.take(ctx, nil)
		if err != nil {
			return out, err
		}
		bytes = max(bytes, float64(c.bytes)/float64(full.bytes))
		write = max(write, c.write.wall.Seconds()/full.write.wall.Seconds())
		cpu = max(cpu, c.write.cpu.Seconds()/full.write.cpu.Seconds())
		freeze = max(freeze, c.freeze.cpu.Seconds()*1000)
	}
	same, err := w.take(ctx, nil)
	if err != nil {
		return out, err
	}
	return []Figure{
		{What: "bytes of a checkpoint after 1 % changed, part of a full one", Value: bytes, Limit: incrementLimit, Note: "worst of 3"},
		{What: "time of it, part of a full one's", Value: write, Limit: incrementLimit, Note: fmt.Sprintf("worst of 3; of the CPU time %.4f", cpu)},
		{What: "freezing for it", Value: freeze, Unit: "ms", Limit: freezeLimit, Note: "worst of 3 in CPU time"},
		{What: "  bytes of a checkpoint after nothing changed", Value: float64(same.bytes), Unit: "B", Note: same.write.String()},
	}, nil
}

// measureBusy counts while full checkpoints are written, as often as it takes.
func (w *world) measureBusy(ctx context.Context, plain float64, atLeast time.Duration) ([]Figure, error) {
	// With changes noted it may cost more than before the first checkpoint.
	noted := perSecond(w.count, atLeast)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var n int
	var cpu, longest time.Duration
	checkpoints := 0
	for start := time.Now(); time.Since(start) < atLeast || checkpoints < 3; checkpoints++ {
		w.next++ // The base is not known: a full one.
		began := cpuOf(threadClock)
		if _, err := w.take(ctx, func() {
			step := cpuOf(threadClock)
			w.count()
			n += batchSize
			longest = max(longest, cpuOf(threadClock)-step)
		}); err != nil {
			return nil, err
		}
		cpu += cpuOf(threadClock) - began
	}
	busy := float64(n) / cpu.Seconds()
	extra := (cpu.Seconds() - float64(n)/noted) / float64(checkpoints) * 1000
	return []Figure{
		{What: "  records a second of CPU", Value: plain, Unit: "/s", Note: fmt.Sprintf("when changes are noted %.0f", noted)},
		{What: "throughput while a full checkpoint is written, part of that without", Value: busy / noted, Limit: throughputLimit, AtLeast: true,
			Note: fmt.Sprintf("per second of the owner's CPU, freezing and merging included, %d checkpoints; longest batch of %d: %.2f ms", checkpoints, batchSize, longest.Seconds()*1000)},
		{What: "  what such a checkpoint costs the owner", Value: extra, Unit: "ms", Note: "of CPU: mostly for copies of the pages that are changed while it is written, each once"},
	}, nil
}

// restore loads a checkpoint into a new backend.
func restore(ctx context.Context, keys int, store blob.Store, c checkpoint) ([]Figure, error) {
	w, err := newWorld(ctx, fs.Factory{}, keys, store, statebackend.Params{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.b.Close() }() // Memory only.
	cpu := cpuOf(processClock)
	t, err := timed(func() error { return w.b.Restore(ctx, snapshot.NewReader(store), c.handles) })
	if err != nil {
		return nil, err
	}
	if got := w.counts.Len(); got != keys {
		return nil, fmt.Errorf("%d keys restored of %d", got, keys)
	}
	return []Figure{{What: "  a restore", Value: t.wall.Seconds() * 1000, Unit: "ms",
		Note: fmt.Sprintf("a chain of %d; %.0f ms of the owner's CPU, %.0f ms of the process's", len(c.handles), t.cpu.Seconds()*1000, (cpuOf(processClock)-cpu).Seconds()*1000)}}, nil
}

// measureMap counts the same keys in a Go map.
func (w *world) measureMap(table float64, atLeast time.Duration) Figure {
	m := make(map[uint64]uint64)
	for k := range w.keys {
		m[k] = k
	}
	w.drawn = 0
	speed := perSecond(func() {
		w.draw()
		for _, k := range w.rows {
			m[k]++
		}
	}, atLeast)
	return Figure{What: "keyed count, speed against a loop over a Go map", Value: table / speed, Limit: mapLimit, AtLeast: true,
		Note: fmt.Sprintf("per second of CPU; the map counts %.0f", speed)}
}
