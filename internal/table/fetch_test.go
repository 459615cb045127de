package table_test

import (
	"fmt"
	"testing"

	"github.com/cairnstream/cairn/internal/table"
)

// Fetch finds its way in tables of every size, for keys that are there and for others, and changes nothing.
func TestFetch(t *testing.T) {
	tab := ints(2)
	defer tab.Core().Close()
	far := false
	for _, n := range []int{0, 1, 100, 5000, 50_000} {
		fill(tab, n)
		frozen, err := tab.Core().Freeze()
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range []int{0, 1, 31, 32, 33, 1000} {
			hashes := make([]uint64, run)
			for i := range hashes {
				k := int64(i * 97)
				hashes[i], _ = hashInt(&k)
			}
			tab.Fetch(hashes, hashes)
		}
		frozen.Release()
		for tab.Core().Merge(1e9) {
		}
		if tab.Len() != n {
			t.Fatalf("%d keys of %d", tab.Len(), n)
		}
		if err := tab.Core().Check(); err != nil {
			t.Fatal(err)
		}
		far = tab.Far()
	}
	if !far {
		t.Error("a table of 50,000 keys is not far")
	}
}

// The group hash and the slot hash may differ, as those of windows do.
func TestFetchTwoHashes(t *testing.T) {
	hash := func(k *int64) (uint64, uint64) {
		g, _ := hashInt(k)
		return g % 7, g
	}
	tab := table.New(table.Config[int64, int64]{Count: 7, K: 7, Hash: hash})
	defer tab.Core().Close()
	var groups, slots []uint64
	for k := range int64(10_000) {
		g, s := hash(&k)
		tab.Upsert(g, s, &k)
		groups, slots = append(groups, g), append(slots, s)
	}
	tab.Fetch(groups, slots)
	if err := tab.Core().Check(); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkFetch is BenchmarkUpsert with the keys of a run fetched before.
func BenchmarkFetch(b *testing.B) {
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		ks := draw(1<<20, n)
		hashes := make([]uint64, len(ks))
		for i := range ks {
			hashes[i] = ks[i].hash
		}
		for _, run := range []int{0, 32} {
			b.Run(fmt.Sprintf("%d/run=%d", n, run), func(b *testing.B) {
				t := ints(2)
				fill(t, n)
				i := 0
				start := cpuTime()
				for b.Loop() {
					at := i & (1<<20 - 1)
					if run > 0 && at%run == 0 {
						t.Fetch(hashes[at:at+run], hashes[at:at+run])
					}
					d := &ks[at]
					v, _ := t.Upsert(d.hash, d.hash, &d.key)
					*v++
					i++
				}
				reportCPU(b, start, 1)
				t.Core().Close()
			})
		}
	}
}
