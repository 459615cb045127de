package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/watermark"
)

// script is a source whose splits are lists of times. A negative one is a moment without input.
type script struct {
	splits  [][]int64
	inOrder bool
	fail    error
	panics  bool
	gate    chan struct{} // Splits waits for it, if set.
	opened  int
	closed  int
}

func (s *script) Splits(ctx context.Context, c SourceContext) ([]Split, error) {
	if s.gate != nil {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if s.panics {
		panic("no such thing")
	}
	var out []Split
	for i := range s.splits {
		out = append(out, scriptSplit(i, 0))
	}
	return out, s.fail
}

func scriptSplit(i, at int) Split {
	return Split{ID: fmt.Sprintf("split-%d", i), Body: fmt.Appendf(nil, "%d %d", i, at)}
}

func (s *script) Open(_ context.Context, _ SourceContext, sp Split) (SplitReader[int64], error) {
	i, at, _ := strings.Cut(string(sp.Body), " ")
	r := &scriptReader{s: s}
	r.i, _ = strconv.Atoi(i)
	r.at, _ = strconv.Atoi(at)
	s.opened++
	return r, nil
}

func (s *script) Bounded() bool       { return true }
func (s *script) Validate() error     { return nil }
func (s *script) SplitsInOrder() bool { return s.inOrder }

type scriptReader struct {
	s     *script
	i, at int
}

func (r *scriptReader) Read(b *record.Batch[int64], limit int) (ReadStatus, error) {
	rows := r.s.splits[r.i]
	for range min(limit, 3) {
		if r.at == len(rows) {
			return ReadEnd, nil
		}
		v := rows[r.at]
		r.at++
		if v < 0 {
			return ReadWait, nil
		}
		b.Rows = append(b.Rows, v)
	}
	if r.at == len(rows) && r.i%2 == 0 {
		return ReadEnd, nil // Some say so with the last record, some later.
	}
	return ReadMore, nil
}

func (r *scriptReader) Position() Split { return scriptSplit(r.i, r.at) }
func (r *scriptReader) Close() error    { r.s.closed++; return nil }

func timeOf(v *int64) time.Time { return time.UnixMilli(*v) }

type readerTest struct {
	t   fataler
	src *script
	s   *surroundings
	r   *reader[int64]
	out *recorder[int64]
}

func startReader(t fataler, src *script, st watermark.Strategy, out *recorder[int64], list [][]byte, mark int64) *readerTest {
	r := &readerTest{t: t, src: src, out: out, s: surround(out)}
	r.s.c.Restored, r.s.c.Watermark = list != nil, mark
	r.s.c.List = map[string][][]byte{splitsState: list}
	r.r = Reader[int64](src, timeOf, st).(*reader[int64])
	if err := r.r.Open(r.s.c); err != nil {
		t.Fatalf("%v", err)
	}
	r.r.size.limit = r.r.rows // Batches are as the script has them.
	if err := r.r.Start(); err != nil {
		t.Fatalf("%v", err)
	}
	return r
}

func (r *readerTest) give(messages ...SplitMessage) {
	r.t.Helper()
	b := record.PoolOf[SplitMessage]().Get()
	for _, m := range messages {
		b.Append(m, record.MinTime)
	}
	if err := r.r.Push(0, b); err != nil {
		r.t.Fatalf("push: %v", err)
	}
}

func (r *readerTest) split(i int) {
	s := scriptSplit(i, 0)
	r.give(SplitMessage{ID: s.ID, Body: s.Body})
}

func (r *readerTest) noMore() { r.give(SplitMessage{NoMore: true}) }

func (r *readerTest) poll() bool {
	r.t.Helper()
	again, err := r.r.Poll()
	if err != nil {
		r.t.Fatalf("poll: %v", err)
	}
	return again
}

// drain polls until there is nothing to do.
func (r *readerTest) drain() {
	r.t.Helper()
	for n := 0; r.poll(); n++ {
		if n > 10_000 {
			r.t.Fatalf("the reader polls for ever")
		}
	}
}

func (r *readerTest) wake() { _ = r.r.wake() }

// sleep lets time pass while there is nothing to do.
func (r *readerTest) sleep(d time.Duration) {
	r.s.now = r.s.now.Add(d)
	r.r.Slept(d)
}

func (r *readerTest) got(want string) {
	r.t.Helper()
	if s := fmt.Sprint(tidy(r.out.events)); s != want {
		r.t.Fatalf("got %s, want %s", s, want)
	}
	r.out.events = nil
}

// A reader holds its watermark until it knows all its splits; then each of them has one of its own,
// and they are read in step.
func TestReaderWatermarks(t *testing.T) {
	src := &script{splits: [][]int64{{10, 20, 30, 40}, {11, 12, 13, 14, 15, 16}, {1000}}}
	r := startReader(t, src, watermark.Monotonous(), &recorder[int64]{}, nil, record.MinTime)
	r.split(0)
	r.poll()
	r.got("[10@10 20@20 30@30]") // No watermark: there may be another split.
	r.split(1)
	if src.opened != 1 {
		t.Error("the second split is opened while the first is read and there may be more")
	}
	r.noMore()
	if src.opened != 2 {
		t.Error("the second split is not opened though there are no more")
	}
	r.poll()
	r.got("[11@11 12@12 13@13 W12]") // The one behind was read, and holds the other back.
	r.drain()
	r.got("[14@14 15@15 16@16 W29 40@40]")
	if !r.r.Exhausted() || src.closed != 2 {
		t.Errorf("exhausted %v, %d closed", r.r.Exhausted(), src.closed)
	}
}

// Splits that follow each other in time hold nothing back before they are read.
func TestReaderInOrder(t *testing.T) {
	src := &script{splits: [][]int64{{10, 20}, {30, 40}}, inOrder: true}
	r := startReader(t, src, watermark.Monotonous(), &recorder[int64]{}, nil, record.MinTime)
	r.split(0)
	r.split(1)
	r.poll()
	r.noMore()
	if src.opened > 2 {
		t.Errorf("%d splits opened", src.opened)
	}
	r.drain()
	rows := 0
	for _, e := range r.out.events {
		if !e.mark {
			rows++
		}
	}
	if rows != 4 || !r.r.Exhausted() {
		t.Errorf("%d rows, exhausted %v: %v", rows, r.r.Exhausted(), r.out.events)
	}
}

// A split that waits for input for the timeout no longer holds the others back; when all wait the
// reader is idle, and active again with the next record.
func TestReaderIdle(t *testing.T) {
	src := &script{splits: [][]int64{{10, -1, 50}, {100, -1, -1, 200, -1, 300}}}
	r := startReader(t, src, watermark.Monotonous().Idle(time.Second), &recorder[int64]{}, nil, record.MinTime)
	r.split(0)
	r.split(1)
	r.noMore()
	r.drain()
	r.got("[10@10 100@100 W9]")
	if at, ok := r.r.Deadline(); !ok || at.Sub(r.s.now) != time.Second {
		t.Errorf("deadline %v, %v", at, ok)
	}
	r.sleep(time.Second)
	if !r.poll() {
		t.Error("what it said may stay behind: the loop flushes only behind work")
	}
	r.got("[W99 idle]") // What they would have come to in whatever order they became idle.
	r.sleep(time.Hour)
	r.poll()
	r.got("[]")
	r.wake()
	r.drain()
	r.got("[active 50@50 idle]") // The other split still is.
	r.wake()
	r.drain()
	r.got("[active 200@200 W199]")
	r.sleep(time.Second)
	r.drain()
	r.got("[idle]")
	r.wake()
	r.drain()
	r.got("[active 300@300]")
	if !r.r.Exhausted() {
		t.Error("not exhausted")
	}
	r.s.now = r.s.now.Add(time.Hour)
	r.poll()
	r.got("[]")
}

// One silent split does not hold the busy ones back for longer than the timeout.
func TestReaderSilentSplit(t *testing.T) {
	busy := make([]int64, 300)
	for i := range busy {
		busy[i] = int64(1000 + i)
	}
	src := &script{splits: [][]int64{{-1, 5000}, busy}}
	r := startReader(t, src, watermark.Monotonous().Idle(time.Second), &recorder[int64]{}, nil, record.MinTime)
	r.split(0)
	r.split(1)
	r.noMore()
	for range 11 {
		r.s.now = r.s.now.Add(100 * time.Millisecond)
		r.poll()
	}
	if r.r.mark < 1000 {
		t.Errorf("the watermark is %d", r.r.mark)
	}
	for _, e := range r.out.events {
		if e.mark && e.kind != record.Watermark {
			t.Errorf("%v while one split has input", e)
		}
	}
}

// A reader that waits for a split is idle like any other, and asks again: mail may be lost.
func TestReaderAsks(t *testing.T) {
	src := &script{splits: [][]int64{{10}, {20}}}
	r := startReader(t, src, watermark.Monotonous().Idle(5*time.Second), &recorder[int64]{}, nil, record.MinTime)
	r.poll()
	r.poll()
	if len(r.s.mail) != 1 || r.s.mail[0] != (job.Task{Vertex: "op.splits"}) {
		t.Fatalf("mail %v", r.s.mail)
	}
	if at, ok := r.r.Deadline(); !ok || at.Sub(r.s.now) != askAgain {
		t.Errorf("deadline %v, %v", at, ok)
	}
	for range 5 {
		r.sleep(askAgain)
		r.poll()
	}
	if len(r.s.mail) != 6 {
		t.Errorf("asked %d times in 5 s", len(r.s.mail))
	}
	r.got("[idle]")
	r.split(0) // It asks for the next before it needs it.
	if len(r.s.mail) != 7 {
		t.Errorf("mail %v", r.s.mail)
	}
	r.split(1)
	r.drain()
	if len(r.s.mail) != 8 {
		t.Errorf("mail %d", len(r.s.mail))
	}
	r.noMore()
	r.s.now = r.s.now.Add(time.Hour)
	r.poll()
	if len(r.s.mail) != 8 {
		t.Error("it asks though there are no more")
	}
	if _, ok := r.r.Deadline(); ok {
		t.Error("a deadline behind the end")
	}
}

// Whatever the splits, the order in which they are given, and the places at which the reader is
// stopped and restored: every record comes once, in the order of its split, and none is late.
func TestReaderRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := &script{inOrder: false}
		var want []int64
		for i := range rapid.IntRange(0, 5).Draw(t, "splits") {
			var rows []int64
			at := int64(0)
			for range rapid.IntRange(0, 20).Draw(t, "rows") {
				if rapid.IntRange(0, 4).Draw(t, "pause") == 0 {
					rows = append(rows, -1)
					continue
				}
				at += rapid.Int64Range(10, 40).Draw(t, "step") * 10
				rows = append(rows, at+int64(i))
				want = append(want, at+int64(i))
			}
			src.splits = append(src.splits, rows)
		}
		out := &recorder[int64]{}
		r := startReader(t, src, watermark.Monotonous(), out, nil, record.MinTime)
		given, told := 0, false
		for !r.r.Exhausted() {
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				if given < len(src.splits) {
					r.split(given)
					given++
				}
			case 1:
				if given == len(src.splits) {
					r.noMore()
					told = true
				}
			case 2:
				r.wake()
			case 3:
				lists, err := r.r.Snapshot(1)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.r.Close(); err != nil {
					t.Fatal(err)
				}
				list := lists[splitsState]
				if list == nil {
					list = [][]byte{}
				}
				mark := r.r.mark
				r = startReader(t, src, watermark.Monotonous(), out, list, mark)
				if told {
					r.noMore() // The enumerator says so again.
				}
			default:
				r.poll()
			}
		}
		var got []int64
		last := map[int64]int64{}
		w := record.MinTime
		for _, e := range out.events {
			if e.mark {
				if e.time <= w {
					t.Fatalf("watermark %d behind %d", e.time, w)
				}
				w = e.time
				continue
			}
			if e.time <= w {
				t.Fatalf("the record at %d is late: the watermark is %d", e.time, w)
			}
			if e.row <= last[e.row%10] {
				t.Fatalf("split %d: %d behind %d", e.row%10, e.row, last[e.row%10])
			}
			last[e.row%10] = e.row
			got = append(got, e.row)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		if src.opened < len(src.splits) {
			t.Fatalf("%d splits opened", src.opened)
		}
	})
}

func startEnumerator(t fataler, src *script, readers int, list map[string][][]byte) (*enumerator, *surroundings, *recorder[SplitMessage]) {
	out := &recorder[SplitMessage]{}
	s := surround(out)
	s.c.Union = list
	e := Enumerator[int64](src).(*enumerator)
	e.SetReaders(readers)
	if err := e.Open(s.c); err != nil {
		t.Fatalf("%v", err)
	}
	if err := e.Start(); err != nil {
		t.Fatalf("%v", err)
	}
	return e, s, out
}

// given shows who got what: reader:split, with - for no more.
func given(out *recorder[SplitMessage]) string {
	var b strings.Builder
	for _, e := range out.events {
		id := strings.TrimPrefix(e.row.ID, "split-")
		if e.row.NoMore {
			id = "-"
		}
		fmt.Fprintf(&b, "%d:%s ", e.row.Reader, id)
	}
	out.events = nil
	return strings.TrimSpace(b.String())
}

func ask(t *testing.T, e *enumerator, reader int) {
	t.Helper()
	if err := e.Receive(job.Task{Vertex: "op", Subtask: reader}, []byte{mailRequestSplit}); err != nil {
		t.Fatal(err)
	}
}

// Each reader gets a split at first, then whoever asks, and all are told when there are no more.
func TestEnumerator(t *testing.T) {
	src := &script{splits: make([][]int64, 6), gate: make(chan struct{})}
	e, s, out := startEnumerator(t, src, 3, nil)
	ask(t, e, 1) // Before it knows anything: the reader will ask again.
	if m, _ := e.Snapshot(1); fmt.Sprint(m) != "map[phase:[[0]]]" {
		t.Errorf("snapshot while listing: %v", m)
	}
	if e.Exhausted() {
		t.Error("exhausted while listing")
	}
	close(src.gate)
	if err := s.await(t, "the list", func() bool { return e.phase == phaseGiving }); err != nil {
		t.Fatal(err)
	}
	if g := given(out); g != "0:0 1:1 2:2" {
		t.Errorf("at first: %s", g)
	}
	ask(t, e, 2)
	ask(t, e, 2) // Repeated mail costs balance, not splits.
	if g := given(out); g != "2:3 2:4" {
		t.Errorf("asked: %s", g)
	}
	for _, body := range [][]byte{nil, {'?'}, {'r', 'r'}} {
		if err := e.Receive(job.Task{Vertex: "op"}, body); err != nil {
			t.Error(err)
		}
	}
	ask(t, e, 3)
	ask(t, e, -1)
	if g := given(out); g != "" {
		t.Errorf("mail that is not understood: %s", g)
	}
	giving, err := e.Snapshot(2)
	if err != nil || len(giving[splitsState]) != 1 {
		t.Fatalf("%v, %v", giving, err)
	}
	ask(t, e, 0)
	if g := given(out); g != "0:5 0:- 1:- 2:-" || !e.Exhausted() {
		t.Errorf("the last: %s, exhausted %v", g, e.Exhausted())
	}
	ask(t, e, 0)
	if g := given(out); g != "" {
		t.Errorf("behind the end: %s", g)
	}
	done, _ := e.Snapshot(3)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}

	// Restored in the middle it gives what was left, and nothing by itself.
	e, _, out = startEnumerator(t, src, 2, giving)
	if g := given(out); g != "" {
		t.Errorf("restored: %s", g)
	}
	ask(t, e, 1)
	if g := given(out); g != "1:5 0:- 1:-" {
		t.Errorf("restored, asked: %s", g)
	}
	e.Close()

	// Restored behind the end it says so again, to as many readers as there are now.
	e, _, out = startEnumerator(t, src, 4, done)
	if g := given(out); g != "0:- 1:- 2:- 3:-" || !e.Exhausted() {
		t.Errorf("restored at the end: %s", g)
	}
	e.Close()

	// Restored from before the list was known it lists again.
	src.gate = nil
	e, s, out = startEnumerator(t, src, 6, map[string][][]byte{phaseState: {{phaseListing}}})
	if err := s.await(t, "the list", func() bool { return e.phase == phaseDone }); err != nil {
		t.Fatal(err)
	}
	if g := given(out); g != "0:0 1:1 2:2 3:3 4:4 5:5 0:- 1:- 2:- 3:- 4:- 5:-" {
		t.Errorf("listed again: %s", g)
	}
	e.Close()
}

func TestEnumeratorFailures(t *testing.T) {
	boom := job.Errorf(job.ClassExternal, "no route")
	e, s, _ := startEnumerator(t, &script{fail: boom}, 1, nil)
	if err := s.await(t, "an error", func() bool { return false }); !errors.Is(err, boom) || !strings.Contains(err.Error(), `source "op"`) {
		t.Errorf("%v", err)
	}
	e.Close()
	e, s, _ = startEnumerator(t, &script{panics: true}, 1, nil)
	err := s.await(t, "an error", func() bool { return false })
	if f := job.FailureOf("", "", err); f.Class != job.ClassUser || !strings.Contains(f.Stack, "source_test.go") {
		t.Errorf("%+v", f)
	}
	e.Close()
	// Close does not wait for a list that takes for ever, and what it would have said is dropped.
	e, s, _ = startEnumerator(t, &script{gate: make(chan struct{})}, 1, nil)
	if err := e.Close(); err != nil || s.run() != nil {
		t.Error(err)
	}
	s = surround(nil)
	s.c.Union = map[string][][]byte{splitsState: {{9, 9}}}
	if err := Enumerator[int64](&script{}).Open(s.c); err == nil {
		t.Error("a split of another version is taken")
	}
}

func TestSplitEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Split{ID: rapid.String().Draw(t, "id"), Body: rapid.SliceOf(rapid.Byte()).Draw(t, "body")}
		b := encodeSplit(s)
		back, err := decodeSplit(b)
		if err != nil || back.ID != s.ID || !slices.Equal(back.Body, s.Body) {
			t.Fatalf("%v becomes %v, %v", s, back, err)
		}
		for n := range len(b) - len(s.Body) {
			if _, err := decodeSplit(b[:n]); err == nil {
				t.Fatalf("%d of %d bytes are taken", n, len(b))
			}
		}
	})
	if got := fmt.Sprintf("%x", encodeSplit(Split{ID: "ab", Body: []byte{7}})); got != "0102616207" {
		t.Errorf("the encoding is %s", got)
	}
}
