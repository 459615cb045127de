package stream_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/stream"
)

type visit struct {
	User string
	At   int64
}

func visits(j *stream.Job, name string) stream.Keyed[string, visit] {
	return j.Source(name, datagen.Source[visit]{Count: 1, Make: func(int64, *visit) {}}).
		KeyBy(func(v *visit) string { return v.User })
}

func discard[T any](s stream.Stream[T], name string) { s.Sink(name, collect.New[T]()) }

func users(a, _ *visit) string { return a.User }

// State that grows without bound is named in the plan; a TTL or a bound in time silences that.
func TestUnboundedStateIsNamed(t *testing.T) {
	bp, err := stream.Build(stream.Program{Name: "p", Build: func(j *stream.Job) {
		a, b := visits(j, "a"), visits(j, "b")
		discard(a.Join(b).Unbounded().Apply("all", users), "1")
		discard(a.Join(b).Unbounded().TTL(time.Hour).Apply("all-hour", users), "2")
		discard(a.TemporalJoin(b).Apply("versions", users), "3")
		discard(a.TemporalJoin(b).TTL(time.Hour).Apply("versions-hour", users), "4")
		discard(a.Dedup("first", 0), "5")
		discard(a.Dedup("first-hour", time.Hour), "6")
		newer := func(a, b *visit) bool { return a.At > b.At }
		discard(a.DedupLast("last", 0, newer), "7")
		discard(a.DedupLast("last-hour", time.Hour, newer), "8")
		discard(a.Join(b).Window(window.Tumbling(time.Hour)).Apply("window", users), "9")
		discard(a.IntervalJoin(b).Between(0, time.Hour).Apply("interval", users), "10")
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var warned []string
	for _, o := range bp.Graph.Operators {
		if len(o.Warnings) > 0 {
			warned = append(warned, o.Name)
		}
	}
	if want := []string{"all", "versions", "first", "last"}; !slices.Equal(warned, want) {
		t.Errorf("warned of %q, want %q", warned, want)
	}
	fingerprint := bp.Graph.Fingerprint()
	for i := range bp.Graph.Operators {
		bp.Graph.Operators[i].Warnings = nil
	}
	if bp.Graph.Fingerprint() != fingerprint {
		t.Error("warnings are part of the fingerprint")
	}
}

// What is wrong with joins and the like is said at once, when the job is built.
func TestConnectProblems(t *testing.T) {
	_, err := stream.Build(stream.Program{Name: "p", Build: func(j *stream.Job) {
		a, b := visits(j, "a"), visits(j, "b")
		discard(a.Join(b).Window(window.Tumbling(0)).Apply("w", users), "1")
		discard(a.IntervalJoin(b).Between(time.Hour, 0).Apply("i", users), "2")
		discard(a.IntervalJoin(b).Between(0, time.Microsecond).Apply("k", users), "3")
		discard(a.TopN("t", 0, func(a, b *visit) bool { return false }, func(int, *visit) int64 { return 0 }), "4")
		discard(a.Dedup("d", -time.Second), "5")
		discard(a.Connect(b).Process("c", func(*operator.States[string]) operator.CoHandler[string, visit, visit, int64] {
			return operator.CoHandler[string, visit, visit, int64]{}
		}), "6")
		discard(a.Connect(b).Process("", func(*operator.States[string]) operator.CoHandler[string, visit, visit, int64] {
			f := func(*operator.KeyedContext[string, int64], *visit) {}
			return operator.CoHandler[string, visit, visit, int64]{Left: f, Right: f}
		}), "7")
	}}, nil)
	if err == nil {
		t.Fatal("no problem")
	}
	text := err.Error()
	for _, want := range []string{`join "w"`, `join "i"`, `join "k"`, `operator "t"`, `operator "d"`, `operator "c"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no problem of %s in %v", want, text)
		}
	}
}
