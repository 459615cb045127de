package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
)

// none is a binary without programs.
type none struct{}

func (none) List() []job.ProgramInfo { return nil }

func (none) Build(s job.Spec) (*operator.Blueprint, error) {
	return nil, fmt.Errorf("this binary has no program %q", s.Program)
}

// request is what the command line says about a job.
type request struct {
	name        string // Of the job; empty: that of the program.
	args        map[string]string
	set         map[string]string
	parallelism int // 0: not given.
	overwrite   bool
	from        fromFlags
}

func (a *App) has(program string) bool {
	return slices.ContainsFunc(a.Programs.List(), func(p job.ProgramInfo) bool { return p.Name == program })
}

// spec builds a program and applies settings: those of the program, then --set, then --parallelism. The error lists
// everything that is wrong.
func (a *App) spec(program string, r request) (job.Spec, error) {
	s := job.Spec{Name: r.name, Program: program, Args: r.args, Settings: job.DefaultSettings(), Overwrite: r.overwrite}
	if s.Name == "" {
		s.Name = program
	}
	var names []string
	found := false
	for _, p := range a.Programs.List() {
		names = append(names, p.Name)
		if p.Name == program {
			s.Version, found = p.Version, true
		}
	}
	if !found {
		return s, usage(a.Name, fmt.Sprintf("there is no program %q; there are: %s", program, strings.Join(names, ", ")))
	}
	var problems []string
	if err := s.Settings.Apply(r.set); err != nil {
		problems = problemsOf(err)
	}
	_, both := r.set["parallelism"]
	if both && r.parallelism > 0 && r.set["parallelism"] != fmt.Sprint(r.parallelism) {
		problems = append(problems, fmt.Sprintf("--parallelism %d contradicts --set parallelism=%s", r.parallelism, r.set["parallelism"]))
	}
	b, err := a.Programs.Build(s)
	if err != nil {
		problems = append(problems, problemsOf(err)...)
	}
	if len(problems) > 0 {
		return s, usage(fmt.Sprintf("program %q", program), problems...)
	}
	s.Graph, s.Settings = b.Graph, job.DefaultSettings()
	if err := s.Settings.Apply(b.Settings); err != nil {
		return s, wrongInput(fmt.Errorf("program %q sets: %w", program, err))
	}
	if err := s.Settings.Apply(r.set); err != nil {
		return s, wrongInput(err)
	}
	if r.parallelism > 0 {
		if err := s.Settings.Apply(map[string]string{"parallelism": fmt.Sprint(r.parallelism)}); err != nil {
			return s, wrongInput(err)
		}
	}
	if err := s.Validate(); err != nil {
		return s, wrongInput(err)
	}
	return s, nil
}
