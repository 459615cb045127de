package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/job"
)

// committer gives parts their final names.
type committer struct {
	disk    disk
	attempt job.Attempt
}

// Commit implements operator.Committer. A part whose final name is there with the recorded size and hash was committed
// before. What an earlier attempt prepared is read through before it becomes visible.
func (c *committer) Commit(ctx context.Context, committables [][]byte) error {
	dirs := map[string]bool{}
	for _, raw := range committables {
		if err := ctx.Err(); err != nil {
			return err
		}
		p, err := decodeCommittable(raw)
		if err != nil {
			return err
		}
		if err := c.commit(p); err != nil {
			return err
		}
		dirs[p.Dir] = true
	}
	for dir := range dirs {
		if err := c.disk.SyncDir(dir); err != nil {
			return job.Errorf(job.ClassExternal, "commit output: %w", err)
		}
	}
	return nil
}

func (c *committer) commit(p committable) error {
	from, to := filepath.Join(p.Dir, p.From), filepath.Join(p.Dir, p.To)
	// Twice: another process may commit the same part between our looking and our renaming.
	for range 2 {
		found, err := c.matches(to, p, true)
		switch {
		case err != nil:
			return err
		case found == same:
			return nil
		case found == different:
			return job.Errorf(job.ClassRefused, "commit %s: it is there already with another content than the %d bytes with hash %s that were prepared", to, p.Size, p.Hash)
		}
		found, err = c.matches(from, p, p.attempt != c.attempt)
		switch {
		case err != nil:
			return err
		case found == different:
			return job.Errorf(job.ClassRefused, "commit %s: %s is not the %d bytes with hash %s that were prepared: it is damaged", to, from, p.Size, p.Hash)
		case found == absent:
			continue
		}
		switch err := c.disk.Rename(from, to); {
		case err == nil:
			return nil
		case !errors.Is(err, fs.ErrNotExist):
			return job.Errorf(job.ClassExternal, "commit output: %w", err)
		}
	}
	if _, err := c.disk.List(p.Dir); err != nil {
		return job.Errorf(job.ClassExternal, "commit %s: %w", to, err)
	}
	return job.Errorf(job.ClassRefused, "commit %s: neither it nor %s is there, though the checkpoint counts %d rows in it: the output directory was tampered with or is not the one that was written to", to, p.From, p.Rows)
}

// found is what was at a path.
type found int

const (
	absent    found = iota
	same            // What was prepared.
	different       // Something else.
)

// matches compares the file at path with what was prepared: its size, and its hash if it is to be read.
func (c *committer) matches(path string, p committable, read bool) (found, error) {
	external := func(err error) (found, error) {
		return absent, job.Errorf(job.ClassExternal, "commit output: %w", err)
	}
	f, err := c.disk.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return absent, nil
	}
	if err != nil {
		return external(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return external(err)
	}
	if info.Size() != p.Size {
		return different, nil
	}
	if !read {
		return same, nil
	}
	h := xxh3.New()
	if _, err := io.Copy(h, f); err != nil {
		return external(err)
	}
	if fmt.Sprintf("%016x", h.Sum64()) != p.Hash {
		return different, nil
	}
	return same, nil
}

// Close implements operator.Committer.
func (c *committer) Close() error { return nil }
