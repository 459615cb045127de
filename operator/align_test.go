package operator

import (
	"context"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/watermark"
)

// feed is a source whose splits are filled while they are read. It gives a record at a time.
type feed struct {
	splits  []*feedSplit
	bounded bool
}

type feedSplit struct {
	rows []int64
	at   int
	end  bool // Nothing will be added.
}

func newFeed(splits int) *feed {
	f := &feed{}
	for range splits {
		f.splits = append(f.splits, &feedSplit{})
	}
	return f
}

func (f *feed) Splits(context.Context, SourceContext) ([]Split, error) {
	var out []Split
	for i := range f.splits {
		out = append(out, Split{ID: strconv.Itoa(i), Body: []byte(strconv.Itoa(i))})
	}
	return out, nil
}

func (f *feed) Open(_ context.Context, _ SourceContext, s Split) (SplitReader[int64], error) {
	i, err := strconv.Atoi(string(s.Body))
	return &feedReader{f.splits[i], s}, err
}
func (f *feed) Bounded() bool   { return f.bounded }
func (f *feed) Validate() error { return nil }

type feedReader struct {
	s     *feedSplit
	split Split
}

func (r *feedReader) Read(b *record.Batch[int64], _ int) (ReadStatus, error) {
	if r.s.at == len(r.s.rows) {
		if r.s.end {
			return ReadEnd, nil
		}
		return ReadWait, nil
	}
	b.Rows = append(b.Rows, r.s.rows[r.s.at])
	r.s.at++
	return ReadMore, nil
}
func (r *feedReader) Position() Split { return r.split }
func (r *feedReader) Close() error    { return nil }

// grid is the sources of a job, with their enumerators and readers, on one clock, and the mail
// between them.
type grid struct {
	t       fataler
	now     time.Time
	sources []*gridSource
	letters []letter
	lose    func() bool // Whether the next letter is lost.
	repeat  func() bool // Whether it comes twice.
	sent    int
}

type letter struct {
	from, to job.Task
	body     []byte
}

type gridSource struct {
	name    string
	feed    *feed
	en      *enumerator
	readers []*reader[int64]
	outs    []*recorder[int64]
}

func newGrid(t fataler) *grid {
	never := func() bool { return false }
	return &grid{t: t, now: time.Unix(1000, 0), lose: never, repeat: never}
}

func (g *grid) context(task job.Task, out Output) *Context {
	c := surround(out).c
	c.Name, c.Subtask, c.Task = task.Vertex, task.Subtask, task
	c.Parallelism = 4
	c.Now = func() time.Time { return g.now }
	c.Mail = func(to job.Task, body []byte) {
		g.sent++
		l := letter{task, to, body}
		if !g.lose() {
			g.letters = append(g.letters, l)
			if g.repeat() {
				g.letters = append(g.letters, l)
			}
		}
	}
	return c
}

// add adds a source with its splits dealt out to n readers; others are all sources of its group.
func (g *grid) add(name string, f *feed, n int, st watermark.Strategy, others ...string) *gridSource {
	s := &gridSource{name: name, feed: f}
	p := Peers{Align: true, Reader: name}
	for _, o := range others {
		if o != name {
			p.Enumerators = append(p.Enumerators, o+".splits")
		}
	}
	s.en = AlignedEnumerator[int64](f, p).(*enumerator)
	s.en.SetReaders(n)
	if err := s.en.Open(g.context(job.Task{Vertex: name + ".splits"}, &recorder[SplitMessage]{})); err != nil {
		g.t.Fatalf("%v", err)
	}
	for i := range n {
		out := &recorder[int64]{}
		c := g.context(job.Task{Vertex: name, Subtask: i}, out)
		c.Enumerator = name + ".splits"
		r := Reader(f, timeOf, st).(*reader[int64])
		if err := r.Open(c); err != nil {
			g.t.Fatalf("%v", err)
		}
		if err := r.Start(); err != nil {
			g.t.Fatalf("%v", err)
		}
		b := record.PoolOf[SplitMessage]().Get()
		for k := i; k < len(f.splits); k += n {
			b.Append(SplitMessage{ID: strconv.Itoa(k), Body: []byte(strconv.Itoa(k))}, record.MinTime)
		}
		b.Append(SplitMessage{NoMore: true}, record.MinTime)
		if err := r.Push(0, b); err != nil {
			g.t.Fatalf("%v", err)
		}
		s.readers, s.outs = append(s.readers, r), append(s.outs, out)
	}
	g.sources = append(g.sources, s)
	return s
}

// deliver delivers the mail, and what is written in answer.
func (g *grid) deliver() {
	for len(g.letters) > 0 {
		l := g.letters[0]
		g.letters = g.letters[1:]
		for _, s := range g.sources {
			var err error
			switch l.to.Vertex {
			case s.name:
				err = s.readers[l.to.Subtask].Receive(l.from, l.body)
			case s.name + ".splits":
				if len(l.body) > 1 { // Splits are all given out.
					err = s.en.Receive(l.from, l.body)
				}
			}
			if err != nil {
				g.t.Fatalf("%v", err)
			}
		}
	}
}

// run lets so much time pass in steps of 50 ms, in each of which every reader reads up to n
// batches.
func (g *grid) run(d time.Duration, n int) {
	for range d / (50 * time.Millisecond) {
		for _, s := range g.sources {
			for _, r := range s.readers {
				for range n {
					if r.Exhausted() {
						break
					}
					again, err := r.Poll()
					if err != nil {
						g.t.Fatalf("%v", err)
					}
					if !again {
						break
					}
				}
			}
		}
		g.deliver()
		g.now = g.now.Add(50 * time.Millisecond)
		for _, s := range g.sources {
			for _, r := range s.readers {
				r.Slept(50 * time.Millisecond)
			}
		}
	}
}

// wake tells the readers of s that there is more.
func (s *gridSource) wake() {
	for _, r := range s.readers {
		_ = r.wake()
	}
}

// fill adds n records to a split, a second of event time apart, from second from on.
func (s *feedSplit) fill(from, n int) {
	for i := range n {
		s.rows = append(s.rows, int64(from+i)*1000)
	}
}

func (s *gridSource) kinds(kind record.MarkKind) (n int) {
	for _, out := range s.outs {
		for _, e := range out.events {
			if e.mark && e.kind == kind {
				n++
			}
		}
	}
	return n
}

func (s *gridSource) read() (n int) {
	for _, out := range s.outs {
		for _, e := range out.events {
			if !e.mark {
				n++
			}
		}
	}
	return n
}

// Of four subtasks with alignment two have no split. Those hold nobody up, and all is read.
func TestP31EmptySubtaskIsNoConstraint(t *testing.T) {
	for _, idle := range []time.Duration{0, time.Second} {
		g := newGrid(t)
		f := newFeed(2)
		s := g.add("s", f, 4, watermark.Monotonous().Idle(idle).Align("g", time.Second), "s")
		f.splits[0].fill(1, 100)
		f.splits[1].fill(1, 100)
		f.splits[0].end, f.splits[1].end = true, true
		g.run(20*time.Second, 10)
		if s.read() != 200 {
			t.Fatalf("idle %v: %d of 200 records are read", idle, s.read())
		}
	}
}

// Nor do subtasks hold anybody up whose splits are not dealt out yet, or will never be.
func TestP31WaitingForSplitsIsNoConstraint(t *testing.T) {
	g := newGrid(t)
	f := newFeed(1)
	s := g.add("s", f, 2, watermark.Monotonous().Align("g", time.Second), "s")
	s.readers[1].noMore = false // It may get another.
	f.splits[0].fill(1, 50)
	g.run(20*time.Second, 10)
	if s.read() != 50 {
		t.Fatalf("%d of 50 records are read", s.read())
	}
}

// Two splits are aligned with a drift of 1 s and an idle timeout of 3 s. One stops; the other is paused at
// the drift, and that does not make it idle. Once the first is idle the second goes on, and when the
// first comes back both are aligned again and read to their ends.
func TestP32PausedSplitIsNotIdleAndResumes(t *testing.T) {
	for _, readers := range []int{1, 2} {
		g := newGrid(t)
		f := newFeed(2)
		s := g.add("s", f, readers, watermark.Monotonous().Idle(3*time.Second).Align("g", time.Second), "s")
		f.splits[0].fill(1, 3) // Then silence.
		f.splits[1].fill(1, 1000)
		g.run(2500*time.Millisecond, 2)
		// At second 4 its watermark is within the drift of that of the first, which is just below 3.
		if at := f.splits[1].at; at < 4 || at > 6 {
			t.Fatalf("readers %d: the second split is at record %d while the first one, at 3, is not idle", readers, at)
		}
		g.run(2*time.Second, 2)
		if f.splits[1].at < 20 {
			t.Fatalf("readers %d: the second split is at record %d though the first one is idle", readers, f.splits[1].at)
		}
		ahead := f.splits[1].at
		f.splits[0].fill(4, 5)
		s.wake()
		g.run(time.Second, 2)
		ahead2 := f.splits[1].at
		g.run(2*time.Second, 2)
		if f.splits[1].at != ahead2 || ahead2 > ahead+4 {
			t.Fatalf("readers %d: the second split went from %d over %d to %d though the first is back", readers, ahead, ahead2, f.splits[1].at)
		}
		f.splits[0].fill(9, 992)
		s.wake()
		g.run(150*time.Second, 10)
		if f.splits[0].at != 1000 || f.splits[1].at != 1000 {
			t.Fatalf("readers %d: at %d and %d of 1000 after both were resumed", readers, f.splits[0].at, f.splits[1].at)
		}
	}
}

// A split that is paused for the sake of another, which has no idle timeout, is not idle, though that
// lasts much longer than its own.
func TestP32PausedSplitNeverBecomesIdle(t *testing.T) {
	g := newGrid(t)
	slow, fast := newFeed(1), newFeed(1)
	a := g.add("a", slow, 1, watermark.Monotonous().Align("g", time.Second), "a", "b")
	b := g.add("b", fast, 1, watermark.Monotonous().Idle(time.Second).Align("g", time.Second), "a", "b")
	slow.splits[0].fill(1, 1)
	fast.splits[0].fill(1, 100)
	g.run(30*time.Second, 10)
	if n := b.read(); n > 4 || b.kinds(record.Idle) > 0 {
		t.Fatalf("%d records are read, %d times idle, while the other source stands still", n, b.kinds(record.Idle))
	}
	slow.splits[0].fill(2, 99)
	a.wake()
	g.run(20*time.Second, 10)
	if a.read() != 100 || b.read() != 100 {
		t.Fatalf("%d and %d of 100 records are read", a.read(), b.read())
	}
}

// One source stands still, another is fast: it stays within the drift until the first goes on
// or ends.
func TestP38FastSourceIsPausedAtTheDrift(t *testing.T) {
	g := newGrid(t)
	slow, fast := newFeed(1), newFeed(2)
	a := g.add("a", slow, 1, watermark.Monotonous().Align("g", 10*time.Second), "a", "b")
	b := g.add("b", fast, 2, watermark.Monotonous().Align("g", 10*time.Second), "a", "b")
	for _, s := range fast.splits {
		s.fill(1, 10_000)
		s.end = true
	}
	g.run(5*time.Second, 100)
	if n := b.read(); n > 2 { // A record each, which says where they are.
		t.Fatalf("%d records are read though the other source never said where it is", n)
	}
	slow.splits[0].fill(100, 1)
	a.wake()
	g.run(30*time.Second, 10)
	for _, s := range fast.splits {
		if s.at < 105 || s.at > 115 {
			t.Fatalf("at %d, want within 10 s of second 100", s.at)
		}
	}
	slow.splits[0].end = true
	a.wake()
	g.run(200*time.Second, 1000)
	if b.read() != 20_000 {
		t.Fatalf("%d of 20000 records are read though the slow source ended", b.read())
	}
}

// A source that was through before a restart says nothing by itself. It is asked.
func TestAlignmentWithSourceThatEndedBefore(t *testing.T) {
	g := newGrid(t)
	ended, live := newFeed(1), newFeed(1)
	ended.splits[0].end = true
	a := g.add("a", ended, 1, watermark.Monotonous().Align("g", time.Second), "a", "b")
	a.readers[0].active, a.readers[0].c.Ended, a.readers[0].started = nil, true, false
	g.letters = nil
	b := g.add("b", live, 1, watermark.Monotonous().Align("g", time.Second), "a", "b")
	live.splits[0].fill(1, 100)
	g.run(20*time.Second, 10)
	if b.read() != 100 {
		t.Fatalf("%d of 100 records are read", b.read())
	}
}

// Whatever mail is lost or repeated: nobody is further ahead than the drift and what one batch and
// one report may add, and in the end all is read.
func TestAlignmentRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGrid(t)
		names := []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "sources")]
		bad := rapid.IntRange(0, 5).Draw(t, "loss")
		seed := rapid.Uint64().Draw(t, "seed")
		draw := func(n int) bool {
			seed = seed*6364136223846793005 + 1442695040888963407
			return int(seed>>33)%10 < n
		}
		g.lose = func() bool { return draw(bad) }
		g.repeat = func() bool { return draw(2) }
		total := 0
		for _, name := range names {
			f := newFeed(rapid.IntRange(0, 3).Draw(t, "splits"))
			st := watermark.Monotonous().Align("g", 5*time.Second)
			if rapid.Bool().Draw(t, "idles") {
				st = st.Idle(time.Second)
			}
			g.add(name, f, rapid.IntRange(1, 3).Draw(t, "readers"), st, names...)
			for _, s := range f.splits {
				n := rapid.IntRange(0, 40).Draw(t, "rows")
				s.fill(rapid.IntRange(1, 20).Draw(t, "from"), n)
				s.end = true
				total += n
			}
		}
		g.run(90*time.Second, 3)
		g.lose = func() bool { return false }
		for range 10 {
			for _, s := range g.sources {
				for _, r := range s.readers {
					_ = r.Prepare(1) // A checkpoint repeats the last word of those who are through.
				}
			}
			g.run(5*time.Second, 10)
		}
		n := 0
		for _, s := range g.sources {
			n += s.read()
			for _, out := range s.outs {
				w := record.MinTime
				for _, e := range out.events {
					if e.mark && e.kind == record.Watermark {
						if e.time <= w {
							t.Fatalf("watermark %d behind %d", e.time, w)
						}
						w = e.time
					}
				}
			}
		}
		if n != total {
			t.Fatalf("%d of %d records are read", n, total)
		}
	})
}

// Mail goes out about once a second where nothing happens.
func TestAlignmentTraffic(t *testing.T) {
	g := newGrid(t)
	f := newFeed(4)
	g.add("s", f, 4, watermark.Monotonous().Idle(time.Second).Align("g", time.Second), "s")
	g.run(10*time.Second, 10)
	g.sent = 0
	g.run(10*time.Second, 10)
	if g.sent > 100 {
		t.Errorf("%d letters in 10 s of 4 idle readers", g.sent)
	}
}

func TestAlignMail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, w := rapid.Uint64().Draw(t, "n"), rapid.Int64().Draw(t, "w")
		b := encodeAlign(mailPeer, n, w)
		kind, number, mark, ok := decodeAlign(b)
		if !ok || kind != mailPeer || number != n || mark != w {
			t.Fatalf("%v", b)
		}
		for i := range b {
			if _, _, _, ok := decodeAlign(b[:i]); ok {
				t.Fatalf("%d of %d bytes are taken", i, len(b))
			}
		}
		if _, _, _, ok := decodeAlign(append(b, 0)); ok {
			t.Fatalf("a byte too many is taken")
		}
	})
}

// Splits that never end are all dealt out at once and all read: none makes room for another.
func TestSplitsWithoutEnd(t *testing.T) {
	f := newFeed(7)
	out := &recorder[SplitMessage]{}
	s := surround(out)
	e := Enumerator[int64](f).(*enumerator)
	e.SetReaders(2)
	if err := e.Open(s.c); err != nil {
		t.Fatal(err)
	}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	if err := s.await(t, "the list", func() bool { return e.phase == phaseDone }); err != nil {
		t.Fatal(err)
	}
	if got := given(out); got != "0:0 1:1 0:2 1:3 0:4 1:5 0:6 0:- 1:-" {
		t.Errorf("dealt out %s", got)
	}
	e.Close()
	g := newGrid(t)
	r := g.add("s", f, 1, watermark.Monotonous(), "s")
	if n := len(r.readers[0].active); n != 7 {
		t.Errorf("%d of 7 splits are open", n)
	}
}
