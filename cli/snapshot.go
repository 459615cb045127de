package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cairnstream/cairn/blob"
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
func (a *App) newest(ctx context.Context, store blob.Store, p snapshot.Folder, text string) (string, error) {
	all, err := snapshot.NewStore(store, p.Cluster)
	if err != nil {
		return "", usage("snapshot "+text, err.Error())
	}
	list, err := all.ListCheckpoints(ctx, p.Job)
	if err != nil {
		return "", storedError(err)
	}
	if len(list) == 0 {
		return "", &codeError{code: NotFound, err: fmt.Errorf("snapshot %s: there is no checkpoint of job %s", text, p.Job)}
	}
	last := list[len(list)-1]
	fmt.Fprintf(a.Stderr, "job %s: checkpoint %d, the newest of %d\n", p.Job, uint64(last.Checkpoint), len(list))
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
