package pebble

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
)

// fetcher brings what a checkpoint has of trees to this machine.
type fetcher struct {
	ctx      context.Context // Restore's: it governs the reads of an Open that comes later.
	reader   statebackend.Reader
	local    *local
	shared   *shared
	troubles *troubles
}

// describe reads the description of a state in a tree, of k key groups in all.
func (x *fetcher) describe(h job.StateHandle, k int) (*treeState, error) {
	data, err := snapshot.ReadSection(x.ctx, x.reader, h, maxDescription)
	if err != nil {
		return nil, err
	}
	t, err := decodeTreeState(h, data)
	if err == nil && t.k != k {
		err = &job.Error{Class: job.ClassRefused, Err: fmt.Errorf(
			"state %q was written with max-parallelism %d, the job has %d: max-parallelism is fixed for the life of the state", h.Name, t.k, k)}
	}
	return t, err
}

// maxDescription is above what 127 schemas of the largest structs take.
const maxDescription = 64 << 20

// downloads is how many files are fetched at a time.
const downloads = 8

// download brings files into a folder: from copies on this machine where there are any, else from the store. Each is verified.
func (x *fetcher) download(dir string, files []job.StateHandle) error {
	have := x.local.index()
	g, ctx := errgroup.WithContext(x.ctx)
	g.SetLimit(downloads)
	for _, h := range files {
		if h.Name != filepath.Base(h.Name) || h.Name == "." || h.Name == ".." {
			return fmt.Errorf("%w: a file of the tree is named %q", statebackend.ErrCorrupt, h.Name)
		}
		g.Go(func() error {
			to := filepath.Join(dir, h.Name)
			if from, ok := have[h.Hash]; ok && h.Length > 0 && link(from, to, h) {
				return nil
			}
			return fetchFile(ctx, x.reader, h, to)
		})
	}
	return g.Wait()
}

// link makes to another name of a file if that is what h says.
func link(from, to string, h job.StateHandle) bool {
	if os.Link(from, to) != nil {
		return false
	}
	f, err := os.Open(to)
	if err == nil {
		err = snapshot.VerifySection(h, f)
		if err = errors.Join(err, f.Close()); err == nil {
			return true
		}
	}
	_ = os.Remove(from) // Damaged: it is of no use to anybody.
	_ = os.Remove(to)
	return false
}

func fetchFile(ctx context.Context, r statebackend.Reader, h job.StateHandle, to string) error {
	f, err := os.Create(to)
	if err != nil {
		return statebackend.Fault{Err: err, Path: to}
	}
	err = snapshot.CopySection(ctx, r, h, f)
	if err = errors.Join(err, f.Close()); statebackend.DiskFull(err) {
		return statebackend.Fault{Err: err, Path: to}
	}
	return err
}

// openRange opens a tree of a checkpoint for reading between two keys. Files with nothing between them are not fetched.
func (x *fetcher) openRange(dir string, src *source, lower, upper []byte) (*pebbledb.DB, error) {
	var list, tables []job.StateHandle
	for _, h := range src.files {
		if isTable(h.Name) {
			tables = append(tables, h)
		} else {
			list = append(list, h)
		}
	}
	if err := x.download(dir, list); err != nil {
		return nil, err
	}
	open := func() (*pebbledb.DB, error) {
		db, err := pebbledb.Open(dir, readOptions(x.shared, newPartial(vfs.Default, src.files), x.troubles))
		if err != nil {
			return nil, fmt.Errorf("%w: open the tree of key groups %v: %w", statebackend.ErrCorrupt, src.groups, err)
		}
		return db, nil
	}
	db, err := open()
	if err != nil {
		return nil, err
	}
	need, err := overlapping(db, lower, upper)
	if err = errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	tables = slices.DeleteFunc(tables, func(h job.StateHandle) bool { return !need[h.Name] })
	if err := x.download(dir, tables); err != nil {
		return nil, err
	}
	return open()
}

// overlapping names the files of a tree with keys from lower to upper, which is excluded.
func overlapping(db *pebbledb.DB, lower, upper []byte) (map[string]bool, error) {
	levels, err := db.SSTables()
	if err != nil {
		return nil, err
	}
	need := map[string]bool{}
	for _, level := range levels {
		for _, t := range level {
			if string(t.Smallest.UserKey) < string(upper) && string(t.Largest.UserKey) >= string(lower) {
				need[fmt.Sprintf("%06d.sst", uint64(t.BackingSSTNum))] = true
			}
		}
	}
	return need, nil
}
