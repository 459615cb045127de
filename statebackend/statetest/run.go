package statetest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// Run tests the backends that f makes, all but what Model does.
func Run(t *testing.T, f statebackend.Factory) {
	s := suite{f, f}
	t.Run("value", s.testValue)
	t.Run("open", s.testOpen)
	t.Run("freeze fixes the content", s.testFreeze)
	t.Run("failed writes", s.testFailedWrite)
	t.Run("too many snapshots", s.testTooMany)
	t.Run("cancelled write", s.testCancel)
	t.Run("empty state", s.testEmpty)
	t.Run("restore and rescale", s.testRescale)
	t.Run("restore before open", s.testRestoreFirst)
	t.Run("restore once, into empty states", s.testRestoreOnce)
	t.Run("unopened states", s.testUnopened)
	t.Run("changed schema", s.testSchema)
	t.Run("evolved types", s.testEvolve)
	t.Run("incompatible types", s.testIncompatible)
	t.Run("changed number of groups", s.testGroups)
	t.Run("damage", s.testDamage)
	t.Run("values change during a write", s.testShared)
	t.Run("close with a snapshot alive", s.testClose)
	t.Run("values that are too large", s.testTooLarge)
	t.Run("chains", s.testChains)
	t.Run("damaged chains", s.testDamagedChains)
	t.Run("savepoints", s.testSavepoints)
}

// RunMoved tests that backends that f makes restore what those of another factory wrote.
func RunMoved(t *testing.T, from, f statebackend.Factory) {
	s := suite{f, from}
	t.Run("restore and rescale", s.testRescale)
	t.Run("restore before open", s.testRestoreFirst)
	t.Run("unopened states", s.testUnopened)
	t.Run("changed schema", s.testSchema)
	t.Run("changed number of groups", s.testGroups)
	t.Run("damage", s.testDamage)
	t.Run("chains", s.testChains)
	t.Run("damaged chains", s.testDamagedChains)
	t.Run("savepoints", s.testSavepoints)
}

type suite struct{ f, from statebackend.Factory }

const groups = 24

// Order is a value with everything that must not be shared.
type Order struct {
	Name  string
	Items []int64
	Tags  map[string]int64
}

func hashText(k *string) (uint64, uint64) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(*k))
	return h.Sum64(), h.Sum64()
}

func hashInt(k *int64) (uint64, uint64) {
	h := uint64(*k) * 0x9E3779B97F4A7C15
	h ^= h >> 29
	h *= 0xBF58476D1CE4E5B9
	h ^= h >> 32
	return h, h
}

func counts() statebackend.ValueDesc[int64, int64] {
	return statebackend.ValueDesc[int64, int64]{Name: "counts", Key: codec.Int64(), Value: codec.Int64(), Hash: hashInt}
}

func orders() statebackend.ValueDesc[string, Order] {
	return statebackend.ValueDesc[string, Order]{Name: "orders", Key: codec.String(), Value: codec.MustStruct[Order](), Hash: hashText}
}

func params(subtask, parallelism int) statebackend.Params {
	return statebackend.Params{
		Task: job.Task{Vertex: "sum", Subtask: subtask}, Operator: "sum",
		Groups: job.GroupsOf(subtask, groups, parallelism), K: groups, MaxConcurrent: 2, Incremental: true,
	}
}

// tb is what testing.TB and rapid.T have in common.
type tb interface {
	Helper()
	Fatal(args ...any)
	Cleanup(f func())
}

func (s suite) backend(t tb, subtask, parallelism int) statebackend.Backend {
	t.Helper()
	return s.make(t, params(subtask, parallelism))
}

// writer makes a backend whose snapshots others restore.
func (s suite) writer(t tb) statebackend.Backend {
	t.Helper()
	return suite{s.from, s.from}.backend(t, 0, 1)
}

func (s suite) make(t tb, p statebackend.Params) statebackend.Backend {
	t.Helper()
	b, err := s.f.New(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func open[K comparable, V any](t tb, b statebackend.Backend, d statebackend.ValueDesc[K, V]) keyed[K, V] {
	t.Helper()
	v, err := openKeyed(b, d)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func openKeyed[K comparable, V any](b statebackend.Backend, d statebackend.ValueDesc[K, V]) (keyed[K, V], error) {
	v, err := statebackend.OpenValue(b, d)
	return keyed[K, V]{v, d.Hash}, err
}

// keyed is a Value that hashes its keys itself.
type keyed[K comparable, V any] struct {
	v    statebackend.Value[K, V]
	hash func(*K) (uint64, uint64)
}

func (s keyed[K, V]) upsert(k K) (*V, bool) { g, h := s.hash(&k); return s.v.Upsert(g, h, &k) }
func (s keyed[K, V]) get(k K) *V            { g, h := s.hash(&k); return s.v.Get(g, h, &k) }
func (s keyed[K, V]) ref(k K) *V {
	v, _ := s.upsert(k)
	return v
}
func (s keyed[K, V]) set(k K, v V)    { g, h := s.hash(&k); s.v.Set(g, h, &k, &v) }
func (s keyed[K, V]) remove(k K) bool { g, h := s.hash(&k); return s.v.Delete(g, h, &k) }
func (s keyed[K, V]) all() map[K]V {
	out := map[K]V{}
	for k, v := range s.v.All() {
		out[*k] = *v
	}
	return out
}

func write(t testing.TB, b statebackend.Backend, id job.CheckpointID, o *Objects) []job.StateHandle {
	t.Helper()
	snap, err := b.Freeze(id)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	handles, err := snap.Write(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return handles
}

func (s suite) testValue(t *testing.T) {
	v := open(t, s.backend(t, 0, 1), orders())
	if got := v.get("a"); got != nil {
		t.Errorf("Get of an empty state gives %v", got)
	}
	if v.remove("a") {
		t.Error("Delete removes what is not there")
	}
	o, fresh := v.upsert("a")
	if !fresh || o.Name != "" || o.Items != nil {
		t.Errorf("a new value is %v, fresh %v", o, fresh)
	}
	o.Name, o.Items = "first", []int64{1}
	o, fresh = v.upsert("a")
	if fresh || o.Name != "first" || len(o.Items) != 1 {
		t.Errorf("Upsert again gives %v, fresh %v", o, fresh)
	}
	mine := Order{Items: []int64{5}, Tags: map[string]int64{"x": 1}}
	v.set("b", mine)
	mine.Items[0], mine.Tags["x"] = 6, 2
	if got := v.get("b"); got.Items[0] != 5 || got.Tags["x"] != 1 {
		t.Errorf("the state shares memory with what Set was given: %v", got)
	}
	v.set("b", Order{Name: "second"})
	if got := v.get("b"); got.Name != "second" || got.Items != nil {
		t.Errorf("Set again gives %v", got)
	}
	if n := v.v.Len(); n != 2 {
		t.Errorf("Len is %d", n)
	}
	if !v.remove("a") || v.get("a") != nil || v.v.Len() != 1 {
		t.Error("Delete does not remove")
	}
	if o, fresh = v.upsert("a"); !fresh || o.Name != "" || o.Items != nil {
		t.Errorf("after Delete Upsert gives %v, fresh %v", o, fresh)
	}
}

func (s suite) testOpen(t *testing.T) {
	b := s.backend(t, 0, 1)
	open(t, b, counts())
	if _, err := statebackend.OpenValue(b, counts()); err == nil || !strings.Contains(err.Error(), `"counts"`) || !strings.Contains(err.Error(), `"sum"`) {
		t.Errorf("opening a state twice: %v", err)
	}
	_, err := statebackend.OpenValue(b, statebackend.ValueDesc[int64, int64]{Name: "x"})
	for _, want := range []string{"codec for keys", "codec for values", "hash function"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("opening without codecs: %v: want %q", err, want)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := statebackend.OpenValue(b, orders()); err == nil {
		t.Error("a closed backend opens a state")
	}
	if _, err := b.Freeze(1); err == nil {
		t.Error("a closed backend freezes")
	}
}

func (s suite) testFreeze(t *testing.T) {
	b, o := s.backend(t, 0, 1), NewObjects()
	v := open(t, b, counts())
	for k := range int64(1000) {
		v.set(k, k)
	}
	snap, err := b.Freeze(1)
	if err != nil {
		t.Fatal(err)
	}
	for k := range int64(1000) {
		switch k % 3 {
		case 0:
			v.set(k, -1)
		case 1:
			v.remove(k)
		}
		v.set(k+10_000, 1)
	}
	handles, err := snap.Write(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	again, err := snap.Write(context.Background(), o)
	if err != nil {
		t.Fatalf("a second Write: %v", err)
	}
	snap.Release()
	if _, err := snap.Write(context.Background(), o); err == nil {
		t.Error("a released snapshot is written")
	}
	for b.Merge(time.Millisecond) {
	}
	if got := v.get(3); got == nil || *got != -1 || v.get(1) != nil || v.v.Len() != 1667 {
		t.Errorf("after Release key 3 has %v, key 1 %v, Len is %d", got, v.get(1), v.v.Len())
	}
	if z := b.Sizes(); len(z) != 1 || z[0].State != "counts" || z[0].Entries != 1667 || z[0].Bytes+z[0].Disk < 1667*16 {
		t.Errorf("sizes are %+v", z)
	}
	for _, hs := range [][]job.StateHandle{handles, again} {
		r := s.backend(t, 0, 1)
		w := open(t, r, counts())
		if err := r.Restore(context.Background(), o, hs); err != nil {
			t.Fatal(err)
		}
		if w.v.Len() != 1000 {
			t.Fatalf("%d keys restored, want 1000", w.v.Len())
		}
		for k := range int64(1000) {
			if got := w.get(k); got == nil || *got != k {
				t.Fatalf("key %d has %v", k, got)
			}
		}
	}
	for _, h := range handles {
		if h.Kind == statebackend.KindFile {
			continue
		}
		if h.Name != "counts" || h.Kind != statebackend.KindKeyed && h.Kind != statebackend.KindTree || h.Entries != 1000 || h.Key != "int64" || h.Codec != "int64" {
			t.Errorf("handle %+v", h)
		}
	}
}

func (s suite) testFailedWrite(t *testing.T) {
	b, o := s.backend(t, 0, 1), NewObjects()
	v := open(t, b, counts())
	for k := range int64(5000) {
		v.set(k, k)
	}
	snap, err := b.Freeze(1)
	if err != nil {
		t.Fatal(err)
	}
	o.FailAfter = 100
	if _, err := snap.Write(context.Background(), o); err != nil { // A backend that does not use the writer succeeds.
		if !errors.Is(err, ErrFault) || !strings.Contains(err.Error(), `"counts"`) || !strings.Contains(err.Error(), `"sum"`) {
			t.Errorf("failed write: %v", err)
		}
	}
	v.set(1, -1)
	snap.Release()
	o.FailAfter = -1
	handles := write(t, b, 2, o)
	r := s.backend(t, 0, 1)
	w := open(t, r, counts())
	if err := r.Restore(context.Background(), o, handles); err != nil {
		t.Fatal(err)
	}
	if got := w.get(1); got == nil || *got != -1 || w.v.Len() != 5000 {
		t.Errorf("key 1 has %v, %d keys", got, w.v.Len())
	}
}

func (s suite) testTooMany(t *testing.T) {
	b := s.backend(t, 0, 1)
	v := open(t, b, counts())
	var snaps []statebackend.Snapshot
	for i := range 3 {
		v.set(int64(i), 1)
		snap, err := b.Freeze(job.CheckpointID(i + 1))
		if err != nil {
			t.Fatal(err)
		}
		snaps = append(snaps, snap)
	}
	if _, err := b.Freeze(4); !errors.Is(err, statebackend.ErrTooManySnapshots) {
		t.Errorf("a fourth snapshot: %v", err)
	}
	snaps[1].Release()
	snap, err := b.Freeze(5)
	if err != nil {
		t.Fatalf("after a release: %v", err)
	}
	for _, s := range []statebackend.Snapshot{snaps[0], snaps[2], snap} {
		s.Release()
	}
}

func (s suite) testCancel(t *testing.T) {
	b := s.backend(t, 0, 1)
	v := open(t, b, counts())
	for k := range int64(1000) {
		v.set(k, k)
	}
	snap, err := b.Freeze(1)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := snap.Write(ctx, NewObjects()); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled write: %v", err)
	}
}

func (s suite) testEmpty(t *testing.T) {
	b, o := s.backend(t, 0, 1), NewObjects()
	open(t, b, counts())
	v := open(t, b, orders())
	v.set("a", Order{})
	v.remove("a")
	handles := write(t, b, 1, o)
	r := s.backend(t, 0, 2)
	w, x := open(t, r, counts()), open(t, r, orders())
	if err := r.Restore(context.Background(), o, handles); err != nil {
		t.Fatal(err)
	}
	if w.v.Len() != 0 || x.v.Len() != 0 {
		t.Errorf("%d and %d keys restored", w.v.Len(), x.v.Len())
	}
	none := s.backend(t, 0, 1)
	open(t, none, counts())
	if err := none.Restore(context.Background(), o, nil); err != nil {
		t.Fatal(err)
	}
	write(t, none, 2, o)
}

// fillSubtask fills the states of a subtask with the keys that are its own.
func fillSubtask(v keyed[int64, int64], w keyed[string, Order], r job.GroupRange, n int64) {
	for k := range n {
		if g, _ := hashInt(&k); r.Contains(job.GroupOf(g, groups)) {
			v.set(k, k*k)
		}
		name := fmt.Sprint("order-", k)
		if g, _ := hashText(&name); r.Contains(job.GroupOf(g, groups)) {
			w.set(name, Order{Name: name, Items: []int64{k}})
		}
	}
}

func (s suite) writeAll(t testing.TB, parallelism int, n int64, o *Objects) []job.StateHandle {
	t.Helper()
	var handles []job.StateHandle
	for i := range parallelism {
		b := suite{s.from, s.from}.backend(t, i, parallelism)
		fillSubtask(open(t, b, counts()), open(t, b, orders()), job.GroupsOf(i, groups, parallelism), n)
		handles = append(handles, write(t, b, 1, o)...)
	}
	return handles
}

func (s suite) testRescale(t *testing.T) {
	const n = 3000
	for _, p := range [][2]int{{1, 1}, {1, 5}, {5, 1}, {3, 2}, {2, 3}, {4, 4}, {2, 24}} {
		t.Run(fmt.Sprintf("%d to %d", p[0], p[1]), func(t *testing.T) {
			o := NewObjects()
			handles := s.writeAll(t, p[0], n, o)
			ints, texts := map[int64]int64{}, map[string]Order{}
			for i := range p[1] {
				b := s.backend(t, i, p[1])
				v, w := open(t, b, counts()), open(t, b, orders())
				if err := b.Restore(context.Background(), o, handles); err != nil {
					t.Fatal(err)
				}
				for k, x := range v.all() {
					if g, _ := hashInt(&k); !job.GroupsOf(i, groups, p[1]).Contains(job.GroupOf(g, groups)) {
						t.Fatalf("subtask %d has key %d of another's group", i, k)
					}
					if _, twice := ints[k]; twice {
						t.Fatalf("key %d is in two subtasks", k)
					}
					ints[k] = x
				}
				maps.Copy(texts, w.all())
			}
			if len(ints) != n || len(texts) != n {
				t.Fatalf("%d and %d keys, want %d", len(ints), len(texts), n)
			}
			for k := range int64(n) {
				name := fmt.Sprint("order-", k)
				if ints[k] != k*k || texts[name].Name != name || texts[name].Items[0] != k {
					t.Fatalf("key %d has %v and %v", k, ints[k], texts[name])
				}
			}
		})
	}
}

func (s suite) testRestoreFirst(t *testing.T) {
	o := NewObjects()
	handles := s.writeAll(t, 2, 500, o)
	b := s.backend(t, 0, 1)
	if err := b.Restore(context.Background(), o, handles); err != nil {
		t.Fatal(err)
	}
	if got := b.Unopened(); len(got) != 2 {
		t.Errorf("Unopened gives %q", got)
	}
	v, w := open(t, b, counts()), open(t, b, orders())
	if v.v.Len() != 500 || w.v.Len() != 500 || len(b.Unopened()) > 0 {
		t.Errorf("%d and %d keys, unopened %q", v.v.Len(), w.v.Len(), b.Unopened())
	}
}

func (s suite) testRestoreOnce(t *testing.T) {
	o := NewObjects()
	handles := s.writeAll(t, 1, 100, o)
	b := s.backend(t, 0, 1)
	if err := b.Restore(context.Background(), o, handles); err != nil {
		t.Fatal(err)
	}
	if err := b.Restore(context.Background(), o, handles); err == nil {
		t.Error("a second restore succeeds")
	}
	b = s.backend(t, 0, 1)
	open(t, b, counts()).set(1, 1)
	if err := b.Restore(context.Background(), o, handles); err == nil {
		t.Error("a restore over entries succeeds")
	}
}

func (s suite) testUnopened(t *testing.T) {
	o := NewObjects()
	b := s.backend(t, 0, 1)
	open(t, b, counts())
	if err := b.Restore(context.Background(), o, s.writeAll(t, 1, 100, o)); err != nil {
		t.Fatal(err)
	}
	if got := b.Unopened(); len(got) != 1 || got[0] != "orders" {
		t.Errorf("Unopened gives %q", got)
	}
	if _, err := b.Freeze(2); err == nil || !strings.Contains(err.Error(), `"orders"`) {
		t.Errorf("a snapshot that would lose a state: %v", err)
	}
}

func (s suite) testSchema(t *testing.T) {
	o := NewObjects()
	handles := s.writeAll(t, 2, 100, o)
	check := func(t *testing.T, part string, err error, n int) {
		var se *statebackend.SchemaError
		if !errors.As(err, &se) || se.Part != part || se.Operator != "sum" || se.State != "counts" || se.Old != "int64" {
			t.Fatalf("error is %v", err)
		}
		var je *job.Error
		if !errors.As(err, &je) || je.Class != job.ClassRefused {
			t.Errorf("error %v is not of class %s", err, job.ClassRefused)
		}
		if n > 0 {
			t.Errorf("%d entries were loaded", n)
		}
	}
	changed := statebackend.ValueDesc[int64, string]{Name: "counts", Key: codec.Int64(), Value: codec.String(), Hash: hashInt}
	rekeyed := statebackend.ValueDesc[string, int64]{Name: "counts", Key: codec.String(), Value: codec.Int64(), Hash: hashText}
	t.Run("value", func(t *testing.T) {
		b := s.backend(t, 0, 1)
		w := open(t, b, orders())
		open(t, b, changed)
		check(t, "value", b.Restore(context.Background(), o, handles), w.v.Len())
	})
	t.Run("key", func(t *testing.T) {
		b := s.backend(t, 0, 1)
		w := open(t, b, orders())
		open(t, b, rekeyed)
		check(t, "key", b.Restore(context.Background(), o, handles), w.v.Len())
	})
	t.Run("opened later", func(t *testing.T) {
		b := s.backend(t, 0, 1)
		if err := b.Restore(context.Background(), o, handles); err != nil {
			t.Fatal(err)
		}
		_, err := statebackend.OpenValue(b, changed)
		check(t, "value", err, 0)
	})
}

func (s suite) testGroups(t *testing.T) {
	o := NewObjects()
	handles := s.writeAll(t, 1, 100, o)
	b, err := s.f.New(context.Background(), statebackend.Params{Operator: "sum", Groups: job.GroupsOf(0, groups*2, 1), K: groups * 2, MaxConcurrent: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	open(t, b, counts())
	open(t, b, orders())
	if err := b.Restore(context.Background(), o, handles); err == nil || !strings.Contains(err.Error(), "max-parallelism") {
		t.Errorf("restore with another number of key groups: %v", err)
	}
	if _, err := s.f.New(context.Background(), statebackend.Params{Operator: "sum", Groups: job.GroupRange{First: 3, Last: groups}, K: groups}); err == nil {
		t.Error("key groups beyond their number are accepted")
	}
}

func (s suite) testDamage(t *testing.T) {
	o := NewObjects()
	b := s.writer(t)
	v := open(t, b, counts())
	for k := range int64(300) {
		v.set(k, k)
	}
	handles := write(t, b, 1, o)
	// An object that is whole, but another one: the same state at another time.
	*v.ref(7) = 8
	others := write(t, b, 2, o)
	for i, h := range handles {
		t.Run(h.Kind+" "+h.Name, func(t *testing.T) { s.testDamageOf(t, o, handles, i, others) })
	}
}

// testDamageOf damages what one of the handles of a snapshot refers to.
func (s suite) testDamageOf(t *testing.T, o *Objects, handles []job.StateHandle, i int, others []job.StateHandle) {
	handle := handles[i]
	restoreBy := func(parallelism int, h job.StateHandle) error {
		hs := slices.Clone(handles)
		hs[i] = h
		got := map[int64]int64{}
		for subtask := range parallelism {
			r := s.backend(t, subtask, parallelism)
			defer r.Close()
			w := open(t, r, counts())
			if err := r.Restore(context.Background(), o, hs); err != nil {
				return err
			}
			maps.Copy(got, w.all())
		}
		for k := range int64(300) {
			if v, ok := got[k]; !ok || v != k || len(got) != 300 {
				t.Fatalf("wrong state without an error: key %d has %v, %d keys", k, v, len(got))
			}
		}
		return nil
	}
	restore := func(h job.StateHandle) error { return restoreBy(1, h) }
	named := func(what string, h job.StateHandle, err error) {
		if err == nil {
			t.Errorf("%s: no error", what)
			return
		}
		for _, want := range []string{`"sum"`, handle.Name, h.Object} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v does not name %s", what, err, want)
			}
		}
	}
	if err := restore(handle); err != nil {
		t.Fatal(err)
	}
	for at := int64(0); at < handle.Length; at += 1 + handle.Length/200 {
		h := o.Damage(handle, func(b []byte) []byte { b[at] ^= 1 << (at % 8); return b })
		if err := restore(h); err != nil || at >= 16 { // The first bytes matter to people only.
			named(fmt.Sprintf("bit of byte %d of %d flipped", at, handle.Length), h, err)
		}
	}
	for _, n := range []int64{0, 1, 8, handle.Length / 2, handle.Length - 1} {
		if n < 0 || n >= handle.Length {
			continue
		}
		h := o.Damage(handle, func(b []byte) []byte { return b[:n] })
		named(fmt.Sprintf("cut after %d bytes", n), h, restore(h))
		h.Length = n // The manifest agrees with the object.
		named(fmt.Sprintf("cut after %d bytes, known", n), h, restore(h))
	}
	if handle.Object != "" {
		h := o.Damage(handle, func([]byte) []byte { return nil })
		named("missing", h, restore(h))
	}
	for _, other := range slices.Concat(handles, others) {
		if other.Hash != handle.Hash {
			swapped := handle
			swapped.Object, swapped.Inline, swapped.Length = other.Object, other.Inline, other.Length
			named("swapped with "+other.Name, swapped, restore(swapped))
		}
	}
	// Others read it in parts.
	for at := int64(16); at < handle.Length; at += 1 + handle.Length/20 {
		h := o.Damage(handle, func(b []byte) []byte { b[at] ^= 1 << (at % 8); return b })
		named(fmt.Sprintf("bit of byte %d of %d flipped, restored by 2", at, handle.Length), h, restoreBy(2, h))
	}
	for _, n := range []int64{0, handle.Length / 2, handle.Length - 1} {
		if n < handle.Length && n >= 0 {
			h := o.Damage(handle, func(b []byte) []byte { return b[:n] })
			named(fmt.Sprintf("cut after %d bytes, restored by 2", n), h, restoreBy(2, h))
		}
	}
	if handle.Kind == statebackend.KindFile {
		return
	}
	wrong := handle
	wrong.Entries++
	named("other number of entries", wrong, restore(wrong))
}

func (s suite) testShared(t *testing.T) {
	b := s.backend(t, 0, 1)
	v := open(t, b, orders())
	const n = 2000
	name := func(i int) string { return fmt.Sprint("key-", i) }
	var wg sync.WaitGroup
	for round := range 3 {
		for i := range n { // What was done to values that are for reading may be there or not.
			v.set(name(i), Order{Name: "v", Items: []int64{int64(i + round), 2}, Tags: map[string]int64{"a": 1}})
		}
		o := NewObjects()
		want := map[string]int64{}
		for k, x := range v.all() {
			want[k] = x.Items[0] + x.Tags["a"]
		}
		snap, err := b.Freeze(job.CheckpointID(round + 1))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer snap.Release()
			handles, err := snap.Write(context.Background(), o)
			if err != nil {
				t.Error(err)
				return
			}
			r, err := s.f.New(context.Background(), statebackend.Params{Operator: "sum", Groups: job.GroupsOf(0, groups, 1), K: groups})
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			w, err := statebackend.OpenValue(r, orders())
			if err == nil {
				err = r.Restore(context.Background(), o, handles)
			}
			if err != nil || w.Len() != len(want) {
				t.Errorf("restore: %v", err)
				return
			}
			for k, x := range w.All() {
				if got := x.Items[0] + x.Tags["a"]; got != want[*k] {
					t.Errorf("key %s has %d in the snapshot, want %d", *k, got, want[*k])
				}
			}
		})
		for i := range n {
			var x *Order
			if i%2 == 0 {
				x = v.get(name(i))
			} else {
				x, _ = v.upsert(name(i))
			}
			x.Items[0] = -5
			x.Tags["a"] = 77
			x.Items = append(x.Items[:1], 9)
			b.Merge(time.Microsecond)
		}
		for _, x := range v.v.All() {
			x.Items[0]--
			x.Tags["b"]++
		}
	}
	wg.Wait()
}

func (s suite) testClose(t *testing.T) {
	b, o := s.backend(t, 0, 1), NewObjects()
	v := open(t, b, counts())
	for k := range int64(1000) {
		v.set(k, k)
	}
	snap, err := b.Freeze(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	handles, err := snap.Write(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	snap.Release()
	r := s.backend(t, 0, 1)
	w := open(t, r, counts())
	if err := r.Restore(context.Background(), o, handles); err != nil || w.v.Len() != 1000 {
		t.Errorf("%d keys, %v", w.v.Len(), err)
	}
}
