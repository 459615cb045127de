package file

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// fieldSplitter cuts a record of CSV into fields.
type fieldSplitter struct {
	comma   byte
	fields  [][]byte
	scratch []byte // Fields with doubled quotes, undone.
}

var (
	errBareQuote  = errors.New(`a quote (") inside a field that is not quoted`)
	errAfterQuote = errors.New(`text behind the closing quote (") of a field`)
	errOpenQuote  = errors.New(`a quote (") is not closed`)
)

// split cuts record into fields, valid until the next call and while record is.
func (s *fieldSplitter) split(record []byte) ([][]byte, error) {
	s.fields, s.scratch = s.fields[:0], s.scratch[:0]
	if cap(s.scratch) < len(record) {
		s.scratch = make([]byte, 0, len(record)) // Never grows below, where fields point into it.
	}
	for n := 1; ; n++ {
		field, rest, err := s.field(record)
		if err != nil {
			return nil, fmt.Errorf("field %d: %w", n, err)
		}
		s.fields = append(s.fields, field)
		if rest == nil {
			return s.fields, nil
		}
		record = rest
	}
}

// field cuts off the first field; rest is nil behind the last one.
func (s *fieldSplitter) field(record []byte) (field, rest []byte, err error) {
	if len(record) == 0 || record[0] != '"' {
		end := bytes.IndexByte(record, s.comma)
		if end < 0 {
			field = record
		} else {
			field, rest = record[:end], record[end+1:]
		}
		if bytes.IndexByte(field, '"') >= 0 {
			return nil, nil, errBareQuote
		}
		return field, rest, nil
	}
	record = record[1:]
	start := len(s.scratch)
	for {
		i := bytes.IndexByte(record, '"')
		if i < 0 {
			return nil, nil, errOpenQuote
		}
		text, behind := record[:i], record[i+1:]
		if len(behind) > 0 && behind[0] == '"' {
			s.scratch = append(append(s.scratch, text...), '"')
			record = behind[1:]
			continue
		}
		if len(behind) > 0 && behind[0] != s.comma {
			return nil, nil, errAfterQuote
		}
		if len(s.scratch) > start {
			s.scratch = append(s.scratch, text...)
			field = s.scratch[start:]
		} else {
			field = text
		}
		if len(behind) > 0 {
			rest = behind[1:]
		}
		return field, rest, nil
	}
}

// binding ties the columns of one file to the fields of a struct.
type binding struct {
	names []string
	to    []*column // By column of the file; nil is left out.
}

// bind finds a field for each name of a header. Columns that the struct does not know are left out; a column that the
// file lacks is an error, unless it is optional.
func bind(columns []column, header []string) (binding, error) {
	b := binding{names: header, to: make([]*column, len(header))}
	used := map[string]bool{}
	for _, equal := range []func(a, b string) bool{func(a, b string) bool { return a == b }, strings.EqualFold} {
		for i, name := range header {
			if b.to[i] != nil {
				continue
			}
			k := slices.IndexFunc(columns, func(c column) bool { return !used[c.name] && equal(c.name, name) })
			if k >= 0 {
				b.to[i] = &columns[k]
				used[columns[k].name] = true
			}
		}
	}
	for i, name := range header {
		if first := slices.Index(header, name); first < i && b.to[first] != nil {
			return b, fmt.Errorf("the header names column %q twice", name)
		}
	}
	var missing []string
	for _, c := range columns {
		if !used[c.name] && !c.optional {
			missing = append(missing, fmt.Sprintf("%q", c.name))
		}
	}
	if missing != nil {
		return b, fmt.Errorf("the file has no column %s; it has %q", strings.Join(missing, ", "), header)
	}
	return b, nil
}

// decode sets the fields of the struct v.
func (b *binding) decode(fields [][]byte, v reflect.Value) error {
	if len(fields) != len(b.to) {
		return fmt.Errorf("%d fields where the header has %d", len(fields), len(b.to))
	}
	for i, c := range b.to {
		if c == nil || c.optional && len(fields[i]) == 0 {
			continue
		}
		if err := c.parse(v.FieldByIndex(c.index), fields[i]); err != nil {
			return fmt.Errorf("column %q: %w", b.names[i], err)
		}
	}
	return nil
}
