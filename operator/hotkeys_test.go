package operator

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

func newHot() *hotKeys[string] {
	h := &hotKeys[string]{}
	h.open(codec.String())
	return h
}

// push counts n records in batches of up to size; key names the key of each.
func (h *hotKeys[K]) push(n, size int, key func(i int) K) {
	hash := codec.NewHasher(h.kc)
	for i := 0; i < n; i += size {
		b := &record.Batch[K]{}
		for j := i; j < min(i+size, n); j++ {
			b.Append(key(j), 0)
		}
		h.look(b, 0, len(b.Rows), func(k *K) K { return *k }, hash)
	}
}

func shares(h job.HotKeys) map[string]float64 {
	m := map[string]float64{}
	for _, k := range h.Keys {
		m[k.Key] = h.Share(k)
	}
	return m
}

// The shares of hot keys are right to a percent or so at any rate, and all the others have next to none.
func TestHotKeys(t *testing.T) {
	for _, n := range []int{2000, 50_000, 2_000_000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			h := newHot()
			var out job.HotKeys
			for range 4 {
				h.push(n, 1000, func(int) string {
					switch p := rng.Float64(); {
					case p < 0.3:
						return "a"
					case p < 0.4:
						return "b"
					case p < 0.43:
						return "c"
					}
					return fmt.Sprint("k", rng.IntN(1_000_000))
				})
				out = h.shown()
			}
			if len(out.Keys) != HotKeysShown {
				t.Fatalf("%d keys", len(out.Keys))
			}
			got := shares(out)
			for k, want := range map[string]float64{"a": 0.3, "b": 0.1, "c": 0.03} {
				// The part of a counter that was another key's before is not told.
				if got[k] < want-0.04 || got[k] > want+0.04 || k == "a" && out.Keys[0].Key != k {
					t.Errorf("%s has %.3f, want %.3f: %v", k, got[k], want, out)
				}
				delete(got, k)
			}
			for k, share := range got {
				if share > 0.01 {
					t.Errorf("%s has %.3f", k, share)
				}
			}
			if h.gap == 1 && n > 3000 {
				t.Error("every record is looked at")
			}
		})
	}
}

// Records that come in turn, and batches of few or that are cut by marks, are all seen alike.
func TestHotKeysInTurn(t *testing.T) {
	for _, size := range []int{1, 3, 64, 1000} {
		h := newHot()
		h.push(400_000, size, func(i int) string { return fmt.Sprint(i % 8) })
		out := h.shown()
		if len(out.Keys) != 8 {
			t.Errorf("batches of %d: %d keys", size, len(out.Keys))
		}
		for k, share := range shares(out) {
			if share < 0.11 || share > 0.14 {
				t.Errorf("batches of %d: key %s has %.3f, want 0.125", size, k, share)
			}
		}
	}
}

// Without hot keys there is nothing that looks like one.
func TestNoHotKeys(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	h := newHot()
	for range 5 {
		h.push(100_000, 1000, func(int) string { return fmt.Sprint(rng.IntN(1_000_000)) })
		if out := h.shown(); len(out.Keys) > 0 && out.Share(out.Keys[0]) > 0.005 {
			t.Errorf("%v", out)
		}
	}
}

// What was hot is forgotten when it no longer is, and what is shown is short.
func TestHotKeysFade(t *testing.T) {
	h := newHot()
	long := strings.Repeat("x", 1000)
	h.push(100_000, 1000, func(int) string { return long })
	out := h.shown()
	if len(out.Keys) != 1 || len(out.Keys[0].Key) != hotKeyText || !strings.HasSuffix(out.Keys[0].Key, "…") {
		t.Fatalf("%v", out)
	}
	if s := out.Share(out.Keys[0]); s != 1 {
		t.Errorf("the only key has %v", s)
	}
	for range 30 {
		h.push(100_000, 1000, func(int) string { return "new" })
		out = h.shown()
	}
	if out.Keys[0].Key != "new" || out.Share(out.Keys[0]) < 0.9 {
		t.Errorf("%v", out)
	}
	for range 300 {
		out = h.shown()
	}
	if len(out.Keys) > 0 || out.Total != 0 || h.gap != 1 {
		t.Errorf("after a long time without records: %v, one in %d", out, h.gap)
	}
}

// Rows that were combined before they came stand for as many records as they hold.
func TestHotKeysOfPartials(t *testing.T) {
	h := newHot()
	hash := codec.NewHasher(codec.String())
	for i := range 1000 {
		b := &record.Batch[partial[string, int64]]{}
		b.Append(partial[string, int64]{Key: "many", Count: 90}, 0)
		b.Append(partial[string, int64]{Key: fmt.Sprint(i), Count: 10}, 0)
		lookPartials(h, b, 0, 2, hash)
	}
	out := h.shown()
	if out.Keys[0].Key != "many" || out.Share(out.Keys[0]) < 0.85 || out.Share(out.Keys[0]) > 0.92 {
		t.Errorf("%v", out)
	}
}

// BenchmarkHotKeys is what a record costs at a rate at which HotKeys is called after so many records.
func BenchmarkHotKeys(b *testing.B) {
	for name, keys := range map[string]int64{"few": 10, "many": 1_000_000} {
		for _, rate := range []int{10_000, 1_000_000, 10_000_000} {
			b.Run(fmt.Sprintf("keys=%s/rate=%d", name, rate), func(b *testing.B) {
				h := &hotKeys[int64]{}
				h.open(codec.Int64())
				hash := codec.NewHasher(codec.Int64())
				bt := &record.Batch[int64]{}
				rng := rand.New(rand.NewPCG(1, 2))
				for range 1000 {
					k := rng.Int64N(keys)
					bt.Append(k, 0)
					bt.Hash = append(bt.Hash, hash(&k))
				}
				key := func(k *int64) int64 { return *k }
				at := 0
				b.ResetTimer()
				for n := 0; n < b.N; n += 1000 {
					h.look(bt, 0, 1000, key, hash)
					if at += 1000; at >= rate {
						at = 0
						h.shown()
					}
				}
			})
		}
	}
}
