package nexmark

import (
	"bufio"
	"bytes"
	"container/heap"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// sorter sorts lines by their bytes. What exceeds its memory goes to temporary files, which are merged in the end.
type sorter struct {
	memory int    // Bytes of lines that are held; 0 is 64 MiB.
	dir    string // Of the temporary files; empty is the system's.

	text  []byte
	lines []span // Of text.
	runs  []*os.File
}

type span struct{ from, to int }

const sorterMemory = 64 << 20

// add takes a copy of a line, which has no line break.
func (s *sorter) add(line []byte) error {
	limit := s.memory
	if limit == 0 {
		limit = sorterMemory
	}
	if len(s.text) > 0 && len(s.text)+len(line) > limit {
		if err := s.spill(); err != nil {
			return err
		}
	}
	from := len(s.text)
	s.text = append(append(s.text, line...), '\n')
	s.lines = append(s.lines, span{from, len(s.text)})
	return nil
}

// sort orders the lines in memory, each with its line break. A line break sorts before all that a line may hold.
func (s *sorter) sort() {
	slices.SortFunc(s.lines, func(a, b span) int { return bytes.Compare(s.text[a.from:a.to], s.text[b.from:b.to]) })
}

func (s *sorter) spill() error {
	s.sort()
	f, err := os.CreateTemp(s.dir, "cairn-answer-")
	if err != nil {
		return fmt.Errorf("sort the answer: %w", err)
	}
	s.runs = append(s.runs, f)
	w := bufio.NewWriterSize(f, 1<<20)
	for _, l := range s.lines {
		if _, err := w.Write(s.text[l.from:l.to]); err != nil {
			return fmt.Errorf("sort the answer: %w", err)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("sort the answer: %w", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("sort the answer: %w", err)
	}
	s.text, s.lines = s.text[:0], s.lines[:0]
	return nil
}

// each gives the lines in order, each with its line break and valid during the call. It is called once, at the end.
func (s *sorter) each(f func(line []byte) error) error {
	s.sort()
	if len(s.runs) == 0 {
		for _, l := range s.lines {
			if err := f(s.text[l.from:l.to]); err != nil {
				return err
			}
		}
		return nil
	}
	var h runs
	next := 0
	memory := &run{next: func() ([]byte, error) {
		if next == len(s.lines) {
			return nil, io.EOF
		}
		l := s.lines[next]
		next++
		return s.text[l.from:l.to], nil
	}}
	for _, r := range append([]*run{memory}, fileRuns(s.runs)...) {
		if more, err := r.advance(); err != nil {
			return err
		} else if more {
			h = append(h, r)
		}
	}
	heap.Init(&h)
	for len(h) > 0 {
		if err := f(h[0].line); err != nil {
			return err
		}
		more, err := h[0].advance()
		if err != nil {
			return err
		}
		if more {
			heap.Fix(&h, 0)
		} else {
			heap.Pop(&h)
		}
	}
	return nil
}

// close removes the temporary files.
func (s *sorter) close() error {
	var errs []error
	for _, f := range s.runs {
		errs = append(errs, f.Close(), os.Remove(f.Name()))
	}
	s.runs = nil
	return errors.Join(errs...)
}

// run is a sorted sequence of lines, at one of them.
type run struct {
	line []byte
	next func() ([]byte, error)
}

func fileRuns(files []*os.File) []*run {
	var list []*run
	for _, f := range files {
		r := bufio.NewReaderSize(f, 1<<20) // Longer than any line.
		list = append(list, &run{next: func() ([]byte, error) { return r.ReadSlice('\n') }})
	}
	return list
}

func (r *run) advance() (more bool, err error) {
	r.line, err = r.next()
	if errors.Is(err, io.EOF) && len(r.line) == 0 {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("sort the answer: %w", err)
	}
	return true, nil
}

// runs is a heap by line.
type runs []*run

func (h runs) Len() int           { return len(h) }
func (h runs) Less(i, j int) bool { return bytes.Compare(h[i].line, h[j].line) < 0 }
func (h runs) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *runs) Push(x any)        { *h = append(*h, x.(*run)) }
func (h *runs) Pop() any {
	old := *h
	r := old[len(old)-1]
	*h = old[:len(old)-1]
	return r
}
