package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/local"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/streamtest"
	"github.com/cairnstream/cairn/watermark"
)

// visit is a record of a job that has every kind of state.
type visit struct {
	User string
	Page string
	At   time.Time
	Took time.Duration
}

// profile is the value of one of its states.
type profile struct {
	Visits int64
	Last   time.Time
	Mean   float64
	Took   time.Duration
	Token  []byte
	Tags   map[string]bool
}

var monday = time.Date(2026, 6, 1, 8, 0, 0, 0, time.UTC)

// visits is a job with all kinds of states.
func visits(j *stream.Job, in operator.Source[visit], rules operator.Source[string], out operator.Sink[string]) {
	timed := j.Source("visits", in).Timestamps(func(v *visit) time.Time { return v.At }, watermark.Bounded(time.Minute))
	marked := timed.Process("mark", func(s *operator.OperatorStates) operator.PlainHandler[visit, visit] {
		newest := s.List[string]("newest")
		return operator.PlainHandler[visit, visit]{Record: func(c *operator.PlainContext[visit], v *visit) {
			newest.Set([]string{v.User, v.Page})
			c.Emit(*v)
		}}
	})
	keyed := marked.KeyBy(func(v *visit) string { return v.User })
	keyed.Window("hourly", window.Tumbling(time.Hour)).Aggregate(window.Functions[string, visit, int64, string]{
		AddTo:    func(n *int64, _ *visit) { *n++ },
		ResultOf: func(p window.Pane[string], n *int64) string { return fmt.Sprint(p.Key, *n) },
	}).Sink("hours", out)
	keyed.SessionWindow("sessions", window.Session(10*time.Minute)).Aggregate(window.Functions[string, visit, int64, string]{
		AddTo:    func(n *int64, _ *visit) { *n++ },
		MergeOf:  func(into, from *int64) { *into += *from },
		ResultOf: func(p window.Pane[string], n *int64) string { return fmt.Sprint(p.Key, *n) },
	}).Sink("sittings", out)
	keyed.ConnectBroadcast(j.Source("rules", rules)).Process("users", func(s *operator.States[string]) operator.BroadcastHandler[string, visit, string, string] {
		p := s.Value[profile]("profile")
		pages := s.Map[string, int64]("pages")
		recent := s.List[string]("recent")
		total := s.Reducing[int64]("total", func(into, v *int64) { *into += *v }, operator.TTL{After: time.Hour})
		s.Value[int64]("unused")
		limits := s.Broadcast[string, int64]("limits")
		return operator.BroadcastHandler[string, visit, string, string]{
			Record: func(c *operator.KeyedContext[string, string], v *visit) {
				r := p.Ref()
				r.Visits++
				r.Last, r.Took, r.Token = v.At, r.Took+v.Took, []byte{1, 2, byte(r.Visits)}
				r.Mean = r.Took.Seconds() / float64(r.Visits)
				r.Tags = map[string]bool{v.Page: true}
				n, _ := pages.Ref(v.Page)
				*n++
				recent.Append(&v.Page)
				one := int64(1)
				total.Add(&one)
				c.SetTimer(v.At.Add(time.Hour).UnixMilli())
			},
			Broadcast: func(_ *operator.BroadcastContext[string], r *string) { limits.Put(*r, int64(len(*r))) },
			Timer:     func(*operator.KeyedContext[string, string]) {},
		}
	}).Sink("out", out)
}

var theVisits = []visit{
	{"ann", "/", monday, time.Second}, {"ann", "/cart", monday.Add(time.Minute), 3 * time.Second},
	{"bob", "/", monday.Add(2 * time.Minute), 1500 * time.Millisecond}, {"ann", "/", monday.Add(3 * time.Minute), 0},
	{"ann", "/pay", monday.Add(4 * time.Minute), 0}, {"ann", "/done", monday.Add(5 * time.Minute), 0}, {"ann", "/", monday.Add(6 * time.Minute), 0},
}

// visitSnapshots writes two checkpoints of the job to a directory: the second one knows of more visits.
func visitSnapshots(t *testing.T, dir string) {
	t.Helper()
	streamtest.Run(t, func(t *testing.T, h *streamtest.Harness) {
		store, err := local.Open(blob.Location{Scheme: blob.SchemeFile, Path: dir})
		if err != nil {
			t.Fatal(err)
		}
		in, rules, out := h.Input[visit](), h.Input[string](), h.Output[string]()
		h.Set("parallelism", "2")
		h.Start(func(j *stream.Job) { visits(j, in, rules, out) })
		rules.Push("short", "longer")
		in.Push(theVisits...)
		h.Save(h.Snapshot(), store, "prod")
		in.Push(visit{"cid", "/", monday.Add(7 * time.Minute), 0}, visit{"bob", "/cart", monday.Add(8 * time.Minute), 0})
		h.Save(h.Snapshot(), store, "prod")
	})
}

// words splits a command line. What is between single quotes is one word.
func words(line string) (out []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out = append(out, part)
			continue
		}
		out = append(out, strings.Fields(part)...)
	}
	return out
}
