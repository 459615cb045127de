package statetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// testChains takes many snapshots, some of which are aborted or fail, of states that change in all ways, and restores each
// that was written, with the same and with another parallelism.
func (s suite) testChains(t *testing.T) {
	const n, rounds = 4000, 45
	o := NewObjects()
	b := s.writer(t)
	v, w := open(t, b, counts()), open(t, b, orders())
	for k := range int64(n) {
		v.set(k, k)
		w.set(fmt.Sprint("k", k), Order{Name: "first", Items: []int64{k}})
	}
	type kept struct {
		id      job.CheckpointID
		handles []job.StateHandle
		counts  map[int64]int64
		orders  map[string]Order
	}
	var all []kept
	var base job.CheckpointID
	objects := map[string]bool{}
	for i := range int64(rounds) {
		id := job.CheckpointID(i + 1)
		before, err := statebackend.Chains(nil)
		if len(all) > 0 {
			before, err = statebackend.Chains(all[len(all)-1].handles)
		}
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case i%7 == 6: // Nothing changes.
		case i%5 == 4: // Keys go, and some of them come again with another value.
			for k := i; k < n; k += 100 {
				v.remove(k)
				w.remove(fmt.Sprint("k", k))
				if k%3 == 0 {
					v.set(k, -i)
					w.set(fmt.Sprint("k", k), Order{Name: "again"})
				}
			}
		default:
			for k := i; k < n; k += 97 {
				x, _ := v.upsert(k)
				*x += i
				y, _ := w.upsert(fmt.Sprint("k", k))
				y.Items = append(y.Items, i)
			}
			v.set(n+i, i) // A new key, and one that never is in a snapshot.
			v.set(-1, 1)
			v.remove(-1)
		}
		b.Committed(base)
		snap, err := b.Freeze(id)
		if err != nil {
			t.Fatal(err)
		}
		c := kept{id: id, counts: v.all(), orders: map[string]Order{}}
		for k, x := range w.v.All() {
			c.orders[*k] = cloneOrder(*x)
		}
		if i%11 == 3 { // Aborted before it is written.
			snap.Release()
			continue
		}
		o.FailAfter = -1
		if i%11 == 7 {
			o.FailAfter = 50
		}
		c.handles, err = snap.Write(context.Background(), o)
		o.FailAfter = -1
		snap.Release()
		if errors.Is(err, ErrFault) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		chains, err := statebackend.Chains(c.handles)
		if err != nil {
			t.Fatal(err)
		}
		for _, chain := range chains {
			if len(chain) > 16 || chain.Changes() > chain[0].Length {
				t.Errorf("%v: state %q is a chain of %d, %d bytes and %d of changes", id, chain[0].Name, len(chain), chain[0].Length, chain.Changes())
			}
			// What a handle refers to is new, or the committed checkpoint has it.
			for _, h := range chain {
				if known := slices.ContainsFunc(before, func(o statebackend.Chain) bool {
					return slices.ContainsFunc(o, func(o job.StateHandle) bool { return o.Object == h.Object })
				}); h.Object != "" && objects[h.Object] && !known {
					t.Errorf("%v refers to object %s, which the newest committed checkpoint does not", id, h.Object)
				}
			}
		}
		for _, h := range c.handles {
			objects[h.Object] = true
		}
		if i%13 == 8 { // Written, and aborted for another task's sake.
			continue
		}
		all = append(all, c)
		base = id
	}
	for i, c := range all {
		for _, parallelism := range []int{1, 3}[:1+i%2] {
			ints, texts := map[int64]int64{}, map[string]Order{}
			for subtask := range parallelism {
				r := s.backend(t, subtask, parallelism)
				v, w := open(t, r, counts()), open(t, r, orders())
				if err := r.Restore(context.Background(), o, c.handles); err != nil {
					t.Fatal(err)
				}
				maps.Copy(ints, v.all())
				maps.Copy(texts, w.all())
			}
			if !maps.Equal(ints, c.counts) || !maps.EqualFunc(texts, c.orders, equalOrder) {
				t.Fatalf("%v restored with parallelism %d: %d and %d entries differ from %d and %d", c.id, parallelism, len(ints), len(texts), len(c.counts), len(c.orders))
			}
		}
	}
}

// testDamagedChains finds damage wherever in a chain it is. A backend that writes none has nothing to find.
func (s suite) testDamagedChains(t *testing.T) {
	o := NewObjects()
	b := s.writer(t)
	v := open(t, b, counts())
	for k := range int64(2000) {
		v.set(k, k)
	}
	var handles, former []job.StateHandle
	for i := range 4 {
		if i > 0 {
			for k := range int64(20) {
				v.set(k*7+int64(i), -k)
				v.remove(k*11 + int64(i))
			}
		}
		b.Committed(job.CheckpointID(i))
		former = handles
		handles = write(t, b, job.CheckpointID(i+1), o)
	}
	want := v.all()
	if !slices.ContainsFunc(handles, func(h job.StateHandle) bool { return h.Base != "" }) {
		return
	}
	restore := func(hs []job.StateHandle, parallelism int) error {
		got := map[int64]int64{}
		for i := range parallelism {
			r := s.backend(t, i, parallelism)
			w := open(t, r, counts())
			if err := r.Restore(context.Background(), o, hs); err != nil {
				return err
			}
			maps.Copy(got, w.all())
			_ = r.Close()
		}
		if !maps.Equal(got, want) {
			t.Fatalf("wrong state without an error: %d entries, want %d", len(got), len(want))
		}
		return nil
	}
	for p := range 3 {
		if err := restore(handles, p+1); err != nil {
			t.Fatal(err)
		}
	}
	named := func(what string, hs []job.StateHandle, texts ...string) {
		for p := range 2 {
			err := restore(hs, p+1)
			if err == nil {
				t.Errorf("%s: no error", what)
				return
			}
			for _, want := range append(texts, `"sum"`, `"counts"`) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: error %v does not name %s", what, err, want)
				}
			}
		}
	}
	for i, h := range handles {
		with := func(h job.StateHandle) []job.StateHandle {
			hs := slices.Clone(handles)
			hs[i] = h
			return hs
		}
		for at := int64(16); at < h.Length; at += 1 + h.Length/40 {
			bad := o.Damage(h, func(b []byte) []byte { b[at] ^= 1 << (at % 8); return b })
			named(fmt.Sprintf("handle %d, bit of byte %d of %d flipped", i, at, h.Length), with(bad), bad.Object)
		}
		for _, n := range []int64{0, 8, h.Length / 2, h.Length - 1} {
			bad := o.Damage(h, func(b []byte) []byte { return b[:n] })
			named(fmt.Sprintf("handle %d, cut after %d bytes", i, n), with(bad), bad.Object)
			bad.Length = n
			named(fmt.Sprintf("handle %d, cut after %d bytes, known", i, n), with(bad), bad.Object)
		}
		bad := o.Damage(h, func([]byte) []byte { return nil })
		named(fmt.Sprintf("handle %d, missing", i), with(bad), bad.Object)
		bad = h
		bad.Entries++
		named(fmt.Sprintf("handle %d, other number of entries", i), with(bad), h.Object)
		other := handles[(i+1)%len(handles)]
		bad = h
		bad.Object, bad.Inline, bad.Length = other.Object, other.Inline, other.Length
		named(fmt.Sprintf("handle %d, swapped", i), with(bad), bad.Object)
		if i+1 < len(handles) { // Without the last it is the checkpoint before.
			named(fmt.Sprintf("without handle %d", i), slices.Delete(slices.Clone(handles), i, i+1))
		}
	}
	swapped := slices.Clone(handles)
	swapped[1], swapped[2] = swapped[2], swapped[1]
	named("two handles in the other order", swapped)
	// The manifest lists the links that there are, but one of another history.
	forged := slices.Clone(handles)
	forged[1].Base = forged[2].Index
	named("other base", forged)
	if len(former) != len(handles)-1 {
		t.Errorf("chains of %d and %d", len(former), len(handles))
	}
}
