package operator

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/pebble"
)

// trees makes backends that have little memory, so that most of the state is on disk.
type trees struct{ pebble.Factory }

func (f *trees) New(ctx context.Context, p statebackend.Params) (statebackend.Backend, error) {
	p.Dir, p.Budget = os.TempDir(), statebackend.NewBudget(1)
	return f.Factory.New(ctx, p)
}

// What has expired leaves a tree on disk though nobody asks for its keys again, and is not seen until then; what was used of
// late stays. No index in memory knows of it, and a restore starts from what the tree says.
func TestExpiredStateLeavesATree(t *testing.T) {
	factories["pebble"] = &trees{}
	defer delete(factories, "pebble")
	ttl := []TTL{{After: 20 * time.Second}}
	of := func(o *order) int64 { return o.Key }
	s := StartScaled[int64, order, order, answer](t, "pebble", 2, codec.Int64(), of, of, func() Operator { return obey(codec.Int64(), func(k int64) int64 { return k }, ttl) })
	entries := func() (n int64) {
		for _, k := range s.subs {
			for _, z := range k.s.c.State.Sizes() {
				n += z.Entries
			}
		}
		return n
	}
	// Every kind of state of 3000 keys.
	var all []Feed[order, order]
	n := int64(0)
	for op := range orderOps {
		for k := range int64(3000) {
			o := order{Key: k, Op: op, A: 1, B: 2, N: n}
			n++
			all = append(all, Feed[order, order]{Input: 0, Time: 1, A: o, B: o})
		}
	}
	s.Run(all, 100)
	before := entries()
	if before < 6000 {
		t.Fatalf("%d entries", before)
	}
	s.restart(3)
	if got := entries(); got != before {
		t.Fatalf("%d entries after a restore, %d before", got, before)
	}
	s.now = s.now.Add(time.Hour)
	for range 400 {
		s.Run(nil, 1)
		for _, k := range s.subs {
			if err := k.op.(interface{ done() error }).done(); err != nil {
				t.Fatal(err)
			}
			k.settle()
		}
		s.now = s.now.Add(time.Second)
	}
	if got := entries(); got != 0 {
		t.Errorf("%d entries of %d are left long after they expired", got, before)
	}
	for _, k := range s.subs {
		k.close()
	}
}
