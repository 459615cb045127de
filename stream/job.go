package stream

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
)

// Program is a named function that builds a job.
type Program struct {
	Name  string
	Build func(*Job)
}

// Job is the job that a program builds.
type Job struct {
	args     map[string]string
	missing  []string
	used     map[string]bool
	settings map[string]string
	ops      []job.Operator
	nodes    []operator.Node
	problems []string
	sides    map[int]map[string]reflect.Type // Side outputs by operator.
	sources  []aligned
}

// Arg returns the argument with that name. A missing one is recorded and all are reported
// together; the program goes on with an empty string.
func (j *Job) Arg(name string) string {
	j.used[name] = true
	v, ok := j.args[name]
	if !ok && !slices.Contains(j.missing, name) {
		j.missing = append(j.missing, name)
	}
	return v
}

// ArgOr returns the argument with that name, or value when it was not given.
func (j *Job) ArgOr(name, value string) string {
	j.used[name] = true
	if v, ok := j.args[name]; ok {
		return v
	}
	return value
}

// Set sets one of the job's settings, such as checkpoint.interval. What the command line sets wins.
func (j *Job) Set(key, value string) { j.settings[key] = value }

// Fail records a problem that the program itself found, such as an argument out of range.
func (j *Job) Fail(format string, args ...any) { j.bad(format, args...) }

func (j *Job) bad(format string, args ...any) {
	j.problems = append(j.problems, fmt.Sprintf(format, args...))
}

// Build runs p with args and returns what it built. The error lists every problem.
func Build(p Program, args map[string]string) (bp *operator.Blueprint, err error) {
	j := &Job{args: args, used: map[string]bool{}, settings: map[string]string{}, sides: map[int]map[string]reflect.Type{}}
	var problems []string
	panicked := j.build(p)
	if len(j.missing) > 0 {
		problems = append(problems, "missing arguments: "+strings.Join(j.missing, ", ")+" (give each as --arg name=value)")
	}
	for _, k := range slices.Sorted(maps.Keys(args)) {
		if !j.used[k] {
			problems = append(problems, fmt.Sprintf("unknown argument %q; the program reads: %s", k, strings.Join(slices.Sorted(maps.Keys(j.used)), ", ")))
		}
	}
	problems = append(problems, j.problems...)
	if panicked != "" {
		problems = append(problems, panicked)
	}
	var s job.Settings
	if err := s.Apply(j.settings); err != nil {
		problems = append(problems, listOf(err)...)
	}
	bp = &operator.Blueprint{Name: p.Name, Graph: job.Graph{Operators: j.ops}, Settings: j.settings, Nodes: j.nodes}
	if len(problems) == 0 || len(j.ops) > 0 {
		if err := bp.Graph.Validate(); err != nil {
			problems = append(problems, listOf(err)...)
		}
	}
	if len(problems) > 0 {
		return nil, &job.Problems{What: fmt.Sprintf("program %q", p.Name), List: problems}
	}
	return bp, nil
}

// build calls p. A panic is a problem like others: it may follow from one, such as an argument that
// is missing. What was built up to then is not worth checking.
func (j *Job) build(p Program) (panicked string) {
	defer func() {
		if v := recover(); v != nil {
			panicked = fmt.Sprintf("the program panicked while it built its job: %v\n%s", v, debug.Stack())
			j.ops, j.nodes = nil, nil
		}
	}()
	p.Build(j)
	return ""
}

func listOf(err error) []string {
	var list *job.Problems
	if errors.As(err, &list) {
		return list.List
	}
	return []string{err.Error()}
}

// add appends an operator and returns its index.
func (j *Job) add(op job.Operator, n operator.Node) int {
	if op.Name == "" {
		op.Name = fmt.Sprintf("%s-%d", op.Kind, len(j.ops))
	} else {
		op.Named = true
	}
	j.ops = append(j.ops, op)
	j.nodes = append(j.nodes, n)
	return len(j.ops) - 1
}
