package operator_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/dedup"
	"github.com/cairnstream/cairn/operator/join"
	"github.com/cairnstream/cairn/operator/window"
)

// The operators built on keyed state give what a naive computation over the whole input gives, in every
// interleaving, for every size of batch, with restores at random places and with whatever parallelism.

type item struct {
	Key  int64
	Time int64
	N    int64
	Name string
}

type (
	event  = operator.Feed[item, item]
	keyed  = operator.KeyedContext[int64, string]
	states = operator.States[int64]
)

func keyOf(i *item) int64 { return i.Key }

// items makes n records whose times rise but for some disorder; no two have one time.
func items(rng *rand.Rand, input, n int, keys int64) []event {
	out := make([]event, n)
	for i := range out {
		t := int64(2*(i+rng.IntN(30))+input)*1000 + int64(i)
		it := item{rng.Int64N(keys), t, int64(i), fmt.Sprint("n", rng.IntN(5))}
		out[i] = event{Input: input, Time: t, A: it, B: it}
	}
	return out
}

func rows(events []event) (out []item) {
	for _, e := range events {
		out = append(out, e.A)
	}
	return out
}

func pair(a, b *item) string {
	text := func(i *item) string {
		if i == nil {
			return "none"
		}
		return fmt.Sprintf("%d/%d/%s", i.Key, i.N, i.Name)
	}
	return text(a) + "+" + text(b)
}

// equivalent runs the operator that construct makes over random inputs and compares with want.
func equivalent(t *testing.T, keys int64, construct func(s *states) operator.CoHandler[int64, item, item, string],
	want func(as, bs []item) []string, check func(rows []string) []string) {
	t.Helper()
	mk := func() operator.Operator { return operator.CoProcess(keyOf, keyOf, codec.Int64(), construct) }
	operator.Scenarios(t, func(t *testing.T, sc operator.Scenario, rng *rand.Rand) {
		as, bs := items(rng, 0, 400, keys), items(rng, 1, 300, keys)
		s := operator.StartScaled[int64, item, item, string](t, sc.Backend, sc.Par, codec.Int64(), keyOf, keyOf, mk)
		s.Play(sc, rng, operator.Interleave(rng, as, bs))
		got := s.Rows()
		if check != nil {
			got = check(got)
		}
		operator.SameRows(t, fmt.Sprintf("%+v", sc), got, want(rows(as), rows(bs)))
		if s.Late > 0 {
			t.Errorf("%+v: %d late records", sc, s.Late)
		}
	})
}

func TestWindowedJoin(t *testing.T) {
	w := window.Tumbling(40 * time.Second).Offset(time.Second)
	assign := w.Assigner()
	for _, kind := range []join.Kind{join.Inner, join.Left, join.Right, join.Outer} {
		t.Run(kind.String(), func(t *testing.T) {
			equivalent(t, 23, func(s *states) operator.CoHandler[int64, item, item, string] {
				return join.Windowed(s, assign, kind, pair)
			}, func(as, bs []item) (out []string) {
				meets := func(a, b item) bool {
					x, _ := assign(a.Time)
					y, _ := assign(b.Time)
					return a.Key == b.Key && x == y
				}
				for _, a := range as {
					n := 0
					for _, b := range bs {
						if meets(a, b) {
							out = append(out, pair(&a, &b))
							n++
						}
					}
					if n == 0 && (kind == join.Left || kind == join.Outer) {
						out = append(out, pair(&a, nil))
					}
				}
				for _, b := range bs {
					if (kind == join.Right || kind == join.Outer) && !slices.ContainsFunc(as, func(a item) bool { return meets(a, b) }) {
						out = append(out, pair(nil, &b))
					}
				}
				return out
			}, nil)
		})
	}
}

func TestIntervalJoin(t *testing.T) {
	for _, bounds := range [][2]int64{{0, 0}, {-5000, 5000}, {1000, 90_000}, {-70_000, -20_000}, {-1, 30_000}} {
		t.Run(fmt.Sprint(bounds), func(t *testing.T) {
			lo, hi := bounds[0], bounds[1]
			equivalent(t, 7, func(s *states) operator.CoHandler[int64, item, item, string] {
				return join.Interval(s, lo, hi, pair)
			}, func(as, bs []item) (out []string) {
				for _, a := range as {
					for _, b := range bs {
						if a.Key == b.Key && a.Time+lo <= b.Time && b.Time <= a.Time+hi {
							out = append(out, pair(&a, &b))
						}
					}
				}
				return out
			}, nil)
		})
	}
}

func TestTemporalJoin(t *testing.T) {
	for _, kind := range []join.Kind{join.Inner, join.Left} {
		t.Run(kind.String(), func(t *testing.T) {
			equivalent(t, 11, func(s *states) operator.CoHandler[int64, item, item, string] {
				return join.Temporal(s, kind, pair)
			}, func(as, bs []item) (out []string) {
				for _, a := range as {
					var best *item
					for i := range bs {
						if b := &bs[i]; b.Key == a.Key && b.Time <= a.Time && (best == nil || b.Time > best.Time) {
							best = b
						}
					}
					if best != nil || kind == join.Left {
						out = append(out, pair(&a, best))
					}
				}
				return out
			}, nil)
		})
	}
}

func TestUnboundedJoin(t *testing.T) {
	equivalent(t, 50, func(s *states) operator.CoHandler[int64, item, item, string] {
		return join.Unbounded(s, pair)
	}, func(as, bs []item) (out []string) {
		for _, a := range as {
			for _, b := range bs {
				if a.Key == b.Key {
					out = append(out, pair(&a, &b))
				}
			}
		}
		return out
	}, nil)
}

// one makes a handler with one input take both.
func one(h operator.Handler[int64, item, string]) operator.CoHandler[int64, item, item, string] {
	return operator.CoHandler[int64, item, item, string]{Left: h.Record, Right: h.Record, Timer: h.Timer}
}

func better(a, b *item) bool {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Time, b.Time)) > 0
}

func ranked(rank int, i *item) string { return fmt.Sprintf("%d %d %d %s", i.Key, rank, i.Time, i.Name) }

func best(all []item, n int) (out []string) {
	groups := map[int64][]item{}
	for _, i := range all {
		groups[i.Key] = append(groups[i.Key], i)
	}
	for _, g := range groups {
		slices.SortFunc(g, func(a, b item) int {
			if better(&a, &b) {
				return -1
			}
			return 1
		})
		for i := range min(n, len(g)) {
			out = append(out, ranked(i+1, &g[i]))
		}
	}
	return out
}

// last keeps the last update of each key and rank, which the first two numbers are.
func last(rows []string) (out []string) {
	m := map[[2]int]string{}
	for _, r := range rows {
		var k [2]int
		if _, err := fmt.Sscan(r, &k[0], &k[1]); err != nil {
			panic(err)
		}
		m[k] = r
	}
	for _, r := range m {
		out = append(out, r)
	}
	return out
}

func TestTopN(t *testing.T) {
	for _, n := range []int{1, 3, 10} {
		equivalent(t, 19, func(s *states) operator.CoHandler[int64, item, item, string] {
			return one(operator.TopN(s, n, better, ranked))
		}, func(as, bs []item) []string { return best(append(as, bs...), n) }, last)
	}
}

func TestTopNWindow(t *testing.T) {
	assign := window.Tumbling(50 * time.Second).Assigner()
	equivalent(t, 5, func(s *states) operator.CoHandler[int64, item, item, string] {
		return one(operator.TopNWindow(s, 3, better, ranked, assign))
	}, func(as, bs []item) (out []string) {
		windows := map[int64][]item{}
		for _, i := range append(as, bs...) {
			start, _ := assign(i.Time)
			windows[start] = append(windows[start], i)
		}
		for _, w := range windows {
			out = append(out, best(w, 3)...)
		}
		return out
	}, nil)
}

func TestDedupLast(t *testing.T) {
	equivalent(t, 60, func(s *states) operator.CoHandler[int64, item, item, string] {
		h := dedup.Last[int64, item](s, better)
		take := texts(h)
		return operator.CoHandler[int64, item, item, string]{Left: take, Right: take}
	}, func(as, bs []item) []string { return best(append(as, bs...), 1) }, last)
}

// texts makes a handler say which records it passes on.
func texts(h operator.Handler[int64, item, item]) func(c *keyed, i *item) {
	return operator.Through(h, func(i *item) string { return ranked(1, i) })
}

func TestDedupFirst(t *testing.T) {
	mk := func() operator.Operator {
		return operator.CoProcess(keyOf, keyOf, codec.Int64(), func(s *states) operator.CoHandler[int64, item, item, string] {
			take := texts(dedup.First[int64, item](s))
			return operator.CoHandler[int64, item, item, string]{Left: take, Right: take}
		})
	}
	operator.Scenarios(t, func(t *testing.T, sc operator.Scenario, rng *rand.Rand) {
		events := operator.Interleave(rng, items(rng, 0, 300, 100), items(rng, 1, 300, 100))
		s := operator.StartScaled[int64, item, item, string](t, sc.Backend, sc.Par, codec.Int64(), keyOf, keyOf, mk)
		s.Play(sc, rng, events)
		var want []string
		seen := map[int64]bool{}
		for _, e := range events {
			if !e.Mark && !seen[e.A.Key] {
				seen[e.A.Key] = true
				want = append(want, ranked(1, &e.A))
			}
		}
		operator.SameRows(t, fmt.Sprintf("%+v", sc), s.Rows(), want)
	})
}

// State that no later record can meet is gone when the watermark says so.
func TestJoinStateIsBounded(t *testing.T) {
	assign := window.Tumbling(10 * time.Second).Assigner()
	for name, construct := range map[string]func(s *states) operator.CoHandler[int64, item, item, string]{
		"windowed": func(s *states) operator.CoHandler[int64, item, item, string] {
			return join.Windowed(s, assign, join.Outer, pair)
		},
		"interval": func(s *states) operator.CoHandler[int64, item, item, string] {
			return join.Interval(s, -3000, 9000, pair)
		},
		"interval behind": func(s *states) operator.CoHandler[int64, item, item, string] {
			return join.Interval(s, -9000, -3000, pair)
		},
		"temporal": func(s *states) operator.CoHandler[int64, item, item, string] {
			return join.Temporal(s, join.Inner, pair)
		},
		"top": func(s *states) operator.CoHandler[int64, item, item, string] {
			return one(operator.TopNWindow(s, 2, better, ranked, assign))
		},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 1))
			const keys = 20
			mk := func() operator.Operator { return operator.CoProcess(keyOf, keyOf, codec.Int64(), construct) }
			s := operator.StartScaled[int64, item, item, string](t, "fs", 2, codec.Int64(), keyOf, keyOf, mk)
			events := operator.Interleave(rng, items(rng, 0, 2000, keys), items(rng, 1, 2000, keys))
			s.Run(events, 100)
			s.Run([]event{{Mark: true, Time: 1 << 40}}, 1)
			limit := int64(0)
			if name == "temporal" {
				// The newest versions, and those that came since a key's last prune.
				limit = 60 * keys
			}
			if n := s.Entries(); n > limit {
				t.Errorf("%d entries are left, want at most %d", n, limit)
			}
			// A record behind the watermark is counted, not kept.
			s.Run([]event{{Time: 5, A: item{Key: 1, Time: 5}}}, 1)
			s.Close()
			if s.Late != 1 {
				t.Errorf("%d late records", s.Late)
			}
		})
	}
}
