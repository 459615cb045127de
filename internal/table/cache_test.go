package table_test

import (
	"maps"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/internal/table"
)

// store is what is below a cache: what its flushes have written.
type store map[uint64]uint64

// A cache over a store is a map: whatever is evicted and moved, no change is lost, and what may leave has been written.
func TestModelCache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const groups = 3
		hash := func(k *uint64) (uint64, uint64) { return *k % groups, *k * 0x9E3779B97F4A7C15 }
		tab := table.New(table.Config[uint64, uint64]{Count: groups, K: groups, Hash: hash, MaxFrozen: 4})
		core := tab.Core()
		core.Cache()
		below, want := store{}, map[uint64]uint64{}
		changed := map[uint64]uint32{} // Keys not in the store as they are, with the epoch of the next snapshot that has them.
		epoch := uint32(1)
		type flush struct {
			f    *table.Frozen
			want map[uint64]uint64 // What changed since the last one that was written, at its moment.
		}
		var flushes []flush
		key := rapid.Uint64Range(0, 20_000)
		upsert := func(k uint64) {
			g, s := hash(&k)
			p, fresh := tab.Upsert(g, s, &k)
			if fresh {
				*p = below[k]
			}
			*p++
			want[k]++
			changed[k] = epoch
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if err := core.Check(); err != nil {
					t.Fatal(err)
				}
			},
			"upsert": func(t *rapid.T) { upsert(key.Draw(t, "key")) },
			"upsert many": func(t *rapid.T) {
				for k, n := key.Draw(t, "from"), rapid.Uint64Range(1, 8000).Draw(t, "n"); n > 0; n-- {
					upsert((k + n) % 20_000)
				}
			},
			"read": func(t *rapid.T) {
				k := key.Draw(t, "key")
				g, s := hash(&k)
				p := tab.Read(g, s, &k)
				if _, ok := below[k]; p == nil && ok {
					p = tab.Load(g, s, &k)
					*p = below[k]
				}
				if w, ok := want[k]; ok != (p != nil) || ok && *p != w {
					t.Fatalf("key %d is %v, want %d (there: %v)", k, p, w, ok)
				}
			},
			"evict": func(t *rapid.T) {
				n := core.Len()
				gone, _ := core.Evict(rapid.IntRange(1, 8000).Draw(t, "want"), 1000)
				if core.Len() != n-gone {
					t.Fatalf("%d entries of %d, %d went", core.Len(), n, gone)
				}
			},
			"tidy": func(t *rapid.T) {
				n, slots := core.Len(), core.Slots()
				more := core.Tidy(time.Duration(rapid.IntRange(0, 1000).Draw(t, "us")) * time.Microsecond)
				if core.Len() != n || core.Slots() > slots {
					t.Fatalf("%d entries in %d slots, were %d in %d", core.Len(), core.Slots(), n, slots)
				}
				for more && core.Tidy(time.Second) {
				}
				if core.Tidy(time.Second) {
					t.Fatal("there is no end to it")
				}
			},
			"freeze": func(t *rapid.T) {
				f, err := core.Freeze()
				if err != nil {
					t.Skip(err)
				}
				epoch = f.Epoch() + 1
				fl := flush{f, map[uint64]uint64{}}
				for k := range changed {
					fl.want[k] = want[k]
				}
				flushes = append(flushes, fl)
			},
			"flushed": func(t *rapid.T) {
				if len(flushes) == 0 {
					t.Skip("none")
				}
				fl := flushes[0]
				flushes = flushes[1:]
				got := map[uint64]uint64{}
				for i := range groups {
					fl.f.EachChanged(i, func(k, v unsafe.Pointer) bool {
						got[*(*uint64)(k)] = *(*uint64)(v)
						return true
					})
				}
				for k, v := range fl.want {
					if got[k] != v {
						t.Fatalf("key %d: %d is to be written, want %d", k, got[k], v)
					}
				}
				fl.f.Release()
				if rapid.Bool().Draw(t, "failed") {
					return
				}
				maps.Copy(below, got)
				core.Rebase(fl.f.Epoch())
				maps.DeleteFunc(changed, func(_ uint64, at uint32) bool { return at <= fl.f.Epoch() })
			},
			"merge": func(t *rapid.T) { core.Merge(time.Duration(rapid.IntRange(0, 200).Draw(t, "us")) * time.Microsecond) },
		})
	})
}

// What Evict left sparse is put together, and memory given back.
func TestTidy(t *testing.T) {
	hash := func(k *uint64) (uint64, uint64) { h := *k * 0x9E3779B97F4A7C15; return h, h }
	tab := table.New(table.Config[uint64, uint64]{Count: 8, K: 8, Hash: hash})
	core := tab.Core()
	core.Cache()
	const keys = 100_000
	for k := range uint64(keys) {
		g, s := hash(&k)
		tab.Upsert(g, s, &k)
	}
	f, err := core.Freeze()
	if err != nil {
		t.Fatal(err)
	}
	f.Release()
	core.Rebase(f.Epoch())
	core.Merge(time.Second)
	full := core.Live()
	for core.Len() > keys/10 {
		core.Evict(1000, 100)
	}
	if core.Live() != full || !core.Sparse() {
		t.Fatalf("before: %d bytes of %d, sparse: %v", core.Live(), full, core.Sparse())
	}
	for core.Tidy(100 * time.Microsecond) {
	}
	if core.Live() > full/4 || core.Sparse() {
		t.Errorf("%d bytes of %d for a tenth of the entries, sparse: %v", core.Live(), full, core.Sparse())
	}
}
