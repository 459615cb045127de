package pebble_test

import (
	"testing"
	"time"

	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/pebble"
)

// A cache that has filled its share comes down when others join the budget, and keeps the least that it needs whatever the indexes
// of files take.
func TestCacheFollowsItsShare(t *testing.T) {
	defer pebble.SetLeastShare(pebble.SetLeastShare(1 << 18))
	budget := statebackend.NewBudget(3 << 20)
	c := start(t, &pebble.Factory{}, statebackend.Params{Budget: budget})
	const keys = 100_000
	use := func() {
		for k := range int64(keys) {
			if c.set(k, k); k%1000 == 0 {
				c.b.Merge(time.Millisecond)
			}
		}
	}
	use()
	if got := c.b.Sizes()[0].Bytes; got < 1<<20 {
		t.Fatalf("the cache has %d bytes of a share of 2.25 MiB", got)
	}
	for range 15 {
		leave := budget.Join()
		defer leave()
	}
	use()
	if got := c.b.Sizes()[0].Bytes; got < 1<<17 || got > 3<<17 {
		t.Errorf("the cache has %d bytes, its share is 256 KiB", got)
	}
	for k, v := range c.all() {
		if k != v {
			t.Fatalf("key %d has %d", k, v)
		}
	}
}
