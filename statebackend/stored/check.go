package stored

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
)

// Verdict says what a restore does with an operator or a state.
type Verdict string

// The verdicts.
const (
	Restored Verdict = "restored"
	Migrated Verdict = "migrated" // Values are turned into the present type.
	Fresh    Verdict = "new"      // The snapshot has none: it begins empty.
	Dropped  Verdict = "dropped"
	Refused  Verdict = "refused"
)

// CheckOptions say how a program differs from the one that wrote a snapshot.
type CheckOptions struct {
	Graph        job.Graph
	Settings     job.Settings
	Rename       map[string]string // What operators of the snapshot are called in the program.
	Drop         []string          // States that are left out, each OPERATOR/STATE, by the names of the snapshot.
	AllowDropped bool              // Operators that the program does not have are left out.
	AllowDrained bool              // The snapshot may be from the end of all data.
}

// CheckReport says what a restore of a snapshot by a program would do, without doing any of it.
type CheckReport struct {
	Operators []OperatorCheck
	Problems  []string // Of the snapshot as a whole.
	Notes     []string
}

// OperatorCheck is an operator of the program, or one that only the snapshot has.
type OperatorCheck struct {
	Name        string
	Was         string `json:",omitempty"` // Its name in the snapshot, if that is another one.
	Verdict     Verdict
	Why         string `json:",omitempty"`
	Parallelism [2]int // In the snapshot and in the program; 0 where it is not.
	States      []StateCheck
}

// StateCheck is a state of an operator.
type StateCheck struct {
	Name           string
	Kind           Kind
	Verdict        Verdict
	Entries, Bytes int64
	Old, Now       string   `json:",omitempty"` // Schemas, where they differ.
	Changes        []string `json:",omitempty"`
	Why            string   `json:",omitempty"` // It is refused, and what to do.
}

// Refused tells whether anything is.
func (r *CheckReport) Refused() bool {
	return len(r.Problems) > 0 || slices.ContainsFunc(r.Operators, func(o OperatorCheck) bool {
		return o.Verdict == Refused || slices.ContainsFunc(o.States, func(s StateCheck) bool { return s.Verdict == Refused })
	})
}

// Check compares a snapshot with a program. It reads nothing of the states: what types they have is in the manifest.
func Check(s *Snapshot, o CheckOptions) (*CheckReport, error) {
	plan, err := job.NewPlan(o.Graph, o.Settings)
	if err != nil {
		return nil, err
	}
	m := s.Manifest
	o.Rename = withSplits(o.Rename, m, o.Graph)
	r := &CheckReport{}
	if m.K != plan.K {
		r.Problems = append(r.Problems, fmt.Sprintf("the snapshot has %d key groups, the job %d: set max-parallelism to %d", m.K, plan.K, m.K))
	}
	if m.Final && !o.AllowDrained {
		r.Problems = append(r.Problems, "the snapshot was taken at the end of all data, when windows and timers had fired that more data would change: --allow-drained restores it all the same")
	}
	c := &checker{o: o, r: r, old: map[string][]*State{}, now: map[string][]*State{}, dropped: map[string]bool{}}
	c.collect(s, plan)
	for _, v := range o.Graph.Operators {
		if v.Stateful || c.was(v.Name) != "" {
			c.operator(v, m, plan)
		}
	}
	c.gone(m)
	c.unused(m)
	return r, nil
}

// withSplits adds the enumerators of sources that are renamed.
func withSplits(rename map[string]string, m *snapshot.Manifest, g job.Graph) map[string]string {
	out := maps.Clone(rename)
	for old, now := range rename {
		_, told := rename[old+job.SplitsSuffix]
		_, had := m.Operators[old+job.SplitsSuffix]
		has := slices.ContainsFunc(g.Operators, func(op job.Operator) bool { return op.Name == now+job.SplitsSuffix })
		if !told && had && has {
			out[old+job.SplitsSuffix] = now + job.SplitsSuffix
		}
	}
	return out
}

type checker struct {
	o        CheckOptions
	r        *CheckReport
	old, now map[string][]*State // By the operator's name in the snapshot, and in the program.
	dropped  map[string]bool     // Of CheckOptions.Drop, those that there are.
	parallel map[string]int      // Of operators of the program.
	ops      map[string]bool     // Operators of the snapshot.
}

func (c *checker) collect(s *Snapshot, plan *job.Plan) {
	for _, st := range s.States() {
		c.old[st.Operator] = append(c.old[st.Operator], st)
	}
	c.ops, c.parallel = map[string]bool{}, map[string]int{}
	for name := range s.Manifest.Operators {
		c.ops[name] = true
	}
	declared := &snapshot.Manifest{K: plan.K, Graph: c.o.Graph, Operators: map[string]job.OperatorSnapshot{}}
	for _, v := range plan.Vertices {
		for _, i := range v.Operators {
			name := c.o.Graph.Operators[i].Name
			declared.Operators[name] = job.OperatorSnapshot{}
			c.parallel[name] = v.Parallelism
		}
	}
	for _, st := range New(declared, nil, Options{}).States() {
		c.now[st.Operator] = append(c.now[st.Operator], st)
	}
}

// was is the name in the snapshot of an operator of the program; empty for none.
func (c *checker) was(name string) string {
	for old, now := range c.o.Rename {
		if now == name && c.ops[old] {
			return old
		}
	}
	if _, moved := c.o.Rename[name]; c.ops[name] && !moved {
		return name
	}
	return ""
}

// drops tells whether a state is to be left out, named by what the operator was or is called.
func (c *checker) drops(operator, state string) (found bool) {
	for _, name := range []string{operator, c.o.Rename[operator]} {
		if key := name + "/" + state; slices.Contains(c.o.Drop, key) {
			c.dropped[key], found = true, true
		}
	}
	return found
}

// operator compares an operator that the program has.
func (c *checker) operator(v job.Operator, m *snapshot.Manifest, plan *job.Plan) {
	was := c.was(v.Name)
	out := OperatorCheck{Name: v.Name, Verdict: Restored, Parallelism: [2]int{m.Operators[was].Parallelism, c.parallel[v.Name]}}
	if was != v.Name {
		out.Was = was
	}
	if was == "" {
		out.Verdict = Fresh
	}
	if p := c.parallel[v.Name]; p > plan.K {
		out.Verdict, out.Why = Refused, fmt.Sprintf("a parallelism of %d is more than the %d key groups", p, plan.K)
	}
	for _, old := range m.Graph.Operators {
		if old.Name == was && old.Params != v.Params {
			out.Why = strings.TrimPrefix(out.Why+fmt.Sprintf("; what decides its results has changed from %q to %q", old.Params, v.Params), "; ")
		}
	}
	rest := map[string]*State{}
	for _, st := range c.old[was] {
		rest[st.Name] = st
	}
	for _, now := range c.now[v.Name] {
		old := rest[now.Name]
		delete(rest, now.Name)
		switch {
		case old == nil:
			out.States = append(out.States, StateCheck{Name: now.Name, Kind: now.Kind, Verdict: Fresh, Now: now.ValueSchema})
		case c.drops(was, now.Name):
			out.States = append(out.States, StateCheck{Name: now.Name, Kind: now.Kind, Verdict: Dropped, Entries: old.Entries, Bytes: old.Bytes})
		default:
			out.States = append(out.States, contrast(old, now))
		}
	}
	declared := map[string]bool{}
	for _, d := range v.State {
		declared[d.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		old := rest[name]
		st := StateCheck{Name: name, Kind: old.Kind, Verdict: Restored, Entries: old.Entries, Bytes: old.Bytes}
		switch {
		case declared[name], old.Kind == OperatorList && old.Value == nil: // The engine's own: positions of sources, what sinks have not committed.
		case c.drops(was, name):
			st.Verdict = Dropped
		case old.Entries == 0 && old.Bytes == 0:
			st.Verdict, st.Why = Dropped, "it is empty"
		case old.Kind == OperatorList || old.Kind == Broadcast:
			st.Verdict, st.Why = Dropped, "the program no longer declares it"
		default:
			st.Verdict = Refused
			st.Why = fmt.Sprintf("the program no longer declares it: declare it again, or --drop-state %s/%s", was, name)
		}
		out.States = append(out.States, st)
	}
	slices.SortFunc(out.States, func(a, b StateCheck) int { return strings.Compare(a.Name, b.Name) })
	c.r.Operators = append(c.r.Operators, out)
}

// gone lists the operators that only the snapshot has.
func (c *checker) gone(m *snapshot.Manifest) {
	for _, name := range slices.Sorted(maps.Keys(m.Operators)) {
		to, moved := c.o.Rename[name]
		if _, there := c.parallel[name]; there && !moved {
			continue
		}
		if _, there := c.parallel[to]; moved && there {
			continue
		}
		out := OperatorCheck{Name: name, Verdict: Dropped, Parallelism: [2]int{m.Operators[name].Parallelism, 0}}
		left := 0
		for _, old := range c.old[name] {
			st := StateCheck{Name: old.Name, Kind: old.Kind, Verdict: Dropped, Entries: old.Entries, Bytes: old.Bytes}
			if !c.drops(name, old.Name) && !c.o.AllowDropped && (old.Entries > 0 || old.Bytes > 0) {
				left++
				st.Verdict = Refused
			}
			out.States = append(out.States, st)
		}
		switch {
		case moved:
			out.Verdict, out.Why = Refused, fmt.Sprintf("--map %s=%s: the program has no operator %q", name, to, to)
		case left > 0:
			out.Verdict = Refused
			out.Why = fmt.Sprintf("the program has no operator of that name, and there is state of it: --map %s=NAME gives it to another one, --drop-state %s/STATE or --allow-dropped leaves it out", name, name)
		}
		c.r.Operators = append(c.r.Operators, out)
	}
}

// unused reports options that name nothing of the snapshot.
func (c *checker) unused(m *snapshot.Manifest) {
	for _, key := range c.o.Drop {
		if !c.dropped[key] {
			c.r.Problems = append(c.r.Problems, fmt.Sprintf("--drop-state %s: the snapshot has no such state", key))
		}
	}
	taken := map[string]string{}
	for _, old := range slices.Sorted(maps.Keys(c.o.Rename)) {
		now := c.o.Rename[old]
		if _, there := m.Operators[old]; !there {
			c.r.Problems = append(c.r.Problems, fmt.Sprintf("--map %s=%s: the snapshot has no operator %q", old, now, old))
		}
		_, both := m.Operators[now]
		if _, away := c.o.Rename[now]; both && !away && old != now {
			c.r.Problems = append(c.r.Problems, fmt.Sprintf("--map %s=%s: the snapshot has an operator %q too: there would be both states for one", old, now, now))
		}
		if other := taken[now]; other != "" {
			c.r.Problems = append(c.r.Problems, fmt.Sprintf("--map: %q and %q would both be %q", other, old, now))
		}
		taken[now] = old
	}
}

// contrast says what becomes of a state that both have.
func contrast(old, now *State) StateCheck {
	out := StateCheck{Name: now.Name, Kind: now.Kind, Verdict: Restored, Entries: old.Entries, Bytes: old.Bytes}
	refuse := func(format string, args ...any) StateCheck {
		out.Verdict, out.Old, out.Now = Refused, old.ValueSchema, now.ValueSchema
		out.Why = fmt.Sprintf(format, args...)
		return out
	}
	if old.Kind != now.Kind {
		return refuse("it was a %s and is a %s: give the new one another name, or --drop-state %s/%s", old.Kind, now.Kind, old.Operator, old.Name)
	}
	if old.TTL != now.TTL {
		with := map[bool]string{true: "entries that expire", false: "entries that do not expire"}
		return refuse("it had %s and has %s: give the new one another name, or --drop-state %s/%s", with[old.TTL], with[now.TTL], old.Operator, old.Name)
	}
	var changes []string
	for _, part := range []struct {
		what     string
		old, now *codec.Layout
		raw      [2]string
		key      bool
	}{
		{"key", old.Key, now.Key, [2]string{old.KeySchema, now.KeySchema}, true},
		{"map key", old.MapKey, now.MapKey, [2]string{}, true},
		{"value", old.Value, now.Value, [2]string{old.ValueSchema, now.ValueSchema}, false},
	} {
		found, err := differences(part.old, part.now, part.raw, part.key)
		if err != nil {
			return refuse("%s: %v", part.what, err)
		}
		changes = append(changes, found...)
	}
	if len(changes) > 0 {
		out.Verdict, out.Changes, out.Old, out.Now = Migrated, changes, old.ValueSchema, now.ValueSchema
	}
	return out
}

// differences lists what differs between two types. Of those that only programs know their texts are compared.
func differences(old, now *codec.Layout, raw [2]string, key bool) ([]string, error) {
	var was, is codec.Schema
	switch {
	case old != nil && now != nil:
		was, is = old.Schema(), now.Schema()
	case raw[0] == raw[1]:
		return nil, nil
	default:
		var errs [2]error
		was, errs[0] = codec.ParseSchema(raw[0])
		is, errs[1] = codec.ParseSchema(raw[1])
		if err := errors.Join(errs[:]...); err != nil {
			return nil, err
		}
	}
	if key {
		return nil, codec.Unchanged("key", was, is)
	}
	if old != nil && now != nil && was.Codec == is.Codec && len(old.Parts()) > 0 && len(old.Parts()) == len(now.Parts()) {
		var out []string
		for i := range old.Parts() {
			found, err := differences(old.Parts()[i], now.Parts()[i], [2]string{}, false)
			if err != nil {
				return nil, err
			}
			out = append(out, found...)
		}
		return out, nil
	}
	list, err := codec.Changes(was, is)
	var out []string
	for _, c := range list {
		out = append(out, c.String())
	}
	return out, err
}
