package streamtest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/streamtest"
	"github.com/cairnstream/cairn/watermark"
)

// A function takes ten seconds for each record, twice as long as it takes to be idle: checkpoints
// complete, late, no source is marked idle, so no window closes too soon, and no record is lost,
// straight or restored.
func TestTenSecondsPerRecord(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, h *streamtest.Harness) {
		in, out, late := h.PartedInput[reading](2), h.Output[string](), h.Output[int64]()
		h.Start(func(j *stream.Job) {
			counts := j.Source("in", in).
				Timestamps(func(r *reading) time.Time { return time.UnixMilli(r.At) }, watermark.Monotonous().Idle(5*time.Second)).
				Map("slow", func(r *reading) reading { time.Sleep(10 * time.Second); return *r }).
				KeyBy(sensor).Window("minutes", window.Tumbling(time.Minute)).LateTo("late").Aggregate(tally)
			counts.Sink("out", out)
			counts.Side[reading]("late").Map("", func(r *reading) int64 { return r.N }).Sink("late", late)
		})
		// The second part is far behind the first one: were it idle for a moment, what it has would be late.
		push := func(part int, i int64) {
			in.Part(part).Push(reading{"s", 1, i*20_000 + int64(1-part)*3_600_000})
		}
		for i := range int64(6) {
			push(0, i)
			push(1, i)
			time.Sleep(19 * time.Second) // The next ones are there before these are done.
		}
		push(0, 6)
		push(1, 6)
		start := time.Now()
		s := h.Snapshot()
		if d := time.Since(start); d < time.Second || d > time.Minute {
			t.Errorf("the checkpoint took %v", d)
		}
		push(0, 7)
		h.Restore(s, 2)
		h.EndOfData()
		same(t, "late", late.Rows())
		rows := out.Rows()
		slices.Sort(rows)
		same(t, "windows", rows, "s 0-60000: 3, 3", "s 120000-180000: 1, 1", "s 3600000-3660000: 3, 3", "s 3660000-3720000: 3, 3",
			"s 3720000-3780000: 2, 2", "s 60000-120000: 3, 3")
	})
}

// A function of a window that panics fails the job with its name and as the user's fault; with the
// repaired program the job goes on from its checkpoint.
func TestWindowFunctionPanics(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, h *streamtest.Harness) {
		in, out := h.Input[reading](), h.Output[int]()
		version := func(bad bool) func(*stream.Job) {
			return func(j *stream.Job) {
				j.Source("in", in).KeyBy(sensor).Window("minutes", window.Tumbling(time.Minute)).
					Apply(func(p window.Pane[string], list []reading, out *operator.Collector[int]) {
						if bad && len(list) == 2 {
							_ = list[2].N
						}
						out.Emit(len(list))
					}).Sink("out", out)
			}
		}
		h.Start(version(true))
		in.PushAt(1000, reading{Sensor: "a"})
		in.Watermark(60_000)
		same(t, "a window", out.Rows(), 1)
		in.PushAt(61_000, reading{Sensor: "a"}, reading{Sensor: "a"})
		s := h.Snapshot()
		in.Watermark(120_000)
		f := h.Failure()
		if f == nil || f.Class != job.ClassUser || !strings.Contains(fmt.Sprint(f), "minutes") || !strings.Contains(f.Message, "index out of range") {
			t.Fatalf("failure: %v", f)
		}
		if !strings.Contains(f.Stack, "badday_test.go") {
			t.Errorf("the stack does not show where:\n%s", f.Stack)
		}
		h.Upgrade(s, version(false))
		same(t, "behind the repair", out.Rows(), 1, 2)
	})
}
