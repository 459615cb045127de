package operator

import (
	"fmt"
	"slices"
	"time"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/watermark"
)

// Timing says what the event times of a stream's records are, and what its watermarks follow from.
type Timing[T any] struct {
	// Time gives a record's event time. nil keeps the times that the source gives.
	Time func(*T) time.Time
	// Mark tells whether a record carries a watermark: that no record with a time at or before it
	// follows in its split. It is nil where records carry none.
	Mark func(*T) (at time.Time, ok bool)
	// Strategy makes watermarks beside those of Mark.
	Strategy watermark.Strategy
}

// stamper gives the rows of batches their times and finds those that cannot be right.
type stamper[T any] struct {
	Timing[T]
	c       *Context
	where   string // For errors: of what the records are.
	check   bool   // Times are looked at at all.
	limited bool   // The limit depends on the clock.
	side    Output // Of Divert, else nil.
	pool    *record.Pool[T]

	furthest int64         // Up to here times are believed, at present.
	marks    []record.Mark // Of the last batch, made of records: watermarks in their places.
	good     []int64       // Scratch: the times for a rule of the user's own.
	diverted *record.Batch[T]
}

func (s *stamper[T]) open(c *Context, where string) {
	s.c, s.where = c, where
	s.pool = record.PoolOf[T]()
	s.check = s.Time != nil || s.Strategy.MakesWatermarks()
	s.limited = s.Strategy.Limited()
	s.furthest = watermark.MaxTime
	if s.Strategy.Action() == watermark.Divert && c.Side != nil {
		s.side = c.Side(watermark.SideOutput)
	}
}

// stamp gives the selected rows of b their times and returns the newest of them that is believed.
// The watermarks that rows carry are in s.marks then.
func (s *stamper[T]) stamp(b *record.Batch[T], now time.Time) (newest int64, err error) {
	s.marks = s.marks[:0]
	s.look(now)
	newest = record.MinTime
	if s.check {
		var oldest int64
		newest, oldest = s.times(b)
		if newest > s.furthest || oldest <= watermark.Absent {
			if newest, err = s.sort(b); err != nil {
				return 0, err
			}
		}
	}
	if s.Mark != nil {
		return newest, s.findMarks(b)
	}
	return newest, nil
}

// tell tells gen of a batch that was stamped: of what follows from it at its end.
func (s *stamper[T]) tell(b *record.Batch[T], gen *watermark.Generator, newest int64, now time.Time) error {
	if newest == record.MinTime {
		return nil
	}
	gen.OnBatch(newest)
	if s.Strategy.NeedsTimes() {
		s.giveTimes(b, gen)
		return s.ask(gen, now)
	}
	return nil
}

// look looks at the clock.
func (s *stamper[T]) look(now time.Time) {
	if s.limited {
		s.furthest = s.Strategy.Furthest(now)
	}
}

// times fills b.Times and returns the newest and the oldest of the selected rows.
func (s *stamper[T]) times(b *record.Batch[T]) (newest, oldest int64) {
	newest, oldest = record.MinTime, record.MaxTime
	n := len(b.Rows)
	if s.Time == nil {
		if len(b.Times) != n {
			b.Times = slices.Grow(b.Times[:0], n)[:n] // The source gives none: all are absent.
			for i := range b.Times {
				b.Times[i] = record.MinTime
			}
		}
		for i := range b.Len() {
			ms := b.Times[rowAt(b, i)]
			newest, oldest = max(newest, ms), min(oldest, ms)
		}
		return newest, oldest
	}
	b.Times = slices.Grow(b.Times[:0], n)[:n]
	if b.Sel == nil {
		f, times := s.Time, b.Times
		for i := range b.Rows {
			ms := watermark.Millis(f(&b.Rows[i]))
			times[i] = ms
			newest, oldest = max(newest, ms), min(oldest, ms)
		}
		return newest, oldest
	}
	for i := range b.Times {
		b.Times[i] = record.MinTime
	}
	for _, i := range b.Sel { // Time sees no record that was filtered away.
		ms := watermark.Millis(s.Time(&b.Rows[i]))
		b.Times[i] = ms
		newest, oldest = max(newest, ms), min(oldest, ms)
	}
	return newest, oldest
}

// rowAt is the index of the i-th selected row.
func rowAt[T any](b *record.Batch[T], i int) int {
	if b.Sel == nil {
		return i
	}
	return int(b.Sel[i])
}

// sort deals with the rows whose times cannot be right and returns the newest of the others.
func (s *stamper[T]) sort(b *record.Batch[T]) (newest int64, err error) {
	newest = record.MinTime
	n := b.Len()
	keep := b.Selection()
	for i := range n {
		at := rowAt(b, i)
		ms := b.Times[at]
		usable := watermark.Usable(ms)
		if usable && ms <= s.furthest {
			keep = append(keep, int32(at))
			newest = max(newest, ms)
			continue
		}
		if usable {
			s.c.Counters.Ahead.Add(1)
		} else {
			s.c.Counters.NoTime.Add(1)
		}
		switch a := s.Strategy.Action(); {
		case a == watermark.Drop:
		case a == watermark.Divert:
			s.divert(b, at, ms, usable)
		case a == watermark.Hold && usable:
			keep = append(keep, int32(at))
		default:
			return 0, s.refuse(&b.Rows[at], ms)
		}
	}
	if len(keep) < n {
		b.Sel = keep
	}
	return newest, nil
}

func (s *stamper[T]) divert(b *record.Batch[T], at int, ms int64, usable bool) {
	if s.side == nil {
		return
	}
	if !usable {
		ms = record.MinTime
	}
	if s.diverted == nil {
		s.diverted = s.pool.Get()
	}
	s.diverted.Append(b.Rows[at], ms)
}

// refuse is the error of a record whose time cannot be right.
func (s *stamper[T]) refuse(row *T, ms int64) error {
	const most = 300
	text := fmt.Sprintf("%+v", *row)
	if len(text) > most {
		text = text[:most] + "..."
	}
	var what string
	switch {
	case ms > watermark.MaxTime || ms < watermark.MinTime && ms != record.MinTime:
		what = fmt.Sprintf("has the time %d ms, which is out of range", ms)
	case ms == record.MinTime && s.Time != nil:
		what = "has a time that is out of range"
	case ms == record.MinTime && s.Mark == nil && s.Time == nil:
		what = "has no time, since its source gives none: use Timestamps instead of Watermarks"
	case ms == watermark.Absent:
		what = "has no time: it is zero"
	default:
		what = fmt.Sprintf("has the time %s, which is ahead of the clock by more than the strategy allows", time.UnixMilli(ms).UTC().Format(time.RFC3339))
	}
	return job.Errorf(job.ClassRecord, "%s: a record %s: %s", s.where, what, text)
}

// giveTimes gives a rule of the user's own the times that are believed.
func (s *stamper[T]) giveTimes(b *record.Batch[T], gen *watermark.Generator) {
	s.good = s.good[:0]
	for i := range b.Len() {
		if ms := b.Times[rowAt(b, i)]; ms <= s.furthest && watermark.Usable(ms) {
			s.good = append(s.good, ms)
		}
	}
	gen.OnTimes(s.good)
}

// findMarks collects the watermarks that records carry.
func (s *stamper[T]) findMarks(b *record.Batch[T]) error {
	for i := range b.Len() {
		at := rowAt(b, i)
		t, ok := s.Mark(&b.Rows[at])
		if !ok {
			continue
		}
		w := watermark.Millis(t)
		if !watermark.Usable(w) || w > s.furthest {
			if err := s.badMark(&b.Rows[at], w); err != nil {
				return err
			}
			continue
		}
		s.marks = append(s.marks, record.Mark{Kind: record.Watermark, Pos: int32(at) + 1, Time: w})
	}
	return nil
}

// badMark counts a watermark that cannot be right. The record itself goes on.
func (s *stamper[T]) badMark(row *T, w int64) error {
	s.c.Counters.Ahead.Add(1)
	if s.Strategy.Action() == watermark.Fail {
		return fmt.Errorf("watermark: %w", s.refuse(row, w))
	}
	return nil
}

// ask asks a rule of the user's own for its watermark.
func (s *stamper[T]) ask(gen *watermark.Generator, now time.Time) error {
	if !s.Strategy.NeedsTimes() {
		return nil
	}
	s.look(now)
	if gen.Ask(now, s.furthest) {
		return nil
	}
	s.c.Counters.Ahead.Add(1)
	if s.Strategy.Action() == watermark.Fail {
		return job.Errorf(job.ClassUser, "%s: the watermark of %v is ahead of the clock by more than it allows", s.where, s.Strategy)
	}
	return nil
}

// emitSide hands on what was diverted, with the marks of the batch that it was found in.
func (s *stamper[T]) emitSide(marks []record.Mark) error {
	d := s.diverted
	if d == nil {
		if s.side == nil || len(marks) == 0 {
			return nil
		}
		d = s.pool.Get()
	}
	s.diverted = nil
	for _, m := range marks {
		d.Mark(m.Kind, m.Time)
	}
	return s.side.Emit(d)
}

func (s *stamper[T]) drop() {
	if s.diverted != nil {
		s.diverted.Release()
		s.diverted = nil
	}
}
