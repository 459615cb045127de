package serve

import (
	"fmt"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
)

// noPrograms is a binary without any.
type noPrograms struct{}

func (noPrograms) List() []job.ProgramInfo { return nil }

func (noPrograms) Build(s job.Spec) (*operator.Blueprint, error) {
	return nil, fmt.Errorf("this binary has no program %q", s.Program)
}
