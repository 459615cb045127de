package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/cairnstream/cairn/connector/pace"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
)

// Defaults of Source.
const (
	DefaultSplitSize = 32 << 20
	DefaultMaxLine   = 16 << 20
)

// Source reads the files that are there when the job starts. What is in them must not change while the job lives;
// plain files may grow, and what is added is not read.
type Source[T any] struct {
	// Paths are files and patterns as in filepath.Match. They are read in this order, the matches of a pattern in
	// lexical order, and a file that several of them name once.
	Paths []string
	// Format is NDJSON or CSV.
	Format Format
	// Decode decodes a line of NDJSON into *v, which is zero. The line is only valid during the call. Nil is
	// encoding/json, which leaves out fields that T does not have.
	Decode func(line []byte, v *T) error
	// DecodeFields decodes a record of CSV, its fields in the order of the file, into *v, which is zero. The fields
	// are only valid during the call. Nil sets the fields of the struct T by the names in the header.
	DecodeFields func(fields [][]byte, v *T) error
	// CSV has details of the format CSV.
	CSV CSVOptions
	// Compression is by the file's name unless it is set.
	Compression Compression
	// SplitSize is how many bytes of a file are read by one reader, in bytes; 0 is 32 MiB: large enough to make the
	// cost of a split vanish, small enough to spread a few files over many subtasks. Compressed files, and CSV
	// without CSV.OneLine, are read whole by one reader.
	SplitSize int64
	// MaxLine is the length of the longest record, in bytes; 0 is 16 MiB. A longer one is an error.
	MaxLine int
	// InOrder says that the files follow each other in event time, and so do the parts of a file, so that a file that
	// is not yet read does not hold the watermark back.
	InOrder bool
	// Rate is the number of records per second over all subtasks; 0 is no limit.
	Rate float64

	open func(path string) (inputFile, error) // Nil is the operating system's.
}

// inputFile is an open file.
type inputFile interface {
	io.Reader
	io.ReaderAt
	io.Closer
	Stat() (fs.FileInfo, error)
}

// Validate implements operator.Source.
func (s Source[T]) Validate() error {
	var errs []error
	problem := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(s.Paths) == 0 {
		problem("Paths names no file")
	}
	for _, p := range s.Paths {
		if _, err := filepath.Match(p, ""); err != nil {
			problem("Paths: %q is not a pattern: %w", p, err)
		}
		switch {
		case p == "":
			problem("Paths: an empty path")
		case strings.Contains(p, "**"):
			problem("Paths: %q: ** is not supported; name each level of directories with a *", p)
		}
	}
	if err := s.Format.validate(); err != nil {
		errs = append(errs, err)
	}
	if s.Compression < Auto || s.Compression > Zstd {
		problem("Compression is %v; it is Auto, None, Gzip or Zstd", s.Compression)
	}
	if s.SplitSize < 0 {
		problem("SplitSize is %d; it is a number of bytes, or 0 for %d", s.SplitSize, DefaultSplitSize)
	}
	if s.MaxLine < 0 {
		problem("MaxLine is %d; it is a number of bytes, or 0 for %d", s.MaxLine, DefaultMaxLine)
	}
	if err := pace.Validate(s.Rate); err != nil {
		problem("Rate: %w", err)
	}
	return errors.Join(append(errs, s.validateFormat()...)...)
}

func (s Source[T]) validateFormat() (errs []error) {
	if s.Format != CSV {
		if s.DecodeFields != nil {
			errs = append(errs, errors.New("DecodeFields is for the format CSV; use Decode"))
		}
		return errs
	}
	if s.Decode != nil {
		errs = append(errs, errors.New("Decode is for the format NDJSON; use DecodeFields"))
	}
	if err := s.CSV.validate(); err != nil {
		errs = append(errs, err)
	}
	if s.DecodeFields == nil {
		columns, err := columnsOf(reflect.TypeFor[T]())
		if err == nil && s.CSV.NoHeader && s.CSV.Columns != nil {
			_, err = bind(columns, s.CSV.Columns)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if !s.CSV.NoHeader && s.CSV.Columns != nil {
		errs = append(errs, errors.New("CSV.Columns is for files without a header; set CSV.NoHeader"))
	}
	return errs
}

// Bounded implements operator.Source.
func (s Source[T]) Bounded() bool { return true }

// SplitsInOrder implements operator.InOrder.
func (s Source[T]) SplitsInOrder() bool { return s.InOrder }

// Splits implements operator.Source. The list depends on nothing but the files and the source's own settings.
func (s Source[T]) Splits(ctx context.Context, _ operator.SourceContext) ([]operator.Split, error) {
	files, err := s.files()
	if err != nil {
		return nil, err
	}
	var bodies []splitBody
	for _, path := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		body, err := s.inspect(path)
		if err != nil {
			return nil, err
		}
		bodies = append(bodies, s.cut(body)...)
	}
	splits := make([]operator.Split, len(bodies))
	for i, b := range bodies {
		b.Of = len(bodies)
		splits[i] = b.split()
	}
	return splits, nil
}

// files resolves the patterns.
func (s Source[T]) files() ([]string, error) {
	var list []string
	seen := map[string]bool{}
	for _, pattern := range s.Paths {
		matches, err := match(pattern)
		if err != nil {
			return nil, err
		}
		for _, m := range matches {
			path, err := filepath.Abs(m)
			if err != nil {
				return nil, job.Errorf(job.ClassExternal, "resolve %s: %w", m, err)
			}
			if !seen[path] {
				seen[path] = true
				list = append(list, path)
			}
		}
	}
	if len(list) == 0 {
		return nil, job.Errorf(job.ClassRefused, "no file matches %q", s.Paths)
	}
	return list, nil
}

// match lists what a pattern names, sorted. A path without special characters is taken as it is, so that the reason
// why it cannot be opened comes to light; so is a file whose name happens to look like a pattern.
func match(pattern string) ([]string, error) {
	if _, err := os.Lstat(pattern); err == nil {
		return []string{pattern}, nil
	} else if !strings.ContainsAny(pattern, `*?[\`) {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, job.Errorf(job.ClassExternal, "look for input: %w", err)
	}
	list, err := filepath.Glob(pattern)
	if err != nil {
		return nil, job.Errorf(job.ClassRefused, "pattern %q: %w", pattern, err)
	}
	if len(list) == 0 { // Glob keeps quiet about directories that it may not read.
		dir := filepath.Dir(pattern)
		for strings.ContainsAny(dir, `*?[\`) {
			dir = filepath.Dir(dir)
		}
		if _, err := os.ReadDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, job.Errorf(job.ClassExternal, "look for %s: %w", pattern, err)
		}
	}
	return list, nil
}

func (s Source[T]) openFile(path string) (inputFile, error) {
	open := s.open
	if open == nil {
		open = func(path string) (inputFile, error) { return os.Open(path) }
	}
	f, err := open(path)
	if err != nil {
		return nil, job.Errorf(job.ClassExternal, "open input: %w", err)
	}
	return f, nil
}

// inspect describes all of a file as one split.
func (s Source[T]) inspect(path string) (splitBody, error) {
	if err := checkPath(path); err != nil {
		return splitBody{}, err
	}
	// Before opening, which would block at a pipe.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		if info.IsDir() {
			return splitBody{}, job.Errorf(job.ClassExternal, "%s is a directory; its files are %s", path, filepath.Join(path, "*"))
		}
		return splitBody{}, job.Errorf(job.ClassExternal, "%s is not a regular file", path)
	}
	f, err := s.openFile(path)
	if err != nil {
		return splitBody{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return splitBody{}, job.Errorf(job.ClassExternal, "look at input: %w", err)
	}
	sum, err := fingerprint(f, info.Size())
	if err != nil {
		return splitBody{}, job.Errorf(job.ClassExternal, "read %s: %w", path, err)
	}
	return splitBody{
		V: splitVersion, Path: path, Format: s.Format.String(), Compression: s.Compression.of(path).String(),
		Size: info.Size(), Print: sum, End: info.Size(), Line: 1,
	}, nil
}

// cut makes splits of a file; of an empty one none.
func (s Source[T]) cut(b splitBody) []splitBody {
	size := s.SplitSize
	if size == 0 {
		size = DefaultSplitSize
	}
	switch {
	case b.Size == 0:
		return nil
	case b.Compression != None.String(), s.Format == CSV && !s.CSV.OneLine, b.Size <= size:
		return []splitBody{b}
	}
	var list []splitBody
	for start := int64(0); start < b.Size; start += min(size, b.Size-start) {
		part := b
		part.Start, part.Next = start, start
		part.End = start + min(size, b.Size-start)
		if start > 0 {
			part.Line = 0
		}
		list = append(list, part)
	}
	return list
}

// Open implements operator.Source.
func (s Source[T]) Open(ctx context.Context, c operator.SourceContext, split operator.Split) (operator.SplitReader[T], error) {
	body, err := decodeSplit(split.Body)
	if err != nil {
		return nil, err
	}
	if want := s.Format.String(); body.Format != want {
		return nil, job.Errorf(job.ClassRefused, "split %s was of format %s when the job started; now the source's is %s", split.ID, body.Format, want)
	}
	f, err := s.openFile(body.Path)
	if err != nil {
		return nil, err
	}
	r, err := s.newReader(ctx, c, body, f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}
