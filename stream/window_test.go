package stream_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/stream"
)

type tick struct{ Key, At int64 }

// What cannot work is refused when the job is built, and says why.
func TestWindowProblems(t *testing.T) {
	count := window.Functions[int64, tick, int64, int64]{
		AddTo:    func(n *int64, _ *tick) { *n++ },
		ResultOf: func(_ window.Pane[int64], n *int64) int64 { return *n },
	}
	merging := count
	merging.MergeOf = func(a, b *int64) { *a += *b }
	type keyed = stream.Keyed[int64, tick]
	none := func(window.Pane[int64], *int64, *operator.Collector[int64]) {}
	for name, c := range map[string]struct {
		make func(k keyed)
		say  string // Empty: fine.
	}{
		"tumbling": {func(k keyed) {
			k.Window("w", window.Tumbling(time.Second)).Aggregate(count).Sink("out", collect.New[int64]())
		}, ""},
		"sliding": {func(k keyed) {
			k.SlidingWindow("w", window.Sliding(2*time.Second, time.Second)).Aggregate(merging).Sink("out", collect.New[int64]())
		}, ""},
		"no merge":       {func(k keyed) { k.SlidingWindow("w", window.Sliding(2*time.Second, time.Second)).Aggregate(count) }, "needs MergeOf"},
		"no merge apart": {func(k keyed) { k.SlidingWindow("w", window.Sliding(time.Second, time.Minute)).Aggregate(count) }, "needs MergeOf"},
		"no merge then":  {func(k keyed) { k.SessionWindow("w", window.Session(time.Second)).AggregateThen(count, none) }, "needs MergeOf"},
		"no merge with a trigger": {func(k keyed) {
			k.SlidingWindow("w", window.Sliding(2*time.Second, time.Second)).Trigger(window.EveryCount(3)).Aggregate(count).Sink("out", collect.New[int64]())
		}, ""},
		"zero":   {func(k keyed) { k.SlidingWindow("w", window.Sliding(0, time.Second)).Aggregate(merging) }, "size"},
		"no gap": {func(k keyed) { k.SessionWindow("w", window.SessionWindows{}).Aggregate(merging) }, "gap"},
		"nil then": {func(k keyed) {
			k.Window("w", window.Tumbling(time.Second)).AggregateThen[int64, int64, int64](count, nil)
		}, "nil"},
		"nil codec":  {func(k keyed) { k.Window("w", window.Tumbling(time.Second)).AggregateWith(count, nil) }, "the codec is nil"},
		"nil reduce": {func(k keyed) { k.SessionWindow("w", window.Session(time.Second)).Reduce((func(a, b *tick))(nil)) }, "nil"},
		"nil apply":  {func(k keyed) { k.SessionWindow("w", window.Session(time.Second)).Apply[int64](nil) }, "nil"},
		"trigger": {func(k keyed) {
			k.GlobalWindow("w", window.Global()).Trigger(window.EveryCount(3).Purging()).Aggregate(count).Sink("out", collect.New[int64]())
		}, ""},
		"bad trigger":         {func(k keyed) { k.GlobalWindow("w", window.Global()).Trigger(window.EveryCount(0)).Aggregate(count) }, "at least 1"},
		"lateness":            {func(k keyed) { k.Window("w", window.Tumbling(time.Second)).AllowedLateness(-1).Aggregate(count) }, "lateness"},
		"late without a name": {func(k keyed) { k.Window("w", window.Tumbling(time.Second)).LateTo("").Aggregate(count) }, "name"},
		"late": {func(k keyed) {
			out := k.Window("w", window.Tumbling(time.Second)).LateTo("late").Aggregate(count)
			out.Sink("out", collect.New[int64]())
			out.Side[tick]("late").Sink("late", collect.New[tick]())
		}, ""},
		"late of another type": {func(k keyed) {
			k.Window("w", window.Tumbling(time.Second)).LateTo("late").Aggregate(count).Side[int64]("late")
		}, "not of int64"},
	} {
		_, err := stream.Build(stream.Program{Name: "p", Build: func(j *stream.Job) {
			c.make(j.Source("ticks", datagen.Source[tick]{Count: 1, Make: func(int64, *tick) {}}).
				KeyBy(func(t *tick) int64 { return t.Key }))
		}}, nil)
		switch {
		case c.say == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.say != "" && (err == nil || !strings.Contains(err.Error(), c.say)):
			t.Errorf("%s: %v does not say %q", name, err, c.say)
		}
	}
}
