package datagen

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

// Source makes records of the indices 0, 1, 2, ... Exactly one of Make and Fill is set. They are called by several
// subtasks at once, and again for the same index after a restart: they must give the same record then.
type Source[T any] struct {
	// Make fills in *v, which is zero, with record n.
	Make func(n int64, v *T)
	// Fill fills in rows, which are zero, with the records from first on: for when a call per record is too much.
	Fill func(first int64, rows []T)
	// Count is the number of records; 0 never ends.
	Count int64
	// Rate is the number of records per second over all subtasks; 0 is as fast as they are taken.
	Rate float64
	// NumSplits is the number of parts that can be read side by side; 0 is one per subtask. The indices are dealt out
	// to them one by one with Make, so that they advance together, and in runs of 1024 with Fill.
	NumSplits int
}

const fillBlock = 1024

// Validate implements operator.Source.
func (s Source[T]) Validate() error {
	var errs []error
	if (s.Make == nil) == (s.Fill == nil) {
		errs = append(errs, errors.New("set either Make or Fill"))
	}
	if s.Count < 0 {
		errs = append(errs, fmt.Errorf("Count is %d; it is a number of records, or 0 for no end", s.Count))
	}
	if s.NumSplits < 0 {
		errs = append(errs, fmt.Errorf("NumSplits is %d; it is at least 1, or 0 for one per subtask", s.NumSplits))
	}
	if err := pace.Validate(s.Rate); err != nil {
		errs = append(errs, fmt.Errorf("Rate: %w", err))
	}
	return errors.Join(errs...)
}

// Bounded implements operator.Source.
func (s Source[T]) Bounded() bool { return s.Count > 0 }

// Splits implements operator.Source.
func (s Source[T]) Splits(_ context.Context, c operator.SourceContext) ([]operator.Split, error) {
	count := s.Count
	if count == 0 {
		count = math.MaxInt64
	}
	block := int64(1)
	if s.Fill != nil {
		block = fillBlock
	}
	return deal(count, block, s.NumSplits, c.Parallelism), nil
}

// Open implements operator.Source.
func (s Source[T]) Open(ctx context.Context, c operator.SourceContext, split operator.Split) (operator.SplitReader[T], error) {
	return open(ctx, c, split, s.Rate, s.fill, s.Make)
}

func (s Source[T]) fill(first int64, rows []T) {
	if s.Fill != nil {
		s.Fill(first, rows)
		return
	}
	for i := range rows {
		s.Make(first+int64(i), &rows[i])
	}
}

// Slice serves the records of a slice, which nobody may change while the job runs. Every process that runs a part of
// the job holds it, so it is for tests and small tables.
type Slice[T any] struct {
	Rows      []T
	Rate      float64 // Records per second over all subtasks; 0 is no limit.
	NumSplits int     // The rows are dealt out to so many splits in runs of 64; 0 is one split, in order.
}

const sliceBlock = 64

// Validate implements operator.Source.
func (s Slice[T]) Validate() error {
	count := Source[T]{Fill: s.fill, Rate: s.Rate, NumSplits: s.NumSplits}
	return count.Validate()
}

// Bounded implements operator.Source.
func (s Slice[T]) Bounded() bool { return true }

// Splits implements operator.Source.
func (s Slice[T]) Splits(context.Context, operator.SourceContext) ([]operator.Split, error) {
	n := max(1, s.NumSplits)
	block := int64(sliceBlock)
	if n == 1 {
		block = max(1, int64(len(s.Rows)))
	}
	return deal(int64(len(s.Rows)), block, n, 1), nil
}

// Open implements operator.Source.
func (s Slice[T]) Open(ctx context.Context, c operator.SourceContext, split operator.Split) (operator.SplitReader[T], error) {
	b, err := decode(split.Body)
	if err == nil && b.Count != int64(len(s.Rows)) {
		err = job.Errorf(job.ClassRefused, "split %s is of %d records, but the slice has %d: it changed since the checkpoint", split.ID, b.Count, len(s.Rows))
	}
	if err != nil {
		return nil, err
	}
	return open(ctx, c, split, s.Rate, s.fill, nil)
}

func (s Slice[T]) fill(first int64, rows []T) { copy(rows, s.Rows[first:]) }

// body is the description of a split: every Of-th block of Block indices from block number Split on, below Count.
// The split was read up to Next, an index of its own, or one behind its end.
type body struct {
	V     int   `json:"v"`
	Split int64 `json:"split"`
	Of    int64 `json:"of"`
	Block int64 `json:"block"`
	Count int64 `json:"count"`
	Next  int64 `json:"next"`
}

const version = 1

func (b body) split() operator.Split {
	raw, err := json.Marshal(b)
	if err != nil {
		panic(err) // Integers only.
	}
	return operator.Split{ID: fmt.Sprintf("%d/%d", b.Split, b.Of), Body: raw}
}

func decode(raw []byte) (b body, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		return b, job.Errorf(job.ClassRefused, "description of a split %q: %w", raw, err)
	}
	switch {
	case b.V != version:
		err = fmt.Errorf("version %d is unknown here, where it is %d", b.V, version)
	case b.Of < 1 || b.Split < 0 || b.Split >= b.Of || b.Block < 1 || b.Count < 0 || b.Next < 0,
		b.Block > math.MaxInt64/b.Of:
		err = errors.New("numbers out of range")
	}
	if err != nil {
		return b, job.Errorf(job.ClassRefused, "description of a split %q: %w", raw, err)
	}
	return b, nil
}

func deal(count, block int64, splits, parallelism int) []operator.Split {
	if splits == 0 {
		splits = max(1, parallelism)
	}
	list := make([]operator.Split, 0, splits)
	for i := range int64(splits) {
		if i*block < count {
			list = append(list, body{V: version, Split: i, Of: int64(splits), Block: block, Count: count, Next: i * block}.split())
		}
	}
	return list
}

func open[T any](ctx context.Context, c operator.SourceContext, split operator.Split, rate float64, fill func(int64, []T), each func(int64, *T)) (operator.SplitReader[T], error) {
	b, err := decode(split.Body)
	if err != nil {
		return nil, err
	}
	r := &reader[T]{body: b, fill: fill}
	r.gate, r.leave = pace.Join(ctx, c.Name, pace.Share(rate, c.Parallelism, int(b.Of)), c.Now, c.Wake)
	if b.Block == 1 {
		r.each = each
	}
	return r, nil
}

type reader[T any] struct {
	body  body
	fill  func(first int64, rows []T)
	each  func(n int64, v *T) // For blocks of one, or nil.
	gate  *pace.Gate
	leave func()
}

// Read implements operator.SplitReader.
func (r *reader[T]) Read(b *record.Batch[T], limit int) (operator.ReadStatus, error) {
	if r.body.Next >= r.body.Count {
		return operator.ReadEnd, nil
	}
	take := r.gate.Take(limit)
	if take == 0 && limit > 0 {
		return operator.ReadWait, nil
	}
	old := len(b.Rows)
	b.Rows = slices.Grow(b.Rows, take)[:old+take]
	rows := b.Rows[old:]
	clear(rows)
	n := 0
	if r.each != nil {
		n = r.readEach(rows)
	} else {
		for n < len(rows) && r.body.Next < r.body.Count {
			n += r.readRun(rows[n:])
		}
	}
	b.Rows = b.Rows[:old+n]
	r.gate.Return(take - n)
	if r.body.Next >= r.body.Count {
		return operator.ReadEnd, nil
	}
	return operator.ReadMore, nil
}

func (r *reader[T]) readEach(rows []T) int {
	next, step := r.body.Next, r.body.Of
	left := (r.body.Count - next + step - 1) / step
	if step > 1 && r.body.Count == math.MaxInt64 {
		left = (r.body.Count - next) / step
	}
	if int64(len(rows)) > left {
		rows = rows[:left]
	}
	for i := range rows {
		r.each(next, &rows[i])
		next += step
	}
	if int64(len(rows)) == left {
		next = r.body.Count
	}
	r.body.Next = next
	return len(rows)
}

// readRun fills the front of rows with what is left of the block, and moves on behind it.
func (r *reader[T]) readRun(rows []T) int {
	next := r.body.Next
	left := min(r.body.Block-next%r.body.Block, r.body.Count-next)
	n := min(left, int64(len(rows)))
	r.fill(next, rows[:n])
	if next += n; n == left {
		skip := r.body.Block * (r.body.Of - 1)
		if next > r.body.Count-skip {
			next = r.body.Count
		} else {
			next += skip
		}
	}
	r.body.Next = next
	return int(n)
}

// Position implements operator.SplitReader.
func (r *reader[T]) Position() operator.Split { return r.body.split() }

// Close implements operator.SplitReader.
func (r *reader[T]) Close() error {
	r.leave()
	return nil
}
