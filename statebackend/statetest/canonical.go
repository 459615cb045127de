package statetest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// canonical makes backends whose snapshots are all written as those of savepoints.
type canonical struct{ statebackend.Factory }

func (c canonical) New(ctx context.Context, p statebackend.Params) (statebackend.Backend, error) {
	b, err := c.Factory.New(ctx, p)
	if err != nil {
		return nil, err
	}
	return canonicalBackend{b}, nil
}

type canonicalBackend struct{ statebackend.Backend }

func (b canonicalBackend) Freeze(id job.CheckpointID) (statebackend.Snapshot, error) {
	s, err := b.Backend.Freeze(id)
	if err != nil {
		return nil, err
	}
	return canonicalSnapshot{s}, nil
}

type canonicalSnapshot struct{ statebackend.Snapshot }

func (s canonicalSnapshot) Write(ctx context.Context, w statebackend.Writer) ([]job.StateHandle, error) {
	return s.WriteCanonical(ctx, w)
}

// testSavepoints tests what is written for savepoints.
func (s suite) testSavepoints(t *testing.T) {
	c := suite{canonical{s.f}, canonical{s.from}}
	t.Run("failed writes", c.testFailedWrite)
	t.Run("cancelled write", c.testCancel)
	t.Run("empty state", c.testEmpty)
	t.Run("restore and rescale", c.testRescale)
	t.Run("restore before open", c.testRestoreFirst)
	t.Run("unopened states", c.testUnopened)
	t.Run("changed schema", c.testSchema)
	t.Run("evolved types", c.testEvolve)
	t.Run("incompatible types", c.testIncompatible)
	t.Run("changed number of groups", c.testGroups)
	t.Run("damage", c.testDamage)
	t.Run("values change during a write", c.testShared)
	t.Run("close with a snapshot alive", c.testClose)
	t.Run("handles", s.testCanonicalHandles)
	t.Run("beside checkpoints", s.testBesideCheckpoints)
	t.Run("own key groups", s.testOwnGroups)
}

// testOwnGroups has each subtask read what it needs of a savepoint, and little more.
func (s suite) testOwnGroups(t *testing.T) {
	o := NewObjects()
	b := suite{s.from, s.from}.backend(t, 0, 1)
	v := open(t, b, orders())
	r := rand.New(rand.NewPCG(1, 1))
	const n = 12_000
	for k := range int64(n) {
		var text [256]byte // Which no compression makes smaller.
		for i := range text {
			text[i] = byte(r.Uint32())
		}
		v.set(fmt.Sprint(k), Order{Name: string(text[:]), Items: []int64{k}})
	}
	handles := writeCanonical(t, b, 1, o)
	const parallelism = 8
	length := handles[0].Length
	// The first and the last block have entries of others; a block's end is an entry's.
	const block, end = 128<<10 + 32<<10 + 1<<10, 64 << 10
	if length < 16*block {
		t.Fatalf("the savepoint has %d bytes: too few to tell", length)
	}
	total := 0
	for i := range parallelism {
		own := int64(0)
		b := s.backend(t, i, parallelism)
		w := open(t, b, orders())
		before := o.BytesRead()
		if err := b.Restore(context.Background(), o, handles); err != nil {
			t.Fatal(err)
		}
		read := o.BytesRead() - before
		for k, x := range w.v.All() {
			if own += int64(len(*k) + len(x.Name) + 16); fmt.Sprint(x.Items[0]) != *k {
				t.Fatalf("key %s has %d", *k, x.Items[0])
			}
		}
		if total += w.v.Len(); read > own+2*block+end {
			t.Errorf("subtask %d of %d reads %d bytes of %d for %d of its own", i, parallelism, read, length, own)
		}
	}
	if total != n {
		t.Errorf("%d entries of %d", total, n)
	}
}

// Mixed makes backends of several factories in turn.
type Mixed struct {
	Of []statebackend.Factory
	n  int
}

// New implements statebackend.Factory. Unlike others it is not safe for concurrent use.
func (m *Mixed) New(ctx context.Context, p statebackend.Params) (statebackend.Backend, error) {
	m.n++
	return m.Of[m.n%len(m.Of)].New(ctx, p)
}

// writeCanonical takes a savepoint.
func writeCanonical(t testing.TB, b statebackend.Backend, id job.CheckpointID, o *Objects) []job.StateHandle {
	t.Helper()
	return write(t, canonicalBackend{b}, id, o)
}

func (s suite) testCanonicalHandles(t *testing.T) {
	o := NewObjects()
	b := s.backend(t, 1, 2)
	// Not in the order of their names, and one without entries.
	texts, ints := open(t, b, orders()), open(t, b, counts())
	open(t, b, sessions())
	for k := range int64(2000) {
		if g, _ := hashInt(&k); params(1, 2).Groups.Contains(job.GroupOf(g, groups)) {
			ints.set(k, -k)
		}
		name := fmt.Sprint(k)
		if g, _ := hashText(&name); params(1, 2).Groups.Contains(job.GroupOf(g, groups)) {
			texts.set(name, Order{Name: name})
		}
	}
	write(t, b, 1, o) // What is stored already is not referred to.
	b.Committed(1)
	before := o.keys()
	handles := writeCanonical(t, b, 2, o)
	if len(handles) != 2 || handles[0].Name != "counts" || handles[1].Name != "orders" {
		t.Fatalf("handles are %+v", handles)
	}
	for i, h := range handles {
		n := []int{ints.v.Len(), texts.v.Len()}[i]
		if h.Kind != statebackend.KindKeyed || h.Base != "" || h.Object == "" || before[h.Object] || h.Groups != params(1, 2).Groups || h.Entries != int64(n) {
			t.Errorf("handle of %d entries is %+v", n, h)
		}
	}
}

// testBesideCheckpoints takes savepoints between checkpoints, which go on as if they had not been.
func (s suite) testBesideCheckpoints(t *testing.T) {
	o := NewObjects()
	b := s.backend(t, 0, 1)
	v := open(t, b, counts())
	for k := range int64(3000) {
		v.set(k, k)
	}
	write(t, b, 1, o)
	want := map[int64]int64{}
	maps.Copy(want, v.all())
	for i := range job.CheckpointID(6) {
		b.Committed(2*i + 1) // The savepoint in between is no base.
		v.set(int64(i), -1)
		want[int64(i)] = -1
		saved := writeCanonical(t, b, 2*i+2, o)
		at := maps.Clone(want)
		v.remove(int64(100 + i))
		delete(want, int64(100+i))
		b.Committed(2*i + 1)
		handles := write(t, b, 2*i+3, o)
		for _, from := range []struct {
			handles []job.StateHandle
			want    map[int64]int64
		}{{saved, at}, {handles, want}} {
			r := s.backend(t, 0, 1)
			w := open(t, r, counts())
			if err := r.Restore(context.Background(), o, from.handles); err != nil {
				t.Fatal(err)
			}
			same(t, "restored", w.all(), from.want)
		}
	}
}

// keys are those of all objects.
func (o *Objects) keys() map[string]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := map[string]bool{}
	for k := range o.mu.data {
		out[k] = true
	}
	return out
}

// bytesOf gives the bytes of a handle.
func (o *Objects) bytesOf(h job.StateHandle) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if h.Object == "" {
		return h.Inline
	}
	return slices.Clone(o.mu.data[h.Object])
}

// SameSavepoints tests that backends of different factories write the same savepoints of the same states, however these came to
// be, and that each restores what the others write.
func SameSavepoints(t *testing.T, factories map[string]statebackend.Factory) {
	names := slices.Sorted(maps.Keys(factories))
	for _, c := range []statebackend.Compression{0, statebackend.NoCompression, 2} {
		t.Run(fmt.Sprint("compression ", c), func(t *testing.T) {
			o := NewObjects()
			var want []job.StateHandle
			for i, name := range names {
				b := suite{f: factories[name]}.make(t, compressed(c))
				fillInAnyOrder(t, b, o, uint64(i))
				got := writeCanonical(t, b, 9, o)
				if len(got) != 3 {
					t.Fatalf("%s: %d handles", name, len(got))
				}
				if i == 0 {
					want = got
					continue
				}
				for j, h := range got {
					compareHandles(t, o, names[0]+" and "+name, want[j], h)
				}
			}
			for _, name := range names {
				restoreAny(t, o, factories[name], want)
			}
		})
	}
	t.Run("values of an older type", func(t *testing.T) {
		o := NewObjects()
		var want []job.StateHandle
		for i, name := range names {
			s := suite{factories[name], factories[name]}
			v1 := openVersion[Bill1](s, t, 0, 1, codec.Int16(), o, nil, false)
			for n := range int64(evolved) {
				v1.bills.set(fmt.Sprint(n), bill1(n))
				v1.totals.set(n, int16(n))
			}
			v2 := openVersion[Bill2](s, t, 0, 1, codec.Int32(), o, write(t, v1.b, 1, o), false)
			for n := range int64(evolved / 10) {
				v2.bills.set(fmt.Sprint(n), Bill2{Title: "new"})
			}
			got := writeCanonical(t, v2.b, 2, o)
			if i == 0 {
				want = got
			}
			for j, h := range got {
				compareHandles(t, o, names[0]+" and "+name, want[j], h)
			}
		}
	})
}

func compressed(c statebackend.Compression) statebackend.Params {
	p := params(0, 1)
	p.Compression = c
	return p
}

func compareHandles(t *testing.T, o *Objects, who string, a, b job.StateHandle) {
	t.Helper()
	if x, y := o.bytesOf(a), o.bytesOf(b); !bytes.Equal(x, y) {
		at := 0
		for at < min(len(x), len(y)) && x[at] == y[at] {
			at++
		}
		t.Errorf("%s: state %q: segments of %d and %d bytes differ from byte %d on", who, a.Name, len(x), len(y), at)
	}
	a.Object, b.Object = "", ""
	if fmt.Sprintf("%+v", a) != fmt.Sprintf("%+v", b) {
		t.Errorf("%s: handles are %+v and %+v", who, a, b)
	}
}

const sameEntries = 6000

// fillInAnyOrder makes the same states in an order, and by ways, that depend on seed.
func fillInAnyOrder(t *testing.T, b statebackend.Backend, o *Objects, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	var ints keyed[int64, int64]
	var texts keyed[string, Order]
	var aged keyed[int64, session]
	opens := []func(){
		func() { ints = open(t, b, counts()) },
		func() { texts = open(t, b, orders()) },
		func() { aged = open(t, b, sessions()) },
	}
	for _, i := range r.Perm(len(opens)) {
		opens[i]()
	}
	for round := range 2 {
		for _, i := range r.Perm(sameEntries) {
			k := int64(i)
			name := fmt.Sprint("key ", k)
			if r.IntN(4) == 0 { // On the way to what is to be.
				ints.set(k, r.Int64())
				texts.set(name, Order{Name: "other"})
				aged.set(k+sameEntries, session{1, 1})
			}
			if round == 0 {
				continue
			}
			ints.set(k, k*k)
			texts.set(name, Order{Name: name, Items: make([]int64, k%7), Tags: map[string]int64{"b": k, "a": 1, "": 2}})
			aged.set(k, session{firstClock + k, k})
			aged.remove(k + sameEntries)
		}
		for k := range int64(3) { // Some are larger than a run, and some than a block.
			texts.set(fmt.Sprint("large ", k), Order{Items: make([]int64, 8000*(1+k*3))})
		}
		if round == 0 {
			write(t, b, 1, o)
			b.Committed(1)
			for b.Merge(1000) {
			}
		}
	}
}

func restoreAny(t *testing.T, o *Objects, f statebackend.Factory, handles []job.StateHandle) {
	t.Helper()
	var n [3]int
	for i := range 3 {
		b := suite{f: f}.backend(t, i, 3)
		ints, texts, aged := open(t, b, counts()), open(t, b, orders()), open(t, b, sessions())
		if err := b.Restore(context.Background(), o, handles); err != nil {
			t.Fatal(err)
		}
		for k, v := range ints.all() {
			if v != k*k || k >= sameEntries {
				t.Fatalf("key %d has %d", k, v)
			}
		}
		for k, v := range aged.all() {
			if v != (session{firstClock + k, k}) || k >= sameEntries {
				t.Fatalf("session %d is %v", k, v)
			}
		}
		n[0], n[1], n[2] = n[0]+ints.v.Len(), n[1]+texts.v.Len(), n[2]+aged.v.Len()
	}
	if n != [3]int{sameEntries, sameEntries + 3, sameEntries} {
		t.Fatalf("%v entries are restored", n)
	}
}
