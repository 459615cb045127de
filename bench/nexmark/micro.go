package nexmark

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/cairnstream/cairn/connector/nexmark"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/stream"
)

func self(v *uint64) uint64 { return *v }

// keyCount is how often a key has come.
type keyCount struct{ Key, Count uint64 }

// countKeys counts records by key: one update of state and one row for each.
func countKeys(j *builder) {
	counts := numbers(j, nexmark.Keys(j.config, j.keys)).KeyBy(self).
		Process("count", func(s *operator.States[uint64]) operator.Handler[uint64, uint64, keyCount] {
			count := s.Value[uint64]("count")
			return operator.Handler[uint64, uint64, keyCount]{Record: func(c *operator.KeyedContext[uint64, keyCount], key *uint64) {
				n := count.Ref()
				*n++
				c.Emit(keyCount{*key, *n})
			}}
		})
	sink(j, counts, func(dst []byte, r *keyCount) []byte {
		return strconv.AppendUint(comma(strconv.AppendUint(dst, r.Key, 10)), r.Count, 10)
	})
}

// passthrough sends each record through one exchange, and does nothing with it.
func passthrough(j *builder) {
	passed := numbers(j, nexmark.Draws(j.config)).KeyBy(self).
		Process("pass", func(*operator.States[uint64]) operator.Handler[uint64, uint64, uint64] {
			return operator.Handler[uint64, uint64, uint64]{Record: func(c *operator.KeyedContext[uint64, uint64], v *uint64) { c.Emit(*v) }}
		})
	sink(j, passed, func(dst []byte, v *uint64) []byte { return strconv.AppendUint(dst, *v, 10) })
}

func numbers(j *builder, s nexmark.Source[uint64]) stream.Stream[uint64] {
	return j.Source("records", timed(j.meter, operator.Source[uint64](s)))
}

// reduceCounts makes one row of all counts. Each row stands for a key's count until the next one: it adds a term to the
// checksum and takes away that of the count before.
func reduceCounts(emit func([]byte) error) reducer {
	var keys, records, checksum uint64
	return reducer{
		add: func(line []byte) error {
			k, n, _ := bytes.Cut(line, []byte(","))
			key, err := strconv.ParseUint(string(k), 10, 64)
			if err != nil {
				return err
			}
			count, err := strconv.ParseUint(string(n), 10, 64)
			if err != nil {
				return err
			}
			records++
			checksum += term(key, count)
			if count == 1 {
				keys++
			} else {
				checksum -= term(key, count-1)
			}
			return nil
		},
		end: func() error { return emit(fmt.Appendf(nil, "%d,%d,%016x", keys, records, checksum)) },
	}
}

func term(key, count uint64) uint64 { return nexmark.Mix(nexmark.Gamma*(key+1) + count) }

func reducePassed(emit func([]byte) error) reducer {
	var records, sum, xor uint64
	return reducer{
		add: func(line []byte) error {
			v, err := strconv.ParseUint(string(line), 10, 64)
			if err != nil {
				return err
			}
			records++
			sum += v
			xor ^= v
			return nil
		},
		end: func() error { return emit(fmt.Appendf(nil, "%d,%016x,%016x", records, sum, xor)) },
	}
}
