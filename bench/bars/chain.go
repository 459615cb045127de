package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/bench/interval"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/stream"
)

type (
	row32  struct{ Key, Value, Time, More uint64 }
	row128 struct {
		Key, Value, Time uint64
		More             [13]uint64
	}
)

// chained is how many operators are added to a chain, to measure one.
const chained = 8

// chainKind is a type of records with operators that do as little as they can.
type chainKind[T any] struct {
	bytes int
	make  func(n uint64, v *T)
	next  func(*T) T
	keep  func(*T) bool
	sum   func(uint64, *T) uint64
}

var (
	chain24 = chainKind[row]{
		24, func(n uint64, v *row) { *v = row{n, n, n} },
		func(r *row) row { return row{r.Key, r.Value + 1, r.Time} },
		func(r *row) bool { return r.Value != 1<<63 }, func(s uint64, r *row) uint64 { return s + r.Value },
	}
	chain32 = chainKind[row32]{
		32, func(n uint64, v *row32) { *v = row32{n, n, n, n} },
		func(r *row32) row32 { return row32{r.Key, r.Value + 1, r.Time, r.More} },
		func(r *row32) bool { return r.Value != 1<<63 }, func(s uint64, r *row32) uint64 { return s + r.Value },
	}
	chain128 = chainKind[row128]{
		128, func(n uint64, v *row128) { v.Key, v.Value, v.Time = n, n, n },
		func(r *row128) row128 { return row128{r.Key, r.Value + 1, r.Time, r.More} },
		func(r *row128) bool { return r.Value != 1<<63 }, func(s uint64, r *row128) uint64 { return s + r.Value },
	}
)

func (k chainKind[T]) name(what string) string { return fmt.Sprintf("chain-%d-%s", k.bytes, what) }

// programs are a chain of a source and a sink, and the same with maps or filters between them.
func (k chainKind[T]) programs() []stream.Program {
	build := func(what string, add func(stream.Stream[T]) stream.Stream[T]) stream.Program {
		return cairn.Program(k.name(what), func(j *stream.Job) {
			s := j.Source("rows", datagen.Source[T]{NumSplits: 1, Fill: func(first int64, rows []T) {
				made.Add(int64(len(rows)))
				for i := range rows {
					k.make(uint64(first)+uint64(i), &rows[i])
				}
			}})
			if add != nil {
				for range chained {
					s = add(s)
				}
			}
			s.Sink("out", tally[T]{func(sum uint64, b *record.Batch[T]) uint64 {
				if b.Sel == nil {
					for i := range b.Rows {
						sum = k.sum(sum, &b.Rows[i])
					}
					return sum
				}
				for _, i := range b.Sel {
					sum = k.sum(sum, &b.Rows[i])
				}
				return sum
			}})
		})
	}
	return []stream.Program{
		build("none", nil),
		build("map", func(s stream.Stream[T]) stream.Stream[T] { return s.Map("", k.next) }),
		build("filter", func(s stream.Stream[T]) stream.Stream[T] { return s.Filter("", k.keep) }),
	}
}

func chainPrograms() []stream.Program {
	all := chain24.programs()
	all = append(all, chain32.programs()...)
	return append(all, chain128.programs()...)
}

const (
	chainWarm   = 500_000
	chainSample = 200 * time.Millisecond
	chainLimit  = 6 // Nanoseconds.
)

func measureChain(ctx context.Context, c config) ([]figure, error) {
	runtime.GOMAXPROCS(1)
	l, err := startLocal(ctx, "")
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.stop() }() // Nothing is kept of it.
	var out []figure
	for _, k := range []struct {
		bytes int
		name  func(string) string
		limit float64
	}{{24, chain24.name, chainLimit}, {32, chain32.name, chainLimit}, {128, chain128.name, 0}} {
		cost := map[string][]float64{}
		for range c.runs {
			for _, what := range []string{"none", "map", "filter"} {
				w, err := l.sample(ctx, k.name(what), nil, chainWarm, chainSample)
				if err != nil {
					return out, err
				}
				cost[what] = append(cost[what], w.cost())
				if c.verbose {
					fmt.Fprintf(os.Stderr, "%s: %.1f ns\n", k.name(what), w.cost())
				}
			}
		}
		for _, what := range []string{"map", "filter"} {
			each := minus(cost[what], cost["none"])
			for i := range each {
				each[i] /= chained
			}
			iv := interval.Of(each)
			out = append(out, figure{
				What: fmt.Sprintf("%s added to a chain, %d bytes", what, k.bytes), Value: iv.Hi, Unit: "ns", Limit: k.limit, Samples: each,
				Note: fmt.Sprintf("median %.2f; measured by %d of them", iv.Median, chained),
			})
		}
	}
	return out, nil
}
