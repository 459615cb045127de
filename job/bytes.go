package job

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Bytes is an amount of memory, of data, or of data per second.
type Bytes int64

// The units of Bytes.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

// units are what ParseBytes takes, the larger ones first.
var units = []struct {
	name string
	size Bytes
}{
	{"TiB", TiB}, {"TB", 1e12}, {"GiB", GiB}, {"GB", 1e9}, {"MiB", MiB}, {"MB", 1e6}, {"KiB", KiB}, {"kB", 1e3}, {"B", 1},
}

// ParseBytes reads an amount as String writes it: a whole number and a unit, such as 256MiB. Powers of two are KiB, MiB,
// GiB, TiB, powers of ten kB, MB, GB, TB; B is a byte. 0 needs no unit.
func ParseBytes(s string) (Bytes, error) {
	if s == "0" {
		return 0, nil
	}
	digits := strings.TrimRightFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	for _, u := range units {
		if s[len(digits):] != u.name {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		hi, lo := bits.Mul64(n, uint64(u.size))
		switch {
		case digits == "" || strings.HasPrefix(digits, "+"):
		case err != nil && isDigits(digits), hi > 0, lo > math.MaxInt64:
			return 0, fmt.Errorf("%q is too large: want at most %d bytes", s, int64(math.MaxInt64))
		case err == nil:
			return Bytes(lo), nil
		}
		break
	}
	return 0, fmt.Errorf("%q is not a size: want a whole number with a unit, such as 512KiB, 256MiB or 2GiB", s)
}

func isDigits(s string) bool {
	return strings.Trim(s, "0123456789") == ""
}

// String writes b with the largest unit of which it is a whole number.
func (b Bytes) String() string {
	if b == 0 {
		return "0"
	}
	for _, u := range units {
		if b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B" // Not reached: one byte divides all.
}
