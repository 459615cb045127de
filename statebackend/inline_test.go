package statebackend_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

func TestInline(t *testing.T) {
	var in statebackend.Inline
	sub := func(sizes map[string]int) (s job.SubtaskSnapshot) {
		for name, n := range sizes {
			s.States = append(s.States, job.StateHandle{Name: name, Inline: make([]byte, n)})
		}
		return s
	}
	in.Add("sum", sub(map[string]int{"a": 10, "b": 30}))
	in.Add("sum", sub(map[string]int{"a": 25, "none": 0}))
	in.Add("top", sub(map[string]int{"a": 34}))
	if err := in.Check("task sum/0", 99); err != nil {
		t.Error(err)
	}
	err := in.Check("task sum/0", 98)
	var e *statebackend.InlineError
	var class *job.Error
	if !errors.As(err, &e) || e.Size != 99 || e.Operator != "sum" || e.State != "a" || e.Largest != 35 || !errors.As(err, &class) || class.Class != job.ClassUser {
		t.Fatalf("%+v", err)
	}
	for _, want := range []string{"task sum/0", "99", "98", `"sum"`, `"a"`, "35", "state.backend=fs", "state.backend.sum=fs"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %s", err, want)
		}
	}
}
