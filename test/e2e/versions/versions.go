// Package versions is what the end-to-end test of changed types and the versions of its program (versions/first and so on)
// agree upon: the records, and how what is in the states of a key is shown.
package versions

import (
	"encoding/json"
	"fmt"

	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/connector/file"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/test/e2e/numbers"
)

const (
	// Count is the number of records. Splits is of their source: those of a key are in one split, so that their order is
	// known.
	Count, Splits = 6000, 2
	// keys of each sort, a multiple of Splits.
	keys = 8
	// The cold keys have records before Hot and from Cold on, and none between: their states are read as they were written
	// two versions before.
	Hot, Cold = 200, 4600
	// Steps is the longest history.
	Steps = 5
)

// KeyOf is the key of record n.
func KeyOf(n int64) string {
	if n < Hot || n >= Cold && n/keys%2 == 0 {
		return fmt.Sprintf("cold-%d", n%keys)
	}
	return fmt.Sprintf("hot-%d", n%keys)
}

// Amount is the amount of record n.
func Amount(n int64) int32 { return int32(n * 7919 % 1000) }

// Item is the item of record n.
func Item(n int64) string { return fmt.Sprintf("item-%d", n/keys%3) }

// Row is what is said of each record: the states of its key behind it, by the version that met it.
type Row struct {
	N       int64
	Version int
	States  string // A View.
}

// View is what the states of a key hold, whatever the types and names of a version are. What a version does not have is
// zero.
type View struct {
	Count, Total int64
	Owner, Note  string
	Line         int64
	Place        string
	Tags         []string         `json:",omitempty"`
	Level        uint32           `json:",omitempty"`
	Marks        map[string]int32 `json:",omitempty"`
	Items        map[string]Owned
	History      []Step
	Recent       Step
	Seen         int64
}

// Owned is an item in a View.
type Owned struct {
	N  int64
	By string
}

// Step is a step of the history, or the most recent record, in a View.
type Step struct {
	N    int64
	Kind string
	V    int64
}

func (v View) String() string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // Strings and numbers only.
	}
	return string(text)
}

// Main runs a version of the program, which keeps states for each key. update takes record n into the states and
// returns what is in them then.
func Main(version int, declare func(s *cairn.States[string]) (update func(n int64) View)) {
	cairn.Main(cairn.Program("versions", func(j *stream.Job) {
		j.Source("numbers", numbers.From(j, Splits)).
			KeyBy(func(n *int64) string { return KeyOf(*n) }).
			Process("accounts", func(s *operator.States[string]) operator.Handler[string, int64, Row] {
				update := declare(s)
				return operator.Handler[string, int64, Row]{
					Record: func(c *operator.KeyedContext[string, Row], n *int64) {
						c.Emit(Row{*n, version, update(*n).String()})
					},
				}
			}).
			Sink("out", file.Sink[Row]{Path: j.Arg("output"), Format: file.NDJSON})
	}))
}
