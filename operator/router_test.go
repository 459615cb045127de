package operator

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

func keyOf(v *int) int64 { return int64(*v % 50) }

// A router keeps the order of rows and marks on each channel, puts every mark on every channel
// behind the rows that came before it, and every row where it belongs.
func TestRouters(t *testing.T) {
	const k = 16
	hash := codec.NewHasher(codec.Int64())
	for _, x := range []struct {
		name    string
		factory RouterFactory
		// to gives the channels of row number n, of n channels.
		to func(v, n, channels int) []int
	}{
		{"hash", HashRouter(keyOf, codec.Int64()), func(v, _, channels int) []int {
			key := keyOf(&v)
			return []int{job.OwnerOf(job.GroupOf(hash(&key), k), k, channels)}
		}},
		{"rebalance", RebalanceRouter[int](), func(_, n, channels int) []int { return []int{n % channels} }},
		{"broadcast", BroadcastRouter[int](), func(_, _, channels int) []int {
			var all []int
			for i := range channels {
				all = append(all, i)
			}
			return all
		}},
		{"forward", ForwardRouter[int](), func(int, int, int) []int { return []int{0} }},
	} {
		t.Run(x.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				channels := rapid.IntRange(1, 6).Draw(t, "channels")
				if x.name == "forward" {
					channels = 1
				}
				list, outs := ends[int](channels)
				want := make([][]ev[int], channels)
				for _, e := range list {
					e.check = func(b *record.Batch[int]) {
						if n := len(b.Times); n != 0 && n != len(b.Rows) {
							t.Fatalf("%d times for %d rows", n, len(b.Rows))
						}
						for i, h := range b.Hash {
							if key := keyOf(&b.Rows[i]); h != hash(&key) {
								t.Fatalf("wrong hash of row %d", i)
							}
						}
						if n := len(b.Hash); n != 0 && n != len(b.Rows) {
							t.Fatalf("%d hashes for %d rows", n, len(b.Rows))
						}
					}
				}
				r := x.factory(outs, k)
				w, rows := int64(0), 0
				for range rapid.IntRange(1, 8).Draw(t, "batches") {
					b := drawBatch(t, func(i int) int { return i }, rapid.IntRange(0, 3).Draw(t, "timed") > 0, &w)
					for _, e := range unroll(b) {
						if e.mark {
							for ch := range want {
								want[ch] = append(want[ch], e)
							}
							continue
						}
						for _, ch := range x.to(e.row, rows, channels) {
							want[ch] = append(want[ch], e)
						}
						rows++
					}
					if err := r.Emit(b); err != nil {
						t.Fatal(err)
					}
					if rapid.Bool().Draw(t, "flush") {
						if err := r.Flush(); err != nil {
							t.Fatal(err)
						}
						if r.Holding() {
							t.Fatal("something is held back behind Flush")
						}
					}
				}
				if err := r.Flush(); err != nil {
					t.Fatal(err)
				}
				for ch := range want {
					same(t, x.name, list[ch].events, want[ch])
				}
				r.Close()
			})
		})
	}
}

// Small batches are joined, so that a frame is worth its cost.
func TestCoalesce(t *testing.T) {
	list, outs := ends[int](1)
	r := ForwardRouter[int]()(outs, 1)
	const n = 10_000
	for i := range n {
		b := record.PoolOf[int]().Get()
		b.Append(i, int64(i))
		if i%100 == 0 {
			b.Mark(record.Watermark, int64(i))
		}
		if err := r.Emit(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Flush(); err != nil {
		t.Fatal(err)
	}
	rows := record.RowsFor[int]()
	if most := n/rows + 2; list[0].batches > most {
		t.Errorf("%d batches, want at most %d", list[0].batches, most)
	}
}

func TestSplitRouter(t *testing.T) {
	list, outs := ends[SplitMessage](3)
	r := SplitRouter()(outs, 1)
	emit := func(readers ...int64) error {
		b := record.PoolOf[SplitMessage]().Get()
		for _, to := range readers {
			b.Append(SplitMessage{Reader: to, ID: "s"}, record.MinTime)
		}
		return r.Emit(b)
	}
	if err := emit(2, 0, 2); err != nil {
		t.Fatal(err)
	}
	if r.Holding() || len(list[0].events) != 1 || len(list[1].events) != 0 || len(list[2].events) != 2 {
		t.Errorf("held %v; %v %v %v", r.Holding(), list[0].events, list[1].events, list[2].events)
	}
	if emit(3) == nil || emit(-1) == nil {
		t.Error("a split for nobody")
	}
}

// A dead channel ends the emit with its error, wherever it is met, and Close gives up the rest.
func TestRouterErrors(t *testing.T) {
	boom := errors.New("boom")
	for name, f := range map[string]RouterFactory{
		"hash": HashRouter(keyOf, codec.Int64()), "rebalance": RebalanceRouter[int](), "broadcast": BroadcastRouter[int](),
	} {
		list, outs := ends[int](3)
		list[1].fail = boom
		r := f(outs, 8)
		b := record.PoolOf[int]().Get()
		for i := range 20_000 {
			b.Append(i, 0)
		}
		if err := r.Emit(b); !errors.Is(err, boom) {
			t.Errorf("%s: %v", name, err)
		}
		r.Close()
		if r.Holding() {
			t.Errorf("%s holds something behind Close", name)
		}
	}
}
