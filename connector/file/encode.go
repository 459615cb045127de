package file

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/cairnstream/cairn/job"
)

// encoder turns rows into text. It belongs to one writer.
type encoder[T any] struct {
	header []byte // First line of every part, or nil.
	append func(dst []byte, v *T) ([]byte, error)
}

func (s *Sink[T]) newEncoder() (encoder[T], error) {
	if s.Format == NDJSON {
		if s.Encode != nil {
			return encoder[T]{append: oneLine(s.Encode)}, nil
		}
		return encoder[T]{append: jsonLines[T]()}, nil
	}
	comma := s.CSV.comma()
	if s.Encode != nil {
		e := encoder[T]{append: withNewline(s.Encode)}
		if !s.CSV.NoHeader {
			e.header = headerLine(s.CSV.Columns, comma)
		}
		return e, nil
	}
	columns, err := columnsOf(reflect.TypeFor[T]())
	if err != nil {
		return encoder[T]{}, err
	}
	var e encoder[T]
	if !s.CSV.NoHeader {
		names := make([]string, len(columns))
		for i, c := range columns {
			names[i] = c.name
		}
		e.header = headerLine(names, comma)
	}
	e.append = func(dst []byte, v *T) ([]byte, error) {
		return appendRow(dst, columns, reflect.ValueOf(v).Elem(), comma)
	}
	return e, nil
}

func headerLine(names []string, comma byte) []byte {
	var line []byte
	for i, name := range names {
		if i > 0 {
			line = append(line, comma)
		}
		start := len(line)
		line = quoteField(append(line, name...), start, comma, len(names) == 1)
	}
	return append(line, '\n')
}

func appendRow(dst []byte, columns []column, v reflect.Value, comma byte) ([]byte, error) {
	for i := range columns {
		if i > 0 {
			dst = append(dst, comma)
		}
		start := len(dst)
		c := &columns[i]
		f := v.FieldByIndex(c.index)
		if !c.optional || !f.IsZero() {
			var err error
			if dst, err = c.append(dst, f); err != nil {
				return dst, fmt.Errorf("column %q: %w", c.name, err)
			}
		}
		dst = quoteField(dst, start, comma, len(columns) == 1)
	}
	return append(dst, '\n'), nil
}

// quoteField puts quotes around the field dst[start:] if it needs them: it holds a separator, a quote or a line break,
// or begins or ends with a blank, which some readers cut off; or it is empty and alone, since readers skip empty lines.
func quoteField(dst []byte, start int, comma byte, alone bool) []byte {
	field := dst[start:]
	quotes := 0
	need := len(field) == 0 && alone
	for _, c := range field {
		switch c {
		case '"':
			quotes++
			need = true
		case comma, '\n', '\r':
			need = true
		}
	}
	if n := len(field); !need && n > 0 {
		need = field[0] <= ' ' || field[n-1] <= ' ' || bytes.HasPrefix(field, bom)
	}
	if !need {
		return dst
	}
	from := len(dst)
	for range quotes + 2 {
		dst = append(dst, '"')
	}
	to := len(dst) - 1 // The closing quote is there.
	for from--; from >= start; from-- {
		to--
		if dst[to] = dst[from]; dst[to] == '"' {
			to--
			dst[to] = '"'
		}
	}
	dst[start] = '"'
	return dst
}

// jsonLines encodes with encoding/json through one buffer. < > & stay as they are.
func jsonLines[T any]() func([]byte, *T) ([]byte, error) {
	var w sliceWriter
	e := json.NewEncoder(&w)
	e.SetEscapeHTML(false)
	return func(dst []byte, v *T) ([]byte, error) {
		w.buf = dst
		err := e.Encode(v) // Ends the line.
		dst, w.buf = w.buf, nil
		return dst, err
	}
}

type sliceWriter struct{ buf []byte }

func (w *sliceWriter) Write(p []byte) (int, error) {
	w.buf = append(w.buf, p...)
	return len(p), nil
}

func withNewline[T any](user func([]byte, *T) ([]byte, error)) func([]byte, *T) ([]byte, error) {
	return func(dst []byte, v *T) ([]byte, error) {
		start := len(dst)
		dst, err := user(dst, v)
		if err == nil && len(dst) < start {
			return dst, job.Errorf(job.ClassUser, "Encode returned less than it was given to append to")
		}
		return append(dst, '\n'), err
	}
}

// oneLine makes sure that a row of a user's own encoding is one line.
func oneLine[T any](user func([]byte, *T) ([]byte, error)) func([]byte, *T) ([]byte, error) {
	line := withNewline(user)
	return func(dst []byte, v *T) ([]byte, error) {
		start := len(dst)
		dst, err := line(dst, v)
		if err == nil && bytes.IndexByte(dst[start:len(dst)-1], '\n') >= 0 {
			err = job.Errorf(job.ClassUser, "Encode gave a line break inside of a row: %s", quoteBytes(dst[start:len(dst)-1]))
		}
		return dst, err
	}
}
