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
	type windowed = stream.Windowed[int64, tick]
	for name, c := range map[string]struct {
		w    window.Windows
		make func(w windowed)
		say  string // Empty: fine.
	}{
		"tumbling": {window.Tumbling(time.Second), func(w windowed) { w.Aggregate(count).Sink("out", collect.New[int64]()) }, ""},
		"sliding":  {window.Sliding(2*time.Second, time.Second), func(w windowed) { w.Aggregate(merging).Sink("out", collect.New[int64]()) }, ""},
		"no merge": {window.Sliding(2*time.Second, time.Second), func(w windowed) { w.Aggregate(count) }, "needs MergeOf"},
		"no merge then": {window.Session(time.Second), func(w windowed) {
			w.AggregateThen(count, func(window.Pane[int64], *int64, *operator.Collector[int64]) {})
		}, "needs MergeOf"},
		"windows apart": {window.Sliding(time.Second, time.Minute), func(w windowed) { w.Aggregate(count).Sink("out", collect.New[int64]()) }, ""},
		"zero":          {window.Sliding(0, time.Second), func(w windowed) { w.Aggregate(merging) }, "size"},
		"no windows":    {nil, func(w windowed) { w.Aggregate(merging) }, "no windows"},
		"nil reduce":    {window.Session(time.Second), func(w windowed) { w.Reduce((func(a, b *tick))(nil)) }, "nil"},
		"nil apply":     {window.Session(time.Second), func(w windowed) { w.Apply[int64](nil) }, "nil"},
		"trigger": {window.Global(), func(w windowed) {
			w.Trigger(window.EveryCount(3).Purging()).Aggregate(count).Sink("out", collect.New[int64]())
		}, ""},
		"bad trigger":         {window.Global(), func(w windowed) { w.Trigger(window.EveryCount(0)).Aggregate(count) }, "at least 1"},
		"trigger of sessions": {window.Session(time.Second), func(w windowed) { w.Trigger(window.EveryCount(3)).Aggregate(merging) }, "takes no trigger"},
		"lateness":            {window.Tumbling(time.Second), func(w windowed) { w.AllowedLateness(-1).Aggregate(count) }, "lateness"},
		"late without a name": {window.Tumbling(time.Second), func(w windowed) { w.LateTo("").Aggregate(count) }, "name"},
		"late": {window.Tumbling(time.Second), func(w windowed) {
			out := w.LateTo("late").Aggregate(count)
			out.Sink("out", collect.New[int64]())
			out.Side[tick]("late").Sink("late", collect.New[tick]())
		}, ""},
		"late of another type": {window.Tumbling(time.Second), func(w windowed) { w.LateTo("late").Aggregate(count).Side[int64]("late") },
			"not of int64"},
	} {
		_, err := stream.Build(stream.Program{Name: "p", Build: func(j *stream.Job) {
			c.make(j.Source("ticks", datagen.Source[tick]{Count: 1, Make: func(int64, *tick) {}}).
				KeyBy(func(t *tick) int64 { return t.Key }).Window("w", c.w))
		}}, nil)
		switch {
		case c.say == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.say != "" && (err == nil || !strings.Contains(err.Error(), c.say)):
			t.Errorf("%s: %v does not say %q", name, err, c.say)
		}
	}
}
