package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cairnstream/cairn/internal/spelling"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
)

// apply makes a manifest that was just read one of the job: it renames operators, leaves out what may be left out, and refuses
// what would be lost otherwise. own tells that the job itself took it, and goes on with it. The error lists everything that is in the way; notes is what a person should know.
func (a Adaptation) apply(m *snapshot.Manifest, spec job.Spec, own bool) (notes []string, err error) {
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if k := spec.Settings.MaxParallelism; m.K != k {
		bad("its state is in %d key groups, and max-parallelism is %d: keys cannot be dealt out anew, so set max-parallelism=%d", m.K, k, m.K)
	}
	if m.Final && !a.AllowDrained && !own {
		bad("it was taken at the end of all data, when windows and timers had fired that may be open in what comes later: --allow-drained goes on nevertheless")
	}
	has := map[string]job.Operator{}
	for _, op := range spec.Graph.Operators {
		has[op.Name] = op
	}
	ops := maps.Clone(m.Operators)
	for _, old := range slices.Sorted(maps.Keys(a.Rename)) {
		a.rename(m, ops, has, old, a.Rename[old], bad)
	}
	for _, text := range a.DropStates {
		a.dropState(ops, text, bad)
	}
	for _, name := range slices.Sorted(maps.Keys(ops)) {
		if _, ok := has[name]; ok {
			continue
		}
		if states := statesOf(ops[name]); len(states) > 0 {
			if !a.AllowDropped {
				bad("operator %q has state (%s), and the job has no operator of that name%s: --map %s=NEW if it is called otherwise now, --allow-dropped to lose it",
					name, strings.Join(states, ", "), nearest(name, has, ops), name)
			} else {
				notes = append(notes, fmt.Sprintf("the state of operator %q is left out: %s", name, strings.Join(states, ", ")))
			}
		}
		delete(ops, name)
	}
	if len(problems) > 0 {
		return nil, errorf(ErrRefused, "%w", &job.Problems{What: fmt.Sprintf("checkpoint %d of job %s (%s)", m.Checkpoint, m.Job, m.JobName), List: problems})
	}
	for _, op := range spec.Graph.Operators {
		if _, ok := ops[op.Name]; !ok && op.Stateful {
			notes = append(notes, fmt.Sprintf("operator %q is new: it starts without state", op.Name))
		}
	}
	m.Operators = ops
	return notes, nil
}

// Preview says what a job of spec that begins with a snapshot would be told: notes, or that it is refused and why. It changes nothing.
func (a Adaptation) Preview(m *snapshot.Manifest, spec job.Spec) (notes []string, err error) {
	c := *m
	return a.apply(&c, spec, false)
}

func (a Adaptation) rename(m *snapshot.Manifest, ops map[string]job.OperatorSnapshot, has map[string]job.Operator, old, now string, bad func(string, ...any)) {
	op, there := m.Operators[old]
	_, wanted := has[now]
	_, both := m.Operators[now]
	_, away := a.Rename[now]
	switch {
	case !there:
		bad("--map %s=%s: there is no operator %q in it; there are %s", old, now, old, strings.Join(slices.Sorted(maps.Keys(m.Operators)), ", "))
	case !wanted:
		bad("--map %s=%s: the job has no operator %q; there are %s", old, now, now, strings.Join(slices.Sorted(maps.Keys(has)), ", "))
	case both && !away && old != now:
		bad("--map %s=%s: it has an operator %q too, so that there would be two states for one", old, now, now)
	default:
		if old == now {
			return
		}
		ops[now] = op
		// Unless another one takes the name.
		if !slices.Contains(slices.Collect(maps.Values(a.Rename)), old) {
			delete(ops, old)
		}
		splits, hasSplits := m.Operators[old+job.SplitsSuffix]
		_, wantsSplits := has[now+job.SplitsSuffix]
		if _, told := a.Rename[old+job.SplitsSuffix]; hasSplits && wantsSplits && !told {
			ops[now+job.SplitsSuffix] = splits
			delete(ops, old+job.SplitsSuffix)
		}
	}
}

// dropState leaves out OPERATOR/STATE; the operator may be called as in the snapshot or as in the job.
func (a Adaptation) dropState(ops map[string]job.OperatorSnapshot, text string, bad func(string, ...any)) {
	i := strings.LastIndex(text, "/")
	if i <= 0 || i == len(text)-1 {
		bad("--drop-state %s: want OPERATOR/STATE", text)
		return
	}
	name, state := text[:i], text[i+1:]
	if now, ok := a.Rename[name]; ok {
		name = now
	}
	op, ok := ops[name]
	if !ok {
		bad("--drop-state %s: there is no operator %q in it; there are %s", text, name, strings.Join(slices.Sorted(maps.Keys(ops)), ", "))
		return
	}
	found := false
	out := job.OperatorSnapshot{Parallelism: op.Parallelism, Subtasks: slices.Clone(op.Subtasks)}
	for i, sub := range out.Subtasks {
		var keep []job.StateHandle
		for _, h := range sub.States {
			if h.Name != state && h.Name != state+job.ItemsSuffix || h.Kind == statebackend.KindFile {
				keep = append(keep, h)
				continue
			}
			found = true
			if h.Kind == statebackend.KindTree {
				bad("--drop-state %s: it was written with state.backend=pebble, where states share files: declare the state, and clear it", text)
				return
			}
		}
		out.Subtasks[i].States = keep
	}
	if !found {
		bad("--drop-state %s: operator %q has no state %q in it; there are %s", text, name, state, strings.Join(statesOf(op), ", "))
		return
	}
	ops[name] = out
}

// statesOf lists the states that a snapshot has of an operator, with what they hold.
func statesOf(op job.OperatorSnapshot) []string {
	var out []string
	for _, sub := range op.Subtasks {
		for _, h := range sub.States {
			if h.Kind == statebackend.KindFile || strings.HasSuffix(h.Name, job.ItemsSuffix) {
				continue
			}
			text := h.Name
			if h.Key != "" || h.Codec != "" {
				text += " of " + strings.TrimPrefix(h.Key+" to "+h.Codec, " to ")
			}
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// merge adds what a later submission says.
func (a Adaptation) merge(b Adaptation) Adaptation {
	a.AllowDropped, a.AllowDrained = a.AllowDropped || b.AllowDropped, a.AllowDrained || b.AllowDrained
	a.DropStates = append(slices.Clone(a.DropStates), b.DropStates...)
	slices.Sort(a.DropStates)
	a.DropStates = slices.Compact(a.DropStates)
	rename := maps.Clone(a.Rename)
	if rename == nil {
		rename = map[string]string{}
	}
	maps.Copy(rename, b.Rename)
	a.Rename = rename
	return a
}

// maxAdaptation bounds what is on record of an Adaptation, in bytes.
const maxAdaptation = 50_000

// validate lists what can never work.
func (s Submission) validate() error {
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if s.From != "" && s.Fresh {
		bad("it is to begin with %s, and with nothing (fresh): want one of them", s.From)
	}
	if s.Claim && s.From == "" {
		bad("there is nothing to claim without a snapshot to begin with")
	}
	for _, text := range s.Adapt.DropStates {
		if i := strings.LastIndex(text, "/"); i <= 0 || i == len(text)-1 {
			bad("state to drop %q: want OPERATOR/STATE", text)
		}
	}
	seen := map[string]string{}
	for _, old := range slices.Sorted(maps.Keys(s.Adapt.Rename)) {
		now := s.Adapt.Rename[old]
		if other, ok := seen[now]; ok {
			bad("operators %q and %q cannot both be called %q", other, old, now)
		}
		seen[now] = old
	}
	if n := len(mustJSON(s.Adapt)) + len(s.From); n > maxAdaptation {
		bad("the snapshot to begin with and what is to be renamed and dropped have %d bytes: the limit is %d", n, maxAdaptation)
	}
	if len(problems) > 0 {
		return errorf(ErrInvalid, "%w", &job.Problems{What: fmt.Sprintf("job %q", s.Spec.Name), List: problems})
	}
	return nil
}

// nearest suggests the operators of the job that have no state in the snapshot and whose names are like name.
func nearest(name string, has map[string]job.Operator, ops map[string]job.OperatorSnapshot) string {
	type candidate struct {
		name string
		far  int
	}
	var all []candidate
	for other, op := range has {
		if _, taken := ops[other]; !taken && op.Stateful {
			all = append(all, candidate{other, spelling.Distance(name, other)})
		}
	}
	if len(all) == 0 {
		return ""
	}
	best := slices.MinFunc(all, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.far, b.far), cmp.Compare(a.name, b.name)) })
	return fmt.Sprintf(" (%q is new)", best.name)
}
