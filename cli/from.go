package cli

import (
	"os"
	"strings"

	"github.com/cairnstream/cairn/coordinator"
)

// fromFlags are what a job begins with, and in what it may differ from that.
type fromFlags struct {
	snapshot string
	claim    bool
	adapt    coordinator.Adaptation
}

func (a *App) fromFlags(o *options, f *fromFlags) {
	o.text(&f.snapshot, "from", "SNAPSHOT", "begin with a checkpoint or savepoint: its folder or URL, the id of a savepoint, JOB/latest or JOB/checkpoint/N").flag = true
	o.yesNo(&f.claim, "claim", "the savepoint that --from names becomes the job's own: it is deleted after the first checkpoint of the job").flag = true
	o.yesNo(&f.adapt.AllowDropped, "allow-dropped", "leave out the state of operators that the program does not have any more").flag = true
	o.yesNo(&f.adapt.AllowDrained, "allow-drained", "begin with a snapshot that was taken at the end of all data").flag = true
	o.add(&option{
		key: "drop-state", usage: "state to leave out; may be repeated", arg: "OPERATOR/STATE", list: true,
		set: func(t []string) error { f.adapt.DropStates = t; return nil },
		get: func() string { return strings.Join(f.adapt.DropStates, ",") },
	}).flag = true
	o.pairs(&f.adapt.Rename, "map", "operator that the program calls otherwise now: OLD=NEW; may be repeated")
}

// into puts them into a submission. A folder becomes its URL, since the JobManager may run elsewhere.
func (f *fromFlags) into(s *coordinator.Submission) error {
	s.From, s.Claim, s.Adapt = f.snapshot, f.claim, f.adapt
	if f.snapshot == "" || strings.Contains(f.snapshot, "://") {
		return nil
	}
	_, err := os.Stat(f.snapshot)
	if err != nil && strings.HasPrefix(f.snapshot, "sp-") && !strings.Contains(f.snapshot, "/") {
		return nil // The id of a savepoint.
	}
	ref, perr := parseRef([]string{f.snapshot})
	if err != nil && perr == nil && ref.snapshot == "" && strings.Contains(f.snapshot, "/") {
		return nil // JOB/latest or JOB/checkpoint/N.
	}
	if err != nil && perr != nil {
		return usage("--from", perr.Error())
	}
	loc, err := placeOf(f.snapshot)
	if err != nil {
		return usage("--from", err.Error())
	}
	s.From = loc.String()
	return nil
}
