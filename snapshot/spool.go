package snapshot

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
)

// spool collects the bytes of an object until their number is known: in memory up to a limit, beyond it in a
// temporary file, which has no name, so that nothing is left of it when the process dies.
type spool struct {
	limit int
	dir   string
	mem   []byte
	file  *os.File
	size  int64
}

// Buffers of that size and more are kept for the next snapshot.
var spoolBuffers sync.Pool

func newSpool(limit int, dir string) *spool {
	s := &spool{limit: limit, dir: dir}
	if b, ok := spoolBuffers.Get().(*[]byte); ok {
		s.mem = (*b)[:0]
	}
	return s
}

func (s *spool) Write(p []byte) (int, error) {
	if s.file == nil && len(s.mem)+len(p) <= s.limit {
		s.mem = append(s.mem, p...)
		s.size += int64(len(p))
		return len(p), nil
	}
	if s.file == nil {
		if err := s.toFile(); err != nil {
			return 0, err
		}
	}
	n, err := s.file.WriteAt(p, s.size)
	s.size += int64(n)
	if err != nil {
		err = fmt.Errorf("spool a snapshot in %s: %w", s.file.Name(), err)
	}
	return n, err
}

func (s *spool) toFile() error {
	f, err := os.CreateTemp(s.dir, "cairn-spool-")
	if err != nil {
		return fmt.Errorf("spool a snapshot: %w", err)
	}
	_ = os.Remove(f.Name()) // Where a file in use cannot be removed, Close does it.
	if _, err := f.WriteAt(s.mem, 0); err != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
		return fmt.Errorf("spool a snapshot in %s: %w", f.Name(), err)
	}
	s.file = f
	s.keep()
	return nil
}

// truncate drops what was written from size on.
func (s *spool) truncate(size int64) {
	if s.file == nil {
		s.mem = s.mem[:size]
	}
	s.size = size // Of a file the rest is written over, or not read.
}

// body is all of it, in the form that stores read without a copy.
func (s *spool) body() io.Reader {
	if s.file == nil {
		return bytes.NewReader(s.mem)
	}
	return io.NewSectionReader(s.file, 0, s.size)
}

func (s *spool) close() {
	s.keep()
	if s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name())
		s.file = nil
	}
}

func (s *spool) keep() {
	if cap(s.mem) > 0 {
		b := s.mem[:0]
		spoolBuffers.Put(&b)
	}
	s.mem = nil
}
