package streamtest_test

import (
	"testing"
	"time"

	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/streamtest"
	"github.com/cairnstream/cairn/watermark"
)

type Purchase struct {
	Customer string
	Cents    int64
	At       time.Time
}

type Total struct {
	Customer string
	Cents    int64
}

// timed gives purchases their times and watermarks.
func timed(purchases stream.Stream[Purchase]) stream.Stream[Purchase] {
	return purchases.Timestamps(func(p *Purchase) time.Time { return p.At }, watermark.Bounded(5*time.Second))
}

// perMinute sums what each customer spends in a minute.
func perMinute(purchases stream.Stream[Purchase]) stream.Stream[Total] {
	return purchases.
		KeyBy(func(p *Purchase) string { return p.Customer }).
		Window("per-minute", window.Tumbling(time.Minute)).
		Aggregate(window.Functions[string, Purchase, int64, Total]{
			AddTo:    func(sum *int64, p *Purchase) { *sum += p.Cents },
			ResultOf: func(p window.Pane[string], sum *int64) Total { return Total{p.Key, *sum} },
		})
}

// testPerMinute would be named TestPerMinute in the tests of a program.
func testPerMinute(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, h *streamtest.Harness) {
		purchases, totals := h.Operator(func(in stream.Stream[Purchase]) stream.Stream[Total] { return perMinute(timed(in)) })
		noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

		purchases.Push(
			Purchase{"ann", 100, noon.Add(10 * time.Second)},
			Purchase{"bob", 250, noon.Add(20 * time.Second)},
			Purchase{"ann", 300, noon.Add(59 * time.Second)},
		)
		if rows := totals.Rows(); len(rows) != 0 {
			t.Errorf("the minute is not over, and there are totals: %v", rows)
		}

		// A process dies; the job goes on from its checkpoint, on three subtasks.
		checkpoint := h.Snapshot()
		h.Restore(checkpoint, 3)

		purchases.Push(Purchase{"ann", 5, noon.Add(time.Minute + 10*time.Second)})
		sum := map[string]int64{}
		for _, row := range totals.Rows() {
			sum[row.Customer] += row.Cents
		}
		if len(sum) != 2 || sum["ann"] != 400 || sum["bob"] != 250 {
			t.Errorf("totals of the first minute: %v", sum)
		}

		h.EndOfData()
		if n := len(totals.Rows()); n != 3 {
			t.Errorf("%d totals at the end", n)
		}
	})
}

// testPerMinuteEquivalent has the same operator stopped and restored at random places.
func testPerMinuteEquivalent(t *testing.T) {
	var input []streamtest.Event[Purchase]
	for i := range int64(500) {
		at := time.Unix(i, 0).UTC()
		input = append(input, streamtest.Event[Purchase]{Row: Purchase{string('a' + rune(i%5)), i, at}, Time: at.UnixMilli()})
	}
	streamtest.Equivalent(t, streamtest.Equivalence[Purchase, Total]{Program: perMinute, Input: input})
}

// Tests of a part of a job: what it answers, that it goes on after a crash, and that its answer does
// not depend on how it runs.
func Example() {
	var t *testing.T // That of the test.
	testPerMinute(t)
	testPerMinuteEquivalent(t)
}
