package nexmark

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
)

// Answer is what two runs of a query are compared by: the number of rows and the sha256 of their lines, sorted by bytes.
type Answer struct {
	Rows   int64
	SHA256 string
}

// reducer makes the rows that a query wrote into those of its answer.
type reducer struct {
	add func(line []byte) error
	end func() error
}

// ReadAnswer makes the answer of a query of what its job has written into a directory. Rows may lie in any number of
// files, in any order.
func ReadAnswer(name, dir string) (a Answer, err error) {
	q, _, err := find(name)
	if err != nil {
		return a, err
	}
	s := &sorter{}
	defer func() { err = errors.Join(err, s.close()) }()
	r := reducer{add: s.add}
	if q.reduce != nil {
		r = q.reduce(s.add)
	}
	parts, err := filepath.Glob(filepath.Join(dir, "[^.]*.csv"))
	if err != nil {
		return a, fmt.Errorf("list the answer: %w", err)
	}
	for _, path := range parts {
		if err := eachLine(path, r.add); err != nil {
			return a, fmt.Errorf("read the answer of %s: %w", name, err)
		}
	}
	if r.end != nil {
		if err := r.end(); err != nil {
			return a, err
		}
	}
	return digest(s)
}

func digest(s *sorter) (a Answer, err error) {
	h := sha256.New()
	w := bufio.NewWriterSize(h, 1<<16)
	err = s.each(func(line []byte) error {
		a.Rows++
		_, err := w.Write(line)
		return err
	})
	if err == nil {
		err = w.Flush()
	}
	a.SHA256 = hex.EncodeToString(h.Sum(nil))
	return a, err
}

// eachLine gives the lines of a file, without line breaks and valid during the call.
func eachLine(path string, f func(line []byte) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // Only read.
	r := bufio.NewReaderSize(file, 1<<20)
	for {
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case errors.Is(err, io.EOF):
			return fmt.Errorf("%s: the last line is cut off", path)
		case err != nil:
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := f(line[:len(line)-1]); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
}

// column is a field that decides which row of a key is the last one.
type column struct {
	at     int
	number bool // Compared as an integer, not by bytes.
}

// lastOf keeps the last row of each key, which is the first fields of a row. The rows themselves tell which one that
// is: it is the greatest in the columns, compared in this order.
func lastOf(keyFields int, columns ...column) func(func([]byte) error) reducer {
	return func(emit func([]byte) error) reducer {
		last := map[string][]byte{}
		return reducer{
			add: func(line []byte) error {
				n := 0
				for range keyFields {
					i := bytes.IndexByte(line[n:], ',')
					if i < 0 {
						return fmt.Errorf("row %q has no more than %d fields", line, keyFields)
					}
					n += i + 1
				}
				old, ok := last[string(line[:n])]
				if ok {
					c, err := compareRows(line, old, columns)
					if err != nil || c <= 0 {
						return err
					}
				}
				last[string(line[:n])] = bytes.Clone(line)
				return nil
			},
			end: func() error {
				for _, line := range last {
					if err := emit(line); err != nil {
						return err
					}
				}
				return nil
			},
		}
	}
}

func compareRows(a, b []byte, columns []column) (int, error) {
	x, y := bytes.Split(a, []byte(",")), bytes.Split(b, []byte(","))
	for _, c := range columns {
		if c.at >= len(x) || c.at >= len(y) {
			return 0, fmt.Errorf("rows %q and %q: there is no field %d", a, b, c.at)
		}
		order := bytes.Compare(x[c.at], y[c.at])
		if c.number {
			v, err := strconv.ParseInt(string(x[c.at]), 10, 64)
			if err != nil {
				return 0, err
			}
			w, err := strconv.ParseInt(string(y[c.at]), 10, 64)
			if err != nil {
				return 0, err
			}
			order = cmp.Compare(v, w)
		}
		if order != 0 {
			return order, nil
		}
	}
	return 0, nil
}
