package stream_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/watermark"
)

// What does not fit a place or lacks something is said when the job is built.
func TestTimestampProblems(t *testing.T) {
	mark := func(*order) (time.Time, bool) { return time.Time{}, false }
	for want, build := range map[string]func(s stream.Stream[order]) stream.Stream[order]{
		"": func(s stream.Stream[order]) stream.Stream[order] {
			return s.TimestampsWithMarkers(at, mark, watermark.None().Idle(time.Second).Align("g", time.Minute))
		},
		"the function of markers is nil": func(s stream.Stream[order]) stream.Stream[order] {
			return s.TimestampsWithMarkers(at, nil, watermark.None())
		},
		"the function is nil": func(s stream.Stream[order]) stream.Stream[order] {
			return s.TimestampsWithMarkers((func(*order) time.Time)(nil), mark, watermark.None())
		},
		"belongs directly behind a source": func(s stream.Stream[order]) stream.Stream[order] {
			return s.Filter("f", keepAll[order]).Timestamps(at, watermark.Monotonous().Idle(time.Second))
		},
		"are taken directly behind a source only": func(s stream.Stream[order]) stream.Stream[order] {
			return s.Filter("f", keepAll[order]).Timestamps(at, watermark.FromSource())
		},
		"elsewhere use Timestamps": func(s stream.Stream[order]) stream.Stream[order] {
			return s.Filter("f", keepAll[order]).Watermarks(watermark.Monotonous())
		},
		`alignment in group "g" needs watermarks`: func(s stream.Stream[order]) stream.Stream[order] {
			return s.Timestamps(at, watermark.None().Align("g", time.Second))
		},
	} {
		_, err := stream.Build(stream.Program{Name: "p", Build: func(j *stream.Job) {
			build(j.Source("s", orders())).Sink("out", collect.New[order]())
		}}, nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// Records whose time cannot be right have a side output where that was asked for, and nowhere else.
func TestBadTimesSideOutput(t *testing.T) {
	for _, atSource := range []bool{true, false} {
		bp, err := stream.Build(stream.Program{Name: "p", Build: func(j *stream.Job) {
			s := j.Source("s", orders())
			if !atSource {
				s = s.Watermarks(watermark.FromSource().Align("g", time.Second)).Filter("f", keepAll[order])
			}
			s = s.Timestamps(at, watermark.Monotonous().BadTimes(watermark.Divert))
			s.Side[order](watermark.SideOutput).Sink("bad", collect.New[order]())
			s.Sink("out", collect.New[order]())
		}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, op := range bp.Graph.Operators {
			if slices.Contains(op.Sides, watermark.SideOutput) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("at the source %v: %d operators have the side output", atSource, n)
		}
	}
}
