package file

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Format is the layout of a file.
type Format int

// The formats.
const (
	// NDJSON is one JSON value a line, in UTF-8. Lines of white space are no records.
	NDJSON Format = iota
	// CSV is RFC 4180: fields between commas, quoted where needed; lines may end in LF or CR LF.
	CSV
)

func (f Format) String() string {
	switch f {
	case NDJSON:
		return "ndjson"
	case CSV:
		return "csv"
	}
	return fmt.Sprintf("Format(%d)", int(f))
}

func (f Format) validate() error {
	if f != NDJSON && f != CSV {
		return fmt.Errorf("Format is %v; it is NDJSON or CSV", f)
	}
	return nil
}

// Compression is how a file is compressed.
type Compression int

// The compressions.
const (
	Auto Compression = iota // By the file's name: .gz is gzip, .zst and .zstd are zstd, all others are plain.
	None
	Gzip
	Zstd
)

func (c Compression) String() string {
	switch c {
	case Auto:
		return "auto"
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("Compression(%d)", int(c))
}

func (c Compression) of(name string) Compression {
	if c != Auto {
		return c
	}
	switch name = strings.ToLower(name); {
	case strings.HasSuffix(name, ".gz"):
		return Gzip
	case strings.HasSuffix(name, ".zst"), strings.HasSuffix(name, ".zstd"):
		return Zstd
	}
	return None
}

func parseCompression(s string) (Compression, error) {
	for _, c := range []Compression{None, Gzip, Zstd} {
		if c.String() == s {
			return c, nil
		}
	}
	return 0, fmt.Errorf("unknown compression %q", s)
}

// CSVOptions are the details of CSV. The zero value is RFC 4180 with a header line.
type CSVOptions struct {
	// Comma separates fields; 0 is a comma.
	Comma byte
	// NoHeader: the first line is a record. Columns are then Columns, or the fields of the struct in their order.
	NoHeader bool
	// Columns names the columns of a source without a header, or the header of a sink that has its own Encode.
	Columns []string
	// OneLine promises that no field holds a line break, so that a source may read ranges of a large file side by
	// side. A field that does hold one is an error. Without the promise a file is read from its beginning to its end.
	OneLine bool
}

func (o CSVOptions) comma() byte {
	if o.Comma == 0 {
		return ','
	}
	return o.Comma
}

func (o CSVOptions) validate() error {
	var errs []error
	if c := o.comma(); c == '"' || c == '\n' || c == '\r' || c >= utf8.RuneSelf || unicode.IsLetter(rune(c)) || unicode.IsDigit(rune(c)) {
		errs = append(errs, fmt.Errorf("CSV.Comma is %q; it is an ASCII character other than a letter, a digit, a quote or a line break", c))
	}
	for i, name := range o.Columns {
		if name == "" {
			errs = append(errs, fmt.Errorf("CSV.Columns: number %d is empty", i+1))
		}
	}
	return errors.Join(errs...)
}
