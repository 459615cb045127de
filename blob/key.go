package blob

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxKeyLen is the most bytes of a key: S3 allows 1024, and the prefix of the store's Location comes on top.
	MaxKeyLen = 800
	// MaxSegmentLen is the most bytes between two slashes: file systems allow 255, and temporary names need some.
	MaxSegmentLen = 200
)

// CheckKey says whether every store can hold an object of that name. A key is segments joined by single slashes,
// in printable UTF-8 without backslashes. No segment is empty (so no slash leads, ends or doubles) or begins with
// a dot (so there is no `..`, and stores keep dot names for themselves).
//
// No key may be the directory of another: where `x` is an object, `x/child` cannot be one. Stores on a file
// system refuse the second of them with ErrConflict, S3 itself would hold both; so layouts must never need both.
func CheckKey(key string) error {
	bad := func(why string, args ...any) error {
		return fmt.Errorf("%w %q: %s", ErrBadKey, key, fmt.Sprintf(why, args...))
	}
	switch {
	case key == "":
		return bad("it is empty")
	case len(key) > MaxKeyLen:
		return bad("it has %d bytes, limit is %d", len(key), MaxKeyLen)
	case strings.HasPrefix(key, "/"):
		return bad("it begins with a slash")
	case !utf8.ValidString(key):
		return bad("it is not UTF-8")
	}
	for _, r := range key {
		if r == '\\' || !unicode.IsPrint(r) {
			return bad("it contains %q", r)
		}
	}
	for segment := range strings.SplitSeq(key, "/") {
		switch {
		case segment == "":
			return bad("a segment is empty")
		case segment[0] == '.':
			return bad("segment %q begins with a dot", segment)
		case len(segment) > MaxSegmentLen:
			return bad("segment %q has %d bytes, limit is %d", segment, len(segment), MaxSegmentLen)
		}
	}
	return nil
}
