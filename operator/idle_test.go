package operator

import (
	"testing"
	"time"

	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/watermark"
)

// slow is an output that takes its time: a full one, or a chain that works.
type slow struct {
	recorder[int64]
	takes func()
}

func (s *slow) Emit(a record.Any) error {
	s.takes()
	return s.recorder.Emit(a)
}

// startSlow starts a reader of f whose output takes d for each batch.
func startSlow(t *testing.T, f *feed, st watermark.Strategy, d time.Duration) (*reader[int64], *slow, *surroundings) {
	t.Helper()
	out := &slow{}
	s := surround(out)
	out.takes = func() { s.now = s.now.Add(d) }
	r := Reader(f, timeOf, st).(*reader[int64])
	if err := r.Open(s.c); err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	b := record.PoolOf[SplitMessage]().Get()
	for _, sp := range mustSplits(f) {
		b.Append(SplitMessage{ID: sp.ID, Body: sp.Body}, record.MinTime)
	}
	b.Append(SplitMessage{NoMore: true}, record.MinTime)
	if err := r.Push(0, b); err != nil {
		t.Fatal(err)
	}
	return r, out, s
}

func mustSplits(f *feed) []Split {
	list, err := f.Splits(nil, SourceContext{}) //nolint:staticcheck // It takes no context.
	if err != nil {
		panic(err)
	}
	return list
}

func pollAll(t *testing.T, r *reader[int64]) {
	t.Helper()
	for {
		again, err := r.Poll()
		if err != nil {
			t.Fatal(err)
		}
		if !again {
			return
		}
	}
}

func marks(out *recorder[int64], kind record.MarkKind) (n int) {
	for _, e := range out.events {
		if e.mark && e.kind == kind {
			n++
		}
	}
	return n
}

// A split is not idle because what comes next is slow: that takes 10 s for each batch and the idle
// timeout is 5 s. Both splits have input again whenever they are asked, with moments without in
// between: neither is idle, and no record is late.
func TestP33BackpressureIsNotIdleness(t *testing.T) {
	f := newFeed(2)
	r, out, _ := startSlow(t, f, watermark.Monotonous().Idle(5*time.Second), 10*time.Second)
	for i := range 20 {
		f.splits[0].rows = append(f.splits[0].rows, int64(1000+10*i))
		pollAll(t, r) // Both wait now, with the clock running.
		f.splits[1].rows = append(f.splits[1].rows, int64(5+10*i))
		_ = r.wake()
		pollAll(t, r)
		_ = r.wake()
	}
	if n := marks(&out.recorder, record.Idle); n > 0 {
		t.Errorf("%d times idle", n)
	}
	w, late := record.MinTime, 0
	for _, e := range out.events {
		switch {
		case e.mark && e.kind == record.Watermark:
			w = e.time
		case !e.mark && e.time <= w:
			late++
		}
	}
	if late > 0 {
		t.Errorf("%d records are late", late)
	}
}

// The same where the loop waits in between but for a moment: only that counts.
func TestP33OnlyTrueWaitingCounts(t *testing.T) {
	f := newFeed(1)
	r, out, s := startSlow(t, f, watermark.Monotonous().Idle(5*time.Second), 0)
	f.splits[0].rows = []int64{1}
	pollAll(t, r)
	for range 8 { // 8 flushes that were blocked for a minute each.
		s.now = s.now.Add(time.Minute + 500*time.Millisecond)
		r.Slept(500 * time.Millisecond)
		pollAll(t, r)
	}
	if marks(&out.recorder, record.Idle) > 0 {
		t.Error("idle, having waited for 4 s")
	}
	s.now = s.now.Add(time.Second)
	r.Slept(time.Second)
	pollAll(t, r)
	if marks(&out.recorder, record.Idle) != 1 {
		t.Error("not idle, having waited for 5 s")
	}
}

// A split that never had a record becomes idle, beside others and alone, and restored as well
// as new.
func TestP35IdleFromTheStart(t *testing.T) {
	for _, restored := range []bool{false, true} {
		f := newFeed(2)
		out := &recorder[int64]{}
		s := surround(out)
		if restored {
			s.c.Restored = true
			for _, sp := range mustSplits(f) {
				s.c.List = map[string][][]byte{splitsState: append(s.c.List[splitsState], encodeSplit(sp))}
			}
		}
		r := Reader(f, timeOf, watermark.Monotonous().Idle(time.Second)).(*reader[int64])
		if err := r.Open(s.c); err != nil {
			t.Fatal(err)
		}
		if err := r.Start(); err != nil {
			t.Fatal(err)
		}
		b := record.PoolOf[SplitMessage]().Get()
		if !restored {
			for _, sp := range mustSplits(f) {
				b.Append(SplitMessage{ID: sp.ID, Body: sp.Body}, record.MinTime)
			}
		}
		b.Append(SplitMessage{NoMore: true}, record.MinTime)
		if err := r.Push(0, b); err != nil {
			t.Fatal(err)
		}
		f.splits[0].rows = []int64{100}
		pollAll(t, r)
		sleep := func(d time.Duration) {
			s.now = s.now.Add(d)
			r.Slept(d)
			pollAll(t, r)
		}
		sleep(time.Second)
		if r.mark != 99 || marks(out, record.Idle) != 1 {
			t.Errorf("restored %v: watermark %d and %v after the timeout of the silent split", restored, r.mark, out.events)
		}
		f.splits[1].rows = []int64{200}
		_ = r.wake()
		pollAll(t, r)
		if marks(out, record.Active) != 1 {
			t.Errorf("restored %v: its first record does not make it active", restored)
		}
	}
}

// A reader is stopped and restored long after, with as many subtasks or fewer: the splits have the
// watermarks that they had, the reader's does not go back, and moves on.
func TestP37WatermarkAfterARestore(t *testing.T) {
	f := newFeed(3)
	st := watermark.Bounded(10 * time.Millisecond)
	a, _, _ := startSlow(t, f, st, 0)
	f.splits[0].rows, f.splits[1].rows, f.splits[2].rows = []int64{1000}, []int64{2000}, []int64{3000}
	pollAll(t, a)
	if a.mark != 989 {
		t.Fatalf("watermark %d", a.mark)
	}
	lists, err := a.Snapshot(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		floor int64 // What is restored for the operator: the lowest of its subtasks.
		share []int // The splits of this subtask.
		first int64 // The watermark at once.
	}{
		{989, []int{0, 1, 2}, 989}, {record.MinTime, []int{0, 1, 2}, 989}, {record.MinTime, []int{1, 2}, 1989}, {989, []int{2}, 2989},
	} {
		out := &recorder[int64]{}
		s := surround(out)
		s.now = s.now.Add(10 * time.Minute)
		s.c.Restored, s.c.Watermark = true, x.floor
		s.c.List = map[string][][]byte{}
		for _, i := range x.share {
			s.c.List[splitsState] = append(s.c.List[splitsState], lists[splitsState][i])
		}
		r := Reader(f, timeOf, st).(*reader[int64])
		if err := r.Open(s.c); err != nil {
			t.Fatal(err)
		}
		if err := r.Start(); err != nil {
			t.Fatal(err)
		}
		b := record.PoolOf[SplitMessage]().Get()
		b.Append(SplitMessage{NoMore: true}, record.MinTime)
		if err := r.Push(0, b); err != nil {
			t.Fatal(err)
		}
		pollAll(t, r)
		if r.mark != x.first {
			t.Errorf("%v: watermark %d, want %d without any record", x, r.mark, x.first)
		}
		for _, i := range x.share { // Out of order, as far as the bound allows.
			f.splits[i].rows = append(f.splits[i].rows, int64(1000*(i+1)-5))
		}
		_ = r.wake()
		pollAll(t, r)
		if r.mark != x.first {
			t.Errorf("%v: watermark %d, want %d behind records that are older", x, r.mark, x.first)
		}
		for _, i := range x.share {
			f.splits[i].rows = append(f.splits[i].rows, 5000)
		}
		_ = r.wake()
		pollAll(t, r)
		if r.mark != 4989 {
			t.Errorf("%v: watermark %d, want 4989", x, r.mark)
		}
		w := x.floor
		for _, e := range out.events {
			if e.mark && e.kind == record.Watermark {
				if e.time <= w {
					t.Errorf("%v: watermark %d behind %d", x, e.time, w)
				}
				w = e.time
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A split that is silent beside one that keeps the task busy becomes idle, if it takes longer.
func TestSilentSplitBesideABusyOne(t *testing.T) {
	f := newFeed(2)
	for i := range 1000 {
		f.splits[0].rows = append(f.splits[0].rows, int64(i))
	}
	r, _, s := startSlow(t, f, watermark.Monotonous().Idle(time.Second), 20*time.Millisecond)
	for range 60 {
		if _, err := r.Poll(); err != nil {
			t.Fatal(err)
		}
	}
	if r.mark < 40 {
		t.Errorf("watermark %d after %v", r.mark, s.now.Sub(time.Unix(1000, 0)))
	}
}
