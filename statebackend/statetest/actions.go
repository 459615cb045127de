package statetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/job"
)

// step is a change of one key while a snapshot is being written.
type step struct {
	what string
	key  int64
	by   int64
}

var (
	number = rapid.Int64Range(0, 2000)
	many   = rapid.Int64Range(1, 2500)
	name   = rapid.Map(number, func(i int64) string { return fmt.Sprint("k", i) })
	steps  = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			rapid.SampledFrom([]string{"scribble", "order", "cancel", "count", "uncount", "touch"}).Draw(t, "what"),
			number.Draw(t, "key"), number.Draw(t, "by"),
		}
	}), 0, 8)
)

// during does what the owner of the states does while a snapshot is on its way.
func (o *operator) during(list []step) (err error) {
	for _, s := range list {
		k := fmt.Sprint("k", s.key)
		switch s.what {
		case "scribble": // Of many, so that some are there.
			for i := s.key; i < s.key+50 && err == nil; i++ {
				err = o.scribble(fmt.Sprint("k", i), s.by)
			}
		case "order":
			err = o.order(k, s.by)
		case "cancel":
			err = o.cancel(k)
		case "count":
			err = o.count(s.key, s.by)
		case "uncount":
			err = o.uncount(s.key)
		case "touch":
			err = o.ofInt(s.key).touch(o.want.sessions, s.key, s.by)
		}
		if err != nil {
			return fmt.Errorf("during a write: %w", err)
		}
	}
	return nil
}

func (o *operator) drawDone(t *rapid.T) checkpoint {
	return o.done[rapid.IntRange(0, len(o.done)-1).Draw(t, "checkpoint")]
}

func (o *operator) actions() map[string]func(*rapid.T) {
	must := func(t *rapid.T, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	return map[string]func(*rapid.T){
		"count": func(t *rapid.T) {
			from, n, by := number.Draw(t, "from"), many.Draw(t, "n"), number.Draw(t, "by")
			for k := from; k < from+n; k++ {
				must(t, o.count(k, by))
			}
		},
		"uncount": func(t *rapid.T) {
			from, n := number.Draw(t, "from"), many.Draw(t, "n")
			for k := from; k < from+n; k++ {
				must(t, o.uncount(k))
			}
		},
		"order": func(t *rapid.T) { must(t, o.order(name.Draw(t, "key"), number.Draw(t, "by"))) },
		"set": func(t *rapid.T) {
			k, by := name.Draw(t, "key"), number.Draw(t, "by")
			v := Order{Items: []int64{by}, Tags: map[string]int64{"set": by}}
			o.ofText(k).orders.set(k, v)
			o.want.orders[k] = cloneOrder(v)
			v.Items[0], v.Tags["set"] = -1, -1
		},
		"order many": func(t *rapid.T) {
			from, n := number.Draw(t, "from"), many.Draw(t, "n")
			for i := from; i < from+n; i++ {
				k := fmt.Sprint("k", i)
				v, _ := o.ofText(k).orders.upsert(k)
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
			_, err := o.get(name.Draw(t, "key"))
			must(t, err)
		},
		"cancel": func(t *rapid.T) { must(t, o.cancel(name.Draw(t, "key"))) },
		"scribble": func(t *rapid.T) {
			must(t, o.during([]step{{"scribble", number.Draw(t, "from"), number.Draw(t, "by")}}))
		},
		"touch": func(t *rapid.T) {
			from, n, by := number.Draw(t, "from"), many.Draw(t, "n"), number.Draw(t, "by")
			for k := from; k < from+n; k++ {
				must(t, o.ofInt(k).touch(o.want.sessions, k, by))
			}
		},
		"see": func(t *rapid.T) {
			k := number.Draw(t, "key")
			must(t, o.ofInt(k).see(o.want.sessions, k))
		},
		"clock": func(t *rapid.T) { // On or back; a subtask's does not go back.
			o.clock += rapid.Int64Range(-2*sessionTTL, 2*sessionTTL).Draw(t, "step")
			o.latest = max(o.latest, o.clock)
			for _, s := range o.subtasks {
				s.look(o.clock)
			}
		},
		"sweep": func(t *rapid.T) {
			n := rapid.IntRange(1, 500).Draw(t, "n")
			for _, s := range o.subtasks {
				_, err := s.sweep(o.want.sessions, n)
				must(t, err)
			}
		},
		"sweep all": func(t *rapid.T) {
			if !o.freeze(t, o.base) {
				t.Skip("no room for a snapshot")
			}
			o.write(context.Background(), t, len(o.alive)-1, false, false)
			o.sweepAll(t)
		},
		"freeze": func(t *rapid.T) {
			base := o.base
			if rapid.IntRange(0, 9).Draw(t, "lost") == 0 {
				base = rapid.SampledFrom([]job.CheckpointID{0, 1, 9999}).Draw(t, "base")
			}
			o.freeze(t, base)
		},
		"write": func(t *rapid.T) {
			if len(o.alive) == 0 {
				t.Skip("no snapshot")
			}
			i := rapid.IntRange(0, len(o.alive)-1).Draw(t, "which")
			o.objects.FailAfter = int64(rapid.SampledFrom([]int{-1, -1, 0, 10, 200}).Draw(t, "fail after"))
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			stop, list := rapid.IntRange(0, 9).Draw(t, "cancelled") == 0, steps.Draw(t, "steps")
			var err error
			o.objects.During(int64(rapid.SampledFrom([]int{0, 100, 5000}).Draw(t, "during")), func() {
				if stop {
					cancel()
				}
				err = o.during(list)
			})
			o.write(ctx, t, i, rapid.IntRange(0, 2).Draw(t, "savepoint") == 0, rapid.Bool().Draw(t, "again"))
			o.objects.During(0, nil)
			o.objects.FailAfter = -1
			must(t, err)
		},
		"commit": func(t *rapid.T) {
			if len(o.done) == 0 {
				t.Skip("no checkpoint")
			}
			o.base = max(o.base, o.drawDone(t).id)
		},
		"abort": func(t *rapid.T) {
			if len(o.alive) == 0 {
				t.Skip("no snapshot")
			}
			o.alive[0].release()
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
			c := o.drawDone(t)
			p := len(o.subtasks)
			if rapid.Bool().Draw(t, "rescale") {
				p = rapid.IntRange(1, 6).Draw(t, "parallelism")
			}
			own, first := rapid.IntRange(0, 9).Draw(t, "own") > 0, rapid.Bool().Draw(t, "restore first")
			for _, c := range o.alive { // When their backends are closed.
				defer c.release()
			}
			o.alive = nil
			if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
				o.objects.FailRead(rapid.IntRange(0, 8).Draw(t, "reads"))
				if err := o.start(p, &c, own, first); err != nil && !errors.Is(err, ErrFault) {
					t.Fatal(err)
				}
				o.objects.FailRead(-1)
			}
			must(t, o.start(p, &c, own, first))
			o.base = c.id
			o.want = c.want.clone()
			o.compare(t)
		},
		"compare": func(t *rapid.T) { o.compare(t) },
	}
}
