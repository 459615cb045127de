package operator

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/watermark"
)

type wide struct {
	N   int
	Pad [200]int64
}

func (w wide) String() string { return fmt.Sprintf("wide %d", w.N) }

// Whatever the batches look like, an operator gives what it would give record by record, and the
// marks keep their places.
func TestStateless(t *testing.T) {
	run := func(name string, op func() Operator, model func(v int) []int) {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				out := &recorder[int]{}
				o := op()
				if err := o.Open(surround(out).c); err != nil {
					t.Fatal(err)
				}
				w := int64(0)
				var want []ev[int]
				for range rapid.IntRange(1, 4).Draw(t, "batches") {
					b := drawBatch(t, func(i int) int { return i }, rapid.Bool().Draw(t, "timed"), &w)
					for _, e := range unroll(b) {
						if e.mark {
							want = append(want, e)
							continue
						}
						for _, v := range model(e.row) {
							want = append(want, ev[int]{time: e.time, row: v})
						}
					}
					if err := o.Push(0, b); err != nil {
						t.Fatal(err)
					}
				}
				if err := o.EndOfData(); err != nil {
					t.Fatal(err)
				}
				if err := o.Close(); err != nil {
					t.Fatal(err)
				}
				same(t, name, out.events, want)
			})
		})
	}
	run("filter", func() Operator { return Filter(func(v *int) bool { return *v%3 != 0 }) }, func(v int) []int {
		if v%3 != 0 {
			return []int{v}
		}
		return nil
	})
	run("filter all", func() Operator { return Filter(func(v *int) bool { return false }) }, func(v int) []int { return nil })
	run("map", func() Operator { return Map(func(v *int) int { return *v * 2 }) }, func(v int) []int { return []int{2 * v} })
	run("map into", func() Operator {
		return MapInto(func(in, out *int) {
			if *out != 0 {
				panic("out is not zero")
			}
			*out = *in + 1
		})
	}, func(v int) []int { return []int{v + 1} })
	run("flat map", func() Operator {
		return FlatMap(func(v *int, c *Collector[int]) {
			for i := range *v % 4 {
				c.Emit(*v + i)
			}
		})
	}, func(v int) (out []int) {
		for i := range v % 4 {
			out = append(out, v+i)
		}
		return out
	})
	run("union", Union, func(v int) []int { return []int{v} })
}

// Results much larger than the records come in batches of their own size.
func TestMapToLarge(t *testing.T) {
	for name, op := range map[string]func() Operator{
		"map": func() Operator { return Map(func(v *int) wide { return wide{N: *v, Pad: [200]int64{7: 1}} }) },
		"map into": func() Operator {
			return MapInto(func(v *int, out *wide) {
				if *out != (wide{}) {
					panic("out is not zero")
				}
				out.N = *v
				out.Pad[7] = 1
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				out := &recorder[wide]{}
				o := op()
				if err := o.Open(surround(out).c); err != nil {
					t.Fatal(err)
				}
				w := int64(0)
				b := drawBatch(t, func(i int) int { return i }, true, &w)
				var want []ev[wide]
				for _, e := range unroll(b) {
					x := ev[wide]{mark: e.mark, kind: e.kind, time: e.time}
					if !e.mark {
						x.row.N, x.row.Pad[7] = e.row, 1
					}
					want = append(want, x)
				}
				n := b.Len()
				if err := o.Push(0, b); err != nil {
					t.Fatal(err)
				}
				same(t, "large", out.events, want)
				if rows := record.PoolOf[wide]().Rows(); out.batches < n/(4*rows) {
					t.Fatalf("%d rows in %d batches", n, out.batches)
				}
			})
		})
	}
}

// An error of what comes next ends the push and is returned as it is.
func TestEmitError(t *testing.T) {
	boom := errors.New("boom")
	for name, o := range map[string]Operator{
		"filter":   Filter(func(*int) bool { return true }),
		"map":      Map(func(v *int) int { return *v }),
		"flat map": FlatMap(func(v *int, c *Collector[int]) { c.Emit(*v) }),
		"union":    Union(),
	} {
		if err := o.Open(surround(&recorder[int]{fail: boom}).c); err != nil {
			t.Fatal(err)
		}
		b := record.PoolOf[int]().Get()
		for i := range 5000 {
			b.Append(i, 0)
		}
		if err := o.Push(0, b); !errors.Is(err, boom) {
			t.Errorf("%s: %v", name, err)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Timestamps looks at no record that was filtered away, and replaces the watermarks.
func TestTimestamps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		out := &recorder[int]{}
		o := Timestamps(func(v *int) time.Time {
			if *v%3 == 0 {
				panic("a record that was filtered away")
			}
			return time.UnixMilli(int64(*v))
		}, watermark.Bounded(10*time.Millisecond))
		f := Filter(func(v *int) bool { return *v%3 != 0 })
		if err := o.Open(surround(out).c); err != nil {
			t.Fatal(err)
		}
		if err := f.Open(surround(pusher{o}).c); err != nil {
			t.Fatal(err)
		}
		w, newest := int64(0), record.MinTime
		var want []ev[int]
		for range rapid.IntRange(1, 4).Draw(t, "batches") {
			b := drawBatch(t, func(i int) int { return i }, rapid.Bool().Draw(t, "timed"), &w)
			before := newest
			for _, e := range unroll(b) {
				switch {
				case e.mark && e.kind != record.Watermark:
					want = append(want, e)
				case !e.mark && e.row%3 != 0:
					want = append(want, ev[int]{time: int64(e.row), row: e.row})
					newest = max(newest, int64(e.row))
				}
			}
			if newest > before {
				want = append(want, ev[int]{mark: true, time: newest - 11})
			}
			if err := f.Push(0, b); err != nil {
				t.Fatal(err)
			}
		}
		same(t, "timestamps", out.events, want)
	})
}

type pusher struct{ op Operator }

func (p pusher) Emit(b record.Any) error { return p.op.Push(0, b) }
