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
	defer pebble.SetRenewEvery(pebble.SetRenewEvery(time.Millisecond))
	for name, keys := range map[string]int64{"larger state": 60_000, "all in the cache": 25_000} {
		t.Run(name, func(t *testing.T) { testShare(t, keys) })
	}
}

func testShare(t *testing.T, keys int64) {
	budget := statebackend.NewBudget(2 << 20)
	c := start(t, &pebble.Factory{}, statebackend.Params{Budget: budget})
	use := func() {
		for k := range keys {
			if c.set(k, k); k%1000 == 0 {
				c.b.Merge(time.Millisecond)
			}
		}
	}
	use()
	if got := c.b.Sizes()[0].Bytes; got < 1<<19 {
		t.Fatalf("the cache has %d bytes of a share of 1.5 MiB", got)
	}
	for range 5 {
		leave := budget.Join()
		defer leave()
	}
	for range max(1, 75_000/keys) {
		use()
	}
	if got := c.b.Sizes()[0].Bytes; got < 1<<17 || got > 3<<17 {
		t.Errorf("the cache has %d bytes, its share is 256 KiB", got)
	}
	for k, v := range c.all() {
		if k != v {
			t.Fatalf("key %d has %d", k, v)
		}
	}
}
