package job

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Kind says what an operator does. The coordinator treats Enumerator, Reader and Sink specially;
// the others are for people.
type Kind string

// The kinds of operators.
const (
	KindEnumerator Kind = "enumerator"
	KindReader     Kind = "reader"
	KindMap        Kind = "map"
	KindFilter     Kind = "filter"
	KindFlatMap    Kind = "flat-map"
	KindTimestamps Kind = "timestamps"
	KindKeyBy      Kind = "key-by"
	KindProcess    Kind = "process"
	KindWindow     Kind = "window"
	KindJoin       Kind = "join"
	KindDedup      Kind = "dedup"
	KindTopN       Kind = "top-n"
	KindUnion      Kind = "union"
	KindAsync      Kind = "async"
	KindSink       Kind = "sink"
)

// Partition says how the records of an edge are dealt out to the subtasks of its receiver.
type Partition string

// The partitions of edges.
const (
	// Forward keeps subtask i with subtask i; both ends have the same parallelism.
	Forward Partition = "forward"
	// Hash sends a record to the owner of its key's group.
	Hash Partition = "hash"
	// Rebalance deals records out in turn.
	Rebalance Partition = "rebalance"
	// Broadcast gives each receiver every record.
	Broadcast Partition = "broadcast"
	// Splits is the edge from an enumerator to its readers: the enumerator names the receiver.
	Splits Partition = "splits"
)

// Edge is one input of an operator.
type Edge struct {
	From      int       // Index of the sending operator in Graph.Operators.
	Output    string    `json:",omitempty"` // Name of a side output of it; empty for the main one.
	Partition Partition //
	Codec     string    // Schema of the records, as Codec.Schema gives it.
	Key       string    `json:",omitempty"` // Schema of the key of a Hash edge.
}

// What goes with something else is named by it and a suffix: the enumerator of a source, and the second table of a map or list.
const (
	SplitsSuffix = ".splits"
	ItemsSuffix  = ".items"
)

// StateDecl is one state that an operator declares.
type StateDecl struct {
	Name  string
	Kind  string // value, list, map, timers
	Key   string // Schema of the key.
	Value string // Schema of the value.
}

// Operator is one node of a Graph.
type Operator struct {
	Name string
	// Named tells that the user gave the name. A stateful operator without one is refused.
	Named       bool
	Kind        Kind
	Stateful    bool
	Parallelism int // 0: the job's. An enumerator always has 1.
	Inputs      []Edge
	State       []StateDecl `json:",omitempty"`
	// Params describes what else decides the operator's results, such as the windows.
	Params string `json:",omitempty"`
	// Bounded is set on an enumerator whose input ends.
	Bounded bool `json:",omitempty"`
	// Sides are the names of its side outputs.
	Sides []string `json:",omitempty"`
	// TwoPhase is set on a sink that commits with checkpoints.
	TwoPhase bool `json:",omitempty"`
	// Warnings are what a user should know before running it, such as state that grows without bound.
	// They are for people and take no part in the fingerprint.
	Warnings []string `json:",omitempty"`
}

// Keyed tells whether o has keyed state, and so a state backend.
func (o Operator) Keyed() bool {
	return slices.ContainsFunc(o.State, func(d StateDecl) bool { return d.Key != "" })
}

// Graph is what a program builds: operators in an order in which inputs come before their users.
type Graph struct{ Operators []Operator }

// Spec is a job as it is submitted: everything that the JobManager knows of it.
type Spec struct {
	Name     string
	Program  string
	Version  string            // Build version of the program.
	Args     map[string]string `json:",omitempty"`
	Settings Settings
	Graph    Graph
	// Overwrite lets sinks remove output that is there already and not the job's own.
	Overwrite bool `json:",omitempty"`
}

// Fingerprint identifies the topology, the names and the codecs of g: 16 hexadecimal digits of
// 64-bit FNV-1a over its canonical JSON. Parallelism takes no part, so a rescaled job keeps it.
func (g Graph) Fingerprint() string {
	ops := slices.Clone(g.Operators)
	for i := range ops {
		ops[i].Parallelism, ops[i].Warnings = 0, nil
		// Nothing and none are the same: a graph that came over the network has only one of them.
		if len(ops[i].Inputs) == 0 {
			ops[i].Inputs = nil
		}
		// An empty list and none are one thing, whatever way the graph took here.
		if len(ops[i].Inputs) == 0 {
			ops[i].Inputs = nil
		}
	}
	b, err := json.Marshal(Graph{ops})
	if err != nil {
		panic(fmt.Sprintf("marshal graph: %v", err)) // Plain strings and numbers: cannot fail.
	}
	h := fnv.New64a()
	_, _ = h.Write(b)
	return hex.EncodeToString(h.Sum(nil))
}

// Validate lists everything that is wrong with g in one error, or returns nil.
func (g Graph) Validate() error {
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if len(g.Operators) == 0 {
		bad("the job has no operators")
	}
	byName := map[string]int{}
	var unnamed []string
	used := map[int]bool{}
	for i, op := range g.Operators {
		if op.Stateful && !op.Named {
			unnamed = append(unnamed, fmt.Sprintf("%s (%s)", op.Name, op.Kind))
		}
		if op.Name == "" {
			bad("operator %d (%s) has an empty name", i, op.Kind)
		} else if msg := checkName(op.Name); msg != "" {
			bad("operator name %q %s", op.Name, msg)
		}
		byName[op.Name]++
		states := map[string]bool{}
		for _, s := range op.State {
			if states[s.Name] {
				bad("operator %q declares state %q twice", op.Name, s.Name)
			}
			states[s.Name] = true
		}
		for _, e := range op.Inputs {
			if e.From < 0 || e.From >= i {
				bad("operator %q: input from operator %d, which does not come before it", op.Name, e.From)
				continue
			}
			if e.Output != "" && !slices.Contains(g.Operators[e.From].Sides, e.Output) {
				bad("operator %q: input from side output %q of %q, which has none of that name", op.Name, e.Output, g.Operators[e.From].Name)
			}
			used[e.From] = true
		}
		if len(op.Inputs) == 0 && op.Kind != KindEnumerator {
			bad("operator %q (%s) has no input", op.Name, op.Kind)
		}
	}
	for i, op := range g.Operators {
		if !used[i] && op.Kind != KindSink {
			bad("the output of %q (%s) is not used: end it with a Sink or remove it", op.Name, op.Kind)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if n := byName[name]; n > 1 && name != "" {
			bad("%d operators are named %q: names are unique within a job", n, name)
		}
	}
	if len(unnamed) > 0 {
		bad("stateful operators need a name, by which a later version of the job finds their state; without one: %s", strings.Join(unnamed, ", "))
	}
	if len(problems) == 0 {
		return nil
	}
	return &Problems{What: "job graph", List: problems}
}

const maxName = 128

// checkName says what is wrong with a name that is part of object paths and metric labels.
func checkName(name string) string {
	if len(name) > maxName {
		return fmt.Sprintf("has %d bytes: the limit is %d", len(name), maxName)
	}
	if !utf8.ValidString(name) {
		return "is not UTF-8"
	}
	if name == "." || name == ".." {
		return "means a folder"
	}
	for _, r := range name {
		if r == '/' || unicode.IsControl(r) {
			return "holds a '/' or a control character"
		}
	}
	return ""
}

// Problems is an error that lists everything wrong with one input.
type Problems struct {
	What string
	List []string
}

func (p *Problems) Error() string {
	if len(p.List) == 1 {
		return p.What + ": " + p.List[0]
	}
	return fmt.Sprintf("%s: %d problems:\n  - %s", p.What, len(p.List), strings.Join(p.List, "\n  - "))
}

// Validate lists everything that is wrong with s.
func (s Spec) Validate() error {
	var problems []string
	collect := func(err error) {
		var list *Problems
		switch {
		case err == nil:
		case errors.As(err, &list):
			problems = append(problems, list.List...)
		default:
			problems = append(problems, err.Error())
		}
	}
	if s.Name == "" {
		problems = append(problems, "the job has no name")
	} else if msg := checkName(s.Name); msg != "" {
		problems = append(problems, fmt.Sprintf("job name %q %s", s.Name, msg))
	}
	collect(s.Graph.Validate())
	collect(s.Settings.Validate())
	problems = append(problems, s.checkBackends()...)
	if s.Settings.CheckpointMode == Off {
		for _, op := range s.Graph.Operators {
			if op.Kind != KindEnumerator || op.Bounded {
				continue
			}
			for _, sink := range s.Graph.Operators {
				if sink.TwoPhase {
					problems = append(problems, fmt.Sprintf("sink %q commits with checkpoints and source %q never ends: with checkpoint.mode=off nothing would ever be committed; choose exactly-once or at-least-once", sink.Name, op.Name))
				}
			}
		}
	}
	if len(problems) > 0 {
		return &Problems{What: fmt.Sprintf("job %q", s.Name), List: problems}
	}
	return nil
}

// checkBackends lists the state backends that are set for operators that have no use for one.
func (s Spec) checkBackends() (problems []string) {
	var keyed []string
	for _, op := range s.Graph.Operators {
		if op.Keyed() {
			keyed = append(keyed, op.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Settings.StateBackends)) {
		if slices.Contains(keyed, name) {
			continue
		}
		what := fmt.Sprintf("the job has no operator %q", name)
		if slices.ContainsFunc(s.Graph.Operators, func(o Operator) bool { return o.Name == name }) {
			what = fmt.Sprintf("operator %q has no keyed state", name)
		}
		there := "there is none with keyed state"
		if len(keyed) > 0 {
			there = "operators with keyed state are " + strings.Join(keyed, ", ")
		}
		problems = append(problems, fmt.Sprintf("%s%s=%s: %s; %s", backendPrefix, name, s.Settings.StateBackends[name], what, there))
	}
	return problems
}
