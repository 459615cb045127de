package fs_test

import (
	"context"
	"maps"
	"testing"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
	"github.com/cairnstream/cairn/statebackend/statetest"
)

// operator is one subtask with two states, of which each checkpoint is committed unless a test says otherwise.
type operator struct {
	t       *testing.T
	b       statebackend.Backend
	a, z    statebackend.Value[int64, int64]
	o       *statetest.Objects
	next    job.CheckpointID
	newest  job.CheckpointID
	handles []job.StateHandle
}

func params() statebackend.Params {
	return statebackend.Params{Operator: "sum", Groups: job.GroupsOf(0, 720, 1), K: 720, MaxConcurrent: 2, Incremental: true}
}

func start(t *testing.T, f fs.Factory, p statebackend.Params) *operator {
	t.Helper()
	b, err := f.New(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	o := &operator{t: t, b: b, o: statetest.NewObjects(), next: 1}
	for name, v := range map[string]*statebackend.Value[int64, int64]{"a": &o.a, "z": &o.z} {
		*v, err = statebackend.OpenValue(b, statebackend.ValueDesc[int64, int64]{Name: name, Key: codec.Int64(), Value: codec.Int64(), Hash: hashInt})
		if err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func put(v statebackend.Value[int64, int64], from, to, value int64) {
	for k := from; k < to; k++ {
		g, s := hashInt(&k)
		x, _ := v.Upsert(g, s, &k)
		*x = value * k
	}
}

func remove(v statebackend.Value[int64, int64], from, to int64) {
	for k := from; k < to; k++ {
		g, s := hashInt(&k)
		v.Delete(g, s, &k)
	}
}

// take makes a checkpoint and commits it; it gives the chains of the two states, and the bytes that were written.
func (o *operator) take() (a, z statebackend.Chain, written int64) {
	o.t.Helper()
	a, z, written = o.write(o.freeze())
	o.newest = o.next - 1
	return a, z, written
}

func (o *operator) freeze() statebackend.Snapshot {
	o.t.Helper()
	o.b.Committed(o.newest)
	snap, err := o.b.Freeze(o.next)
	if err != nil {
		o.t.Fatal(err)
	}
	o.next++
	return snap
}

func (o *operator) write(snap statebackend.Snapshot) (a, z statebackend.Chain, written int64) {
	o.t.Helper()
	defer snap.Release()
	known := map[string]bool{}
	for _, h := range o.handles {
		known[h.Object] = true
	}
	handles, err := snap.Write(context.Background(), o.o)
	if err != nil {
		o.t.Fatal(err)
	}
	for _, h := range handles {
		if !known[h.Object] {
			written += h.Length
		}
	}
	o.handles = append(o.handles, handles...)
	chains, err := statebackend.Chains(handles)
	if err != nil {
		o.t.Fatal(err)
	}
	for _, c := range chains {
		if c[0].Name == "a" {
			a = c
		} else {
			z = c
		}
	}
	return a, z, written
}

// verify restores handles and compares.
func (o *operator) verify(handles ...statebackend.Chain) {
	o.t.Helper()
	r := start(o.t, fs.Factory{}, params())
	var all []job.StateHandle
	for _, c := range handles {
		all = append(all, c...)
	}
	if err := r.b.Restore(context.Background(), o.o, all); err != nil {
		o.t.Fatal(err)
	}
	for i, v := range []statebackend.Value[int64, int64]{o.a, o.z} {
		got, want := map[int64]int64{}, map[int64]int64{}
		for k, x := range v.All() {
			want[*k] = *x
		}
		for k, x := range []statebackend.Value[int64, int64]{r.a, r.z}[i].All() {
			got[*k] = *x
		}
		if !maps.Equal(got, want) {
			o.t.Fatalf("state %d: %d entries restored, want %d", i, len(got), len(want))
		}
	}
}

const many = 40_000

func TestIncrements(t *testing.T) {
	o := start(t, fs.Factory{}, params())
	put(o.a, 0, many, 1)
	put(o.z, 0, 1000, 1) // Too small for increments.
	a, z, full := o.take()
	if len(a) != 1 || len(z) != 1 {
		t.Fatalf("chains of %d and %d", len(a), len(z))
	}
	if b, y, n := o.take(); len(b) != 1 || b[0].Object != a[0].Object || n != z[0].Length || y[0].Object == z[0].Object {
		t.Errorf("without a change %d bytes are written, and the chains are %v and %v", n, b, y)
	}
	put(o.a, 0, many/100, 2)
	remove(o.a, 5, 15)
	b, z, n := o.take()
	if len(b) != 2 || n-z[0].Length > full/20 || b[1].Entries != many-10 {
		t.Errorf("after a hundredth has changed %d bytes of %d are written: %v", n, full, b)
	}
	o.verify(b, z)
	c, z, n := o.take()
	if len(c) != 2 || n != z[0].Length {
		t.Errorf("without a change %d bytes are written: %v", n, c)
	}
	o.verify(c, z)
}

func TestChainsEnd(t *testing.T) {
	o := start(t, fs.Factory{}, params())
	put(o.a, 0, many, 1)
	var lengths []int
	for i := range int64(20) {
		a, z, _ := o.take()
		lengths = append(lengths, len(a))
		o.verify(a, z)
		put(o.a, i*10, i*10+100, i+3)
	}
	for i, n := range lengths {
		if n != i%16+1 {
			t.Fatalf("the chains are of %v segments", lengths)
		}
	}
}

// What changes a lot is written in full, and after a while nobody tries whether it still does.
func TestManyChanges(t *testing.T) {
	for name, change := range map[string]func(*operator, int64){
		"updated": func(o *operator, i int64) { put(o.a, 0, many*9/10, i) },
		"removed": func(o *operator, i int64) { remove(o.a, 0, many/2); put(o.a, 0, many, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			o := start(t, fs.Factory{}, params())
			put(o.a, 0, many, 1)
			for i := range int64(20) {
				a, z, _ := o.take()
				if len(a) != 1 {
					t.Fatalf("checkpoint %d is a chain of %d", i+1, len(a))
				}
				o.verify(a, z)
				change(o, i+2)
			}
			var lengths []int
			for i := range int64(20) {
				put(o.a, i, i+1, 7)
				a, z, _ := o.take()
				lengths = append(lengths, len(a))
				o.verify(a, z)
			}
			if lengths[19] < 2 {
				t.Errorf("after it became quiet the chains are of %v segments", lengths)
			}
		})
	}
}

// Changes add up until they take as much as the full segment.
func TestChangesAddUp(t *testing.T) {
	o := start(t, fs.Factory{}, params())
	put(o.a, 0, many, 1)
	longest := 0
	for i := range int64(12) {
		a, z, _ := o.take()
		longest = max(longest, len(a))
		if a.Changes() > a[0].Length {
			t.Errorf("%d bytes of changes to %d", a.Changes(), a[0].Length)
		}
		o.verify(a, z)
		put(o.a, 0, many/5, i+2)
	}
	if longest < 3 || longest > 8 {
		t.Errorf("the longest chain was of %d segments", longest)
	}
}

// The base is the committed checkpoint, however many were taken since.
func TestBase(t *testing.T) {
	o := start(t, fs.Factory{}, params())
	put(o.a, 0, many, 1)
	one, _, _ := o.take()
	put(o.a, 0, 10, 2)
	second := o.freeze()
	put(o.a, 10, 20, 3)
	remove(o.a, 20, 25)
	third := o.freeze()
	two, _, _ := o.write(second)
	three, z, _ := o.write(third)
	if len(two) != 2 || len(three) != 2 || three[0].Object != one[0].Object || three[1].Base != one[0].Index {
		t.Fatalf("the chains are %v and %v", two, three)
	}
	o.verify(three, z)
	// The third is aborted, the second committed: what the third had is in the fourth as well.
	o.newest = 2
	put(o.a, 30, 40, 4)
	remove(o.a, 40, 45)
	four, z, _ := o.take()
	if len(four) != 3 || four[1].Index != two[1].Index {
		t.Fatalf("the chain is %v", four)
	}
	o.verify(four, z)
	// Nobody knows of what is committed: on nothing.
	for _, id := range []job.CheckpointID{0, 77} {
		o.newest = id
		put(o.a, 50, 60, int64(id))
		c, z, _ := o.write(o.freeze())
		if len(c) != 1 {
			t.Fatalf("on checkpoint %v: %v", id, c)
		}
		o.verify(c, z)
	}
}

func TestBuildOnRestored(t *testing.T) {
	first := start(t, fs.Factory{}, params())
	put(first.a, 0, many, 1)
	first.take()
	put(first.a, 0, 10, 2)
	a, _, _ := first.take()
	for name, change := range map[string]func(*statebackend.Params){
		"same":            func(*statebackend.Params) {},
		"of another job":  func(p *statebackend.Params) { p.Own = false },
		"not incremental": func(p *statebackend.Params) { p.Incremental = false },
		"other groups":    func(p *statebackend.Params) { p.Groups = job.GroupsOf(0, 720, 2) },
		"older":           func(p *statebackend.Params) { p.Restored = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			p := params()
			p.Own, p.Restored = true, 2
			change(&p)
			o := start(t, fs.Factory{}, p)
			o.o = first.o
			if err := o.b.Restore(context.Background(), o.o, a); err != nil {
				t.Fatal(err)
			}
			o.next, o.newest = 5, 2
			for k := range int64(100) {
				if g, s := hashInt(&k); p.Groups.Contains(job.GroupOf(g, 720)) {
					x, _ := o.a.Upsert(g, s, &k)
					*x = 5
					if k%3 == 0 {
						o.a.Delete(g, s, &k)
					}
				}
			}
			c, z, _ := o.take()
			if name == "same" {
				if len(c) != 3 || c[1].Object != a[1].Object {
					t.Errorf("the chain is %v", c)
				}
			} else if len(c) != 1 {
				t.Errorf("the chain is %v", c)
			}
			if name != "other groups" {
				o.verify(c, z)
			}
		})
	}
}

// A checkpoint that commits late is none to build on when changes were not noted all the time since.
func TestGap(t *testing.T) {
	o := start(t, fs.Factory{}, params())
	put(o.a, 0, many, 1)
	o.take() // Changes are noted from here on,
	late := o.freeze()
	put(o.a, 0, 10, 2)
	remove(o.a, 0, many/2) // and not any more from here on,
	for range 2 {
		o.write(o.freeze()) // and again from the last of these on.
	}
	o.write(late)
	o.newest = 2
	put(o.a, 10, 20, 3)
	a, z, _ := o.take()
	if len(a) != 1 {
		t.Errorf("the chain is %v", a)
	}
	o.verify(a, z)
}
