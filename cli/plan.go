package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/cairnstream/cairn/job"
)

// asDot is a format of plans: the language of Graphviz.
const asDot = "dot"

func (a *App) listCommand() *cobra.Command {
	o := &options{}
	var format string
	o.output(&format)
	return a.command(&cobra.Command{Use: "list", Short: "lists the programs of this binary"}, o, func(context.Context, []string) error {
		list := a.Programs.List()
		return write(a.Stdout, format, views(list, viewProgram), func(w *tabwriter.Writer) {
			row(w, "NAME", "VERSION")
			for _, p := range list {
				row(w, p.Name, p.Version)
			}
		})
	})
}

// jobFlags are those of every command that builds a program.
func (a *App) jobFlags(o *options, r *request) {
	o.number(&r.parallelism, "parallelism", "of operators that do not say otherwise (default: what the program sets, else 1)").flag = true
	o.pairs(&r.args, "arg", "argument of the program; may be repeated")
	o.pairs(&r.set, "set", "setting of the job, such as checkpoint.interval=1s; may be repeated")
	o.more = func(program string) []string {
		if !a.has(program) {
			return nil // It may be the value of an unknown flag.
		}
		_, err := a.spec(program, *r)
		return problemsOf(err)
	}
}

func (a *App) planCommand() *cobra.Command {
	o := &options{}
	var r request
	var format string
	a.jobFlags(o, &r)
	o.output(&format, asDot)
	return a.command(&cobra.Command{Use: "plan NAME", Short: "prints the graph, chains and parallelism of a program"}, o, func(_ context.Context, args []string) error {
		spec, err := a.spec(args[0], r)
		if err != nil {
			return err
		}
		p, err := job.NewPlan(spec.Graph, spec.Settings)
		if err != nil {
			return wrongInput(err)
		}
		if format == asDot {
			return dot(a.Stdout, spec.Name, p)
		}
		return write(a.Stdout, format, viewPlan(spec, p), func(w *tabwriter.Writer) { planTable(w, spec, p) })
	})
}

type planView struct {
	Name        string            `json:"name"`
	Program     string            `json:"program"`
	Version     string            `json:"version"`
	Fingerprint string            `json:"fingerprint"`
	Slots       int               `json:"slots"`
	Bounded     bool              `json:"bounded"`
	Settings    map[string]string `json:"settings"`
	Operators   []operatorView    `json:"operators"`
	Vertices    []planVertexView  `json:"vertices"`
}

type operatorView struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"`
	Stateful bool   `json:"stateful"`
	// StateBackend is that of its keyed state.
	StateBackend string      `json:"stateBackend,omitempty"`
	Params       string      `json:"params,omitempty"`
	Warnings     []string    `json:"warnings,omitempty"`
	Inputs       []inputView `json:"inputs"`
}

type inputView struct {
	From      string `json:"from"`
	Partition string `json:"partition"`
	Codec     string `json:"codec"`
	Key       string `json:"key,omitempty"`
}

type planVertexView struct {
	Name        string          `json:"name"`
	Operators   []string        `json:"operators"`
	Parallelism int             `json:"parallelism"`
	Inputs      []planInputView `json:"inputs"`
}

type planInputView struct {
	From      string `json:"from"`
	Partition string `json:"partition"`
}

func viewPlan(s job.Spec, p *job.Plan) planView {
	ops := p.Graph.Operators
	return planView{
		Name: s.Name, Program: s.Program, Version: s.Version, Fingerprint: p.Graph.Fingerprint(), Slots: p.Slots(), Bounded: p.Bounded(),
		Settings: s.Settings.Map(),
		Operators: views(ops, func(o job.Operator) operatorView {
			return operatorView{
				Name: o.Name, Kind: string(o.Kind), Stateful: o.Stateful, StateBackend: backendOf(s, o), Params: o.Params,
				Warnings: o.Warnings,
				Inputs: views(o.Inputs, func(e job.Edge) inputView {
					return inputView{From: ops[e.From].Name, Partition: string(e.Partition), Codec: e.Codec, Key: e.Key}
				}),
			}
		}),
		Vertices: views(p.Vertices, func(v job.Vertex) planVertexView {
			return planVertexView{
				Name: v.Name, Operators: chain(p, v), Parallelism: v.Parallelism,
				Inputs: views(v.In, func(id int) planInputView {
					return planInputView{From: ops[p.Edges[id].FromOp].Name, Partition: string(p.Edges[id].Partition)}
				}),
			}
		}),
	}
}

// backendOf is the state backend of an operator, empty for one without keyed state.
func backendOf(s job.Spec, o job.Operator) string {
	if !o.Keyed() {
		return ""
	}
	return s.Settings.BackendOf(o.Name)
}

// chain names the operators of a vertex.
func chain(p *job.Plan, v job.Vertex) (names []string) {
	for _, i := range v.Operators {
		names = append(names, p.Graph.Operators[i].Name)
	}
	return names
}

func planTable(w *tabwriter.Writer, s job.Spec, p *job.Plan) {
	field(w, "Job", s.Name)
	field(w, "Program", strings.TrimSpace(s.Program+" "+s.Version))
	field(w, "Fingerprint", p.Graph.Fingerprint())
	field(w, "Slots", p.Slots())
	field(w, "Tasks", len(p.Tasks()))
	fmt.Fprintln(w)
	row(w, "VERTEX", "PARALLELISM", "OPERATORS", "INPUTS")
	for _, v := range p.Vertices {
		var ops, ins []string
		for _, i := range v.Operators {
			o := p.Graph.Operators[i]
			text := fmt.Sprintf("%s (%s)", o.Name, o.Kind)
			if b := backendOf(s, o); b != "" {
				text = fmt.Sprintf("%s (%s, state in %s)", o.Name, o.Kind, b)
			} else if o.Stateful {
				text = fmt.Sprintf("%s (%s, stateful)", o.Name, o.Kind)
			}
			ops = append(ops, text)
		}
		for _, id := range v.In {
			ins = append(ins, fmt.Sprintf("%s by %s", p.Graph.Operators[p.Edges[id].FromOp].Name, p.Edges[id].Partition))
		}
		row(w, v.Name, v.Parallelism, strings.Join(ops, " > "), strings.Join(ins, ", "))
	}
	for _, o := range p.Graph.Operators {
		for _, text := range o.Warnings {
			fmt.Fprintf(w, "\nWarning: %s: %s\n", o.Name, text)
		}
	}
}

// dot draws a box per vertex.
func dot(w io.Writer, name string, p *job.Plan) error {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %q {\n  rankdir=LR;\n  node [shape=box];\n", name)
	for i, v := range p.Vertices {
		fmt.Fprintf(&b, "  v%d [label=%q];\n", i, fmt.Sprintf("%s\n× %d", strings.Join(chain(p, v), "\n"), v.Parallelism))
	}
	for _, e := range p.Edges {
		fmt.Fprintf(&b, "  v%d -> v%d [label=%q];\n", e.From, e.To, string(e.Partition))
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}
