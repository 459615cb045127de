package cli

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/local"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/snapshot"
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

// What is damaged is named, and what is missing.
func TestDamagedSnapshots(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("schema.yaml", "job: j\noperators: {op: {states: {s: {key: int64, value: bytes}, u: {key: int64, value: int64}}}}\n")
	var lines strings.Builder
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		value := make([]byte, 48)
		for j := range value {
			value[j] = byte(random.Uint32())
		}
		fmt.Fprintf(&lines, `{"operator":"op","state":"s","key":%d,"value":%q}`+"\n", i, base64.StdEncoding.EncodeToString(value))
	}
	write("data.ndjson", lines.String())
	sp := filepath.Join(dir, "sp")
	if r := call(nil, nil, "cairn", "state", "create", "--schema", dir+"/schema.yaml", "--to", sp, dir+"/data.ndjson"); r.code != Done {
		t.Fatalf("%+v", r)
	}
	names, err := filepath.Glob(sp + "/op-*")
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	manifest, object := filepath.Join(sp, "_metadata"), names[0]
	for _, c := range []struct {
		name    string
		file    string
		damage  func(b []byte) []byte // Nil removes the file.
		command []string
		code    int
		want    []string
	}{
		{"no manifest", manifest, nil, []string{"ls", sp}, NotFound, []string{"there is none", "_metadata"}},
		{"no object", object, nil, []string{"get", sp, "op", "s", "7"}, Failed, []string{`operator "op": state "s"`, filepath.Base(object), "does not exist"}},
		{"another file", manifest, func([]byte) []byte { return []byte("hello") }, []string{"ls", sp}, Failed, []string{"damaged: it is no manifest", "_metadata"}},
		{"a newer version", manifest, func(b []byte) []byte { b[8] = 99; return b }, []string{"ls", sp}, Failed, []string{"manifest of version 99: this program reads"}},
		{"a manifest cut short", manifest, func(b []byte) []byte { return b[:len(b)-1] }, []string{"ls", sp}, Failed, []string{"_metadata: damaged: the manifest has"}},
		{"a changed manifest", manifest, func(b []byte) []byte { b[100]++; return b }, []string{"dump", sp}, Failed, []string{"_metadata: damaged: the hash of the manifest is"}},
		{"a changed block", object, func(b []byte) []byte { b[1000]++; return b }, []string{"dump", sp}, Failed, []string{`state "s"`, filepath.Base(object), "damaged: the hash of the block at byte 9 is"}},
		{"an object cut short", object, func(b []byte) []byte { return b[:2000] }, []string{"dump", sp}, Failed, []string{filepath.Base(object), "range is not inside the object"}},
		{"a changed section", object, func(b []byte) []byte { b[1000]++; return b }, []string{"patch", sp, dir + "/none.ndjson", "--to", dir + "/x"}, Failed, []string{`operator "op", subtask 0: state "s"`, filepath.Base(object), "damaged", "the checkpoint has"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			write("none.ndjson", "")
			good, err := os.ReadFile(c.file)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := os.WriteFile(c.file, good, 0o600); err != nil {
					t.Fatal(err)
				}
			}()
			if c.damage == nil {
				err = os.Remove(c.file)
			} else {
				err = os.WriteFile(c.file, c.damage(bytes.Clone(good)), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			r := call(nil, nil, append([]string{"cairn", "state"}, c.command...)...)
			if r.code != c.code {
				t.Errorf("exit %d, want %d", r.code, c.code)
			}
			for _, want := range c.want {
				if !strings.Contains(r.stderr, want) {
					t.Errorf("%q is not in %s", want, r.stderr)
				}
			}
			if _, err := os.Stat(dir + "/x/_metadata"); err == nil {
				t.Error("a savepoint was made of something damaged")
			}
		})
	}
}

// A place names a store and a folder in it.
func TestPlaces(t *testing.T) {
	for text, want := range map[string]string{
		"file:///a/c/jobs/j/checkpoints/7":                        "file:///a c/jobs/j/checkpoints/7 c j 7",
		"/a/c/jobs/j/checkpoints/7/_metadata":                     "file:///a c/jobs/j/checkpoints/7 c j 7",
		"/c/jobs/j":                                               "file:/// c/jobs/j c j 0",
		"/a/c/jobs/j/checkpoints/":                                "file:///a c/jobs/j c j 0",
		"/a/b/savepoint":                                          "file:///a/b savepoint   0",
		"/checkpoints/2":                                          "file:///checkpoints 2   0",
		"s3://bucket/c/jobs/j/checkpoints/7?region=eu":            "s3://bucket?region=eu c/jobs/j/checkpoints/7 c j 7",
		"s3://bucket/p/q/sp?path-style=true&endpoint=http://h:90": "s3://bucket/p/q?endpoint=http%3A%2F%2Fh%3A90&path-style=true sp   0",
		"/":                            "it names no folder",
		"s3://bucket":                  "it names no folder",
		"/a/.hidden":                   "begins with a dot",
		"s3://user:secret@bucket/x":    "it holds credentials",
		"/a/c/jobs/j/checkpoints/none": "file:///a/c/jobs/j/checkpoints none   0",
	} {
		loc, err := placeOf(text)
		var p snapshot.Folder
		if err == nil {
			p, err = snapshot.ParseFolder(loc)
		}
		got := fmt.Sprintf("%v %s %s %s %d", p.Root, p.Dir, p.Cluster, p.Job, uint64(p.Checkpoint))
		if err != nil {
			got = err.Error()
		}
		if got != want && !(err != nil && strings.Contains(got, want)) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
		if strings.Contains(got, "secret") {
			t.Errorf("the secret is in %s", got)
		}
	}
}
