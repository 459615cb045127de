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

// content is what an operator has in all its subtasks, as plain maps.
type content struct {
	counts map[int64]int64
	orders map[string]Order
}

func (c content) clone() content {
	d := content{maps.Clone(c.counts), map[string]Order{}}
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
	tb       testing.TB
	objects  *Objects
	subtasks []subtask
	want     content
	alive    []checkpoint
	done     []checkpoint     // Those that were written.
	base     job.CheckpointID // The newest that is committed, as the coordinator says.
	next     job.CheckpointID
}

type subtask struct {
	b      statebackend.Backend
	counts keyed[int64, int64]
	orders keyed[string, Order]
}

type checkpoint struct {
	id      job.CheckpointID
	snaps   []statebackend.Snapshot
	want    content
	handles []job.StateHandle
}

func (o *operator) start(parallelism int, from *checkpoint, own, restoreFirst bool) error {
	for _, s := range o.subtasks {
		_ = s.b.Close()
	}
	o.subtasks = nil
	for i := range parallelism {
		p := params(i, parallelism)
		if from != nil {
			p.Restored, p.Own = from.id, own
		}
		b := o.s.make(o.tb, p)
		if from != nil && restoreFirst {
			if err := b.Restore(context.Background(), o.objects, from.handles); err != nil {
				return err
			}
		}
		s := subtask{b: b, counts: open(o.tb, b, counts()), orders: open(o.tb, b, orders())}
		if from != nil && !restoreFirst {
			if err := b.Restore(context.Background(), o.objects, from.handles); err != nil {
				return err
			}
		}
		o.subtasks = append(o.subtasks, s)
	}
	return nil
}

func (o *operator) of(hash uint64) *subtask {
	return &o.subtasks[job.OwnerOf(job.GroupOf(hash, groups), groups, len(o.subtasks))]
}

func (o *operator) compare(t *rapid.T) {
	got := content{map[int64]int64{}, map[string]Order{}}
	for _, s := range o.subtasks {
		maps.Copy(got.counts, s.counts.all())
		for k, v := range s.orders.v.All() {
			got.orders[*k] = cloneOrder(*v)
		}
	}
	if !maps.Equal(got.counts, o.want.counts) {
		t.Fatalf("counts are %v, want %v", got.counts, o.want.counts)
	}
	if !maps.EqualFunc(got.orders, o.want.orders, equalOrder) {
		t.Fatalf("orders are %v, want %v", got.orders, o.want.orders)
	}
}

// check compares the handles of a checkpoint with what is to be in it.
func check(t *rapid.T, c checkpoint) {
	chains, err := statebackend.Chains(c.handles)
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int64{}
	for _, chain := range chains {
		n[chain[0].Name] += chain.Newest().Entries
	}
	for _, h := range c.handles {
		if h.Kind == statebackend.KindTree {
			n[h.Name] += h.Entries
		}
	}
	if n["counts"] != int64(len(c.want.counts)) || n["orders"] != int64(len(c.want.orders)) {
		t.Fatalf("the handles say %v entries, want %d and %d", n, len(c.want.counts), len(c.want.orders))
	}
}

func (s suite) testModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := &operator{s: s, tb: t, objects: NewObjects(), next: 1, want: content{map[int64]int64{}, map[string]Order{}}}
		if err := o.start(rapid.IntRange(1, 4).Draw(rt, "parallelism"), nil, false, false); err != nil {
			rt.Fatal(err)
		}
		rt.Repeat(o.actions())
		o.compare(rt)
		for _, c := range o.alive {
			for _, snap := range c.snaps {
				snap.Release()
			}
		}
		for _, s := range o.subtasks {
			_ = s.b.Close()
		}
	})
}

func (o *operator) actions() map[string]func(*rapid.T) {
	number := rapid.Int64Range(0, 2000)
	many := rapid.Int64Range(1, 2500)
	name := rapid.Map(number, func(i int64) string { return fmt.Sprint("k", i) })
	return map[string]func(*rapid.T){
		"count": func(t *rapid.T) {
			from, n, by := number.Draw(t, "from"), many.Draw(t, "n"), number.Draw(t, "by")
			for k := from; k < from+n; k++ {
				g, h := hashInt(&k)
				v, _ := o.of(g).counts.v.Upsert(g, h, &k)
				*v += by
				o.want.counts[k] += by
			}
		},
		"uncount": func(t *rapid.T) {
			from, n := number.Draw(t, "from"), many.Draw(t, "n")
			for k := from; k < from+n; k++ {
				g, _ := hashInt(&k)
				_, ok := o.want.counts[k]
				if o.of(g).counts.remove(k) != ok {
					t.Fatalf("Delete(%d) disagrees", k)
				}
				delete(o.want.counts, k)
			}
		},
		"order": func(t *rapid.T) {
			k, by := name.Draw(t, "key"), number.Draw(t, "by")
			g, _ := hashText(&k)
			v, fresh := o.of(g).orders.upsert(k)
			w, ok := o.want.orders[k]
			if fresh == ok || !equalOrder(*v, w) {
				t.Fatalf("Upsert(%s) gives %v, fresh %v, want %v", k, *v, fresh, w)
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
		},
		"set": func(t *rapid.T) {
			k, by := name.Draw(t, "key"), number.Draw(t, "by")
			g, _ := hashText(&k)
			v := Order{Items: []int64{by}, Tags: map[string]int64{"set": by}}
			o.of(g).orders.set(k, v)
			o.want.orders[k] = cloneOrder(v)
			v.Items[0], v.Tags["set"] = -1, -1
		},
		"order many": func(t *rapid.T) {
			from, n := number.Draw(t, "from"), many.Draw(t, "n")
			for i := from; i < from+n; i++ {
				k := fmt.Sprint("k", i)
				g, _ := hashText(&k)
				v, _ := o.of(g).orders.upsert(k)
				w := cloneOrder(o.want.orders[k])
				for _, x := range []*Order{v, &w} {
					if len(x.Items) == 0 {
						x.Items = []int64{0}
					}
					x.Items[0] += n // In place: a snapshot must not see it.
				}
				o.want.orders[k] = w
			}
		},
		"get": func(t *rapid.T) {
			k := name.Draw(t, "key")
			g, _ := hashText(&k)
			v := o.of(g).orders.get(k)
			w, ok := o.want.orders[k]
			if (v != nil) != ok || ok && !equalOrder(*v, w) {
				t.Fatalf("Get(%s) gives %v, want %v", k, v, w)
			}
		},
		"cancel": func(t *rapid.T) {
			k := name.Draw(t, "key")
			g, _ := hashText(&k)
			_, ok := o.want.orders[k]
			if o.of(g).orders.remove(k) != ok {
				t.Fatalf("Delete(%s) disagrees", k)
			}
			delete(o.want.orders, k)
		},
		"freeze": func(t *rapid.T) {
			c := checkpoint{id: o.next, want: o.want.clone()}
			base := o.base
			if rapid.IntRange(0, 9).Draw(t, "lost") == 0 {
				base = rapid.SampledFrom([]job.CheckpointID{0, 1, 9999}).Draw(t, "base")
			}
			for _, s := range o.subtasks {
				s.b.Committed(base)
				snap, err := s.b.Freeze(o.next)
				if errors.Is(err, statebackend.ErrTooManySnapshots) && len(o.alive) == 3 {
					return // Of every subtask alike, so none was made.
				}
				if err != nil {
					t.Fatal(err)
				}
				c.snaps = append(c.snaps, snap)
			}
			o.next++
			o.alive = append(o.alive, c)
		},
		"write": func(t *rapid.T) {
			if len(o.alive) == 0 {
				t.Skip("no snapshot")
			}
			i := rapid.IntRange(0, len(o.alive)-1).Draw(t, "which")
			c := o.alive[i]
			o.alive = slices.Delete(o.alive, i, i+1)
			o.objects.FailAfter = int64(rapid.SampledFrom([]int{-1, -1, 0, 10, 200}).Draw(t, "fail after"))
			failed := false
			for _, snap := range c.snaps {
				handles, err := snap.Write(context.Background(), o.objects)
				if err != nil && !errors.Is(err, ErrFault) {
					t.Fatal(err)
				}
				failed = failed || err != nil
				c.handles = append(c.handles, handles...)
				snap.Release()
			}
			o.objects.FailAfter = -1
			if !failed {
				check(t, c)
				o.done = append(o.done, c)
			}
		},
		"commit": func(t *rapid.T) {
			if len(o.done) == 0 {
				t.Skip("no checkpoint")
			}
			o.base = max(o.base, rapid.SampledFrom(o.done).Draw(t, "checkpoint").id)
		},
		"abort": func(t *rapid.T) {
			if len(o.alive) == 0 {
				t.Skip("no snapshot")
			}
			for _, snap := range o.alive[0].snaps {
				snap.Release()
			}
			o.alive = o.alive[1:]
		},
		"merge": func(t *rapid.T) {
			for _, s := range o.subtasks {
				s.b.Merge(time.Duration(rapid.IntRange(0, 200).Draw(t, "us")) * time.Microsecond)
			}
		},
		"restore": func(t *rapid.T) {
			if len(o.done) == 0 {
				t.Skip("no checkpoint")
			}
			c := rapid.SampledFrom(o.done).Draw(t, "checkpoint")
			p := len(o.subtasks)
			if rapid.Bool().Draw(t, "rescale") {
				p = rapid.IntRange(1, 6).Draw(t, "parallelism")
			}
			old := o.alive
			o.alive = nil
			if err := o.start(p, &c, rapid.IntRange(0, 9).Draw(t, "own") > 0, rapid.Bool().Draw(t, "restore first")); err != nil {
				t.Fatal(err)
			}
			o.base = c.id
			o.want = c.want.clone()
			o.compare(t)
			for _, c := range old { // Of backends that are closed by now.
				for _, snap := range c.snaps {
					snap.Release()
				}
			}
		},
		"compare": func(t *rapid.T) { o.compare(t) },
	}
}
