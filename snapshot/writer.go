package snapshot

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// Defaults of WriterConfig.
const (
	// DefaultInlineLimit keeps the handles of a task small enough for its acknowledgement, and spares an object
	// to tasks that have little state.
	DefaultInlineLimit = 20 << 10
	// DefaultSpoolMemory is what a task's snapshot may take of memory before it is uploaded.
	DefaultSpoolMemory = 8 << 20
)

// WriterConfig describes a Writer.
type WriterConfig struct {
	Store      blob.Store
	Cluster    string
	Job        job.ID
	Checkpoint job.CheckpointID
	Attempt    job.Attempt
	Epoch      job.Epoch // Of the leader that triggered the checkpoint.
	Task       job.Task

	// Object is the key of the object in place of the one that a checkpoint's has: for savepoints, which may be anywhere.
	Object string

	InlineLimit int    // Most bytes of all inline sections together. Zero: DefaultInlineLimit; negative: none.
	SpoolMemory int    // Bytes kept in memory; what is more goes to a temporary file. Zero: DefaultSpoolMemory.
	TempDir     string // For that file. Empty: the system's.
}

// Writer collects what one task has in one checkpoint, over all operators of its chain, and stores it as one
// object, or none if little enough for the handles themselves. One goroutine at a time uses it: Operator(...)
// and its sections, then Finish, and Close in any case.
type Writer struct {
	c        WriterConfig
	key      string
	spool    *spool
	inline   int // Bytes left.
	sections []Section
	bytes    int64
	upload   time.Duration
	stored   bool
	failed   error
	mu       struct { // Of objects of their own.
		sync.Mutex
		objects int
		bytes   int64
		upload  time.Duration
	}
}

// NewWriter makes a Writer. Nothing is stored before Finish.
func NewWriter(c WriterConfig) (*Writer, error) {
	if c.InlineLimit == 0 {
		c.InlineLimit = DefaultInlineLimit
	}
	if c.SpoolMemory == 0 {
		c.SpoolMemory = DefaultSpoolMemory
	}
	if c.Object == "" {
		c.Object = objectKey(c)
	}
	w := &Writer{c: c, key: c.Object, inline: max(c.InlineLimit, 0)}
	if err := blob.CheckKey(w.key); err != nil {
		return nil, fmt.Errorf("snapshot of %v for checkpoint %v: %w", c.Task, c.Checkpoint, err)
	}
	w.spool = newSpool(c.SpoolMemory, c.TempDir)
	head, err := objectHeader(ObjectInfo{c.Job, c.Checkpoint, c.Attempt, c.Epoch, c.Task.Vertex, c.Task.Subtask})
	if err == nil {
		_, err = w.spool.Write(head)
	}
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("snapshot of %v for checkpoint %v: %w", c.Task, c.Checkpoint, err)
	}
	return w, nil
}

// Operator gives the part of one operator.
func (w *Writer) Operator(name string) *OperatorWriter { return &OperatorWriter{w, name} }

// Object is the key of the object, whether or not there will be one. It is what to release if the checkpoint
// is given up.
func (w *Writer) Object() string { return w.key }

// Bytes is the size of all sections and objects so far, inline ones included.
func (w *Writer) Bytes() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes + w.mu.bytes
}

// Uploading is how long the store has taken so far.
func (w *Writer) Uploading() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.upload + w.mu.upload
}

// Finish stores the object, if any section is not inline. The handles are good only after it succeeded. After
// an error it may be called again.
func (w *Writer) Finish(ctx context.Context) error {
	fail := func(err error) error {
		return fmt.Errorf("snapshot of %v for checkpoint %v: %w", w.c.Task, w.c.Checkpoint, err)
	}
	switch {
	case w.failed != nil:
		return fail(w.failed)
	case w.spool == nil:
		return fail(errors.New("the writer is closed"))
	case w.stored || len(w.sections) == 0:
		return nil
	}
	size := w.spool.size
	trailer, err := objectTrailer(w.sections)
	if err == nil {
		_, err = w.spool.Write(trailer)
	}
	if err == nil {
		start := time.Now()
		err = w.c.Store.Put(ctx, w.key, w.spool.body(), w.spool.size)
		w.upload += time.Since(start)
	}
	if err != nil {
		w.spool.truncate(size)
		return fail(err)
	}
	w.stored = true
	return nil
}

// Close drops the buffers. It does not remove a stored object: see Store.Release.
func (w *Writer) Close() {
	if w.spool != nil {
		w.spool.close()
		w.spool = nil
	}
}

// OperatorWriter writes the sections of one operator. It is a statebackend.Writer.
type OperatorWriter struct {
	w        *Writer
	operator string
}

var _ statebackend.Writer = (*OperatorWriter)(nil)

// Section implements statebackend.Writer.
func (o *OperatorWriter) Section(ctx context.Context, state string, fill func(io.Writer) error) (job.StateHandle, error) {
	w := o.w
	switch {
	case w.spool == nil:
		return job.StateHandle{}, errors.New("snapshot writer is closed")
	case w.failed != nil:
		return job.StateHandle{}, w.failed
	}
	start := w.spool.size
	s := &sectionWriter{ctx: ctx, spool: w.spool, room: w.inline}
	err := fill(s)
	if err == nil {
		err = s.err
	}
	if err != nil {
		w.spool.truncate(start)
		return job.StateHandle{}, err
	}
	sum := s.hash.Sum128().Bytes()
	h := job.StateHandle{Length: s.size, Hash: hex.EncodeToString(sum[:])}
	w.bytes += s.size
	if !s.spilled && s.size > 0 {
		h.Inline = s.head
		w.inline -= len(s.head)
		return h, nil
	}
	h.Object, h.Offset = w.key, start
	w.sections = append(w.sections, Section{Operator: o.operator, State: state, Offset: start, Length: s.size, Hash: h.Hash})
	return h, nil
}

// Object implements statebackend.Writer.
func (o *OperatorWriter) Object(ctx context.Context, state string, r io.ReaderAt, n int64) (job.StateHandle, error) {
	w := o.w
	key := w.nextKey()
	fail := func(err error) (job.StateHandle, error) {
		return job.StateHandle{}, fmt.Errorf("object %s of state %q: %w", key, state, err)
	}
	var hash xxh3.Hasher
	if got, err := io.Copy(&hash, io.NewSectionReader(r, 0, n)); err != nil || got != n {
		return fail(cmp.Or(err, io.ErrUnexpectedEOF))
	}
	start := time.Now()
	if err := w.c.Store.Put(ctx, key, io.NewSectionReader(r, 0, n), n); err != nil {
		return fail(err)
	}
	sum := hash.Sum128().Bytes()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.bytes += n
	w.mu.upload += time.Since(start)
	return job.StateHandle{Object: key, Length: n, Hash: hex.EncodeToString(sum[:])}, nil
}

// nextKey is the key of the next object of its own. Like the task's object it is never used for other bytes.
func (w *Writer) nextKey() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.objects++
	return fmt.Sprintf("%s.%d", w.key, w.mu.objects)
}

// sectionWriter holds a section back while it may become an inline one.
type sectionWriter struct {
	ctx     context.Context
	spool   *spool
	room    int
	head    []byte
	spilled bool
	size    int64
	hash    xxh3.Hasher
	err     error
}

func (s *sectionWriter) Write(p []byte) (int, error) {
	if s.err == nil {
		s.err = s.ctx.Err()
	}
	if s.err != nil {
		return 0, s.err
	}
	if !s.spilled && len(s.head)+len(p) > s.room {
		if _, s.err = s.spool.Write(s.head); s.err != nil {
			return 0, s.err
		}
		s.head, s.spilled = nil, true
	}
	var n int
	if s.spilled {
		n, s.err = s.spool.Write(p)
	} else {
		s.head = append(s.head, p...)
		n = len(p)
	}
	_, _ = s.hash.Write(p[:n])
	s.size += int64(n)
	return n, s.err
}
