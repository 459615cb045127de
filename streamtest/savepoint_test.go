package streamtest_test

import (
	"context"
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/local"
	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/pebble"
	"github.com/cairnstream/cairn/statebackend/stored"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/streamtest"
	"github.com/cairnstream/cairn/watermark"
)

var update = flag.Bool("update", false, "write the golden savepoint")

// call is a record of the job of the golden savepoint.
type call struct {
	User, To string
	At       time.Time
	Seconds  int64
}

// caller is the value of one of its states.
type caller struct {
	Calls int64
	Last  time.Time
	Note  []byte
	To    map[string]int64
}

var monday = time.Date(2026, 6, 1, 8, 0, 0, 0, time.UTC)

// calls is a job with every kind of state.
type calls struct {
	in    *streamtest.Input[call]
	rules *streamtest.Input[string]
	out   *streamtest.Output[string]
}

func newCalls(h *streamtest.Harness) *calls {
	return &calls{h.Input[call](), h.Input[string](), h.Output[string]()}
}

func (c *calls) build(j *stream.Job) {
	timed := j.Source("calls", c.in).Timestamps(func(v *call) time.Time { return v.At }, watermark.Bounded(time.Minute))
	marked := timed.Process("mark", func(s *operator.OperatorStates) operator.PlainHandler[call, call] {
		newest := s.List[string]("newest")
		return operator.PlainHandler[call, call]{Record: func(c *operator.PlainContext[call], v *call) {
			newest.Set([]string{v.User, v.To})
			c.Emit(*v)
		}}
	})
	keyed := marked.KeyBy(func(v *call) string { return v.User })
	count := window.Functions[string, call, int64, string]{
		AddTo:    func(n *int64, _ *call) { *n++ },
		MergeOf:  func(into, from *int64) { *into += *from },
		ResultOf: func(p window.Pane[string], n *int64) string { return fmt.Sprint("window of ", p.Key, " ", *n) },
	}
	keyed.Window("hourly", window.Tumbling(time.Hour)).Aggregate(count).Sink("hours", c.out)
	keyed.SessionWindow("sessions", window.Session(10*time.Minute)).Aggregate(count).Sink("sittings", c.out)
	rules := j.Source("rules", c.rules).Timestamps(func(r *string) time.Time {
		if *r == lateRule {
			return monday.Add(5 * time.Hour)
		}
		return monday.Add(6 * time.Minute) // Sources that are far behind hold back others.
	}, watermark.Bounded(time.Minute))
	keyed.ConnectBroadcast(rules).Process("users", func(s *operator.States[string]) operator.BroadcastHandler[string, call, string, string] {
		ttl := operator.TTL{After: time.Hour}
		value := s.Value[caller]("value")
		aged := s.Value[int64]("aged", ttl)
		peers := s.Map[string, int64]("peers")
		agedPeers := s.Map[string, int64]("aged peers", ttl)
		recent := s.List[string]("recent")
		total := s.Reducing[int64]("total", func(into, v *int64) { *into += *v })
		mean := s.Aggregating("mean", operator.Aggregation[int64, [2]int64, float64]{
			Add:    func(acc *[2]int64, v *int64) { acc[0] += *v; acc[1]++ },
			Result: func(acc *[2]int64) float64 { return float64(acc[0]) / float64(acc[1]) },
		})
		limits := s.Broadcast[string, int64]("limits")
		return operator.BroadcastHandler[string, call, string, string]{
			Record: func(c *operator.KeyedContext[string, string], v *call) {
				if v.To == "?" {
					n, _ := value.Get()
					a, _ := aged.Get()
					t, _ := total.Get()
					m, _ := mean.Get()
					short, _ := limits.Get("short")
					longer, _ := limits.Get("longer")
					c.Emit(fmt.Sprintf("%s: %d calls, last %s, note %x, to %v, aged %d, peers %v, aged peers %v, recent %s, total %d, mean %.3f, limits %d %d",
						v.User, n.Calls, n.Last.UTC().Format(time.RFC3339), n.Note, n.To, a, newestFirst(peers.All()), newestFirst(agedPeers.All()),
						listed(recent.All()), t, m, short, longer))
					return
				}
				r := value.Ref()
				r.Calls++
				r.Last, r.Note = v.At, []byte{byte(r.Calls), 0xCA}
				if r.To == nil {
					r.To = map[string]int64{}
				}
				r.To[v.To] += v.Seconds
				*aged.Ref() += v.Seconds
				n, _ := peers.Ref(v.To)
				*n++
				n, _ = agedPeers.Ref(v.To)
				*n += v.Seconds
				recent.Append(&v.To)
				total.Add(&v.Seconds)
				mean.Add(&v.Seconds)
				c.SetTimer(v.At.Add(time.Hour).UnixMilli())
			},
			Broadcast: func(_ *operator.BroadcastContext[string], r *string) { limits.Put(*r, int64(len(*r))) },
			Timer: func(c *operator.KeyedContext[string, string]) {
				c.Emit(fmt.Sprint("timer of ", c.Key(), " at ", c.Time()))
			},
		}
	}).Sink("out", c.out)
}

// newestFirst is a map as text, in the order that the state gives.
func newestFirst(entries iter.Seq2[string, *int64]) string {
	var list []string
	for k, v := range entries {
		list = append(list, fmt.Sprint(k, "=", *v))
	}
	return strings.Join(list, " ")
}

func listed(items iter.Seq2[int, *string]) string {
	var list []string
	for _, v := range items {
		list = append(list, *v)
	}
	return strings.Join(list, ",")
}

const (
	callers  = 300
	lateRule = "late"
)

func (c *calls) before() {
	c.rules.Push("short", "longer")
	for i := range callers {
		for n := range 1 + i%5 {
			c.in.Push(call{fmt.Sprint("user ", i), fmt.Sprint("peer ", (i*7+n*n)%40), monday.Add(time.Duration(i+n) * time.Second), int64(i*31 + n)})
		}
	}
	for n := range 120 { // A list that does not fit into its head.
		c.in.Push(call{"busy", fmt.Sprint("peer ", n%33), monday.Add(5 * time.Minute), int64(n)})
	}
}

// after asks for all states, and then lets time pass until windows and timers fire. It gives what comes of that, sorted.
func (c *calls) after() []string {
	from := len(c.out.Rows())
	for i := range callers {
		c.in.Push(call{User: fmt.Sprint("user ", i), To: "?", At: monday.Add(6 * time.Minute)})
	}
	c.in.Push(call{User: "busy", To: "?", At: monday.Add(6 * time.Minute)}, call{User: "late", To: "?", At: monday.Add(5 * time.Hour)})
	c.rules.Push(lateRule)
	rows := slices.Clone(c.out.Rows()[from:])
	slices.Sort(rows)
	return rows
}

const (
	goldenFolder = "v1"
	goldenGroups = 48
)

// A savepoint with every kind of state is restored on every backend, at the parallelism that it has and at others. Every later
// version must restore it.
func TestGoldenSavepoint(t *testing.T) {
	dir := filepath.Join("testdata", "savepoint")
	if *update {
		writeGolden(t, dir)
	}
	golden, err := local.OpenRead(blob.Location{Scheme: blob.SchemeFile, Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	manifest := goldenFolder + "/_metadata"
	text, err := os.ReadFile(filepath.Join(dir, "output.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if r, err := stored.Verify(context.Background(), golden, manifest, stored.VerifyOptions{}); err != nil || r.Err() != nil || r.Objects == 0 || r.Entries < 10*callers {
		t.Fatalf("verify: %+v, %v", r, err)
	}
	for _, backend := range []string{statebackend.Memory, statebackend.FS, statebackend.Pebble} {
		for _, parallelism := range []int{1, 2, 3} {
			t.Run(fmt.Sprint(backend, " ", parallelism), func(t *testing.T) {
				streamtest.Run(t, func(t *testing.T, h *streamtest.Harness) {
					c := newCalls(h)
					h.Set("state.backend", backend)
					h.Set("max-parallelism", fmt.Sprint(goldenGroups))
					h.Start(c.build)
					c.before() // What was read is behind the savepoint's positions.
					h.Restore(h.Load(golden, manifest), parallelism)
					compareRows(t, c.after(), want)
				})
			})
		}
	}
}

func compareRows(t *testing.T, got, want []string) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("row %d is\n%s\nwant\n%s", i, got[i], want[i])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d rows, want %d", len(got), len(want))
	}
}

// checkpointOn runs the job on a backend and makes a savepoint of a checkpoint of it, in a folder of a store.
func checkpointOn(t *testing.T, backend string, to blob.Store, folder string) (rows []string) {
	t.Helper()
	store := mem.New("checkpoints")
	manifest := ""
	streamtest.Run(t, func(_ *testing.T, h *streamtest.Harness) {
		c := newCalls(h)
		h.Set("state.backend", backend)
		h.Set("parallelism", "2")
		h.Set("max-parallelism", fmt.Sprint(goldenGroups))
		h.Start(c.build)
		c.before()
		manifest = h.Save(h.Snapshot(), store, "prod")
		rows = c.after()
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := stored.Open(ctx, store, manifest, stored.Options{Openers: map[string]stored.Opener{statebackend.KindTree: pebble.OpenStored}})
	if err == nil {
		_, err = stored.Rehash(ctx, s, to, folder, goldenGroups, stored.RehashOptions{TempDir: t.TempDir()})
	}
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func writeGolden(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	to, err := local.Open(blob.Location{Scheme: blob.SchemeFile, Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	rows := checkpointOn(t, statebackend.FS, to, goldenFolder)
	if err := os.WriteFile(filepath.Join(dir, "output.txt"), []byte(strings.Join(rows, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The same job makes the same savepoint on every backend.
func TestSameSavepoint(t *testing.T) {
	store := mem.New("savepoints")
	var want map[string]string
	var rows []string
	for _, backend := range []string{statebackend.Memory, statebackend.FS, statebackend.Pebble} {
		r := checkpointOn(t, backend, store, backend)
		got := keyedHashes(t, store, backend+"/_metadata")
		if want == nil {
			want, rows = got, r
			if len(want) < 20 {
				t.Fatalf("only %d segments: %v", len(want), want)
			}
		}
		compareRows(t, r, rows)
		for name, hash := range want {
			if got[name] != hash {
				t.Errorf("%s: %s has hash %s, want %s", backend, name, got[name], hash)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d segments, want %d", backend, len(got), len(want))
		}
	}
}

// keyedHashes are those of all segments.
func keyedHashes(t *testing.T, store blob.Store, manifest string) map[string]string {
	t.Helper()
	m, err := snapshot.LoadManifest(context.Background(), store, manifest)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for name, op := range m.Operators {
		for i, s := range op.Subtasks {
			for _, h := range s.States {
				if h.Kind == statebackend.KindKeyed {
					out[fmt.Sprint(name, "/", i, "/", h.Name)] = h.Hash
				}
			}
		}
	}
	return out
}
