package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/cairnstream/cairn/statebackend/stored"
)

func (a *App) checkCommand() *cobra.Command {
	o := &options{}
	var r request
	var format string
	a.jobFlags(o, &r)
	a.fromFlags(o, &r.from)
	o.output(&format)
	return a.command(&cobra.Command{
		Use: "check NAME", Short: "tells what a program would make of a snapshot, before anything is stopped",
		Long: "Tells for each operator and state whether it would be restored, migrated, new and empty, dropped, or refused and why. It reads " +
			"the snapshot's manifest, and touches no job. The exit code is 5 when anything is refused.",
	}, o, func(ctx context.Context, args []string) error {
		if r.from.snapshot == "" {
			return usage("check "+args[0], "missing flag --from SNAPSHOT: the folder or URL of a checkpoint or savepoint")
		}
		return a.check(ctx, args[0], r, format)
	})
}

// checkView is the answer of check.
type checkView struct {
	Snapshot   string              `json:"snapshot"`
	Job        string              `json:"job"`
	Checkpoint uint64              `json:"checkpoint"`
	Was        string              `json:"was"` // Program and version that wrote it.
	Program    string              `json:"program"`
	Version    string              `json:"version"`
	KeyGroups  int                 `json:"key_groups"`
	Refused    bool                `json:"refused"`
	Problems   []string            `json:"problems"`
	Notes      []string            `json:"notes"`
	Operators  []checkOperatorView `json:"operators"`
}

type checkOperatorView struct {
	Name        string           `json:"name"`
	Was         string           `json:"was,omitempty"`
	Verdict     string           `json:"verdict"`
	Why         string           `json:"why,omitempty"`
	Parallelism [2]int           `json:"parallelism"` // In the snapshot and in the program; 0 where it is not.
	States      []checkStateView `json:"states"`
}

type checkStateView struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	Verdict string   `json:"verdict"`
	Entries int64    `json:"entries"`
	Bytes   int64    `json:"bytes"`
	Old     string   `json:"old,omitempty"`
	Now     string   `json:"now,omitempty"`
	Changes []string `json:"changes,omitempty"`
	Why     string   `json:"why,omitempty"`
}

func (a *App) check(ctx context.Context, program string, r request, format string) error {
	spec, err := a.spec(program, r)
	if err != nil {
		return err
	}
	s, err := a.openSnapshot(ctx, r.from.snapshot)
	if err != nil {
		return err
	}
	defer s.close()
	report, err := stored.Check(s.Snapshot, stored.CheckOptions{
		Graph: spec.Graph, Settings: spec.Settings, Rename: r.from.adapt.Rename, Drop: r.from.adapt.DropStates,
		AllowDropped: r.from.adapt.AllowDropped, AllowDrained: r.from.adapt.AllowDrained,
	})
	if err != nil {
		return wrongInput(err)
	}
	// What a JobManager will say counts, whatever the report says.
	notes, err := r.from.adapt.Preview(s.Manifest, spec)
	if err != nil && !report.Refused() {
		report.Problems = append(report.Problems, problemsOf(err)...)
	}
	v := viewCheck(r.from.snapshot, s.Snapshot, spec.Program, spec.Version, report, notes)
	if err := write(a.Stdout, format, v, func(w *tabwriter.Writer) { checkTable(w, v) }); err != nil {
		return err
	}
	if v.Refused {
		return &codeError{code: Refused, err: errors.New(v.refusal())}
	}
	return nil
}

func viewCheck(text string, s *stored.Snapshot, program, version string, report *stored.CheckReport, notes []string) checkView {
	m := s.Manifest
	v := checkView{
		Snapshot: text, Job: string(m.Job), Checkpoint: uint64(m.Checkpoint), Was: strings.TrimSpace(m.Program + " " + m.Version), Program: program, Version: version,
		KeyGroups: m.K, Refused: report.Refused(), Problems: append([]string{}, report.Problems...), Notes: append([]string{}, notes...),
	}
	for _, op := range report.Operators {
		o := checkOperatorView{Name: op.Name, Was: op.Was, Verdict: string(op.Verdict), Why: op.Why, Parallelism: op.Parallelism, States: []checkStateView{}}
		for _, st := range op.States {
			o.States = append(o.States, checkStateView{
				Name: st.Name, Kind: string(st.Kind), Verdict: string(st.Verdict), Entries: st.Entries, Bytes: st.Bytes, Old: st.Old, Now: st.Now,
				Changes: st.Changes, Why: st.Why,
			})
		}
		v.Operators = append(v.Operators, o)
	}
	return v
}

// refusal says in a line how much is refused.
func (v checkView) refusal() string {
	n := len(v.Problems)
	for _, op := range v.Operators {
		states := 0
		for _, st := range op.States {
			if st.Verdict == string(stored.Refused) {
				states++
			}
		}
		if states == 0 && op.Verdict == string(stored.Refused) {
			states = 1
		}
		n += states
	}
	return fmt.Sprintf("snapshot %s: the program %s cannot go on with it: %s", v.Snapshot, v.Program, plural(n, "refusal"))
}

func checkTable(w *tabwriter.Writer, v checkView) {
	row(w, "OPERATOR", "STATE", "VERDICT", "PARALLELISM", "ENTRIES", "BYTES")
	for _, op := range v.Operators {
		name := op.Name
		if op.Was != "" {
			name = op.Was + " -> " + op.Name
		}
		par := fmt.Sprint(op.Parallelism[1])
		switch {
		case op.Parallelism[1] == 0:
			par = fmt.Sprintf("%d -> none", op.Parallelism[0])
		case op.Parallelism[0] != 0 && op.Parallelism[0] != op.Parallelism[1]:
			par = fmt.Sprintf("%d -> %d", op.Parallelism[0], op.Parallelism[1])
		}
		row(w, name, "", op.Verdict, par, "", "")
		for _, st := range op.States {
			row(w, "", st.Name, st.Verdict, "", count(st.Entries), size(st.Bytes))
		}
	}
	var more []string
	for _, op := range v.Operators {
		if op.Why != "" {
			more = append(more, fmt.Sprintf("%s: %s", op.Name, op.Why))
		}
		for _, st := range op.States {
			place := op.Name + "/" + st.Name
			if len(st.Changes) > 0 {
				more = append(more, fmt.Sprintf("%s: %s", place, strings.Join(st.Changes, ", ")))
			}
			if st.Why != "" {
				more = append(more, fmt.Sprintf("%s: %s", place, st.Why))
			}
			if st.Old != st.Now && st.Old != "" {
				more = append(more, fmt.Sprintf("  it was %s", st.Old), fmt.Sprintf("  and is %s", st.Now))
			}
		}
	}
	more = slices.Concat(v.Problems, more, v.Notes)
	if len(more) > 0 {
		fmt.Fprintln(w)
	}
	for _, line := range more {
		fmt.Fprintln(w, line)
	}
}
