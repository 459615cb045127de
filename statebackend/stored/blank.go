package stored

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/watermark"
)

// Declaration is a state of a snapshot that is made from nothing, with the schemas that the program will have.
type Declaration struct {
	Operator, Name     string
	Kind               Kind // Not OperatorList or Broadcast.
	Key, MapKey, Value codec.Schema
	TTL                bool
}

// Tables are the tables of the state, as the program declares them.
func (d Declaration) Tables() ([]job.StateDecl, error) {
	bad := func(format string, args ...any) ([]job.StateDecl, error) {
		return nil, fmt.Errorf("operator %q, state %q: %s", d.Operator, d.Name, fmt.Sprintf(format, args...))
	}
	decl := func(name, kind string, key, value codec.Schema) job.StateDecl {
		return job.StateDecl{Name: name, Kind: kind, Key: key.String(), Value: value.String()}
	}
	of := func(name string, parts ...codec.Schema) codec.Schema {
		return codec.Schema{Codec: name, Version: 1, Shape: codec.JoinSchemas(parts...)}
	}
	if d.Operator == "" || d.Name == "" {
		return bad("an operator and a state need names")
	}
	for _, s := range []struct {
		what   string
		schema codec.Schema
		need   bool
	}{{"key", d.Key, true}, {"map-key", d.MapKey, d.Kind == Map}, {"value", d.Value, d.Kind != Timers}} {
		switch {
		case s.need && s.schema.Codec == "":
			return bad("it has no %s", s.what)
		case !s.need && s.schema.Codec != "":
			return bad("a %s has no %s", d.Kind, s.what)
		case s.need:
			if _, err := s.schema.Layout(); err != nil {
				return bad("%s: %v", s.what, err)
			}
		}
	}
	if d.TTL && (d.Kind == Timers || d.Kind == Windows) {
		return bad("%s do not expire", d.Kind)
	}
	aged := func(s codec.Schema) codec.Schema {
		if d.TTL {
			return of("aged", s)
		}
		return s
	}
	items := d.Name + job.ItemsSuffix
	switch d.Kind {
	case Value, Reducing, Aggregating:
		return []job.StateDecl{decl(d.Name, string(d.Kind), d.Key, aged(d.Value))}, nil
	case Map:
		return []job.StateDecl{
			decl(d.Name, "map", d.Key, of("map-head", d.MapKey)),
			decl(items, "map", of("map-key", d.Key, d.MapKey), aged(of("map-entry", d.MapKey, d.Value))),
		}, nil
	case List:
		return []job.StateDecl{
			decl(d.Name, "list", of("key-time", d.Key), of("list-head", aged(d.Value))),
			decl(items, "list", of("list-item", d.Key), of("list-part", aged(d.Value))),
		}, nil
	case Timers:
		return []job.StateDecl{decl(d.Name, "timers", of("key-time", d.Key), codec.Bool().Schema())}, nil
	case Windows:
		return []job.StateDecl{decl(d.Name, "value", of("key-time", d.Key), d.Value)}, nil
	}
	return bad("kind %q: want value, reducing, aggregating, map, list, timers or windows", d.Kind)
}

// Blank makes a snapshot without entries, of a job of that name and with k key groups, for an Editor to fill. Its operators
// have the parallelisms given, or 1: into how many parts the states are divided, which a restore may change.
func Blank(name string, k int, parallelism map[string]int, states []Declaration) (*Snapshot, error) {
	m := &snapshot.Manifest{
		Job: job.ID(name), JobName: name, Checkpoint: 1, Attempt: 1, Epoch: 1, K: k, Hash: snapshot.HashName, Derived: "files",
		Operators: map[string]job.OperatorSnapshot{},
	}
	decls := map[string][]job.StateDecl{}
	for _, d := range states {
		tables, err := d.Tables()
		if err != nil {
			return nil, err
		}
		for _, t := range tables {
			if slices.ContainsFunc(decls[d.Operator], func(o job.StateDecl) bool { return o.Name == t.Name }) {
				return nil, fmt.Errorf("operator %q: state %q is declared twice", d.Operator, t.Name)
			}
		}
		decls[d.Operator] = append(decls[d.Operator], tables...)
	}
	for op := range parallelism {
		if decls[op] == nil {
			return nil, fmt.Errorf("operator %q has a parallelism and no states", op)
		}
	}
	for _, op := range slices.Sorted(maps.Keys(decls)) {
		p := max(parallelism[op], 1)
		if p > k {
			return nil, fmt.Errorf("operator %q: parallelism %d with %d key groups", op, p, k)
		}
		subtasks := make([]job.SubtaskSnapshot, p)
		for i := range subtasks {
			subtasks[i].Watermark = watermark.Min
		}
		m.Operators[op] = job.OperatorSnapshot{Parallelism: p, Subtasks: subtasks}
		m.Graph.Operators = append(m.Graph.Operators, job.Operator{
			Name: op, Named: true, Kind: job.KindProcess, Stateful: true, Parallelism: p, State: decls[op],
		})
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return New(m, snapshot.NewReader(blob.Store(nil)), Options{}), nil
}
