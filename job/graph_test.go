package job

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestValidGraph(t *testing.T) {
	if err := sample().Validate(); err != nil {
		t.Fatal(err)
	}
}

// Everything wrong with a graph comes in one error, and all missing names in one line.
func TestGraphProblems(t *testing.T) {
	g := sample()
	g.Operators[1].Named = false      // Stateful.
	g.Operators[3].Named = false      // Stateful.
	g.Operators[2].Named = false      // A filter needs no name.
	g.Operators[4].Name = "a/b"       //
	g.Operators[5].Name = "all"       // Taken.
	g.Operators[6].Inputs[0].From = 8 // Comes later.
	g.Operators[7].Name = ""          //
	g.Operators[9].Inputs = nil       //
	g.Operators[10].Name = "\xff"     //
	g.Operators[11].Name = strings.Repeat("x", 129)
	g.Operators[3].State = []StateDecl{{Name: "s"}, {Name: "t"}, {Name: "s"}}
	g.Operators = append(g.Operators, node(KindMap, "..", from(2, Forward)))
	err := g.Validate()
	var list *Problems
	if !errors.As(err, &list) {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{
		"without one: src (reader), count (process)",
		`"a/b" holds a '/'`,
		`2 operators are named "all"`,
		`"raw": input from operator 8, which does not come before it`,
		"operator 7 (union) has an empty name",
		`"copy" (map) has no input`,
		`"\xff" is not UTF-8`,
		"has 129 bytes: the limit is 128",
		`".." means a folder`,
		`"count" declares state "s" twice`,
		`the output of ".." (map) is not used`,
	} {
		n := 0
		for _, p := range list.List {
			if strings.Contains(p, want) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d problems say %q", n, want)
		}
	}
	if len(list.List) != 11 {
		t.Errorf("%d problems:\n%v", len(list.List), err)
	}
	if (Graph{}).Validate() == nil {
		t.Error("an empty graph is valid")
	}
}

func TestSpecProblems(t *testing.T) {
	spec := Spec{Name: "j", Settings: DefaultSettings(), Graph: sample()}
	spec.Graph.Operators[5].TwoPhase = true
	if err := spec.Validate(); err != nil {
		t.Fatal(err)
	}
	spec.Settings.CheckpointMode = Off
	err := spec.Validate()
	if err == nil || !strings.Contains(err.Error(), `sink "counts" commits with checkpoints and source "src.splits" never ends`) {
		t.Errorf("off, unbounded, two-phase: %v", err)
	}
	spec.Graph.Operators[0].Bounded = true
	if err := spec.Validate(); err != nil {
		t.Errorf("off, bounded: %v", err)
	}
	spec.Graph.Operators[0].Bounded = false
	spec.Graph.Operators[5].TwoPhase = false
	if err := spec.Validate(); err != nil {
		t.Errorf("off, unbounded, no two-phase sink: %v", err)
	}
	// The problems of all parts come together.
	spec.Graph.Operators[5].TwoPhase = true
	spec.Graph.Operators[3].Named = false
	spec.Settings.Parallelism = 1000
	spec.Name = ""
	var list *Problems
	if err := spec.Validate(); !errors.As(err, &list) || len(list.List) != 4 {
		t.Errorf("%v", err)
	}
	spec.Name = "a/b"
	if err := spec.Validate(); err == nil || !strings.Contains(err.Error(), `job name "a/b"`) {
		t.Errorf("%v", err)
	}
}

// A state backend is for an operator that there is and that has keyed state; who names another is told which there are.
func TestStateBackendsOfOperators(t *testing.T) {
	spec := Spec{Name: "j", Settings: DefaultSettings(), Graph: sample()}
	spec.Graph.Operators[3].State = []StateDecl{{Name: "n", Kind: "value", Key: "string", Value: "int64"}}
	if err := spec.Settings.Apply(map[string]string{"state.backend.count": "memory"}); err != nil {
		t.Fatal(err)
	}
	if err := spec.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := spec.Settings.Apply(map[string]string{"state.backend.cuont": "pebble", "state.backend.all": "fs"}); err != nil {
		t.Fatal(err)
	}
	err := spec.Validate()
	for _, want := range []string{
		`state.backend.all=fs: operator "all" has no keyed state; operators with keyed state are count`,
		`state.backend.cuont=pebble: the job has no operator "cuont"; operators with keyed state are count`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
	spec.Graph.Operators[3].State = nil
	if err := spec.Validate(); err == nil || !strings.Contains(err.Error(), `operator "count" has no keyed state; there is none with keyed state`) {
		t.Errorf("%v", err)
	}
}

// The fingerprint is stable over releases: a TaskManager of another build must come to the same.
func TestFingerprint(t *testing.T) {
	const golden = "bd8a88dce1411a3a"
	g := sample()
	base := g.Fingerprint()
	if base != golden {
		t.Errorf("the fingerprint is %s, was %s", base, golden)
	}
	for i := range g.Operators {
		g.Operators[i].Parallelism = i
	}
	if g.Fingerprint() != base {
		t.Error("parallelism changes the fingerprint")
	}
	// On its way to a worker an empty list may become none, or the other way round.
	raw, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	var back Graph
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	back.Operators[0].Inputs = []Edge{}
	if back.Fingerprint() != base {
		t.Error("a round trip changes the fingerprint")
	}
	for name, change := range map[string]func(*Graph){
		"a name":      func(g *Graph) { g.Operators[2].Name = "other" },
		"a kind":      func(g *Graph) { g.Operators[2].Kind = KindMap },
		"an edge":     func(g *Graph) { g.Operators[3].Inputs[0].Partition = Rebalance },
		"a codec":     func(g *Graph) { g.Operators[3].Inputs[0].Codec = "c/2" },
		"a key":       func(g *Graph) { g.Operators[3].Inputs[0].Key = "string" },
		"a state":     func(g *Graph) { g.Operators[3].State = []StateDecl{{Name: "n", Kind: "value"}} },
		"params":      func(g *Graph) { g.Operators[3].Params = "tumbling(1m0s)" },
		"one more":    func(g *Graph) { g.Operators = append(g.Operators, node(KindSink, "z", from(2, Forward))) },
		"another end": func(g *Graph) { g.Operators[8].Inputs[0].From = 6 },
	} {
		g := sample()
		change(&g)
		if g.Fingerprint() == base {
			t.Errorf("%s does not change the fingerprint", name)
		}
	}
}
