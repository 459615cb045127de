package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/serve"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend/stored"
)

// opened is a snapshot that a command looks into.
type opened struct {
	*stored.Snapshot
	store blob.Store
	key   string // Of the manifest.
	close func()
}

const manifestName = "_metadata"

// placeOf is the location of a folder that is a URL or a path.
func placeOf(text string) (blob.Location, error) {
	if strings.Contains(text, "://") {
		return blob.ParseLocation(text)
	}
	dir, err := filepath.Abs(text)
	if err != nil {
		return blob.Location{}, err
	}
	return blob.Location{Scheme: blob.SchemeFile, Path: filepath.ToSlash(dir)}, nil
}

// place is where a snapshot may be: below root, in the store there.
type place struct {
	root    blob.Location
	dir     string // Key of the folder, without a slash at its end.
	cluster string // With job and no checkpoint: the newest one is meant.
	job     job.ID //
	id      job.CheckpointID
}

// split finds the root of the store that a folder lies in. Those of checkpoints are .../CLUSTER/jobs/JOB/checkpoints/N, and
// the objects' keys begin with the cluster; that of a savepoint has a store of its own.
func split(loc blob.Location) (place, error) {
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
	at := func(keep int) place {
		p := place{root: loc, dir: strings.Join(names[keep:], "/")}
		p.root.Path = strings.Join(names[:keep], "/")
		if loc.Scheme == blob.SchemeFile {
			p.root.Path = "/" + p.root.Path
		}
		return p
	}
	if n == 0 {
		return place{}, errors.New("it names no folder")
	}
	if n >= 5 && names[n-4] == "jobs" && names[n-2] == "checkpoints" {
		if id, err := strconv.ParseUint(names[n-1], 10, 64); err == nil && id > 0 {
			p := at(n - 5)
			p.cluster, p.job, p.id = names[n-5], job.ID(names[n-3]), job.CheckpointID(id)
			return p, blob.CheckKey(p.dir)
		}
	}
	if n >= 4 && names[n-3] == "jobs" && names[n-1] == "checkpoints" {
		names, n = names[:n-1], n-1
	}
	if n >= 3 && names[n-2] == "jobs" {
		p := at(n - 3)
		p.cluster, p.job = names[n-3], job.ID(names[n-1])
		return p, blob.CheckKey(p.dir)
	}
	p := at(n - 1)
	return p, blob.CheckKey(p.dir)
}

// openSnapshot finds and opens the snapshot that a folder or URL names.
func (a *App) openSnapshot(ctx context.Context, text string) (*opened, error) {
	t, err := a.locate(ctx, text)
	if err != nil {
		return nil, err
	}
	s, err := stored.Open(ctx, t.store, t.key, serve.Stored())
	if err != nil {
		t.close()
		return nil, noSnapshot(text, err)
	}
	return &opened{s, t.store, t.key, t.close}, nil
}

// newest is the manifest of a job's newest checkpoint.
func (a *App) newest(ctx context.Context, store blob.Store, p place, text string) (string, error) {
	all, err := snapshot.NewStore(store, p.cluster)
	if err != nil {
		return "", usage("snapshot "+text, err.Error())
	}
	list, err := all.ListCheckpoints(ctx, p.job)
	if err != nil {
		return "", storedError(err)
	}
	if len(list) == 0 {
		return "", &codeError{code: NotFound, err: fmt.Errorf("snapshot %s: there is no checkpoint of job %s", text, p.job)}
	}
	last := list[len(list)-1]
	fmt.Fprintf(a.Stderr, "job %s: checkpoint %d, the newest of %d\n", p.job, uint64(last.Checkpoint), len(list))
	return last.Key, nil
}

// noSnapshot is the error of a snapshot that cannot be opened.
func noSnapshot(text string, err error) error {
	if errors.Is(err, blob.ErrNotExist) {
		return &codeError{
			code: NotFound, err: fmt.Errorf("snapshot %s: there is none: %w", text, err),
			hint: "want the folder or URL of a checkpoint or savepoint, which has a " + manifestName + ", or of a job: .../CLUSTER/jobs/JOB",
		}
	}
	return storedError(fmt.Errorf("snapshot %s: %w", text, err))
}

// storedError gives an error of a store its exit code.
func storedError(err error) error {
	var c *codeError
	switch {
	case err == nil || errors.As(err, &c):
		return err
	case errors.Is(err, stored.ErrNotFound):
		return &codeError{code: NotFound, err: err}
	case blob.IsTransient(err):
		return &codeError{code: Unreachable, err: err}
	}
	return err
}
