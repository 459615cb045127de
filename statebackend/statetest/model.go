package statetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// Model has random sequences of accesses, snapshots, failures, restores and steps of the clock on the backends that f makes,
// and compares with plain maps. The flag -rapid.checks says how many sequences.
func Model(t *testing.T, f statebackend.Factory) {
	s := suite{f, f}
	rapid.Check(t, func(rt *rapid.T) {
		o := &operator{
			s: s, t: rt, objects: NewObjects(), next: 1, clock: firstClock, latest: firstClock,
			want: content{map[int64]int64{}, map[string]Order{}, map[int64]session{}},
		}
		rt.Cleanup(o.end)
		if err := o.start(rapid.IntRange(1, 4).Draw(rt, "parallelism"), nil, false, false); err != nil {
			rt.Fatal(err)
		}
		rt.Repeat(o.actions())
		o.compare(rt)
	})
}

const firstClock = 1_700_000_000_000

// content is what an operator has in all its subtasks, as plain maps.
type content struct {
	counts   map[int64]int64
	orders   map[string]Order
	sessions map[int64]session // With those that have expired, until they are removed.
}

func (c content) clone() content {
	d := content{maps.Clone(c.counts), map[string]Order{}, maps.Clone(c.sessions)}
	for k, v := range c.orders {
		d.orders[k] = cloneOrder(v)
	}
	return d
}

func cloneOrder(v Order) Order {
	return Order{Name: v.Name, Items: slices.Clone(v.Items), Tags: maps.Clone(v.Tags)}
}

func equalOrder(a, b Order) bool {
	return a.Name == b.Name && slices.Equal(a.Items, b.Items) && maps.Equal(a.Tags, b.Tags)
}

// operator is all subtasks of one operator.
type operator struct {
	s        suite
	t        *rapid.T
	objects  *Objects
	subtasks []*subtask
	want     content
	clock    int64 // Of the machine, milliseconds since 1970. It can go back.
	latest   int64 // That it ever was.
	alive    []checkpoint
	done     []checkpoint     // Those that were written.
	base     job.CheckpointID // The newest that is committed, as the coordinator says.
	next     job.CheckpointID
}

type subtask struct {
	b        statebackend.Backend
	counts   keyed[int64, int64]
	orders   keyed[string, Order]
	sessions keyed[int64, session]
	now      int64
}

type checkpoint struct {
	id      job.CheckpointID
	snaps   []statebackend.Snapshot
	want    content
	handles []job.StateHandle
}

// stop closes all backends. Snapshots of them may be alive.
func (o *operator) stop() {
	for _, s := range o.subtasks {
		if err := s.b.Close(); err != nil {
			o.t.Error(err)
		}
	}
	o.subtasks = nil
}

func (o *operator) end() {
	o.stop()
	for _, c := range o.alive {
		c.release()
	}
}

func (c checkpoint) release() {
	for _, snap := range c.snaps {
		snap.Release()
	}
}

func (o *operator) start(parallelism int, from *checkpoint, own, restoreFirst bool) error {
	o.stop()
	for i := range parallelism {
		p := params(i, parallelism)
		if from != nil {
			p.Restored, p.Own = from.id, own
		}
		b, err := o.s.f.New(context.Background(), p)
		if err != nil {
			return err
		}
		s := &subtask{b: b}
		o.subtasks = append(o.subtasks, s)
		if from != nil && restoreFirst {
			if err := b.Restore(context.Background(), o.objects, from.handles); err != nil {
				return err
			}
		}
		if err := s.open(); err != nil {
			return err
		}
		if from != nil && !restoreFirst {
			if err := b.Restore(context.Background(), o.objects, from.handles); err != nil {
				return err
			}
		}
		s.begin(o.clock)
		if s.now > o.latest {
			o.t.Fatalf("a session is said to have begun at %d, it was never later than %d", s.now, o.latest)
		}
	}
	return nil
}

// open opens the states. It may be what loads them.
func (s *subtask) open() (err error) {
	for _, open := range []func() error{
		func() (err error) { s.counts, err = openKeyed(s.b, counts()); return err },
		func() (err error) { s.orders, err = openKeyed(s.b, orders()); return err },
		func() (err error) { s.sessions, err = openKeyed(s.b, sessions()); return err },
	} {
		err = errors.Join(err, open())
	}
	return err
}

func (o *operator) of(hash uint64) *subtask {
	return o.subtasks[job.OwnerOf(job.GroupOf(hash, groups), groups, len(o.subtasks))]
}

func (o *operator) ofInt(k int64) *subtask { g, _ := hashInt(&k); return o.of(g) }

func (o *operator) ofText(k string) *subtask { g, _ := hashText(&k); return o.of(g) }

func (o *operator) compare(t *rapid.T) {
	got := content{map[int64]int64{}, map[string]Order{}, map[int64]session{}}
	lens := [3]int{}
	for _, s := range o.subtasks {
		maps.Copy(got.counts, s.counts.all())
		for k, v := range s.orders.v.All() {
			got.orders[*k] = cloneOrder(*v)
		}
		maps.Copy(got.sessions, s.sessions.all())
		lens[0] += s.counts.v.Len()
		lens[1] += s.orders.v.Len()
		lens[2] += s.sessions.v.Len()
	}
	if !maps.Equal(got.counts, o.want.counts) {
		t.Fatalf("counts are %v, want %v", got.counts, o.want.counts)
	}
	if !maps.EqualFunc(got.orders, o.want.orders, equalOrder) {
		t.Fatalf("orders are %v, want %v", got.orders, o.want.orders)
	}
	if !maps.Equal(got.sessions, o.want.sessions) {
		t.Fatalf("sessions are %v, want %v", got.sessions, o.want.sessions)
	}
	if want := [3]int{len(got.counts), len(got.orders), len(got.sessions)}; lens != want {
		t.Fatalf("lengths are %v, want %v", lens, want)
	}
	for k := range got.sessions {
		if err := o.ofInt(k).see(o.want.sessions, k); err != nil {
			t.Fatal(err)
		}
	}
}

// check compares the handles of a checkpoint with what is to be in it.
func check(t *rapid.T, c checkpoint) {
	chains, err := statebackend.Chains(c.handles)
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, chain := range chains {
		n[chain[0].Name] += int(chain.Newest().Entries)
	}
	for _, h := range c.handles {
		if h.Kind == statebackend.KindTree {
			n[h.Name] += int(h.Entries)
		}
	}
	for name, want := range map[string]int{"counts": len(c.want.counts), "orders": len(c.want.orders), "sessions": len(c.want.sessions)} {
		if n[name] != want {
			t.Fatalf("the handles say %v entries, want %d of %s", n, want, name)
		}
	}
}

// freeze begins a checkpoint; it tells whether there was room for one more.
func (o *operator) freeze(t *rapid.T, base job.CheckpointID) bool {
	c := checkpoint{id: o.next, want: o.want.clone()}
	for _, s := range o.subtasks {
		s.b.Committed(base)
		snap, err := s.b.Freeze(o.next)
		if errors.Is(err, statebackend.ErrTooManySnapshots) && len(o.alive) == 3 {
			return false // Of every subtask alike, so none was made.
		}
		if err != nil {
			t.Fatal(err)
		}
		c.snaps = append(c.snaps, snap)
	}
	o.next++
	o.alive = append(o.alive, c)
	return true
}

// write ends the i-th checkpoint that is alive, as one or as a savepoint. It may fail, and then succeed when it is tried again.
func (o *operator) write(ctx context.Context, t *rapid.T, i int, savepoint, again bool) {
	c := o.alive[i]
	o.alive = slices.Delete(o.alive, i, i+1)
	defer c.release()
	for _, snap := range c.snaps {
		if savepoint {
			snap = canonicalSnapshot{snap}
		}
		handles, err := snap.Write(ctx, o.objects)
		if err != nil && !errors.Is(err, ErrFault) && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err != nil && !again {
			return
		}
		if err != nil {
			o.objects.FailAfter = -1
			if handles, err = snap.Write(context.Background(), o.objects); err != nil {
				t.Fatal(err)
			}
		}
		c.handles = append(c.handles, handles...)
	}
	check(t, c)
	o.done = append(o.done, c)
}

// sweepAll removes all sessions that have expired.
func (o *operator) sweepAll(t *rapid.T) {
	for _, s := range o.subtasks {
		for s.b.Merge(time.Millisecond) { // What is written of late is found from now on.
		}
		for range 2 { // The first search may have begun in the middle.
			for more := true; more; {
				var err error
				if more, err = s.sweep(o.want.sessions, 100); err != nil {
					t.Fatal(err)
				}
			}
		}
		n := 0
		for k, v := range o.want.sessions {
			if o.ofInt(k) != s {
				continue
			}
			if n++; expired(v.from, s.now) {
				t.Fatalf("session %d of %d is left at %d after a clean-up", k, v.from, s.now)
			}
		}
		if s.sessions.v.Len() != n {
			t.Fatalf("%d sessions after a clean-up, want %d", s.sessions.v.Len(), n)
		}
	}
}

// order changes an order in place.
func (o *operator) order(k string, by int64) error {
	v, fresh := o.ofText(k).orders.upsert(k)
	w, ok := o.want.orders[k]
	if fresh == ok || !equalOrder(*v, w) {
		return fmt.Errorf("Upsert(%s) gives %v, fresh %v, want %v", k, *v, fresh, w)
	}
	w = cloneOrder(w)
	for _, x := range []*Order{v, &w} {
		x.Name += "x"
		x.Items = append(x.Items, by)
		x.Items[0]++
		if x.Tags == nil {
			x.Tags = map[string]int64{}
		}
		x.Tags[fmt.Sprint(by%3)] += by
	}
	o.want.orders[k] = w
	return nil
}

func (o *operator) get(k string) (*Order, error) {
	v := o.ofText(k).orders.get(k)
	w, ok := o.want.orders[k]
	if (v != nil) != ok || ok && !equalOrder(*v, w) {
		return nil, fmt.Errorf("Get(%s) gives %v, want %v", k, v, w)
	}
	return v, nil
}

// scribble changes an order that was given for reading, and sets it to what it was. No snapshot knows of either.
func (o *operator) scribble(k string, by int64) error {
	v, err := o.get(k)
	if err != nil || v == nil {
		return err
	}
	v.Name = "scribble"
	if len(v.Items) > 0 {
		v.Items[0] = -by
	}
	for tag := range v.Tags {
		v.Tags[tag] = -by
	}
	o.ofText(k).orders.set(k, cloneOrder(o.want.orders[k]))
	return nil
}

func (o *operator) cancel(k string) error {
	_, ok := o.want.orders[k]
	if o.ofText(k).orders.remove(k) != ok {
		return fmt.Errorf("Delete(%s) disagrees", k)
	}
	delete(o.want.orders, k)
	return nil
}

func (o *operator) count(k, by int64) error {
	g, h := hashInt(&k)
	v, _ := o.of(g).counts.v.Upsert(g, h, &k)
	if *v != o.want.counts[k] {
		return fmt.Errorf("count %d is %d, want %d", k, *v, o.want.counts[k])
	}
	*v += by
	o.want.counts[k] += by
	return nil
}

func (o *operator) uncount(k int64) error {
	_, ok := o.want.counts[k]
	if o.ofInt(k).counts.remove(k) != ok {
		return fmt.Errorf("Delete(%d) disagrees", k)
	}
	delete(o.want.counts, k)
	return nil
}
