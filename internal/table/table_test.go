package table_test

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/internal/table"
)

// model is a table beside a plain map that must agree with it.
type model[K comparable, V any] struct {
	table  *table.Table[K, V]
	hash   func(*K) (uint64, uint64)
	want   map[K]V
	frozen []frozenModel[K, V]
	groups int
	equal  func(a, b V) bool
	clone  func(V) V
	change func(v *V, with int)
}

type frozenModel[K comparable, V any] struct {
	f    *table.Frozen
	want map[K]V
}

// tracked is what a model knows of the snapshot that changes are counted from.
type tracked[K comparable, V any] struct {
	epoch   uint32
	want    map[K]V
	removed map[K]uint32 // Keys removed while tracking, with the epoch of the snapshot that saw them last.
	touched map[K]uint32 // The same of keys that were made or changed.
	last    uint32       // Epoch of the newest snapshot.
	exact   bool         // No snapshot was made between the base and its being made the base.
}

// compareChanged puts what a snapshot says has changed on top of the base and compares.
func (m *model[K, V]) compareChanged(t *rapid.T, f *table.Frozen, b *tracked[K, V]) {
	if base, ok := f.Base(); !ok || base != b.epoch {
		t.Fatalf("the base of the snapshot is %d, %v, want %d", base, ok, b.epoch)
	}
	got := make(map[K]V, len(b.want))
	for k, v := range b.want {
		got[k] = v
	}
	for k, at := range b.removed {
		if at >= b.epoch {
			delete(got, k)
		}
	}
	for i := range m.groups {
		f.EachChanged(i, func(k, v unsafe.Pointer) bool {
			key := *(*K)(k)
			if at, ok := b.touched[key]; !ok || b.exact && at < b.epoch {
				t.Fatalf("key %v is said to have changed since %d", key, b.epoch)
			}
			got[key] = *(*V)(v)
			return true
		})
	}
	if len(got) != len(m.want) {
		t.Fatalf("base and changes give %d entries, want %d", len(got), len(m.want))
	}
	for k, v := range m.want {
		if w, ok := got[k]; !ok || !m.equal(v, w) {
			t.Fatalf("base and changes give %v for %v, want %v", w, k, v)
		}
	}
}

func (m *model[K, V]) copyOf() map[K]V {
	c := make(map[K]V, len(m.want))
	for k, v := range m.want {
		c[k] = m.clone(v)
	}
	return c
}

func (m *model[K, V]) compare(t *rapid.T, what string, want map[K]V, got func(func(*K, *V) bool)) {
	n := 0
	got(func(k *K, v *V) bool {
		n++
		if w, ok := want[*k]; !ok || !m.equal(w, *v) {
			t.Fatalf("%s: key %v has value %v, want %v (there: %v)", what, *k, *v, w, ok)
		}
		return true
	})
	if n != len(want) {
		t.Fatalf("%s: %d entries, want %d", what, n, len(want))
	}
}

func (m *model[K, V]) compareFrozen(t *rapid.T, f frozenModel[K, V]) {
	if f.f.Len() != len(f.want) {
		t.Fatalf("snapshot has %d entries, want %d", f.f.Len(), len(f.want))
	}
	m.compare(t, "snapshot", f.want, func(visit func(*K, *V) bool) {
		for g := range m.groups {
			n := 0
			f.f.Each(g, func(k, v unsafe.Pointer) bool { n++; return visit((*K)(k), (*V)(v)) })
			if n != f.f.GroupLen(g) {
				t.Fatalf("group %d of a snapshot has %d entries, says %d", g, n, f.f.GroupLen(g))
			}
		}
	})
}

func (m *model[K, V]) run(t *rapid.T, key *rapid.Generator[K], burst func(i int) K) {
	one := rapid.IntRange(1, 1<<20)
	for i := range m.groups {
		m.table.Core().Reserve(i, rapid.SampledFrom([]int{0, 0, 30, 100, 1000}).Draw(t, "reserve"))
	}
	check := func() {
		if err := m.table.Core().Check(); err != nil {
			t.Fatal(err)
		}
		if m.table.Len() != len(m.want) {
			t.Fatalf("%d entries, want %d", m.table.Len(), len(m.want))
		}
	}
	var track, late *tracked[K, V]
	touch := func(k K) {
		if track != nil {
			track.touched[k] = track.last
		}
	}
	upsert := func(k K, with int) {
		g, s := m.hash(&k)
		v, fresh := m.table.Upsert(g, s, &k)
		old, ok := m.want[k]
		if fresh == ok || !m.equal(*v, old) {
			t.Fatalf("Upsert(%v) gives %v, fresh %v, want %v", k, *v, fresh, old)
		}
		m.change(v, with)
		c := m.clone(old)
		m.change(&c, with)
		m.want[k] = c
		touch(k)
	}
	remove := func(k K) {
		g, s := m.hash(&k)
		_, ok := m.want[k]
		if got := m.table.Delete(g, s, &k); got != ok {
			t.Fatalf("Delete(%v) gives %v", k, got)
		}
		delete(m.want, k)
	}
	t.Repeat(map[string]func(*rapid.T){
		"": func(t *rapid.T) { check() },
		"upsert": func(t *rapid.T) {
			upsert(key.Draw(t, "key"), one.Draw(t, "with"))
		},
		"set": func(t *rapid.T) {
			k := key.Draw(t, "key")
			g, s := m.hash(&k)
			var v V
			m.change(&v, one.Draw(t, "with"))
			m.table.Set(g, s, &k, &v)
			m.want[k] = m.clone(v)
			touch(k)
			m.change(&v, 7) // The caller's value is not the table's.
		},
		"get": func(t *rapid.T) {
			k := key.Draw(t, "key")
			g, s := m.hash(&k)
			v := m.table.Get(g, s, &k)
			want, ok := m.want[k]
			if (v != nil) != ok || ok && !m.equal(*v, want) {
				t.Fatalf("Get(%v) gives %v, want %v", k, v, want)
			}
		},
		"delete": func(t *rapid.T) { remove(key.Draw(t, "key")) },
		"insert many": func(t *rapid.T) {
			from, n := rapid.IntRange(0, 500).Draw(t, "from"), rapid.IntRange(1, 1500).Draw(t, "n")
			for i := range n {
				upsert(burst(from+i), i)
			}
		},
		"delete many": func(t *rapid.T) {
			from, n := rapid.IntRange(0, 500).Draw(t, "from"), rapid.IntRange(1, 2500).Draw(t, "n")
			for i := range n {
				remove(burst(from + i))
				if i%64 == 0 {
					check()
				}
			}
		},
		"all": func(t *rapid.T) {
			m.compare(t, "table", m.want, func(visit func(*K, *V) bool) { m.table.All()(visit) })
		},
		"freeze": func(t *rapid.T) {
			f, err := m.table.Core().Freeze()
			if err != nil {
				if !errors.Is(err, table.ErrTooManyFrozen) || len(m.frozen) < 3 {
					t.Fatal(err)
				}
				return
			}
			m.frozen = append(m.frozen, frozenModel[K, V]{f, m.copyOf()})
			if track == nil {
				track = &tracked[K, V]{epoch: f.Epoch(), want: m.copyOf(), removed: map[K]uint32{}, touched: map[K]uint32{}, last: f.Epoch(), exact: true}
				m.table.Core().Track(true, func(group int, key unsafe.Pointer) {
					k := *(*K)(key)
					if g, _ := m.hash(&k); int(g%uint64(m.groups)) != group {
						t.Fatalf("key %v is said to be removed from group %d", k, group)
					}
					track.removed[k] = track.last
				})
				return
			}
			m.compareChanged(t, f, track)
			track.last = f.Epoch()
			switch rapid.IntRange(0, 4).Draw(t, "what of the base") {
			case 0, 1: // Committed before anything changes.
				track.epoch, track.want, track.exact, late = f.Epoch(), m.copyOf(), true, nil
				m.table.Core().Rebase(f.Epoch())
			case 2: // Committed later.
				late = &tracked[K, V]{epoch: f.Epoch(), want: m.copyOf()}
			case 3:
				m.table.Core().Track(false, nil)
				track, late = nil, nil
			}
		},
		"commit": func(t *rapid.T) {
			if late == nil || track == nil || late.epoch <= track.epoch {
				t.Skip("nothing to commit")
			}
			track.epoch, track.want, track.exact = late.epoch, late.want, late.epoch == track.last
			m.table.Core().Rebase(late.epoch)
			late = nil
		},
		"compare snapshots": func(t *rapid.T) {
			for _, f := range m.frozen {
				m.compareFrozen(t, f)
			}
		},
		"release": func(t *rapid.T) {
			if len(m.frozen) == 0 {
				t.Skip("no snapshot")
			}
			i := rapid.IntRange(0, len(m.frozen)-1).Draw(t, "which")
			m.compareFrozen(t, m.frozen[i])
			m.frozen[i].f.Release()
			m.frozen = slices.Delete(m.frozen, i, i+1)
		},
		"merge step": func(t *rapid.T) { m.table.Core().Merge(0) },
		"merge": func(t *rapid.T) {
			for m.table.Core().Merge(time.Millisecond) {
			}
			if n := m.table.Core().Retired(); n > 0 && len(m.frozen) == 0 {
				t.Fatalf("%d pages retired without a snapshot alive", n)
			}
		},
	})
	for _, f := range m.frozen {
		m.compareFrozen(t, f)
		f.f.Release()
	}
	for m.table.Core().Merge(0) {
	}
	check()
	if n := m.table.Core().Retired(); n > 0 {
		t.Fatalf("%d pages retired at the end", n)
	}
	m.compare(t, "table", m.want, func(visit func(*K, *V) bool) { m.table.All()(visit) })
	for k := range m.copyOf() {
		remove(k)
	}
	check()
}

func TestModelInts(t *testing.T) {
	hashes := map[string]func(*int64) (uint64, uint64){
		"good":     hashInt,
		"high":     func(k *int64) (uint64, uint64) { return uint64(*k), uint64(*k) << 40 },
		"constant": func(k *int64) (uint64, uint64) { return uint64(*k) % 2, 1 },
		"few": func(k *int64) (uint64, uint64) {
			_, s := hashInt(k)
			return 0, s & 7
		},
	}
	for name, hash := range hashes {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				m := &model[int64, int64]{
					table: table.New(table.Config[int64, int64]{First: 0, Count: 3, K: 3, Hash: hash, MaxFrozen: 3}),
					hash:  hash, want: map[int64]int64{}, groups: 3,
					equal:  func(a, b int64) bool { return a == b },
					clone:  func(v int64) int64 { return v },
					change: func(v *int64, with int) { *v = *v*31 + int64(with) },
				}
				m.run(t, rapid.Int64Range(0, 2000), func(i int) int64 { return int64(i) })
			})
		})
	}
}

type rich struct {
	Tags  []string
	Count map[string]int
}

func copyRich(dst, src *rich) {
	*dst = rich{Tags: slices.Clone(src.Tags), Count: maps.Clone(src.Count)}
}

func hashString(k *string) (uint64, uint64) {
	h := uint64(14695981039346656037)
	for i := range len(*k) {
		h = (h ^ uint64((*k)[i])) * 1099511628211
	}
	return h, h
}

func changeRich(v *rich, with int) {
	if len(v.Tags) > 3 {
		v.Tags[with%len(v.Tags)] = fmt.Sprint(with) // In place: the frozen one must not see it.
	} else {
		v.Tags = append(v.Tags, fmt.Sprint(with))
	}
	if v.Count == nil {
		v.Count = map[string]int{}
	}
	v.Count[fmt.Sprint(with%5)] += with
}

func TestModelPointers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model[string, rich]{
			table: table.New(table.Config[string, rich]{
				First: 0, Count: 3, K: 3, Hash: hashString, MaxFrozen: 3,
				CopyKey: func(dst, src *string) { *dst = *src }, CopyValue: copyRich,
			}),
			hash: hashString, want: map[string]rich{}, groups: 3,
			equal:  func(a, b rich) bool { return slices.Equal(a.Tags, b.Tags) && maps.Equal(a.Count, b.Count) },
			clone:  func(v rich) rich { var c rich; copyRich(&c, &v); return c },
			change: changeRich,
		}
		m.run(t, rapid.Map(rapid.IntRange(0, 1000), func(i int) string { return fmt.Sprint(i) }), func(i int) string { return fmt.Sprint(i) })
	})
}

// Values of size zero, and large ones, have their own page sizes.
func TestModelSizes(t *testing.T) {
	t.Run("empty", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			m := &model[int64, struct{}]{
				table: table.New(table.Config[int64, struct{}]{Count: 2, K: 2, Hash: hashInt, MaxFrozen: 3}),
				hash:  hashInt, want: map[int64]struct{}{}, groups: 2,
				equal:  func(a, b struct{}) bool { return true },
				clone:  func(v struct{}) struct{} { return v },
				change: func(*struct{}, int) {},
			}
			m.run(t, rapid.Int64Range(0, 2000), func(i int) int64 { return int64(i) })
		})
	})
	t.Run("large", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			m := &model[int64, [70]int64]{
				table: table.New(table.Config[int64, [70]int64]{Count: 2, K: 2, Hash: hashInt, MaxFrozen: 3}),
				hash:  hashInt, want: map[int64][70]int64{}, groups: 2,
				equal:  func(a, b [70]int64) bool { return a == b },
				clone:  func(v [70]int64) [70]int64 { return v },
				change: func(v *[70]int64, with int) { v[with%70] += int64(with) },
			}
			m.run(t, rapid.Int64Range(0, 2000), func(i int) int64 { return int64(i) })
		})
	})
}

// A snapshot is read on another goroutine while its owner changes every value that Get, Upsert and All hand
// out; under the race detector this shows that nothing is shared.
func TestSnapshotIsReadWhileValuesChange(t *testing.T) {
	const keys = 3000
	tab := table.New(table.Config[string, rich]{
		First: 0, Count: 8, K: 8, Hash: hashString, MaxFrozen: 2,
		CopyKey: func(dst, src *string) { *dst = *src }, CopyValue: copyRich,
	})
	touch := func(round int) {
		for i := range keys {
			k := fmt.Sprint(i)
			g, s := hashString(&k)
			switch (i + round) % 4 {
			case 0:
				v, _ := tab.Upsert(g, s, &k)
				changeRich(v, round)
			case 1:
				if v := tab.Get(g, s, &k); v != nil {
					changeRich(v, round)
				}
			case 2:
				tab.Delete(g, s, &k)
			case 3:
				v := rich{Tags: []string{"set"}}
				tab.Set(g, s, &k, &v)
				v.Tags[0] = "changed"
			}
			if i%500 == 0 {
				tab.Core().Merge(10 * time.Microsecond)
			}
		}
		for _, v := range tab.All() {
			changeRich(v, round)
		}
	}
	touch(0)
	var wg sync.WaitGroup
	for round := range 20 {
		f, err := tab.Core().Freeze()
		if errors.Is(err, table.ErrTooManyFrozen) {
			wg.Wait()
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		read := func() string {
			var lines []string
			for g := range 8 {
				f.Each(g, func(key, value unsafe.Pointer) bool {
					v := (*rich)(value)
					lines = append(lines, fmt.Sprint(*(*string)(key), v.Tags, v.Count))
					return true
				})
			}
			slices.Sort(lines)
			return fmt.Sprint(lines)
		}
		before := read()
		wg.Go(func() {
			if after := read(); after != before {
				t.Error("a snapshot changed while it was read")
			}
			f.Release()
		})
		touch(round)
	}
	wg.Wait()
	for tab.Core().Merge(time.Second) {
	}
	if err := tab.Core().Check(); err != nil {
		t.Fatal(err)
	}
}

// At a steady state nothing is allocated, with snapshots or without.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	tab := ints(2)
	const n = 60_000
	fill(tab, n)
	checkpoint := func() {
		f, err := tab.Core().Freeze()
		if err != nil {
			t.Fatal(err)
		}
		fill(tab, n)
		f.Release()
		for tab.Core().Merge(time.Second) {
		}
	}
	for range 3 {
		checkpoint()
	}
	if got := testing.AllocsPerRun(1, func() { fill(tab, n) }); got > 1 { // The key that fill passes.
		t.Errorf("%v allocations in %d updates", got, n)
	}
	// A freeze and the first change in each group copy small headers.
	if got := testing.AllocsPerRun(1, checkpoint); got > 720+20 {
		t.Errorf("%v allocations in a checkpoint of %d updates", got, n)
	}
}

func TestFewKeysTakeLittleMemory(t *testing.T) {
	tab := ints(2)
	fill(tab, 100)
	if b := tab.Core().Bytes(); b > 200<<10 {
		t.Errorf("100 keys take %d bytes", b)
	}
	fill(tab, 1_000_000)
	if b := float64(tab.Core().Bytes()) / 1_000_000; b > 32 {
		t.Errorf("%.1f bytes per key", b)
	}
}

func TestABadHashDoesNotBlowUpTheDirectory(t *testing.T) {
	hash := func(k *int64) (uint64, uint64) { return 0, uint64(*k) & 3 }
	tab := table.New(table.Config[int64, int64]{Count: 1, K: 1, Hash: hash})
	for k := range int64(5000) {
		g, s := hash(&k)
		tab.Upsert(g, s, &k)
	}
	if d := tab.Core().MaxDepth(); d > 14 {
		t.Errorf("directory of depth %d for 5000 keys", d)
	}
	if err := tab.Core().Check(); err != nil {
		t.Fatal(err)
	}
}

func TestValidate(t *testing.T) {
	err := table.Config[string, []byte]{First: 5, Count: 10, K: 10}.Validate()
	for _, want := range []string{"groups from 5", "no hash", "copy keys", "copy values"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}

// A full page that a snapshot sees is divided, or moves to another size, without being copied first: what its
// values point to is shared all the same.
func TestGrowingAFrozenPageSharesNothing(t *testing.T) {
	for n := 1; n <= 200; n++ {
		tab := table.New(table.Config[string, rich]{
			Count: 1, K: 1, Hash: hashString, CopyKey: func(dst, src *string) { *dst = *src }, CopyValue: copyRich,
		})
		upsert := func(i int) *rich {
			k := fmt.Sprint(i)
			g, s := hashString(&k)
			v, _ := tab.Upsert(g, s, &k)
			return v
		}
		for i := range n {
			upsert(i).Tags = []string{"frozen"}
		}
		f, err := tab.Core().Freeze()
		if err != nil {
			t.Fatal(err)
		}
		for i := n; i < 2*n; i++ {
			upsert(i)
		}
		for i := range n {
			upsert(i).Tags[0] = "changed"
		}
		f.Each(0, func(k, v unsafe.Pointer) bool {
			if (*rich)(v).Tags[0] != "frozen" {
				t.Errorf("with %d keys: key %s has changed in the snapshot", n, *(*string)(k))
			}
			return true
		})
		f.Release()
	}
}

func TestRemainder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, d := rapid.Uint64().Draw(t, "a"), rapid.Uint64Range(1, 1<<15).Draw(t, "d")
		for _, a := range []uint64{a, a / d * d, a/d*d - 1, 0, ^uint64(0)} {
			if got := table.Mod(a, d); got != a%d {
				t.Fatalf("%d mod %d gives %d", a, d, got)
			}
		}
	})
}

func TestMemoryIsGivenBack(t *testing.T) {
	settle := func() int64 {
		var n int64
		for range 100 {
			runtime.GC()
			m := table.Mapped()
			if m == n {
				break
			}
			n = m
			time.Sleep(time.Millisecond) // Cleanups run on a goroutine of the runtime's.
		}
		return n
	}
	before := settle()
	tab := ints(2)
	fill(tab, 100_000)
	f, err := tab.Core().Freeze()
	if err != nil {
		t.Fatal(err)
	}
	tab.Core().Close()
	tab.Core().Close()
	n := 0
	for g := range 720 {
		f.Each(g, func(k, v unsafe.Pointer) bool { n += int(*(*int64)(v) - *(*int64)(k) + 1); return true })
	}
	if n != 100_000 {
		t.Errorf("%d entries after Close", n)
	}
	f.Release()
	f.Release()
	if got := table.Mapped(); got > before {
		t.Errorf("%d bytes mapped after Close and Release, %d before", got, before)
	}
	fill(ints(2), 100_000) // Not closed.
	if got := settle(); got > before {
		t.Errorf("%d bytes mapped after a table was forgotten, %d before", got, before)
	}
}
