package stream_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/watermark"
)

type order struct {
	Customer string
	Cents    int64
	At       time.Time
}

type spent struct {
	Customer string
	Cents    int64
}

func orders() datagen.Source[order] {
	return datagen.Source[order]{Count: 10, Make: func(n int64, o *order) { *o = order{fmt.Sprint(n % 3), n, time.Unix(n, 0).UTC()} }}
}

func at(o *order) time.Time          { return o.At }
func customer(o *order) string       { return o.Customer }
func fiveS() watermark.Strategy      { return watermark.Bounded(5 * time.Second) }
func keepAll[T any](*T) bool         { return true }
func minute() window.TumblingWindows { return window.Tumbling(time.Minute) }

var sum = window.Functions[string, order, int64, spent]{
	AddTo:    func(a *int64, o *order) { *a += o.Cents },
	ResultOf: func(p window.Pane[string], a *int64) spent { return spent{p.Key, *a} },
}

// everything uses all that a job can have.
func everything(j *stream.Job) {
	src := j.Source("orders", orders()).Timestamps(at, fiveS())
	kept := src.Filter("", keepAll[order]).Parallelism(2)
	totals := kept.KeyBy(customer).Window("per-minute", minute()).Aggregate(sum)
	totals.Sink("totals", collect.New[spent]())
	counts := kept.KeyBy(customer).Process("count", func(s *operator.States[string]) operator.Handler[string, order, spent] {
		n := s.Value[int64]("n")
		return operator.Handler[string, order, spent]{
			Record: func(c *operator.KeyedContext[string, spent], o *order) { *n.Ref()++ },
			Timer:  func(c *operator.KeyedContext[string, spent]) {},
		}
	})
	more := src.Rebalance().Map("more", func(o *order) spent { return spent{o.Customer, o.Cents} })
	into := src.MapInto("", func(o *order, s *spent) { s.Cents = o.Cents })
	flat := into.FlatMap("twice", func(s *spent, c *operator.Collector[spent]) { c.Emit(*s); c.Emit(*s) })
	again := j.Source("second", orders()).Timestamps(at, watermark.Monotonous()).
		Filter("f", keepAll[order]).Timestamps(at, watermark.Monotonous()).
		Broadcast().Map("m", func(o *order) spent { return spent{} })
	counts.Union("all", more, flat, again).Sink("all-of-it", &collect.Discard[spent]{})
}

func show(g job.Graph) string {
	var b strings.Builder
	for i, op := range g.Operators {
		fmt.Fprintf(&b, "%d %s %q", i, op.Kind, op.Name)
		if !op.Named {
			b.WriteString(" unnamed")
		}
		if op.Parallelism > 0 {
			fmt.Fprintf(&b, " x%d", op.Parallelism)
		}
		for _, f := range []struct {
			name string
			on   bool
		}{{"stateful", op.Stateful}, {"bounded", op.Bounded}, {"two-phase", op.TwoPhase}} {
			if f.on {
				b.WriteString(" " + f.name)
			}
		}
		if op.Params != "" {
			b.WriteString(" " + op.Params)
		}
		b.WriteByte('\n')
		for _, e := range op.Inputs {
			fmt.Fprintf(&b, "  from %d %s %s", e.From, e.Partition, e.Codec)
			if e.Key != "" {
				fmt.Fprintf(&b, " by %s", e.Key)
			}
			b.WriteByte('\n')
		}
		for _, s := range op.State {
			fmt.Fprintf(&b, "  state %s %q [%s] [%s]\n", s.Kind, s.Name, s.Key, s.Value)
		}
	}
	return b.String()
}

func TestGraph(t *testing.T) {
	bp, err := stream.Build(stream.Program{Name: "everything", Build: everything}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = `0 enumerator "orders.splits" x1 stateful bounded
  state list "splits" [] []
1 reader "orders" stateful
  from 0 splits struct:{"struct":[{"name":"Reader","type":"int64"},{"name":"NoMore","type":"bool"},{"name":"ID","type":"string"},{"name":"Body","type":"bytes"}]}
  state list "splits" [] []
2 filter "filter-2" unnamed x2
  from 1 forward struct:{"struct":[{"name":"Customer","type":"string"},{"name":"Cents","type":"int64"},{"name":"At","type":"time"}]}
3 window "per-minute" stateful tumbling(1m0s)
  from 2 hash struct:{"struct":[{"name":"Customer","type":"string"},{"name":"Cents","type":"int64"},{"name":"At","type":"time"}]} by string
  state value "windows" [key-time:string] [int64]
4 sink "totals" stateful two-phase
  from 3 forward struct:{"struct":[{"name":"Customer","type":"string"},{"name":"Cents","type":"int64"}]}
  state list "committables" [] []
  state list "writer" [] []
5 process "count" stateful
  from 2 hash struct:{"struct":[{"name":"Customer","type":"string"},{"name":"Cents","type":"int64"},{"name":"At","type":"time"}]} by string
  state value "n" [string] [int64]
  state timers "timers" [string] []
6 map "more"
  from 1 rebalance struct:{"struct":[{"name":"Customer","type":"string"},{"name":"Cents","type":"int64"},{"name":"At","type":"time"}]}
7 map "map-7" unnamed
  from 1 forward struct:{"struct":[{"name":"Customer","type":"string"},{"name":"Cents","type":"int64"},{"name":"At","type":"time"}]}
8 flat-map "twice"
  from 7 forward struct:{"struct":[{"name":"Customer","type":"string"},{"name":"Cents","type":"int64"}]}
9 enumerator "second.splits" x1 stateful bounded
  state list "splits" [] []
10 reader "second" stateful
  from 9 splits struct:{"struct":[{"name":"Reader","type":"int64"},{"name":"NoMore","type":"bool"},{"name":"ID","type":"string"},{"name":"Body","type":"bytes"}]}
  state list "splits" [] []
11 filter "f"
  from 10 forward struct:{"struct":[{"name":"Customer","type":"string"},{"name":"Cents","type":"int64"},{"name":"At","type":"time"}]}
12 timestamps "timestamps-12" unnamed
  from 11 forward struct:{"struct":[{"name":"Customer","type":"string"},{"name":"Cents","type":"int64"},{"name":"At","type":"time"}]}
13 map "m"
  from 12 broadcast struct:{"struct":[{"name":"Customer","type":"string"},{"name":"Cents","type":"int64"},{"name":"At","type":"time"}]}
14 union "all"
  from 5 forward struct:{"struct":[{"name":"Customer","type":"string"},{"name":"Cents","type":"int64"}]}
  from 6 forward struct:{"struct":[{"name":"Customer","type":"string"},{"name":"Cents","type":"int64"}]}
  from 8 forward struct:{"struct":[{"name":"Customer","type":"string"},{"name":"Cents","type":"int64"}]}
  from 13 forward struct:{"struct":[{"name":"Customer","type":"string"},{"name":"Cents","type":"int64"}]}
15 sink "all-of-it" stateful
  from 14 forward struct:{"struct":[{"name":"Customer","type":"string"},{"name":"Cents","type":"int64"}]}
  state list "committables" [] []
  state list "writer" [] []
`
	if got := show(bp.Graph); got != want {
		t.Errorf("the graph is\n%s", got)
	}
	if len(bp.Nodes) != len(bp.Graph.Operators) {
		t.Fatalf("%d nodes", len(bp.Nodes))
	}
	for i, n := range bp.Nodes {
		op := bp.Graph.Operators[i]
		if len(n.Inputs) != len(op.Inputs) {
			t.Errorf("%s: %d typed inputs of %d", op.Name, len(n.Inputs), len(op.Inputs))
		}
		if o, err := n.New(); err != nil || o == nil {
			t.Errorf("%s: %v", op.Name, err)
		}
		for k, in := range n.Inputs {
			if in.Router == nil || in.Frames == nil || in.Empty == nil || in.NoCodec != nil {
				t.Errorf("input %d of %s is incomplete", k, op.Name)
			}
			if (in.Rebalance != nil) != (op.Inputs[k].Partition == job.Forward) {
				t.Errorf("input %d of %s: a %s edge, rebalance %v", k, op.Name, op.Inputs[k].Partition, in.Rebalance != nil)
			}
		}
	}
}

// A program builds the same graph every time; a change of what matters is seen.
func TestFingerprint(t *testing.T) {
	build := func(f func(*stream.Job)) string {
		bp, err := stream.Build(stream.Program{Name: "p", Build: f}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return bp.Graph.Fingerprint()
	}
	if a, b := build(everything), build(everything); a != b {
		t.Errorf("%s and %s", a, b)
	}
	small := func(size time.Duration, p int, name string) string {
		return build(func(j *stream.Job) {
			j.Source("s", orders()).Timestamps(at, fiveS()).Parallelism(p).KeyBy(customer).
				Window(name, window.Tumbling(size)).Aggregate(sum).Sink("out", collect.New[spent]())
		})
	}
	if small(time.Hour, 1, "w") != small(time.Hour, 4, "w") {
		t.Error("the fingerprint depends on parallelism")
	}
	if small(time.Hour, 1, "w") == small(time.Minute, 1, "w") || small(time.Hour, 1, "w") == small(time.Hour, 1, "v") {
		t.Error("the fingerprint does not depend on the windows or on names")
	}
}

// problems builds a program and returns what is wrong with it.
func problems(t *testing.T, args map[string]string, f func(*stream.Job)) []string {
	t.Helper()
	bp, err := stream.Build(stream.Program{Name: "p", Build: f}, args)
	var list *job.Problems
	if bp != nil || !errors.As(err, &list) {
		t.Fatalf("%v", err)
	}
	return list.List
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	for _, w := range want {
		n := 0
		for _, g := range got {
			if strings.Contains(g, w) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d problems say %q", n, w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d problems, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
}

type point struct{ X, Y float64 }

// All that is wrong with a program is said at once.
func TestProblems(t *testing.T) {
	got := problems(t, map[string]string{"outptu": "x", "seen": "y"}, func(j *stream.Job) {
		j.Arg("input")
		j.Arg("output")
		j.Arg("input")
		j.Arg("seen")
		j.ArgOr("rate", "1")
		j.Set("checkpoint.mode", "sometimes")
		j.Fail("rate %d is out of range", 7)
		s := j.Source("", orders()).Timestamps((func(*order) time.Time)(nil), watermark.Bounded(-1))
		j.Source[order]("nothing", nil).Sink("a", collect.New[order]())
		j.Source("bad", datagen.Source[order]{}).Sink("", &collect.Discard[order]{})
		s.Filter("f", nil).Parallelism(0).KeyBy(customer).Window("", window.TumblingWindows{}).Aggregate(sum).Sink("b", nil)
		s.KeyBy(func(o *order) point { return point{} }).
			Process("", func(*operator.States[point]) operator.Handler[point, order, order] {
				return operator.Handler[point, order, order]{}
			}).Sink("c", collect.New[order]())
		s.KeyByWith(func(o *order) string { return "" }, nil).
			Window("w", minute()).Aggregate(window.Functions[string, order, int64, spent]{})
		s.Rebalance().Map("chan", func(*order) chan int { return nil }).Rebalance().Filter("g", keepAll[chan int]).Sink("d", &collect.Discard[chan int]{})
		s.KeyBy(customer).Window("x", minute()).Aggregate(window.Aggregator[string, order, chan int, spent](nil)).Sink("e", collect.New[spent]())
	})
	expect(t, got,
		"missing arguments: input, output (give each as --arg name=value)",
		`unknown argument "outptu"; the program reads: input, output, rate, seen`,
		"checkpoint.mode=sometimes: want one of",
		"rate 7 is out of range",
		`timestamps of "reader-1": the function is nil`,
		`timestamps of "reader-1": watermark bound -1ns is negative`,
		`source "nothing" is nil`,
		`source "bad": `,
		`filter "f" behind "reader-1": the function is nil`,
		`operator "f": parallelism 0`,
		`window "": tumbling window of 0s`,
		`sink "b" is nil`,
		"cannot be a key: it has a field X that holds a float64",
		"has no Record function",
		"the codec is nil",
		`window "w": the aggregation has no AddTo and no ResultOf function`,
		`operator "chan": its records cross a network edge`,
		`window "x": accumulator:`,
		`window "x": the aggregation is nil`,
		`the output of "w" (window) is not used`,
		"without one: reader-1 (reader), sink-",
	)
	for _, p := range got {
		if strings.Contains(p, "without one") && (!strings.Contains(p, "(window)") || !strings.Contains(p, "(process)")) {
			t.Errorf("names are missing in: %s", p)
		}
	}
}

// A program that panics on an argument that is missing is told of the argument.
func TestPanic(t *testing.T) {
	got := problems(t, nil, func(j *stream.Job) {
		var n [1]int
		_ = n[len(j.Arg("rate"))+1]
	})
	expect(t, got, "missing arguments: rate", "panicked while it built its job: runtime error: index out of range")
	if !strings.Contains(got[1], "build_test.go") {
		t.Errorf("no stack in %s", got[1])
	}
}

func TestSmallProblems(t *testing.T) {
	t.Run("nothing", func(t *testing.T) {
		expect(t, problems(t, nil, func(*stream.Job) {}), "the job has no operators")
	})
	t.Run("a name twice", func(t *testing.T) {
		expect(t, problems(t, nil, func(j *stream.Job) {
			s := j.Source("a", orders())
			s.Sink("x", collect.New[order]())
			s.Sink("x", collect.New[order]())
		}), `2 operators are named "x"`)
	})
	t.Run("another job", func(t *testing.T) {
		var other stream.Stream[order]
		_, _ = stream.Build(stream.Program{Build: func(j *stream.Job) { other = j.Source("o", orders()) }}, nil)
		expect(t, problems(t, nil, func(j *stream.Job) {
			j.Source("a", orders()).Union("u", other).Sink("x", collect.New[order]())
		}), `union "u": a stream of another job`)
	})
	t.Run("a float key", func(t *testing.T) {
		expect(t, problems(t, nil, func(j *stream.Job) {
			j.Source("a", orders()).KeyBy(func(*order) float64 { return math.NaN() }).
				Process("p", func(*operator.States[float64]) operator.Handler[float64, order, order] {
					return operator.Handler[float64, order, order]{Record: func(*operator.KeyedContext[float64, order], *order) {}}
				}).Sink("x", collect.New[order]())
		}), "cannot be a key")
	})
	t.Run("states", func(t *testing.T) {
		expect(t, problems(t, nil, func(j *stream.Job) {
			j.Source("a", orders()).KeyBy(customer).
				Process("p", func(s *operator.States[string]) operator.Handler[string, order, order] {
					s.Value[int]("a")
					s.Value[int]("a")
					s.Value[func()]("b")
					return operator.Handler[string, order, order]{Record: func(*operator.KeyedContext[string, order], *order) {}}
				}).Sink("x", collect.New[order]())
		}), `operator "p": state "a" is declared twice`, `operator "p": state "b": `, `operator "p" declares state "a" twice`)
	})
	t.Run("settings", func(t *testing.T) {
		bp, err := stream.Build(stream.Program{Name: "p", Build: func(j *stream.Job) {
			j.Set("parallelism", "3")
			j.Source("a", orders()).Codec(codec.JSON[order]()).Rebalance().Map("m", func(o *order) order { return *o }).Sink("x", collect.New[order]())
		}}, nil)
		if err != nil || bp.Settings["parallelism"] != "3" {
			t.Fatal(bp, err)
		}
		if c := bp.Graph.Operators[2].Inputs[0].Codec; !strings.HasPrefix(c, "json") {
			t.Errorf("the stream's codec is not used: %s", c)
		}
	})
}
