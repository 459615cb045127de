package job

import (
	"testing"

	"pgregory.net/rapid"
)

// GroupsOf and OwnerOf agree: the ranges of all subtasks are a partition of the groups, in order.
func TestGroups(t *testing.T) {
	check := func(t interface {
		Helper()
		Fatalf(string, ...any)
	}, k, p int) {
		t.Helper()
		next, least, most := 0, k, 0
		for i := range p {
			r := GroupsOf(i, k, p)
			if r.First != next || r.Last < r.First {
				t.Fatalf("subtask %d of %d owns %v of %d groups, the one before ended at %d", i, p, r, k, next-1)
			}
			for g := r.First; g <= r.Last; g++ {
				if o := OwnerOf(g, k, p); o != i {
					t.Fatalf("group %d of %d: owner %d of %d, but it is in the range of %d", g, k, o, p, i)
				}
			}
			next = r.Last + 1
			least, most = min(least, r.Len()), max(most, r.Len())
		}
		if next != k {
			t.Fatalf("%d subtasks own %d of %d groups", p, next, k)
		}
		if most-least > 1 {
			t.Fatalf("%d subtasks of %d groups own from %d to %d", p, k, least, most)
		}
	}
	for p := 1; p <= DefaultMaxParallelism; p++ {
		check(t, DefaultMaxParallelism, p)
	}
	for k := 1; k <= 64; k++ {
		for p := 1; p <= k; p++ {
			check(t, k, p)
		}
	}
	check(t, MaxMaxParallelism, MaxMaxParallelism)
	check(t, MaxMaxParallelism, MaxMaxParallelism-1)
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(1, MaxMaxParallelism).Draw(t, "k")
		check(t, k, rapid.IntRange(1, k).Draw(t, "p"))
	})
}

func TestGroupRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) GroupRange {
			return GroupRange{rapid.IntRange(0, 12).Draw(t, name), rapid.IntRange(-1, 12).Draw(t, name)}
		}
		a, b := draw("a"), draw("b")
		c := a.Intersect(b)
		n := 0
		for g := range 13 {
			both := a.Contains(g) && b.Contains(g)
			if c.Contains(g) != both {
				t.Fatalf("%v and %v meet in %v; group %d", a, b, c, g)
			}
			if both {
				n++
			}
		}
		if c.Len() != n {
			t.Fatalf("%v has %d groups, not %d", c, n, c.Len())
		}
	})
}

func TestGroupOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(1, MaxMaxParallelism).Draw(t, "k")
		if g := GroupOf(rapid.Uint64().Draw(t, "hash"), k); g < 0 || g >= k {
			t.Fatalf("group %d of %d", g, k)
		}
	})
}
