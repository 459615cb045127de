package task_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/watermark"
)

// tap is a source without end of records a second of event time apart. The test says how many of
// each split there are.
type tap struct {
	splits []*tapSplit
}

type tapSplit struct {
	limit, read atomic.Int64
	wake        atomic.Pointer[func()]
	end         atomic.Bool
}

func newTap(n int) *tap {
	s := &tap{}
	for range n {
		s.splits = append(s.splits, &tapSplit{})
	}
	return s
}

// open lets records up to limit through; end says that there will be no others.
func (s *tapSplit) open(limit int64, end bool) {
	s.limit.Store(limit)
	s.end.Store(end)
	if w := s.wake.Load(); w != nil {
		(*w)()
	}
}

func (s *tap) Splits(context.Context, operator.SourceContext) ([]operator.Split, error) {
	var out []operator.Split
	for i := range s.splits {
		out = append(out, operator.Split{ID: strconv.Itoa(i), Body: []byte(strconv.Itoa(i) + " 0")})
	}
	return out, nil
}

func (s *tap) Open(_ context.Context, c operator.SourceContext, sp operator.Split) (operator.SplitReader[event], error) {
	r := &tapReader{id: sp.ID}
	i, err := strconv.Atoi(sp.ID)
	if err != nil {
		return nil, err
	}
	r.s = s.splits[i]
	if r.at, err = strconv.ParseInt(string(sp.Body[len(sp.ID)+1:]), 10, 64); err != nil {
		return nil, err
	}
	r.s.wake.Store(&c.Wake)
	return r, nil
}

func (s *tap) Bounded() bool   { return false }
func (s *tap) Validate() error { return nil }

type tapReader struct {
	s  *tapSplit
	id string
	at int64
}

func (r *tapReader) Read(b *record.Batch[event], limit int) (operator.ReadStatus, error) {
	n := min(r.s.limit.Load()-r.at, int64(limit), 10)
	for range n {
		b.Rows = append(b.Rows, event{Key: "k" + r.id, Value: r.at, At: r.at * 1000})
		r.at++
	}
	r.s.read.Store(r.at)
	switch {
	case n > 0:
		return operator.ReadMore, nil
	case r.s.end.Load():
		return operator.ReadEnd, nil
	}
	return operator.ReadWait, nil
}

func (r *tapReader) Position() operator.Split {
	return operator.Split{ID: r.id, Body: []byte(r.id + " " + strconv.FormatInt(r.at, 10))}
}
func (r *tapReader) Close() error { return nil }

func atOf(e *event) time.Time { return time.UnixMilli(e.At) }

// pass lets the job run until cond holds.
func (c *cluster) pass(what string, cond func() bool) {
	c.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(time.Minute)
	for !cond() {
		select {
		case r := <-c.reports:
			c.handle(r)
			if len(c.failures) > 0 {
				c.t.Fatalf("waiting for %s: %v\n%s", what, c.failures[0], c.failures[0].Stack)
			}
		case <-tick.C:
		case <-timeout:
			c.t.Fatalf("waiting for %s", what)
		}
	}
}

// still lets the job run until read stands still, and returns it.
func (c *cluster) still(read func() int64) int64 {
	c.t.Helper()
	last, since := read(), time.Now()
	c.pass("a standstill", func() bool {
		if now := read(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 1500*time.Millisecond // Reports come once a second at least.
	})
	return last
}

// At parallelism 4 two splits are aligned: the subtasks without a split hold nobody up, with
// checkpoints and a restore in the middle, and with more subtasks.
func TestP31AlignmentWithEmptySubtasks(t *testing.T) {
	src := newTap(2)
	out := collect.New[total]()
	c := newCluster(t, 2, stream.Program{Name: "p31", Build: func(j *stream.Job) {
		j.Source("src", src).
			Timestamps(atOf, watermark.Monotonous().Align("g", time.Minute)).
			KeyBy(func(e *event) string { return e.Key }).
			Window("w", window.Tumbling(10*time.Minute)).Aggregate(sums).
			Sink("out", out)
	}}, settings(job.ExactlyOnce, "fs"))
	c.deploy(4)
	for _, s := range src.splits {
		s.open(2000, false)
	}
	reached := func(n int64) func() bool {
		return func() bool { return src.splits[0].read.Load() >= n && src.splits[1].read.Load() >= n }
	}
	c.pass("half of the records", reached(1000))
	c.checkpoint(true)
	c.crash()
	c.deploy(8)
	for _, s := range src.splits {
		s.open(4000, true)
	}
	c.pass("all records", reached(4000))
	c.finish()
	if n := len(out.Rows()); n != 14 {
		t.Fatalf("%d of 14 windows", n)
	}
}

// Source a stands still, b is fast. b is paused at the drift, while checkpoints go on, also
// behind a restore; once a goes on to its end so does b.
func TestP38StalledAndFastSource(t *testing.T) {
	a, b := newTap(1), newTap(2)
	out := collect.New[total]()
	st := watermark.Monotonous().Align("g", 5*time.Minute)
	c := newCluster(t, 2, stream.Program{Name: "p38", Build: func(j *stream.Job) {
		left := j.Source("a", a).Timestamps(atOf, st)
		j.Source("b", b).Timestamps(atOf, st).Union("both", left).
			KeyBy(func(e *event) string { return e.Key }).
			Window("w", window.Tumbling(10*time.Minute)).Aggregate(sums).
			Sink("out", out)
	}}, settings(job.ExactlyOnce, "fs"))
	c.deploy(2)
	fast := func() int64 { return b.splits[0].read.Load() + b.splits[1].read.Load() }
	for _, s := range b.splits {
		s.open(100_000, true)
	}
	if n := c.still(fast); n > 20 {
		t.Fatalf("%d records of b are read though a has said nothing yet", n)
	}
	a.splits[0].open(1000, false)
	c.pass("a", func() bool { return a.splits[0].read.Load() == 1000 })
	n := c.still(fast)
	if n < 2*1300 || n > 2*1320 {
		t.Fatalf("%d records of b are read, want those within 300 s of second 1000, twice", n)
	}
	c.checkpoint(true)
	c.crash()
	c.deploy(1)
	if m := c.still(fast); m < n || m > n+20 {
		t.Fatalf("%d records of b are read behind the restore, %d before", m, n)
	}
	c.checkpoint(true)
	a.splits[0].open(1010, true)
	c.pass("b", func() bool { return fast() == 200_000 })
	c.finish()
	var count int64 // Nothing is late, lost or doubled.
	for _, w := range out.Rows() {
		count += w.Count
	}
	if n := len(out.Rows()); n != 2*167 || count != 201_010 {
		t.Fatalf("%d windows of %d records, want %d of 201010", n, count, 2*167)
	}
}

// One of two sources never has a record. The windows of the other one fire once it is
// idle.
func TestP35SourceWithoutRecords(t *testing.T) {
	a, b := newTap(1), newTap(1)
	out := collect.New[total]()
	st := watermark.Monotonous().Idle(300 * time.Millisecond)
	c := newCluster(t, 1, stream.Program{Name: "p35", Build: func(j *stream.Job) {
		left := j.Source("a", a).Timestamps(atOf, st)
		j.Source("b", b).Timestamps(atOf, st).Union("both", left).
			KeyBy(func(e *event) string { return e.Key }).
			Window("w", window.Tumbling(10*time.Minute)).Aggregate(sums).
			Sink("out", out)
	}}, settings(job.ExactlyOnce, "fs"))
	for round := range int64(2) { // New, and restored.
		c.deploy(2)
		b.splits[0].open(1000*(round+1), false)
		c.pass("a window", func() bool {
			c.checkpoint(true) // The sink commits with it.
			return len(out.Rows()) >= int(round+1)
		})
		c.crash()
	}
}
