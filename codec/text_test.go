package codec_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cairnstream/cairn/codec"
)

func textOf[T any](t *testing.T, v T, limit int) string {
	t.Helper()
	c, err := codec.Default[T]()
	if err != nil {
		t.Fatal(err)
	}
	data, err := c.Append(nil, &v)
	if err != nil {
		t.Fatal(err)
	}
	return c.Schema().Text(data, limit)
}

func TestText(t *testing.T) {
	type pair struct {
		User string
		N    int32
	}
	if got := textOf(t, "a key", 64); got != "a key" {
		t.Error(got)
	}
	if got := textOf(t, int64(-7), 64); got != "-7" {
		t.Error(got)
	}
	if got := textOf(t, pair{"u\"1", 3}, 64); got != `{"User":"u\"1","N":3}` {
		t.Error(got)
	}
	for _, long := range []string{strings.Repeat("x", 66), strings.Repeat("äö€", 20)} {
		for n := range 66 {
			got := textOf(t, long, n)
			if len(got) > max(n, 3) || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") || !strings.HasPrefix(long, strings.TrimSuffix(got, "…")) {
				t.Fatalf("cut at %d: %q", n, got)
			}
		}
	}
	if got := codec.Int64().Schema().Text([]byte{0x80}, 64); got != "" {
		t.Errorf("of damaged bytes: %q", got)
	}
}
