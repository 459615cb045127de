package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/cairnstream/cairn/job"
)

// The plan says where the state of each keyed operator is.
func TestPlanNamesStateBackends(t *testing.T) {
	keyed := []job.StateDecl{{Name: "sum", Kind: "value", Key: "string", Value: "int64"}}
	s := job.Spec{Name: "j", Settings: job.DefaultSettings(), Graph: job.Graph{Operators: []job.Operator{
		{Name: "src.splits", Kind: job.KindEnumerator, Named: true, Stateful: true, Bounded: true},
		{Name: "src", Kind: job.KindReader, Named: true, Stateful: true, Inputs: []job.Edge{{From: 0, Partition: job.Splits}}},
		{Name: "totals", Kind: job.KindProcess, Named: true, Stateful: true, State: keyed, Inputs: []job.Edge{{From: 1, Partition: job.Hash}}},
		{Name: "daily", Kind: job.KindWindow, Named: true, Stateful: true, State: keyed, Inputs: []job.Edge{{From: 2, Partition: job.Hash}}},
		{Name: "out", Kind: job.KindSink, Named: true, Stateful: true, Inputs: []job.Edge{{From: 3, Partition: job.Forward}}},
	}}}
	if err := s.Settings.Apply(map[string]string{"state.backend.totals": "pebble"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	p, err := job.NewPlan(s.Graph, s.Settings)
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	planTable(w, s, p)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"totals (process, state in pebble)", "daily (window, state in fs)", "out (sink, stateful)"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the plan does not say %q:\n%s", want, &table)
		}
	}
	text, err := json.Marshal(viewPlan(s, p))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"stateBackend":"pebble"`, `"stateBackend":"fs"`, `"state.backend.totals":"pebble"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the plan does not have %s:\n%s", want, text)
		}
	}
}
