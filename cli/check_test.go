package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/stream"
)

// visitsProgram is the job of visits from other sources, and numbers.
type visitsProgram struct{ numbers }

func (p *visitsProgram) List() []job.ProgramInfo {
	return append(p.numbers.List(), job.ProgramInfo{Name: "visits", Version: "v2"})
}

func (p *visitsProgram) Build(s job.Spec) (*operator.Blueprint, error) {
	if s.Program != "visits" {
		return p.numbers.Build(s)
	}
	return stream.Build(stream.Program{Name: "visits", Build: func(j *stream.Job) {
		visits(j, datagen.Source[visit]{Make: func(_ int64, v *visit) { *v = theVisits[0] }}, datagen.Source[string]{Make: func(_ int64, s *string) { *s = "short" }}, collect.New[string]())
	}}, s.Args)
}

func TestCheckCommand(t *testing.T) {
	dir := t.TempDir()
	visitSnapshots(t, dir)
	all, err := filepath.Glob(filepath.Join(dir, "prod/jobs/*/checkpoints/*"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no checkpoint: %v", err)
	}
	from := all[len(all)-1]
	prog := &visitsProgram{numbers{sink: collect.New[int64]()}}

	r := call(prog, nil, "prog", "check", "visits", "--from", from, "--parallelism", "3", "-o", "json")
	var v checkView
	if err := json.Unmarshal([]byte(r.stdout), &v); r.code != Done || err != nil {
		t.Fatalf("exit %d, %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
	states := map[string]checkStateView{}
	for _, op := range v.Operators {
		for _, st := range op.States {
			states[op.Name+"/"+st.Name] = st
		}
	}
	for name, kind := range map[string]string{
		"users/profile": "value", "users/pages": "map", "users/recent": "list", "users/total": "reducing", "users/limits": "broadcast", "users/timers": "timers",
		"mark/newest": "operator list", "hourly/windows": "windows", "sessions/windows": "windows", "visits.splits/phase": "operator list",
	} {
		if st := states[name]; st.Verdict != "restored" || st.Kind != kind {
			t.Errorf("%s: %+v, want a %s that is restored", name, st, kind)
		}
	}
	if t.Failed() {
		t.Log(r.stdout)
	}

	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"a table":         {[]string{"visits", "--from", from}, Done, "restored"},
		"another program": {[]string{"numbers", "--arg", "n=1", "--from", from}, Refused, "the program has no operator of that name"},
		"left out":        {[]string{"numbers", "--arg", "n=1", "--from", from, "--allow-dropped"}, Done, "dropped"},
		"mapped away":     {[]string{"visits", "--from", from, "--map", "users=mark"}, Refused, "both states"},
		"key groups":      {[]string{"visits", "--from", from, "--set", "max-parallelism=128"}, Refused, "set max-parallelism to 720"},
		"no flag":         {[]string{"visits"}, Usage, "missing flag --from"},
		"no snapshot":     {[]string{"visits", "--from", dir + "/nothing"}, NotFound, "nothing"},
		"no program":      {[]string{"other", "--from", from}, Usage, `"other"`},
	} {
		r := call(prog, nil, append([]string{"prog", "check"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.stdout+r.stderr, c.want) {
			t.Errorf("%s: exit %d, want %d\n%s%s", name, r.code, c.code, r.stdout, r.stderr)
		}
	}
}
