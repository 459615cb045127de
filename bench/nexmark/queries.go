package nexmark

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cairnstream/cairn/connector/file"
	"github.com/cairnstream/cairn/connector/nexmark"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/stream"
)

// A query is a question about the events, and how its answer is read.
type query struct {
	name  string
	build func(j *builder)
	// reduce makes the rows that were written into those of the answer; nil: they are the answer.
	reduce func(emit func(line []byte) error) reducer
}

// queries are all that there are, by name. keyed-count stands for keyed-count/N with any N.
var queries = []query{
	{name: "events", build: events},
	{name: "q0", build: q0},
	{name: "q1", build: q1},
	{name: "q2", build: q2},
	{name: "q3", build: q3},
	{name: "q4", build: q4, reduce: lastOf(1, column{at: 1, number: true})},
	{name: "q5", build: q5},
	{name: "q7", build: q7},
	{name: "q8", build: q8},
	{name: "q9", build: q9},
	{name: "q11", build: q11},
	{name: "q12", build: q12},
	{name: "q18", build: q18, reduce: lastOf(2, column{at: 5, number: true}, column{at: 2, number: true}, column{at: 3}, column{at: 6})},
	{name: "q20", build: q20},
	{name: keyedCount, build: countKeys, reduce: reduceCounts},
	{name: "passthrough", build: passthrough, reduce: reducePassed},
}

const keyedCount = "keyed-count"

// Names lists the answers of the tables of expected hashes that there is a query for.
func Names() []string {
	var names []string
	for _, q := range queries {
		if q.name != keyedCount {
			names = append(names, q.name)
			continue
		}
		for _, keys := range []int{100_000, 1_000_000, 10_000_000} {
			names = append(names, fmt.Sprintf("%s/%d", keyedCount, keys))
		}
	}
	return names
}

// CheckName says what is wrong with the name of a query.
func CheckName(name string) error {
	_, _, err := find(name)
	return err
}

// find is the query with that name, and its number of keys.
func find(name string) (q query, keys int64, err error) {
	base, rest, counted := strings.Cut(name, "/")
	i := slices.IndexFunc(queries, func(q query) bool { return q.name == base })
	if i < 0 || counted && base != keyedCount {
		return q, 0, fmt.Errorf("there is no query %q; there are: %s", name, strings.Join(Names(), ", "))
	}
	keys = 1_000_000
	if counted {
		if keys, err = strconv.ParseInt(rest, 10, 64); err != nil {
			return q, 0, fmt.Errorf("query %q: the number of keys: %w", name, err)
		}
	}
	return queries[i], keys, nil
}

// ProgramName is the name of the program with all queries.
const ProgramName = "nexmark"

// Program is the benchmark as a program. Its arguments are query, events, seed, rate, jitter-ms, splits, throttle, and
// out, the directory that the answer is written to; without one the rows are counted and dropped.
func Program() stream.Program { return program(nil) }

func program(m *meter) stream.Program {
	return stream.Program{Name: ProgramName, Build: func(j *stream.Job) {
		b := &builder{Job: j, meter: m, out: j.ArgOr("out", "")}
		q, keys, err := find(j.Arg("query"))
		b.keys = keys
		b.config = nexmark.Config{
			Seed: number(b, "seed", "1", parseUint), Events: number(b, "events", "", parseInt),
			Rate: number(b, "rate", "0", parseInt), Jitter: number(b, "jitter-ms", "0", parseInt),
			Splits: number(b, "splits", "0", strconv.Atoi), Throttle: number(b, "throttle", "0", parseFloat),
		}
		if err != nil {
			j.Fail("%v", err)
			return
		}
		q.build(b)
	}}
}

func parseInt(s string) (int64, error)     { return strconv.ParseInt(s, 10, 64) }
func parseUint(s string) (uint64, error)   { return strconv.ParseUint(s, 10, 64) }
func parseFloat(s string) (float64, error) { return strconv.ParseFloat(s, 64) }

// number reads an argument. An empty default means that it must be there.
func number[T any](b *builder, name, value string, parse func(string) (T, error)) T {
	text := b.ArgOr(name, value)
	if value == "" {
		if text = b.Arg(name); text == "" {
			var zero T
			return zero // Missing: the job says so.
		}
	}
	v, err := parse(text)
	if err != nil {
		b.Fail("argument %s: %v", name, err)
	}
	return v
}

// builder is a job that a query is built in.
type builder struct {
	*stream.Job
	config nexmark.Config
	keys   int64
	out    string // Where the answer goes, or empty.
	meter  *meter // Of a timed run, or nil.
}

func (j *builder) events() stream.Stream[nexmark.Event] {
	return j.Source("events", timed(j.meter, operator.Source[nexmark.Event](nexmark.Events(j.config))))
}

// sink ends a query: its rows are written, one a line, or dropped.
func sink[R any](j *builder, s stream.Stream[R], line func(dst []byte, r *R) []byte) {
	if j.out == "" {
		s.Sink("answer", &discard[R]{meter: j.meter})
		return
	}
	s.Sink("answer", file.Sink[R]{
		Path: j.out, Format: file.CSV, CSV: file.CSVOptions{NoHeader: true},
		Encode: func(dst []byte, r *R) ([]byte, error) { return line(dst, r), nil },
	})
}
