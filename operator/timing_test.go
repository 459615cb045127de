package operator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/watermark"
)

// stamped is a row whose time may be anything.
type stamped struct {
	N    int
	At   time.Time
	Mark int64 // A watermark that it carries, if not 0.
}

func (s stamped) String() string { return fmt.Sprint(s.N) }

func (s *stamped) time() time.Time { return s.At }

func (s *stamped) mark() (time.Time, bool) { return time.UnixMilli(s.Mark), s.Mark != 0 }

// shelf is a source of one split of all its rows.
type shelf struct {
	feed
	rows  []stamped
	times []int64 // Given by the source, if set.
}

func (s *shelf) open(int) SplitReader[stamped] { return &shelfReader{s: s} }

type shelfReader struct {
	s    *shelf
	done bool
}

func (r *shelfReader) Read(b *record.Batch[stamped], _ int) (ReadStatus, error) {
	if !r.done {
		b.Rows = append(b.Rows, r.s.rows...)
		b.Times = append(b.Times, r.s.times...)
		r.done = true
	}
	return ReadWait, nil
}
func (r *shelfReader) Position() Split { return Split{} }
func (r *shelfReader) Close() error    { return nil }

// timingRun runs rows through a reader, or through Timestamps in two batches, one of them filtered.
func timingRun(t *testing.T, inReader bool, tm Timing[stamped], rows []stamped, times []int64) (main, side string, c *Counters, err error) {
	t.Helper()
	out, beside := &recorder[stamped]{}, &recorder[stamped]{}
	s := surround(out)
	s.c.Side = func(string) Output { return beside }
	show := func(events []ev[stamped]) string {
		var b strings.Builder
		for _, e := range tidy(events) {
			fmt.Fprintf(&b, "%v ", e)
		}
		return strings.TrimSpace(b.String())
	}
	if inReader {
		sh := &shelf{rows: rows, times: times}
		r := &reader[stamped]{stamper: stamper[stamped]{Timing: tm}}
		r.inOrder = true
		r.stamper.open(s.c, "source \"op\"")
		r.align = newAlignment(tm.Strategy)
		r.rows, r.mark, r.started, r.noMore = 100, record.MinTime, true, true
		r.idle.waited = newWaitClock(0)
		r.active = []*activeSplit[stamped]{{r: sh.open(0), gen: tm.Strategy.NewGenerator(), split: Split{ID: "s1"}}}
		_, err = r.Poll()
	} else {
		op := TimestampsOf(tm)
		if err := op.Open(s.c); err != nil {
			t.Fatal(err)
		}
		b := record.PoolOf[stamped]().Get()
		b.Rows = append(b.Rows, stamped{N: -1}) // Filtered away: it has no time, and nobody minds.
		b.Rows = append(b.Rows, rows...)
		if times != nil {
			b.Times = append(append(b.Times, 0), times...)
		}
		b.Sel = b.Selection()
		for i := range rows {
			b.Sel = append(b.Sel, int32(i+1))
		}
		b.Marks = append(b.Marks, record.Mark{Kind: record.Watermark, Time: 1 << 40}) // Not its own.
		err = op.Push(0, b)
		if cerr := op.Close(); cerr != nil {
			t.Fatal(cerr)
		}
	}
	return show(out.events), show(beside.events), s.c.Counters, err
}

// Times that are absent, out of range, or far ahead of the clock, which stands at 1,000,000 ms:
// none of them moves the watermark, each is counted, and what becomes of it is as configured.
func TestBadTimes(t *testing.T) {
	ms := time.UnixMilli
	rows := []stamped{
		{N: 1, At: ms(500)}, {N: 2, At: time.Unix(1<<60, 0)}, {N: 3}, {N: 4, At: ms(1_000_000 + 60_001)}, {N: 5, At: ms(400)},
		{N: 6, At: ms(1_000_000 + 60_000)}, {N: 7, At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
	}
	base := watermark.Monotonous().MaxAhead(time.Minute)
	for _, inReader := range []bool{true, false} {
		tm := Timing[stamped]{Time: (*stamped).time, Strategy: base.BadTimes(watermark.Drop)}
		main, side, c, err := timingRun(t, inReader, tm, rows, nil)
		if main != "1@500 5@400 6@1060000 W1059999" || side != "" || err != nil || c.NoTime.Load() != 2 || c.Ahead.Load() != 2 {
			t.Errorf("drop: %s, beside %s, %v", main, side, err)
		}
		tm.Strategy = base.BadTimes(watermark.Divert)
		main, side, c, err = timingRun(t, inReader, tm, rows, nil)
		if main != "1@500 5@400 6@1060000 W1059999" || err != nil || c.NoTime.Load() != 2 || c.Ahead.Load() != 2 {
			t.Errorf("divert: %s, %v", main, err)
		}
		if want := fmt.Sprintf("2@%d 3@%d 4@1060001 7@253370764800000 W1059999", record.MinTime, record.MinTime); side != want {
			t.Errorf("divert: %s, want %s", side, want)
		}
		tm.Strategy = base
		for i, want := range map[int]string{1: "out of range", 2: "no time: it is zero"} {
			_, _, c, err = timingRun(t, inReader, tm, rows[i:], nil)
			var e *job.Error
			if err == nil || !errors.As(err, &e) || e.Class != job.ClassRecord || !strings.Contains(err.Error(), want) || c.NoTime.Load() != 1 {
				t.Errorf("hold: %v, want %s", err, want)
			}
		}
		main, _, c, err = timingRun(t, inReader, tm, rows[3:], nil) // Those ahead go on, and change nothing.
		if main != "4@1060001 5@400 6@1060000 7@253370764800000 W1059999" || err != nil || c.Ahead.Load() != 2 {
			t.Errorf("hold: %s, %v", main, err)
		}
		tm.Strategy = base.BadTimes(watermark.Fail)
		_, _, _, err = timingRun(t, inReader, tm, rows[3:], nil)
		if err == nil || !strings.Contains(err.Error(), "1970-01-01T00:17:40Z") || !strings.Contains(err.Error(), "ahead of the clock") {
			t.Errorf("fail: %v", err)
		}
		// By default a day is allowed, and nothing is lost.
		tm.Strategy = watermark.Monotonous()
		main, _, _, err = timingRun(t, inReader, tm, rows[3:], nil)
		if main != "4@1060001 5@400 6@1060000 7@253370764800000 W1060000" || err != nil {
			t.Errorf("default: %s, %v", main, err)
		}
		tm.Strategy = watermark.Monotonous().MaxAhead(watermark.Unlimited)
		main, _, _, _ = timingRun(t, inReader, tm, rows[3:], nil)
		if main != "4@1060001 5@400 6@1060000 7@253370764800000 W253370764799999" {
			t.Errorf("unlimited: %s", main)
		}
		// Times before the year 1 are as good as others.
		old := []stamped{{N: 1, At: time.Date(-43, 3, 15, 0, 0, 0, 0, time.UTC)}}
		if main, _, _, err := timingRun(t, inReader, tm, old, nil); err != nil || !strings.HasPrefix(main, "1@-63517824000000 W") {
			t.Errorf("%s, %v", main, err)
		}
	}
}

// Times that the source gives are looked at where watermarks are made of them.
func TestTimesOfTheSource(t *testing.T) {
	rows := []stamped{{N: 1}, {N: 2}, {N: 3}}
	tm := Timing[stamped]{Strategy: watermark.Monotonous().BadTimes(watermark.Drop)}
	main, _, c, err := timingRun(t, true, tm, rows, []int64{5, record.MinTime, record.MaxTime})
	if main != "1@5 W4" || err != nil || c.NoTime.Load() != 2 {
		t.Errorf("%s, %v", main, err)
	}
	tm.Strategy = watermark.Monotonous()
	if _, _, _, err := timingRun(t, true, tm, rows, nil); err == nil || !strings.Contains(err.Error(), "its source gives none") {
		t.Errorf("a source without times: %v", err)
	}
	tm.Strategy = watermark.FromSource()
	if main, _, _, err := timingRun(t, true, tm, rows, nil); err != nil || strings.Count(main, "@") != 3 {
		t.Errorf("%s, %v", main, err)
	}
}

// Watermarks that records carry stand behind them; those of a strategy come on top, and one that
// cannot be right is not believed.
func TestMarkers(t *testing.T) {
	ms := time.UnixMilli
	rows := []stamped{
		{N: 1, At: ms(10)}, {N: 2, At: ms(20), Mark: 15}, {N: 3, At: ms(18)}, {N: 4, At: ms(30), Mark: 12}, {N: 5, At: ms(31), Mark: 31},
		{N: 6, At: ms(40), Mark: 1 << 50}, {N: 7, At: ms(50)},
	}
	for _, inReader := range []bool{true, false} {
		tm := Timing[stamped]{Time: (*stamped).time, Mark: (*stamped).mark}
		main, _, c, err := timingRun(t, inReader, tm, rows, nil)
		if main != "1@10 2@20 W15 3@18 4@30 5@31 W31 6@40 7@50" || err != nil || c.Ahead.Load() != 1 {
			t.Errorf("%s, %v", main, err)
		}
		tm.Strategy = watermark.Bounded(5 * time.Millisecond)
		main, _, _, err = timingRun(t, inReader, tm, rows, nil)
		if main != "1@10 2@20 W15 3@18 4@30 5@31 W31 6@40 7@50 W44" || err != nil {
			t.Errorf("%s, %v", main, err)
		}
		tm.Strategy = watermark.None().BadTimes(watermark.Fail)
		if _, _, _, err = timingRun(t, inReader, tm, rows, nil); err == nil {
			t.Error("a watermark far ahead is believed")
		}
	}
}

// third is a rule of the user's own: the watermark is the third newest time.
type third struct{ times [3]int64 }

func (r *third) Times(ms []int64) {
	for _, t := range ms {
		for i := range r.times {
			if t > r.times[i] {
				r.times[i], t = t, r.times[i]
			}
		}
	}
}
func (r *third) Watermark(time.Time) int64 { return r.times[2] }

func TestRuleOfTheUser(t *testing.T) {
	ms := time.UnixMilli
	rows := []stamped{{N: 1, At: ms(10)}, {N: 2, At: ms(30)}, {N: 3, At: ms(1 << 50)}, {N: 4, At: ms(20)}}
	for _, inReader := range []bool{true, false} {
		tm := Timing[stamped]{Time: (*stamped).time, Strategy: watermark.Custom("third", func() watermark.Rule { return &third{} })}
		main, _, _, err := timingRun(t, inReader, tm, rows, nil)
		if main != fmt.Sprintf("1@10 2@30 3@%d 4@20 W10", 1<<50) || err != nil {
			t.Errorf("%s, %v", main, err)
		}
	}
}

// clockRule follows the wall clock: it is asked while no record comes.
type clockRule struct{}

func (clockRule) Times([]int64) {}
func (clockRule) Watermark(now time.Time) int64 {
	return now.UnixMilli() - 5000
}

func TestRuleIsAskedWithoutRecords(t *testing.T) {
	f := newFeed(1)
	st := watermark.Custom("clock", func() watermark.Rule { return clockRule{} })
	r, _, s := startSlow(t, f, st, 0)
	pollAll(t, r)
	if at, ok := r.Deadline(); !ok || at.Sub(s.now) != time.Second {
		t.Errorf("deadline %v, %v", at, ok)
	}
	s.now = s.now.Add(time.Second)
	pollAll(t, r)
	if r.mark != s.now.UnixMilli()-5000 {
		t.Errorf("watermark %d", r.mark)
	}
}

// bench is a source of numbers that costs nothing.
type bench struct{ n int64 }

func (s *bench) Read(b *record.Batch[int64], limit int) (ReadStatus, error) {
	b.Rows = b.Rows[:limit]
	for i := range b.Rows {
		s.n++
		b.Rows[i] = s.n
	}
	return ReadMore, nil
}
func (s *bench) Position() Split { return Split{} }
func (s *bench) Close() error    { return nil }

type release struct{}

func (release) Emit(b record.Any) error { b.Release(); return nil }

// BenchmarkReader gives the cost of a record in a reader and in Timestamps, source included.
func BenchmarkReader(b *testing.B) {
	carries := func(v *int64) (time.Time, bool) { return time.UnixMilli(*v), *v&1023 == 0 }
	for _, x := range []struct {
		name string
		tm   Timing[int64]
	}{
		{"source alone", Timing[int64]{Strategy: watermark.FromSource()}},
		{"bounded", Timing[int64]{Time: timeOf, Strategy: watermark.Bounded(time.Second)}},
		{"bounded, idle, aligned", Timing[int64]{Time: timeOf, Strategy: watermark.Bounded(time.Second).Idle(time.Minute).Align("g", 365*24*time.Hour)}},
		{"markers", Timing[int64]{Time: timeOf, Mark: carries}},
	} {
		b.Run(x.name, func(b *testing.B) {
			s := surround(release{})
			s.c.Now = time.Now
			s.c.Mail = func(job.Task, []byte) {}
			r := TimedReader[int64](&feed{bounded: true}, x.tm).(*reader[int64])
			if err := r.Open(s.c); err != nil {
				b.Fatal(err)
			}
			r.started, r.noMore = true, true
			r.align.lowest = 0
			for range 2 {
				r.active = append(r.active, &activeSplit[int64]{r: &bench{}, gen: x.tm.Strategy.NewGenerator()})
			}
			b.ReportAllocs()
			for n := 0; n < b.N; n += r.rows {
				if again, err := r.Poll(); err != nil || !again {
					b.Fatal(again, err)
				}
			}
		})
	}
}
