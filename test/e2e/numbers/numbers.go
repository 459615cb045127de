// Package numbers is a source for the end-to-end tests: the numbers 0, 1, 2, ..., which a test can hold up.
package numbers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/cairnstream/cairn/connector/pace"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/stream"
)

// Source gives the numbers below Count, the i-th split every Parts-th of them from i on.
type Source struct {
	Count int64
	Parts int
	Rate  float64 // Numbers per second over all splits; 0 is no limit.
	// Hold is where the numbers stop until there is a file named Gate; 0 is nowhere.
	Hold int64
	Gate string
}

// From is the source that the arguments of a job describe: count, splits, rate, hold and gate.
func From(j *stream.Job, parts int) Source {
	number := func(name, otherwise string) int64 {
		n, err := strconv.ParseInt(j.ArgOr(name, otherwise), 10, 64)
		if err != nil {
			j.Fail("argument %s: %v", name, err)
		}
		return n
	}
	return Source{
		Count: number("count", ""), Parts: parts, Rate: float64(number("rate", "0")),
		Hold: number("hold", "0"), Gate: j.ArgOr("gate", ""),
	}
}

// position is where a split is read on.
type position struct{ Split, Next int64 }

func (p position) split() operator.Split {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // Integers only.
	}
	return operator.Split{ID: strconv.FormatInt(p.Split, 10), Body: body}
}

// Validate implements operator.Source.
func (s Source) Validate() error {
	if s.Count < 1 || s.Parts < 1 || s.Hold < 0 || s.Hold > 0 && s.Gate == "" {
		return errors.New("a source of numbers needs Count and Parts, and with Hold a Gate")
	}
	return pace.Validate(s.Rate)
}

// Bounded implements operator.Source.
func (Source) Bounded() bool { return true }

// Splits implements operator.Source.
func (s Source) Splits(context.Context, operator.SourceContext) ([]operator.Split, error) {
	var list []operator.Split
	for i := range int64(s.Parts) {
		list = append(list, position{i, i}.split())
	}
	return list, nil
}

// Open implements operator.Source.
func (s Source) Open(_ context.Context, c operator.SourceContext, split operator.Split) (operator.SplitReader[int64], error) {
	r := &reader{s: s, wake: c.Wake, gate: pace.New(s.Rate/float64(s.Parts), c.Now, c.Wake)}
	if err := json.Unmarshal(split.Body, &r.at); err != nil {
		return nil, fmt.Errorf("split %s: %w", split.ID, err)
	}
	return r, nil
}

type reader struct {
	s    Source
	at   position
	gate *pace.Gate
	wake func()
	look *time.Timer // The next look at the gate's file.
}

// lookAgain is the time between two looks.
const lookAgain = 100 * time.Millisecond

// Read implements operator.SplitReader.
func (r *reader) Read(b *record.Batch[int64], limit int) (operator.ReadStatus, error) {
	end := r.s.Count
	if r.s.Hold > 0 && r.s.Hold < end {
		if _, err := os.Stat(r.s.Gate); err != nil {
			end = r.s.Hold
		}
	}
	switch {
	case r.at.Next >= r.s.Count:
		return operator.ReadEnd, nil
	case r.at.Next >= end:
		r.close()
		r.look = time.AfterFunc(lookAgain, r.wake)
		return operator.ReadWait, nil
	}
	step := int64(r.s.Parts)
	take := r.gate.Take(limit)
	if take == 0 && limit > 0 {
		return operator.ReadWait, nil
	}
	for ; take > 0 && r.at.Next < end; take-- {
		b.Rows = append(b.Rows, r.at.Next)
		r.at.Next += step
	}
	r.gate.Return(take)
	return operator.ReadMore, nil
}

// Position implements operator.SplitReader.
func (r *reader) Position() operator.Split { return r.at.split() }

// Close implements operator.SplitReader.
func (r *reader) Close() error {
	r.close()
	r.gate.Close()
	return nil
}

func (r *reader) close() {
	if r.look != nil {
		r.look.Stop()
	}
}
