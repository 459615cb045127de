package file

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"

	"go.uber.org/zap"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
)

// Sink writes files into a directory, exactly once: records become visible with the checkpoint that holds them, as
// parts named part-JOB-CHECKPOINT-SUBTASK-ATTEMPT-NUMBER-SINK.csv or .ndjson. Until then a part has a hidden name in
// the same directory. Files and directory are fsynced before the checkpoint counts them.
//
// The directory is on a file system that all processes of the job share. A job refuses to start in a directory with
// parts that the checkpoint it starts from does not know, unless it may overwrite; files of other names are left alone.
type Sink[T any] struct {
	// Path is the directory. It is created if need be.
	Path string
	// Format is NDJSON or CSV.
	Format Format
	// CSV has details of the format CSV.
	CSV CSVOptions
	// Encode appends a row without a line break to dst. Nil is encoding/json for NDJSON, and for CSV the fields of the
	// struct T, with a header of their names. With an Encode for CSV, which has to quote by itself, the header is
	// CSV.Columns.
	Encode func(dst []byte, v *T) ([]byte, error)
	// PartSize begins a new part when one has so many bytes; 0 is one part a subtask and checkpoint.
	PartSize int64

	disk disk // Nil is the operating system's.
}

// Validate implements operator.Sink.
func (s Sink[T]) Validate() error {
	return validateSink(s.Path, s.Format, s.CSV, s.PartSize, s.Encode != nil, reflect.TypeFor[T]())
}

func validateSink(path string, format Format, csv CSVOptions, partSize int64, encode bool, row reflect.Type) error {
	var errs []error
	if path == "" {
		errs = append(errs, errors.New("Path names no directory"))
	}
	if err := checkPath(path); err != nil {
		errs = append(errs, err)
	}
	if err := format.validate(); err != nil {
		errs = append(errs, err)
	}
	if partSize < 0 {
		errs = append(errs, fmt.Errorf("PartSize is %d; it is a number of bytes, or 0 for no limit", partSize))
	}
	if format == CSV {
		if err := csv.validate(); err != nil {
			errs = append(errs, err)
		}
		switch {
		case !encode && csv.Columns != nil:
			errs = append(errs, errors.New("CSV.Columns is for a sink with its own Encode; else the columns are the fields of the struct"))
		case !encode:
			if _, err := columnsOf(row); err != nil {
				errs = append(errs, err)
			}
		case !csv.NoHeader && len(csv.Columns) == 0:
			errs = append(errs, errors.New("CSV with its own Encode needs CSV.Columns for the header, or CSV.NoHeader"))
		}
	}
	return errors.Join(errs...)
}

// TwoPhase implements operator.Sink.
func (s Sink[T]) TwoPhase() bool { return true }

// Committer implements operator.Sink.
func (s Sink[T]) Committer(_ context.Context, c operator.SinkContext) (operator.Committer, error) {
	return &committer{disk: s.fileSystem(), attempt: c.Run.Attempt}, nil
}

func (s Sink[T]) fileSystem() disk {
	if s.disk == nil {
		return osDisk{}
	}
	return s.disk
}

// Writer implements operator.Sink. Subtask 0 puts the directory in order. It has it for itself: no task of this
// attempt runs before all writers are made, so nothing of this attempt is there to be touched; and what other subtasks
// may be committing at this moment belongs to the restored checkpoint, which subtask 0 knows and leaves alone.
func (s Sink[T]) Writer(ctx context.Context, c operator.SinkContext) (operator.Writer[T], error) {
	enc, err := s.newEncoder()
	if err != nil {
		return nil, job.Errorf(job.ClassRefused, "%w", err)
	}
	w, err := newWriter(ctx, c, s.fileSystem(), s.Path)
	if err != nil {
		return nil, err
	}
	w.format, w.limit, w.header = s.Format, s.PartSize, enc.header
	return rowWriter[T]{w, enc.append}, nil
}

// newWriter puts the directory in order and makes the writer of a subtask.
func newWriter(ctx context.Context, c operator.SinkContext, d disk, path string) (*writer, error) {
	dir, err := filepath.Abs(path)
	if err != nil {
		return nil, job.Errorf(job.ClassExternal, "resolve %s: %w", path, err)
	}
	st, err := mergeStates(c.States)
	if err != nil {
		return nil, err
	}
	if c.Restored && st.V == 0 {
		return nil, job.Errorf(job.ClassInternal, "the checkpoint has no state of the file sink %q", c.Name)
	}
	if err := d.MakeDir(dir); err != nil {
		return nil, job.Errorf(job.ClassExternal, "output directory: %w", err)
	}
	if c.Subtask == 0 {
		o := order{disk: d, dir: dir, c: c, known: st}
		if o.c.Log == nil {
			o.c.Log = zap.NewNop()
		}
		if err := o.run(ctx); err != nil {
			return nil, err
		}
	}
	p := &probe{disk: d, dir: dir, c: c}
	if err := p.write(); err != nil {
		return nil, err
	}
	known := raise(st.Known, bound{Job: c.Run.Job})
	return &writer{
		disk: d, dir: dir, probe: p,
		run: c.Run, subtask: c.Subtask,
		state: state{V: sinkVersion, Sink: c.Name, Known: known},
	}, nil
}
