package job

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]Bytes{
		"0": 0, "0B": 0, "1B": 1, "1023B": 1023, "1KiB": 1 << 10, "256MiB": 256 << 20, "1GiB": 1 << 30, "3TiB": 3 << 40,
		"1kB": 1000, "5MB": 5e6, "7GB": 7e9, "2TB": 2e12, "007MiB": 7 << 20, "9223372036854775807B": math.MaxInt64,
		"8388607TiB": 8388607 << 40,
	} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "B", "MiB", "1", "12345", "-1MiB", "+1MiB", "1.5GiB", "1 MiB", " 1MiB", "1MiB ", "1mib", "1MIB", "1Mi", "1M", "1K", "1KB", "0x10B",
		"1_000B", "1MiBB", "1MiB2", "∞", "１MiB", "1e3B",
	} {
		if got, err := ParseBytes(text); err == nil || !strings.Contains(err.Error(), "is not a size: want a whole number with a unit") {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"9223372036854775808B", "8388608TiB", "99999999999999999999999MiB", "18446744073709551616TiB"} {
		if got, err := ParseBytes(text); err == nil || !strings.Contains(err.Error(), "is too large") {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}

func TestBytesText(t *testing.T) {
	for b, want := range map[Bytes]string{
		0: "0", 1: "1B", 1000: "1kB", 1024: "1KiB", 1025: "1025B", 256 << 20: "256MiB", 1 << 30: "1GiB", 1536 << 20: "1536MiB",
		5e6: "5MB", 1e12: "1TB",
	} {
		if got := b.String(); got != want {
			t.Errorf("%d: %s, want %s", int64(b), got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		b := Bytes(rapid.Int64Range(0, math.MaxInt64).Draw(t, "bytes"))
		if back, err := ParseBytes(b.String()); err != nil || back != b {
			t.Fatalf("%d is %s is %d, %v", int64(b), b, int64(back), err)
		}
	})
}
