package cairn

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/stream"
)

// Programs are the programs of a binary.
type Programs struct {
	list    []stream.Program
	version func() string
}

// NewPrograms makes the set of programs of a binary.
func NewPrograms(list ...stream.Program) *Programs {
	return &Programs{list: list, version: sync.OnceValue(buildVersion)}
}

// List names the programs with the version of this build.
func (p *Programs) List() []job.ProgramInfo {
	out := make([]job.ProgramInfo, len(p.list))
	for i, q := range p.list {
		out[i] = job.ProgramInfo{Name: q.Name, Version: p.version()}
	}
	return out
}

// Build builds the program of a job with its arguments, on a TaskManager.
func (p *Programs) Build(spec job.Spec) (*operator.Blueprint, error) {
	i := slices.IndexFunc(p.list, func(q stream.Program) bool { return q.Name == spec.Program })
	if i < 0 {
		names := make([]string, len(p.list))
		for i, q := range p.list {
			names[i] = q.Name
		}
		return nil, fmt.Errorf("this binary has no program %q; it has: %s", spec.Program, strings.Join(names, ", "))
	}
	return stream.Build(p.list[i], spec.Args)
}

// buildVersion identifies this build: the revision that it was made of when the tree was clean, else
// the hash of the executable, so that two builds of the same revision with other changes differ.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		var revision string
		modified := true
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				revision = s.Value
			case "vcs.modified":
				modified = s.Value == "true"
			}
		}
		if revision != "" && !modified {
			return revision[:min(12, len(revision))]
		}
	}
	path, err := os.Executable()
	if err != nil {
		return "unknown"
	}
	f, err := os.Open(path)
	if err != nil {
		return "unknown"
	}
	defer func() { _ = f.Close() }() // Only read.
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "unknown"
	}
	return "x" + hex.EncodeToString(h.Sum(nil))[:11]
}
