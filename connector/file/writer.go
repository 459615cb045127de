package file

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

const writeBuffer = 128 << 10

// rowWriter encodes rows into the parts of a writer.
type rowWriter[T any] struct {
	*writer
	append func(dst []byte, v *T) ([]byte, error)
}

// writer writes the parts of one subtask. After an error of the file system it does nothing more: what an fsync that
// failed left behind is not known, so the part is given up with the attempt.
type writer struct {
	disk    disk
	dir     string
	format  Format
	limit   int64  // Size of a part; 0 is none.
	header  []byte // First line of every part, or nil.
	probe   *probe
	run     job.Run
	subtask int
	state   state

	buf    []byte
	open   *openPart
	done   []finished // Complete and durable as files, not yet prepared.
	seq    int
	failed error
	closed bool
}

// openPart is the part being written.
type openPart struct {
	part part
	file outputFile
	hash *xxh3.Hasher
	size int64 // Written to file; more is in the writer's buffer.
	rows int64
}

type finished struct {
	part part
	size int64
	rows int64
	hash string
}

// Write implements operator.Writer.
func (w rowWriter[T]) Write(b *record.Batch[T]) error {
	if w.failed != nil {
		return w.failed
	}
	if b.Sel == nil {
		for i := range b.Rows {
			if err := w.row(&b.Rows[i]); err != nil {
				return err
			}
		}
		return nil
	}
	for _, i := range b.Sel {
		if err := w.row(&b.Rows[i]); err != nil {
			return err
		}
	}
	return nil
}

func (w rowWriter[T]) row(v *T) error {
	if w.open == nil {
		if err := w.begin(); err != nil {
			return err
		}
	}
	buf, err := w.append(w.buf, v)
	if err != nil {
		return job.Errorf(job.ClassRecord, "encode a row as %v: %w", w.format, err)
	}
	w.writer.buf = buf
	if w.open.rows++; len(w.buf) < writeBuffer && w.limit == 0 {
		return nil
	}
	return w.grown()
}

// grown writes what is in the buffer, and completes the part, when it is time.
func (w *writer) grown() error {
	if len(w.buf) >= writeBuffer {
		if err := w.flush(); err != nil {
			return w.fail(err)
		}
	}
	if w.limit > 0 && w.open.size+int64(len(w.buf)) >= w.limit {
		if err := w.finish(); err != nil {
			return w.fail(err)
		}
	}
	return nil
}

// begin opens a part.
func (w *writer) begin() error {
	if err := w.probe.check(); err != nil {
		return w.fail(err)
	}
	p := part{run: w.run, subtask: w.subtask, seq: w.seq, sink: escapeSink(w.state.Sink), ext: w.format.String()}
	f, err := w.disk.Create(w.path(p.hidden()))
	if err != nil {
		return w.fail(err)
	}
	w.seq++
	w.open = &openPart{part: p, file: f, hash: newHash()}
	w.buf = append(w.buf[:0], w.header...)
	return nil
}

func (w *writer) path(name string) string { return filepath.Join(w.dir, name) }

func (w *writer) flush() error {
	n, err := w.open.file.Write(w.buf)
	if err == nil && n != len(w.buf) {
		err = fmt.Errorf("write %s: %d bytes of %d were written", w.open.part.hidden(), n, len(w.buf))
	}
	if err != nil {
		return err
	}
	w.open.hash.Write(w.buf)
	w.open.size += int64(n)
	w.buf = w.buf[:0]
	return nil
}

// finish completes the open part. A part without rows, whose only one could not be encoded, is taken back.
func (w *writer) finish() error {
	o := w.open
	if o.rows == 0 {
		return w.abandon()
	}
	if err := w.flush(); err != nil {
		return err
	}
	if err := o.file.Sync(); err != nil {
		return err
	}
	if err := o.file.Close(); err != nil {
		return err
	}
	w.done = append(w.done, finished{part: o.part, size: o.size, rows: o.rows, hash: fmt.Sprintf("%016x", o.hash.Sum64())})
	w.open = nil
	return nil
}

func (w *writer) abandon() error {
	o := w.open
	w.open, w.buf = nil, w.buf[:0]
	return errors.Join(o.file.Close(), w.remove(o.part.hidden()))
}

func (w *writer) remove(name string) error {
	err := w.disk.Remove(w.path(name))
	if errors.Is(err, fs.ErrNotExist) { // A later attempt was here already.
		return nil
	}
	return err
}

// Prepare implements operator.Writer.
func (w *writer) Prepare(id job.CheckpointID) ([][]byte, error) {
	if w.failed != nil {
		return nil, w.failed
	}
	list, err := w.prepare(id)
	if err != nil {
		return nil, w.fail(err)
	}
	w.state.Known = raise(w.state.Known, bound{Job: w.run.Job, Checkpoint: id})
	return list, nil
}

func (w *writer) prepare(id job.CheckpointID) ([][]byte, error) {
	if w.open != nil {
		if err := w.finish(); err != nil {
			return nil, err
		}
	}
	if len(w.done) == 0 {
		return nil, nil
	}
	if err := w.disk.SyncDir(w.dir); err != nil {
		return nil, err
	}
	list := make([][]byte, 0, len(w.done))
	for _, f := range w.done {
		f.part.checkpoint = id
		raw, err := encode(committable{
			V: sinkVersion, Kind: committableKind, Dir: w.dir, From: f.part.hidden(), To: f.part.final(),
			Size: f.size, Hash: f.hash, Rows: f.rows,
		})
		if err != nil {
			return nil, err
		}
		list = append(list, raw)
	}
	w.done = nil
	return list, nil
}

// State implements operator.Writer.
func (w *writer) State() ([]byte, error) { return encode(w.state) }

// Close implements operator.Writer.
func (w *writer) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	w.failed = errors.New("the writer is closed")
	var errs []error
	if w.open != nil {
		errs = append(errs, w.abandon())
	}
	for _, f := range w.done {
		errs = append(errs, w.remove(f.part.hidden()))
	}
	w.done = nil
	w.probe.close()
	if err := errors.Join(errs...); err != nil {
		return job.Errorf(job.ClassExternal, "drop output that is not prepared: %w", err)
	}
	return nil
}

func (w *writer) fail(err error) error {
	w.failed = job.Errorf(job.ClassExternal, "write output: %w", err)
	return w.failed
}

func newHash() *xxh3.Hasher { return xxh3.New() }
