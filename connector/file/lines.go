package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// lines cuts a stream into records, each a line, or several where a quoted field of CSV goes on over line breaks. It
// reads from src only in fill, so that its owner decides how much is read at a time.
type lines struct {
	src    io.Reader
	quoted bool // Line breaks between quotes do not end a record.
	max    int  // Longest record in bytes, its line break aside.

	buf     []byte
	r, w    int   // What is not yet taken is buf[r:w].
	off     int64 // Place of buf[r] in the stream.
	seen    int   // So much behind r was searched for the end of the record.
	inside  bool  // The search is between quotes.
	eof     bool
	breaks  int // Line breaks that the last record took.
	dropped int // Bytes of the line being dropped.
}

const firstBuffer = 64 << 10

// errTooLong says that a record is longer than the limit.
var errTooLong = errors.New("too long")

func newLines(src io.Reader, off int64, quoted bool, limit int) lines {
	return lines{src: src, off: off, quoted: quoted, max: limit}
}

// take returns the next record without its line break; it is valid until the next fill. ok is false if it is not
// wholly there: fill, unless the end was reached. At the end of the stream the line break may be missing.
func (l *lines) take() (record []byte, ok bool, err error) {
	n, ok := l.search()
	if !ok {
		switch {
		case l.w-l.r > l.max+1:
			return nil, false, errTooLong
		case !l.eof || l.r == l.w:
			return nil, false, nil
		}
		n = l.w - l.r
	}
	record = l.buf[l.r : l.r+n]
	if ok {
		record = record[:n-1]
	}
	if k := len(record); k > 0 && record[k-1] == '\r' {
		record = record[:k-1]
	}
	if len(record) > l.max {
		return nil, false, errTooLong
	}
	l.breaks = 1
	if l.quoted {
		l.breaks += bytes.Count(record, newline)
	}
	l.advance(n)
	return record, true, nil
}

var (
	newline = []byte{'\n'}
	quote   = []byte{'"'}
)

// search finds the end of the record that begins at r: the number of bytes up to and with its line break.
func (l *lines) search() (int, bool) {
	for {
		rest := l.buf[l.r+l.seen : l.w]
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			if l.quoted && bytes.Count(rest, quote)%2 == 1 {
				l.inside = !l.inside
			}
			l.seen += len(rest)
			return 0, false
		}
		if l.quoted && bytes.Count(rest[:i], quote)%2 == 1 {
			l.inside = !l.inside
		}
		l.seen += i + 1
		if !l.inside {
			return l.seen, true
		}
	}
}

// drop takes everything up to and with the next line break, whatever its length, and tells whether it is through. The
// quotes do not count.
func (l *lines) drop() bool {
	rest := l.buf[l.r:l.w]
	i := bytes.IndexByte(rest, '\n')
	if i < 0 {
		l.dropped += len(rest)
		l.advance(len(rest))
		return l.eof
	}
	l.dropped += i + 1
	l.advance(i + 1)
	return true
}

// skip takes up to n bytes, whatever they are, and returns how many there were.
func (l *lines) skip(n int64) int64 {
	k := min(n, int64(l.w-l.r))
	l.advance(int(k))
	return k
}

func (l *lines) advance(n int) {
	l.r += n
	l.off += int64(n)
	l.seen, l.inside = 0, false
	if l.r == l.w {
		l.r, l.w = 0, 0
	}
}

// atEnd tells that everything was taken.
func (l *lines) atEnd() bool { return l.eof && l.r == l.w }

// fill reads once.
func (l *lines) fill() (int, error) {
	if l.eof {
		return 0, nil
	}
	if l.w == len(l.buf) {
		l.makeRoom()
	}
	n, err := l.src.Read(l.buf[l.w:])
	if n < 0 || n > len(l.buf)-l.w {
		return 0, fmt.Errorf("a reader returned a count of %d for %d bytes", n, len(l.buf)-l.w)
	}
	l.w += n
	if err == io.EOF {
		l.eof = true
		err = nil
	}
	return n, err
}

func (l *lines) makeRoom() {
	if l.r > 0 && (l.w-l.r <= len(l.buf)/2 || len(l.buf) >= l.max+4) {
		l.w = copy(l.buf, l.buf[l.r:l.w])
		l.r = 0
		return
	}
	// max+2 is enough to know that a record is too long, and for the longest one with CR LF.
	grown := make([]byte, max(min(max(2*len(l.buf), firstBuffer), l.max+4), len(l.buf)+2))
	l.w = copy(grown, l.buf[l.r:l.w])
	l.r = 0
	l.buf = grown
}
