package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"
)

// MaxValue is the largest encoding of one value, in bytes. It bounds what a damaged length can
// claim, and keeps a single record from filling a frame buffer or a snapshot segment.
const MaxValue = 64 << 20

var (
	// ErrTooLarge is in the chain of an error about a value whose encoding exceeds MaxValue.
	ErrTooLarge = errors.New("value too large")
	// ErrTruncated is in the chain of an error about bytes that end before the value does.
	ErrTruncated = errors.New("truncated")
)

// Memory order is taken for encoding order below, and int for 64 bits.
const _ = unsafe.Sizeof(int(0)) - 8 // Does not compile where int is narrower.

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

func tooLarge(n uint64) error {
	return fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, n, MaxValue)
}

func truncated(pos, want, have int) error {
	return fmt.Errorf("%w at offset %d: needs %d bytes, %d are left", ErrTruncated, pos, want, have)
}

// readCount reads a uvarint at pos. It refuses an encoding longer than it need be, so that a value
// has one encoding only.
func readCount(src []byte, pos int) (uint64, int, error) {
	if pos < len(src) && src[pos] < 0x80 {
		return uint64(src[pos]), pos + 1, nil
	}
	n, took := binary.Uvarint(src[pos:])
	switch {
	case took == 0:
		return 0, pos, fmt.Errorf("%w at offset %d: inside a length", ErrTruncated, pos)
	case took < 0 || src[pos+took-1] == 0:
		return 0, pos, fmt.Errorf("malformed length at offset %d", pos)
	}
	return n, pos + took, nil
}

// readLen reads the length of a run of bytes at pos and checks that they are there.
func readLen(src []byte, pos int) (int, int, error) {
	n, pos, err := readCount(src, pos)
	if err != nil {
		return 0, pos, err
	}
	if n > MaxValue {
		return 0, pos, tooLarge(n)
	}
	if int(n) > len(src)-pos {
		return 0, pos, truncated(pos, int(n), len(src)-pos)
	}
	return int(n), pos, nil
}

// readOptionalLen is readLen for what may be nil: 0 means nil, n+1 a length of n.
func readOptionalLen(src []byte, pos int) (n, next int, present bool, err error) {
	c, next, err := readCount(src, pos)
	if err != nil || c == 0 {
		return 0, next, false, err
	}
	if c-1 > MaxValue {
		return 0, next, false, tooLarge(c - 1)
	}
	if int(c-1) > len(src)-next {
		return 0, next, false, truncated(next, int(c-1), len(src)-next)
	}
	return int(c - 1), next, true, nil
}
