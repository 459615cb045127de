package snapshot

import (
	"errors"
	"strconv"
	"strings"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
)

// Folder is where a snapshot may be: in a folder of a store.
type Folder struct {
	Root blob.Location // Of the store, from which on the keys of objects count.
	Dir  string        // Key of the folder, without a slash at its end.
	// Cluster, Job and Checkpoint are those of a folder of checkpoints, and empty for others. A Job without a Checkpoint is the
	// folder of a job.
	Cluster    string
	Job        job.ID
	Checkpoint job.CheckpointID
}

// Manifest is the key of the manifest of a snapshot there.
func (p Folder) Manifest() string { return p.Dir + "/" + manifestName }

// ParseFolder finds the root of the store that a folder lies in. Those of checkpoints are .../CLUSTER/jobs/JOB/checkpoints/N, and
// the keys of objects begin with the cluster; that of a savepoint has a store of its own.
func ParseFolder(loc blob.Location) (Folder, error) {
	var names []string
	for n := range strings.SplitSeq(strings.Trim(loc.Path, "/"), "/") {
		if n != "" {
			names = append(names, n)
		}
	}
	if n := len(names); n > 0 && names[n-1] == manifestName {
		names = names[:n-1]
	}
	n := len(names)
	at := func(keep int) Folder {
		p := Folder{Root: loc, Dir: strings.Join(names[keep:], "/")}
		p.Root.Path = strings.Join(names[:keep], "/")
		if loc.Scheme == blob.SchemeFile {
			p.Root.Path = "/" + p.Root.Path
		}
		return p
	}
	if n == 0 {
		return Folder{}, errors.New("it names no folder")
	}
	if n >= 5 && names[n-4] == "jobs" && names[n-2] == "checkpoints" {
		if id, err := strconv.ParseUint(names[n-1], 10, 64); err == nil && id > 0 {
			p := at(n - 5)
			p.Cluster, p.Job, p.Checkpoint = names[n-5], job.ID(names[n-3]), job.CheckpointID(id)
			return p, blob.CheckKey(p.Dir)
		}
	}
	if n >= 4 && names[n-3] == "jobs" && names[n-1] == "checkpoints" {
		names, n = names[:n-1], n-1
	}
	if n >= 3 && names[n-2] == "jobs" {
		p := at(n - 3)
		p.Cluster, p.Job = names[n-3], job.ID(names[n-1])
		return p, blob.CheckKey(p.Dir)
	}
	p := at(n - 1)
	return p, blob.CheckKey(p.Dir)
}
