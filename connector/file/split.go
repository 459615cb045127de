package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
)

// splitBody describes a split and how far it was read: the lines that begin at Start or behind it and before End, from
// Next on. FORMAT.md has the rules.
type splitBody struct {
	V           int    `json:"v"`
	Path        string `json:"path"`
	Format      string `json:"format"`
	Compression string `json:"compression"`
	Size        int64  `json:"size"`           // Of the file when the job started.
	Print       string `json:"print"`          // Fingerprint of the file then.
	Start       int64  `json:"start"`          // In bytes of the file; 0 when compressed.
	End         int64  `json:"end"`            // In bytes of the file; its size when compressed.
	Next        int64  `json:"next"`           // In bytes, decompressed.
	Line        int64  `json:"line,omitempty"` // Number of the line at Next, from 1; 0 is unknown.
	Drop        bool   `json:"drop,omitempty"` // Next is inside a line that was too long: go on behind it.
	Of          int    `json:"of"`             // Number of splits of the source.
}

const splitVersion = 1

func (b splitBody) split() operator.Split {
	raw, err := json.Marshal(b)
	if err != nil {
		panic(err) // Strings and integers only.
	}
	id := b.Path
	if b.Start > 0 || b.End < b.Size {
		id = fmt.Sprintf("%s@%d", b.Path, b.Start)
	}
	return operator.Split{ID: id, Body: raw}
}

func decodeSplit(raw []byte) (splitBody, error) {
	var b splitBody
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	err := d.Decode(&b)
	if err == nil {
		err = b.validate()
	}
	if err != nil {
		return splitBody{}, job.Errorf(job.ClassRefused, "description of a split %s: %w", quoteBytes(raw), err)
	}
	return b, nil
}

func (b *splitBody) validate() error {
	if b.V != splitVersion {
		return fmt.Errorf("version %d is unknown here, where it is %d", b.V, splitVersion)
	}
	c, err := parseCompression(b.Compression)
	if err != nil {
		return err
	}
	switch {
	case b.Path == "":
		return errors.New("no path")
	case b.Start < 0 || b.End < b.Start || b.Size < b.End || b.Next < b.Start || b.Line < 0 || b.Of < 1:
		return errors.New("numbers out of range")
	case c != None && (b.Start != 0 || b.End != b.Size):
		return errors.New("a part of a compressed file")
	case c == None && b.Next > b.Size:
		return errors.New("a position behind the end of the file")
	}
	return nil
}

// A fingerprint tells files of one size apart without reading all of them: a hash over samples that are spread evenly
// and hold the first and the last bytes. Files up to samples*sampleBytes are hashed whole.
const (
	samples     = 16
	sampleBytes = 4 << 10
)

func fingerprint(f io.ReaderAt, size int64) (string, error) {
	h := xxh3.New()
	buf := make([]byte, sampleBytes)
	n := min(samples, (size+sampleBytes-1)/sampleBytes)
	for i := range n {
		at := i * sampleBytes
		if size > samples*sampleBytes {
			at = i * ((size - sampleBytes) / (samples - 1))
			if i == n-1 {
				at = size - sampleBytes
			}
		}
		k := min(sampleBytes, size-at)
		if _, err := io.ReadFull(io.NewSectionReader(f, at, k), buf[:k]); err != nil {
			return "", err
		}
		h.Write(buf[:k])
	}
	return fmt.Sprintf("%016x", h.Sum64()), nil
}

// checkUnchanged tells whether f, of size now, still begins with what it was when the job started. A plain file may
// have grown behind a line break: what was there then is read.
func (b *splitBody) checkUnchanged(f io.ReaderAt, now int64) error {
	changed := func(format string, args ...any) error {
		return job.Errorf(job.ClassExternal, "%s changed since the job started to read it: %s", b.Path, fmt.Sprintf(format, args...))
	}
	if now < b.Size || now > b.Size && b.Compression != None.String() {
		return changed("it had %d bytes and has %d", b.Size, now)
	}
	sum, err := fingerprint(f, b.Size)
	if err != nil {
		return job.Errorf(job.ClassExternal, "read %s: %w", b.Path, err)
	}
	if sum != b.Print {
		return changed("its content differs")
	}
	if now > b.Size {
		var last [1]byte
		if _, err := f.ReadAt(last[:], b.Size-1); err != nil {
			return job.Errorf(job.ClassExternal, "read %s: %w", b.Path, err)
		}
		if last[0] != '\n' {
			return changed("it grew from %d bytes to %d in the middle of a line", b.Size, now)
		}
	}
	return nil
}

func checkPath(path string) error {
	if !utf8.ValidString(path) {
		return job.Errorf(job.ClassRefused, "path %q is not UTF-8", path)
	}
	return nil
}
