package stored_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/stored"
)

type (
	totalV1 struct{ Sum int32 }
	totalV2 struct {
		Amount int64 `cairn:"Amount,alias=Sum"`
		Count  int64
	}
	totalV3 struct{ Sum string }
)

func schemaOf[T any](t *testing.T) string {
	t.Helper()
	c, err := codec.Default[T]()
	if err != nil {
		t.Fatal(err)
	}
	return c.Schema().String()
}

// graph is a source, two keyed operators with the states given, and a sink.
func graph(totals, counts string, first, second []job.StateDecl) job.Graph {
	return job.Graph{Operators: []job.Operator{
		{Name: "events.splits", Named: true, Kind: job.KindEnumerator, Stateful: true, State: []job.StateDecl{{Name: "splits", Kind: "list"}}},
		{Name: totals, Named: true, Kind: job.KindProcess, Stateful: true, State: first, Inputs: []job.Edge{{From: 0, Partition: job.Hash, Key: "int64"}}},
		{Name: counts, Named: true, Kind: job.KindProcess, Stateful: true, State: second, Inputs: []job.Edge{{From: 1, Partition: job.Hash, Key: "int64"}}},
		{Name: "out", Named: true, Kind: job.KindSink, Stateful: true, Inputs: []job.Edge{{From: 2, Partition: job.Forward}}},
	}}
}

func value(name, key, schema string) job.StateDecl {
	return job.StateDecl{Name: name, Kind: "value", Key: key, Value: schema}
}

// snapshotOf is a snapshot of a program of that graph, with entries in every state.
func snapshotOf(g job.Graph, k, parallelism int) *stored.Snapshot {
	m := &snapshot.Manifest{
		Job: "j", JobName: "j", Checkpoint: 7, Attempt: 1, Epoch: 1, Created: time.Unix(1, 0), K: k, Hash: snapshot.HashName,
		Graph: g, Operators: map[string]job.OperatorSnapshot{},
	}
	for _, op := range g.Operators {
		snap := job.OperatorSnapshot{Parallelism: parallelism}
		for i := range parallelism {
			var sub job.SubtaskSnapshot
			for _, d := range op.State {
				h := job.StateHandle{Name: d.Name, Kind: statebackend.KindKeyed, Key: d.Key, Codec: d.Value, Entries: 10, Length: 100, Groups: job.GroupsOf(i, k, parallelism)}
				if d.Key == "" {
					h.Kind, h.Groups = snapshot.KindList, job.GroupRange{First: 0, Last: -1}
				}
				sub.States = append(sub.States, h)
			}
			snap.Subtasks = append(snap.Subtasks, sub)
		}
		m.Operators[op.Name] = snap
	}
	return stored.New(m, nil, stored.Options{})
}

// lines is a report in short.
func lines(r *stored.CheckReport) (out []string) {
	for _, p := range r.Problems {
		out = append(out, "problem: "+p)
	}
	for _, op := range r.Operators {
		line := fmt.Sprintf("%s %s", op.Name, op.Verdict)
		if op.Was != "" {
			line += " was " + op.Was
		}
		if op.Why != "" {
			line += ": " + op.Why
		}
		out = append(out, line)
		for _, s := range op.States {
			line := fmt.Sprintf("%s/%s %s", op.Name, s.Name, s.Verdict)
			if len(s.Changes) > 0 {
				line += " (" + strings.Join(s.Changes, ", ") + ")"
			}
			if s.Why != "" {
				line += ": " + s.Why
			}
			out = append(out, line)
		}
	}
	return out
}

func TestCheck(t *testing.T) {
	v1, v2, v3 := schemaOf[totalV1](t), schemaOf[totalV2](t), schemaOf[totalV3](t)
	old := graph("totals", "counts", []job.StateDecl{value("total", "int64", v1)}, []job.StateDecl{value("count", "int64", "int64"), value("seen", "int64", "bool")})
	same := []job.StateDecl{value("count", "int64", "int64"), value("seen", "int64", "bool")}
	for _, c := range []struct {
		name    string
		o       stored.CheckOptions
		refused bool
		want    []string // Each is a part of a line.
	}{
		{"the same program", stored.CheckOptions{Graph: old}, false, []string{"totals restored", "totals/total restored", "counts/seen restored", "events.splits/splits restored"}},
		{"a type that has grown", stored.CheckOptions{Graph: graph("totals", "counts", []job.StateDecl{value("total", "int64", v2)}, same)}, false,
			[]string{"totals/total migrated (field Amount renamed from Sum", "field Count added"}},
		{"a type that cannot be read", stored.CheckOptions{Graph: graph("totals", "counts", []job.StateDecl{value("total", "int64", v3)}, same)}, true,
			[]string{"totals/total refused: value: "}},
		{"another key", stored.CheckOptions{Graph: graph("totals", "counts", []job.StateDecl{value("total", "string", v1)}, same)}, true,
			[]string{"totals/total refused: key: "}},
		{"a state more, and one less", stored.CheckOptions{Graph: graph("totals", "counts", []job.StateDecl{value("total", "int64", v1)},
			[]job.StateDecl{value("count", "int64", "int64"), value("last", "int64", "int64")})}, true,
			[]string{"counts/last new", "counts/seen refused: the program no longer declares it: declare it again, or --drop-state counts/seen"}},
		{"and dropped", stored.CheckOptions{Drop: []string{"counts/seen"}, Graph: graph("totals", "counts", []job.StateDecl{value("total", "int64", v1)},
			[]job.StateDecl{value("count", "int64", "int64")})}, false, []string{"counts/seen dropped"}},
		{"an operator of another name", stored.CheckOptions{Graph: graph("sums", "counts", []job.StateDecl{value("total", "int64", v1)}, same)}, true,
			[]string{"sums new", "sums/total new", "totals refused: the program has no operator of that name", "--map totals=NAME"}},
		{"and mapped", stored.CheckOptions{Rename: map[string]string{"totals": "sums"}, Graph: graph("sums", "counts", []job.StateDecl{value("total", "int64", v1)}, same)}, false,
			[]string{"sums restored was totals", "sums/total restored"}},
		{"and left out", stored.CheckOptions{AllowDropped: true, Graph: graph("sums", "counts", []job.StateDecl{value("total", "int64", v1)}, same)}, false,
			[]string{"sums new", "totals dropped", "totals/total dropped"}},
		{"two that change places", stored.CheckOptions{Rename: map[string]string{"totals": "counts", "counts": "totals"}, Graph: graph("counts", "totals", []job.StateDecl{value("total", "int64", v1)}, same)}, false,
			[]string{"counts restored was totals", "counts/total restored", "totals restored was counts", "totals/count restored"}},
		{"options that name nothing", stored.CheckOptions{Graph: old, Drop: []string{"counts/nothing"}, Rename: map[string]string{"nobody": "totals"}}, true,
			[]string{"problem: --drop-state counts/nothing", `problem: --map nobody=totals: the snapshot has no operator "nobody"`}},
		{"a map of what goes nowhere", stored.CheckOptions{Graph: old, Rename: map[string]string{"counts": "nothing"}}, true,
			[]string{`counts refused: --map counts=nothing: the program has no operator "nothing"`}},
		{"another kind of state", stored.CheckOptions{Graph: graph("totals", "counts", []job.StateDecl{{Name: "total", Kind: "list", Key: "int64", Value: "list-head:1:" + v1}}, same)}, true,
			[]string{"totals/total refused"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Settings = job.DefaultSettings()
			r, err := stored.Check(snapshotOf(old, c.o.Settings.MaxParallelism, 2), c.o)
			if err != nil {
				t.Fatal(err)
			}
			got := lines(r)
			if r.Refused() != c.refused {
				t.Errorf("refused: %v, want %v", r.Refused(), c.refused)
			}
			for _, w := range c.want {
				if !slices.ContainsFunc(got, func(l string) bool { return strings.Contains(l, w) }) {
					t.Errorf("nothing says %q", w)
				}
			}
			if t.Failed() {
				t.Log("\n" + strings.Join(got, "\n"))
			}
		})
	}
}

// What concerns the snapshot as a whole.
func TestCheckWhole(t *testing.T) {
	g := graph("totals", "counts", []job.StateDecl{value("total", "int64", "int64")}, nil)
	settings := job.DefaultSettings()
	s := snapshotOf(g, 128, 1)
	s.Manifest.Final = true
	r, err := stored.Check(s, stored.CheckOptions{Graph: g, Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(lines(r), "\n"); !r.Refused() || !strings.Contains(got, "128 key groups, the job 720") || !strings.Contains(got, "--allow-drained") {
		t.Errorf("refused: %v\n%s", r.Refused(), got)
	}
}
