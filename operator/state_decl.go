package operator

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/cairnstream/cairn/job"
)

// declarations are what an operator says of itself while its job is built: states and side outputs.
type declarations struct {
	decls     []job.StateDecl
	problems  []string
	refused   error // Restored state of the operator that cannot be read.
	sideNames []string
	sideTypes map[string]reflect.Type
	// Of a running subtask:
	side func(name string) Output
	now  *int64 // Event time of what is being processed.
	outs sides
}

// Decls lists what was declared.
func (d *declarations) Decls() []job.StateDecl { return d.decls }

// Problems lists what was wrong with the declarations.
func (d *declarations) Problems() []string { return d.problems }

// Sides names the side outputs that were declared, with the types of their records.
func (d *declarations) Sides() (names []string, types map[string]reflect.Type) {
	return d.sideNames, d.sideTypes
}

// Side declares a side output.
func (d *declarations) Side[V any](name string) *Side[V] {
	if name == "" || slices.Contains(d.sideNames, name) {
		d.bad("a side output may not be named %q: names are not empty and unique", name)
	}
	d.sideNames = append(d.sideNames, name)
	if d.sideTypes == nil {
		d.sideTypes = map[string]reflect.Type{}
	}
	d.sideTypes[name] = reflect.TypeFor[V]()
	if d.side == nil {
		return &Side[V]{}
	}
	o := &Side[V]{col: newCollector[V](d.side(name)), now: d.now}
	d.outs = append(d.outs, o.col)
	return o
}

func (d *declarations) bad(format string, args ...any) {
	d.problems = append(d.problems, fmt.Sprintf(format, args...))
}

func (d *declarations) declare(name, kind, key, value string) {
	switch {
	case name == "" || name == timersState || name == clockTimersState:
		d.bad("a state may not be named %q", name)
	case slices.ContainsFunc(d.decls, func(o job.StateDecl) bool { return o.Name == name }):
		d.bad("state %q is declared twice", name)
	}
	d.decls = append(d.decls, job.StateDecl{Name: name, Kind: kind, Key: key, Value: value})
}
