package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/cairnstream/cairn/connector/pace"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
)

// readBytes is about how much a Read takes from the file before it returns, so that a barrier never waits for long:
// a millisecond or two of decompression.
const readBytes = 1 << 20

// reader reads one split.
type reader[T any] struct {
	source *Source[T]
	body   splitBody
	file   inputFile
	stream io.ReadCloser // file, decompressed from its beginning; or a section of it.
	lines  lines
	line   int64 // Number of the line at lines.off, or 0.
	to     step
	toSkip int64 // For skipping: bytes left.
	decode func(line []byte, v *T) error
	header bool  // The next record is the header.
	behind int64 // Where the header ends, when it was read by itself.
	gate   *pace.Gate
	leave  func()
	closed bool
	failed error // Reading cannot go on.
}

// step is what the reader does with what comes next.
type step int

const (
	reading  step = iota
	skipping      // To the position in a compressed stream.
	aligning      // To the first line that begins in the split.
	dropping      // The rest of a line that is too long.
)

// newReader opens f at the position of body. It reads little, and takes f over if there is no error.
func (s Source[T]) newReader(ctx context.Context, c operator.SourceContext, body splitBody, f inputFile) (*reader[T], error) {
	info, err := f.Stat()
	if err != nil {
		return nil, job.Errorf(job.ClassExternal, "look at input: %w", err)
	}
	if err := body.checkUnchanged(f, info.Size()); err != nil {
		return nil, err
	}
	r := &reader[T]{source: &s, body: body, file: f, line: body.Line}
	quoted := s.Format == CSV && !s.CSV.OneLine
	limit := s.MaxLine
	if limit == 0 {
		limit = DefaultMaxLine
	}
	from := int64(0)
	switch {
	case body.Compression != None.String():
		r.to, r.toSkip = skipping, body.Next
	case body.Drop:
		from, r.to = body.Next, dropping
	case body.Next > 0:
		// From the byte before: a line begins at Next if that is a line break, else behind the next one.
		from = body.Next - 1
		r.to = aligning
	}
	if r.stream, err = decompress(f, body, from); err != nil {
		return nil, r.external(err)
	}
	r.lines = newLines(r.stream, from, quoted, limit)
	if err := r.setDecoder(); err != nil {
		r.stream.Close()
		return nil, err
	}
	r.gate, r.leave = pace.Join(ctx, c.Name, pace.Share(s.Rate, c.Parallelism, body.Of), c.Now, c.Wake)
	return r, nil
}

// decompress gives the content of f from byte from on; compressed files from their beginning.
func decompress(f inputFile, body splitBody, from int64) (io.ReadCloser, error) {
	section := io.NewSectionReader(f, from, body.Size-from)
	switch body.Compression {
	case Gzip.String():
		return gzip.NewReader(section)
	case Zstd.String():
		d, err := zstd.NewReader(section, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return d.IOReadCloser(), nil
	}
	return io.NopCloser(section), nil
}

// setDecoder says how a record becomes a T. It reads the header if the position is behind it.
func (r *reader[T]) setDecoder() error {
	s := r.source
	if s.Format == NDJSON {
		if r.decode = s.Decode; r.decode == nil {
			r.decode = func(line []byte, v *T) error { return json.Unmarshal(line, v) }
		}
		return nil
	}
	if s.CSV.NoHeader {
		return r.setColumns(s.CSV.Columns)
	}
	if r.body.Next == 0 {
		r.header = true
		return nil
	}
	names, err := r.readHeader()
	if err != nil {
		return err
	}
	return r.setColumns(names)
}

// setColumns makes the decoder of CSV; nil names are those of T.
func (r *reader[T]) setColumns(names []string) error {
	fields := fieldSplitter{comma: r.source.CSV.comma()}
	if custom := r.source.DecodeFields; custom != nil {
		r.decode = func(record []byte, v *T) error {
			list, err := fields.split(record)
			if err != nil {
				return err
			}
			return custom(list, v)
		}
		return nil
	}
	columns, err := columnsOf(reflect.TypeFor[T]())
	if err != nil {
		return job.Errorf(job.ClassRefused, "%w", err)
	}
	if names == nil {
		for _, c := range columns {
			names = append(names, c.name)
		}
	}
	binding, err := bind(columns, names)
	if err != nil {
		return job.Errorf(job.ClassRefused, "%s: %w", r.body.Path, err)
	}
	r.decode = func(record []byte, v *T) error {
		list, err := fields.split(record)
		if err != nil {
			return err
		}
		return binding.decode(list, reflect.ValueOf(v).Elem())
	}
	return nil
}

// readHeader reads the file's first record by a way of its own.
func (r *reader[T]) readHeader() ([]string, error) {
	stream, err := decompress(r.file, r.body, 0)
	if err != nil {
		return nil, r.external(err)
	}
	defer stream.Close()
	l := newLines(stream, 0, r.lines.quoted, r.lines.max)
	for {
		record, ok, err := l.take()
		switch {
		case err != nil:
			return nil, r.recordError(l.buf[l.r:min(l.w, l.r+shownBytes)], 0, 1, r.tooLong())
		case ok && len(cutBOM(record)) > 0:
			r.behind = l.off
			return r.parseHeader(record)
		case ok:
			continue
		case l.eof:
			return nil, r.external(errors.New("the header is gone"))
		}
		if _, err := l.fill(); err != nil {
			return nil, r.external(err)
		}
	}
}

func (r *reader[T]) parseHeader(record []byte) ([]string, error) {
	splitter := fieldSplitter{comma: r.source.CSV.comma()}
	fields, err := splitter.split(cutBOM(record))
	if err != nil {
		return nil, r.recordError(record, 0, 1, fmt.Errorf("header: %w", err))
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = string(f)
	}
	return names, nil
}

var bom = []byte("\xef\xbb\xbf")

func cutBOM(record []byte) []byte {
	if len(record) >= len(bom) && string(record[:len(bom)]) == string(bom) {
		return record[len(bom):]
	}
	return record
}

// Read implements operator.SplitReader.
func (r *reader[T]) Read(b *record.Batch[T], limit int) (operator.ReadStatus, error) {
	if r.failed != nil {
		return operator.ReadEnd, r.failed
	}
	take := r.gate.Take(limit)
	if take == 0 && limit > 0 {
		return operator.ReadWait, nil
	}
	before := len(b.Rows)
	status, err := r.read(b, before+take)
	r.gate.Return(take - (len(b.Rows) - before))
	return status, err
}

// read appends rows to b until it has full of them, or enough bytes were read, or the split is exhausted.
func (r *reader[T]) read(b *record.Batch[T], full int) (operator.ReadStatus, error) {
	bytesRead := 0
	for {
		progress, end, err := r.step(b, full)
		switch {
		case err != nil:
			return operator.ReadMore, err
		case end:
			return operator.ReadEnd, nil
		case progress && len(b.Rows) >= full:
			return operator.ReadMore, nil
		case progress:
			continue
		case bytesRead >= readBytes:
			return operator.ReadMore, nil
		}
		n, err := r.lines.fill()
		bytesRead += n
		if err == nil && r.lines.eof {
			err = r.checkEnd()
		}
		if err != nil {
			r.failed = r.external(err)
			return operator.ReadEnd, r.failed
		}
	}
}

// step uses what is in the buffer. It says whether it got anywhere, and whether the split is exhausted.
func (r *reader[T]) step(b *record.Batch[T], full int) (progress, end bool, err error) {
	switch r.to {
	case skipping:
		r.toSkip -= r.lines.skip(r.toSkip)
		if r.toSkip > 0 {
			if r.lines.atEnd() {
				r.failed = r.external(fmt.Errorf("it ends %d bytes before the position that it was read to", r.toSkip))
				return false, true, r.failed
			}
			return false, false, nil
		}
		r.to = reading
		if r.body.Drop {
			r.to = dropping
		}
		return true, false, nil
	case aligning, dropping:
		if !r.lines.drop() {
			return false, false, nil
		}
		if r.to == aligning && r.body.Next > r.body.Start && r.lines.dropped > 1 {
			r.failed = job.Errorf(job.ClassExternal, "%s changed since the job started to read it: no line begins at byte %d any more", r.body.Path, r.body.Next)
			return false, true, r.failed
		}
		r.lines.dropped = 0
		r.to = reading
		return true, false, nil
	}
	return r.take(b, full)
}

// take appends the records that are whole in the buffer.
func (r *reader[T]) take(b *record.Batch[T], full int) (progress, end bool, err error) {
	for len(b.Rows) < full {
		off, line := r.lines.off, r.line
		if r.body.Compression == None.String() && off >= r.body.End {
			return true, true, nil
		}
		text, ok, err := r.lines.take()
		if err != nil {
			return true, false, r.giveUp(off, line)
		}
		if !ok {
			return false, r.lines.atEnd(), nil
		}
		if line > 0 {
			r.line += int64(r.lines.breaks)
		}
		if off == 0 {
			text = cutBOM(text)
		}
		if off < r.behind || blank(text, r.source.Format) {
			continue
		}
		if r.header {
			if err := r.takeHeader(text); err != nil {
				return true, false, err
			}
			continue
		}
		if err := r.append(b, text); err != nil {
			return true, false, r.recordError(text, off, line, err)
		}
	}
	return true, false, nil
}

func (r *reader[T]) takeHeader(text []byte) error {
	names, err := r.parseHeader(text)
	if err == nil {
		err = r.setColumns(names)
	}
	r.header = false
	r.failed = err
	return err
}

func (r *reader[T]) append(b *record.Batch[T], text []byte) error {
	var zero T
	b.Rows = append(b.Rows, zero)
	last := len(b.Rows) - 1
	if err := r.decode(text, &b.Rows[last]); err != nil {
		b.Rows[last] = zero
		b.Rows = b.Rows[:last]
		return err
	}
	return nil
}

// giveUp is the error of a record that is too long. The rest of its line is left out, if it is clear where it ends.
func (r *reader[T]) giveUp(off, line int64) error {
	text := r.lines.buf[r.lines.r:r.lines.w]
	err := r.recordError(text[:min(len(text), shownBytes)], off, line, r.tooLong())
	if r.lines.quoted {
		r.failed = err
		return err
	}
	if r.line > 0 {
		r.line++
	}
	r.to = dropping
	return err
}

func (r *reader[T]) tooLong() error {
	hint := ""
	if r.lines.quoted {
		hint = `; is a quote (") not closed?`
	}
	return fmt.Errorf("longer than the limit of %d bytes (MaxLine)%s", r.lines.max, hint)
}

func (r *reader[T]) recordError(text []byte, off, line int64, err error) error {
	e := &RecordError{Path: r.body.Path, Line: line, Offset: off, Record: append([]byte(nil), text...), Err: err}
	return e.classified()
}

// checkEnd makes sure that the stream did not end before the file's recorded size.
func (r *reader[T]) checkEnd() error {
	got := r.lines.off + int64(r.lines.w-r.lines.r)
	if r.body.Compression == None.String() && got < r.body.Size {
		return fmt.Errorf("it shrank while it was read: it had %d bytes and ends behind %d", r.body.Size, got)
	}
	return nil
}

// external is an error of the file: what the operating system says may pass, what the decompressor says comes again.
func (r *reader[T]) external(err error) error {
	var system *fs.PathError
	if r.body.Compression != None.String() && !errors.As(err, &system) {
		return job.Errorf(job.ClassRecord, "%s: byte %d of its content: it is damaged or incomplete: %w", r.body.Path, r.lines.off, err)
	}
	return job.Errorf(job.ClassExternal, "read %s: %w", r.body.Path, err)
}

// blank tells whether text is no record: for JSON white space, for CSV nothing at all.
func blank(text []byte, f Format) bool {
	if f == CSV {
		return len(text) == 0
	}
	for _, c := range text {
		if c > ' ' || c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}

// Position implements operator.SplitReader.
func (r *reader[T]) Position() operator.Split {
	b := r.body
	if r.to == reading || r.to == dropping { // Until then nothing was read.
		b.Next, b.Line, b.Drop = r.lines.off, r.line, r.to == dropping
	}
	return b.split()
}

// Close implements operator.SplitReader.
func (r *reader[T]) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	r.leave()
	return errors.Join(r.stream.Close(), r.file.Close())
}
