package pebble_test

import (
	"math/rand/v2"
	"testing"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/pebble"
)

// When the caches may not even take what they are without entries, the state goes on, however slowly, and is right: also when all that
// was in them has left while snapshots without changes were on their way.
func TestNoMemoryAtAll(t *testing.T) {
	defer pebble.SetLeastShare(pebble.SetLeastShare(1))
	c := start(t, &pebble.Factory{}, statebackend.Params{Budget: statebackend.NewBudget(1), MaxConcurrent: 2})
	want := map[int64]int64{}
	for k := range int64(20_000) {
		c.set(k, -k)
		want[k] = -k
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		for j := range 3 {
			snap, err := c.b.Freeze(job.CheckpointID(3*i + j + 1))
			if err != nil {
				t.Fatal(err)
			}
			snap.Release()
		}
		for range 1 + r.IntN(1500) {
			k := r.Int64N(20_000)
			g, s := at(k)
			if v := c.v.Get(g, s, &k); v == nil || *v != -k {
				t.Fatalf("key %d has %v", k, v)
			}
		}
	}
	same(t, c.all(), want)
}
