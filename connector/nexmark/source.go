package nexmark

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cairnstream/cairn/connector/pace"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
)

// BlockSize is the number of records of a block. Block b belongs to split b modulo the number of splits; a watermark
// follows the last record of each complete block.
const BlockSize = 1000

// Source reads the records of a run. Records have times and streams have watermarks without further ado.
type Source[T any] struct {
	config Config
	filler func(Config) filler[T]
	err    error
}

// filler makes the records from number first on, and their times. One goroutine uses it.
type filler[T any] interface {
	Fill(first int64, rows []T, times []int64)
	watermark(n int64) int64
}

// Events is the source of all events of c.
func Events(c Config) Source[Event] {
	return newSource(c, func(c Config) filler[Event] { return NewGenerator(c) })
}

// Keys is the source of the micro-benchmark of keyed state: record n is one of so many keys.
func Keys(c Config, keys int64) Source[uint64] {
	s := newSource(c, func(c Config) filler[uint64] { return &numbers{newClock(c), uint64(keys)} })
	if keys < 1 || keys > math.MaxUint32 {
		s.err = fmt.Errorf("%d keys; it is a number from 1 to 2^32-1", keys)
	}
	return s
}

// Draws is the source of the micro-benchmark of exchanges: record n is a number of 64 bits.
func Draws(c Config) Source[uint64] {
	return newSource(c, func(c Config) filler[uint64] { return &numbers{newClock(c), 0} })
}

func newSource[T any](c Config, f func(Config) filler[T]) Source[T] {
	return Source[T]{config: c.WithDefaults(), filler: f}
}

// numbers makes records of one number, below keys if that is not 0.
type numbers struct {
	clock
	keys uint64
}

func (g *numbers) Fill(first int64, rows []uint64, times []int64) {
	g.times(first, times)
	z := g.state(first)
	if g.keys == 0 {
		for i := range rows {
			rows[i] = Mix(z)
			z += gamma16
		}
		return
	}
	for i := range rows {
		rows[i] = hi(Mix(z), g.keys)
		z += gamma16
	}
}

// Validate implements operator.Source.
func (s Source[T]) Validate() error { return errors.Join(s.err, s.config.Validate()) }

// Bounded implements operator.Source.
func (s Source[T]) Bounded() bool { return s.config.Events < maxEvents }

// Splits implements operator.Source.
func (s Source[T]) Splits(_ context.Context, c operator.SourceContext) ([]operator.Split, error) {
	of := int64(s.config.Splits)
	if of == 0 {
		of = int64(max(1, c.Parallelism))
	}
	var list []operator.Split
	for i := range min(of, (s.config.Events+BlockSize-1)/BlockSize) {
		list = append(list, position{V: version, Split: i, Of: of, Events: s.config.Events, Next: i * BlockSize}.split())
	}
	return list, nil
}

// Open implements operator.Source.
func (s Source[T]) Open(ctx context.Context, c operator.SourceContext, split operator.Split) (operator.SplitReader[T], error) {
	at, err := decode(split.Body)
	if err != nil {
		return nil, err
	}
	if at.Events != s.config.Events {
		return nil, job.Errorf(job.ClassRefused, "split %s is of %d events, but the job has %d: it changed since the checkpoint", split.ID, at.Events, s.config.Events)
	}
	r := &reader[T]{at: at, filler: s.filler(s.config)}
	r.gate, r.leave = pace.Join(ctx, c.Name, pace.Share(s.config.Throttle, c.Parallelism, int(at.Of)), c.Now, c.Wake)
	return r, nil
}

// position is the description of a split: every Of-th block from block number Split on, of Events records in all. It
// was read up to record Next of its own, or to the end.
type position struct {
	V      int   `json:"v"`
	Split  int64 `json:"split"`
	Of     int64 `json:"of"`
	Events int64 `json:"events"`
	Next   int64 `json:"next"`
}

const version = 1

func (p position) split() operator.Split {
	raw, err := json.Marshal(p)
	if err != nil {
		panic(err) // Integers only.
	}
	return operator.Split{ID: fmt.Sprintf("%d/%d", p.Split, p.Of), Body: raw}
}

func decode(raw []byte) (p position, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, job.Errorf(job.ClassRefused, "description of a split %q: %w", raw, err)
	}
	switch {
	case p.V != version:
		err = fmt.Errorf("version %d is unknown here, where it is %d", p.V, version)
	case p.Of < 1 || p.Of > 1<<20 || p.Split < 0 || p.Split >= p.Of || p.Events < 0 || p.Events > maxEvents,
		p.Next < 0 || p.Next > p.Events, p.Next < p.Events && p.Next/BlockSize%p.Of != p.Split:
		err = errors.New("numbers out of range")
	}
	if err != nil {
		return p, job.Errorf(job.ClassRefused, "description of a split %q: %w", raw, err)
	}
	return p, nil
}

type reader[T any] struct {
	at     position
	filler filler[T]
	gate   *pace.Gate
	leave  func()
}

// Read implements operator.SplitReader.
func (r *reader[T]) Read(b *record.Batch[T], limit int) (operator.ReadStatus, error) {
	if r.at.Next >= r.at.Events {
		return operator.ReadEnd, nil
	}
	take := r.gate.Take(limit)
	if take == 0 && limit > 0 {
		return operator.ReadWait, nil
	}
	left := take
	for left > 0 && r.at.Next < r.at.Events {
		n := min(int64(left), BlockSize-r.at.Next%BlockSize, r.at.Events-r.at.Next)
		r.read(b, int(n))
		left -= int(n)
	}
	r.gate.Return(left)
	if r.at.Next >= r.at.Events {
		return operator.ReadEnd, nil
	}
	return operator.ReadMore, nil
}

// read appends the next n records, which are of one block, and moves on behind them.
func (r *reader[T]) read(b *record.Batch[T], n int) {
	old := len(b.Rows)
	b.Rows = slices.Grow(b.Rows, n)[:old+n]
	b.Times = slices.Grow(b.Times, n)[:old+n]
	r.filler.Fill(r.at.Next, b.Rows[old:], b.Times[old:])
	r.at.Next += int64(n)
	if r.at.Next%BlockSize == 0 {
		b.Mark(record.Watermark, r.filler.watermark(r.at.Next-1))
		r.at.Next = min(r.at.Next+(r.at.Of-1)*BlockSize, r.at.Events)
	}
}

// Position implements operator.SplitReader.
func (r *reader[T]) Position() operator.Split { return r.at.split() }

// Close implements operator.SplitReader.
func (r *reader[T]) Close() error {
	r.leave()
	return nil
}
