package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
)

// order puts the output directory in order when a job starts: it refuses or removes parts that the job does not know,
// and removes what earlier attempts left unfinished.
type order struct {
	disk  disk
	dir   string
	c     operator.SinkContext
	known state // Of the restored checkpoint; empty at a fresh start.
}

// plan is what order found.
type plan struct {
	foreign []string // Visible parts that the restored state does not know.
	jobs    map[job.ID]bool
	redo    []string // Visible parts of this job's own earlier attempts, which starts over without a checkpoint.
	pending []string // Hidden files of this job and its ancestors that will never be committed.
	others  []string // Hidden parts of other jobs.
}

func (o *order) run(ctx context.Context) error {
	names, err := o.disk.List(o.dir)
	if err != nil {
		return o.external(err)
	}
	p, err := o.sort(names)
	if err != nil {
		return err
	}
	remove := append(p.pending, p.redo...)
	if len(p.redo) > 0 {
		o.c.Log.Warn(fmt.Sprintf("%s: %d parts of an earlier attempt that had no checkpoint are removed: the job starts over", o.dir, len(p.redo)))
	}
	if len(p.foreign) > 0 {
		if err := o.refuse(p); err != nil {
			return err
		}
		remove = append(remove, p.foreign...)
		remove = append(remove, p.others...)
		o.c.Log.Warn(fmt.Sprintf("%s: %d parts of other jobs are removed (overwrite)", o.dir, len(p.foreign)))
	} else if len(p.others) > 0 {
		o.c.Log.Info(fmt.Sprintf("%s has %d unfinished parts of other jobs, which stay", o.dir, len(p.others)))
	}
	for _, name := range remove {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := o.disk.Remove(filepath.Join(o.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return o.external(err)
		}
	}
	if len(remove) > 0 {
		if err := o.disk.SyncDir(o.dir); err != nil {
			return o.external(err)
		}
	}
	return nil
}

// refuse is nil if the job may overwrite. Not when it was running already: then somebody else writes here now.
func (o *order) refuse(p plan) error {
	if o.c.Overwrite && (!o.known.has(o.c.Run.Job) || p.jobs[o.c.Run.Job]) {
		return nil
	}
	if o.c.Overwrite {
		return job.Errorf(job.ClassRefused, "output directory %s has %d parts of another job, which wrote there while this one was running: give each job a directory of its own",
			o.dir, len(p.foreign))
	}
	return job.Errorf(job.ClassRefused, "output directory %s has %d parts that this job does not know (such as %s): remove them with --overwrite, or give another directory",
		o.dir, len(p.foreign), p.foreign[0])
}

// sort looks at the names in the directory.
func (o *order) sort(names []string) (plan, error) {
	p := plan{jobs: map[job.ID]bool{}}
	listed := map[string]bool{}
	for _, raw := range o.c.Committables {
		c, err := decodeCommittable(raw)
		if err != nil {
			return p, err
		}
		listed[c.From], listed[c.To] = true, true
	}
	for _, name := range names {
		if listed[name] {
			continue
		}
		if v, ok := parseFinal(name); ok {
			switch {
			case !o.c.Restored && v.run.Job == o.c.Run.Job && v.run.Attempt < o.c.Run.Attempt:
				p.redo = append(p.redo, name)
			case !o.known.knows(v):
				p.foreign = append(p.foreign, name)
				p.jobs[v.run.Job] = true
			}
		} else if v, ok := parseHidden(name); ok {
			switch {
			case !o.past(v.run):
				if v.run.Job != o.c.Run.Job {
					p.others = append(p.others, name)
				}
			case v.sink == escapeSink(o.c.Name) || v.sink == escapeSink(o.known.Sink):
				p.pending = append(p.pending, name)
			}
		} else if run, ok := parseProbe(name); ok && o.past(run) {
			p.pending = append(p.pending, name)
		}
	}
	return p, nil
}

// past tells whether run is an earlier attempt of this job, or one of a job that it goes on from.
func (o *order) past(run job.Run) bool {
	if run.Job == o.c.Run.Job {
		return run.Attempt < o.c.Run.Attempt
	}
	return o.known.has(run.Job)
}

func (o *order) external(err error) error {
	return job.Errorf(job.ClassExternal, "put the output directory in order: %w", err)
}
