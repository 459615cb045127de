// Command program keeps a text for each of many keys: the program of the end-to-end test of large state.
package main

import (
	"strconv"

	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/connector/file"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/test/e2e/large"
	"github.com/cairnstream/cairn/test/e2e/numbers"
)

// entry is the state of a key.
type entry struct {
	Times int64
	Text  string
}

// step is what a record adds to a class.
type step struct {
	Class  uint32
	Digest uint64
}

// texts chains the texts of each key, and adds the digests of all up by class. Its arguments are keys, output, and those
// of numbers.From.
func texts(j *stream.Job) {
	keys, err := strconv.ParseInt(j.Arg("keys"), 10, 64)
	if err != nil || keys < large.Splits || keys%large.Splits != 0 {
		j.Fail("argument keys: %d, %v: want a multiple of %d", keys, err, large.Splits)
		keys = large.Splits
	}
	j.Source("numbers", numbers.From(j, large.Splits)).
		KeyBy(func(n *int64) uint64 { return large.Key(large.Index(*n, keys)) }).
		Process("texts", func(s *cairn.States[uint64]) cairn.Handler[uint64, int64, step] {
			state := s.Value[entry]("text")
			return cairn.Handler[uint64, int64, step]{
				Record: func(c *cairn.KeyedContext[uint64, step], n *int64) {
					e := state.Ref()
					d := large.Digest(e.Text, *n)
					e.Times++
					e.Text = large.Text(d)
					c.Emit(step{large.ClassOf(c.Key()), d})
				},
			}
		}).
		KeyBy(func(s *step) uint32 { return s.Class }).
		Process("classes", func(s *cairn.States[uint32]) cairn.Handler[uint32, step, large.Row] {
			state := s.Value[large.Row]("row")
			return cairn.Handler[uint32, step, large.Row]{
				Record: func(c *cairn.KeyedContext[uint32, large.Row], in *step) {
					row, created := state.RefNew()
					if created {
						row.Class = in.Class
						c.SetTimer(atTheEnd)
					}
					row.Add(in.Digest)
				},
				Timer: func(c *cairn.KeyedContext[uint32, large.Row]) {
					row, _ := state.Get()
					c.Emit(row)
				},
			}
		}).
		Sink("out", file.Sink[large.Row]{Path: j.Arg("output"), Format: file.CSV})
}

// atTheEnd is a time that no watermark reaches before the end of the data.
const atTheEnd = 1 << 60

func main() { cairn.Main(cairn.Program("texts", texts)) }
