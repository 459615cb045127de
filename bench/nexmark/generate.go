package nexmark

import (
	"context"
	"runtime"
	"strings"
	"time"

	"github.com/cairnstream/cairn/connector/nexmark"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
)

// Generate reads the source of a query in one thread, without an engine, and returns the CPU time of the process
// meanwhile: the share of the source in every other figure.
func Generate(query string, events int64, seed uint64) (time.Duration, error) {
	_, keys, err := find(query)
	if err != nil {
		return 0, err
	}
	c := nexmark.Config{Seed: seed, Events: events, Splits: 1}
	switch {
	case strings.HasPrefix(query, keyedCount):
		return readAll(nexmark.Keys(c, keys))
	case query == "passthrough":
		return readAll(nexmark.Draws(c))
	}
	return readAll(nexmark.Events(c))
}

func readAll[T any](s operator.Source[T]) (time.Duration, error) {
	if err := s.Validate(); err != nil {
		return 0, err
	}
	ctx, sc := context.Background(), operator.SourceContext{Parallelism: 1}
	splits, err := s.Splits(ctx, sc)
	if err != nil {
		return 0, err
	}
	r, err := s.Open(ctx, sc, splits[0])
	if err != nil {
		return 0, err
	}
	pool := record.PoolOf[T]()
	runtime.GC() // What is left over from before is not this run's.
	start := cpuTime()
	for {
		b := pool.Get()
		status, err := r.Read(b, pool.Rows())
		b.Release()
		if err != nil {
			return 0, err
		}
		if status == operator.ReadEnd {
			break
		}
	}
	took := cpuTime() - start
	return took, r.Close()
}
