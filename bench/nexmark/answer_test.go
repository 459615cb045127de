package nexmark

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// However little memory there is, the lines come sorted, and the temporary files go.
func TestSorter(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOf(rapid.StringMatching(`[ -~]{0,20}`)).Draw(t, "lines")
		s := &sorter{memory: rapid.IntRange(1, 200).Draw(t, "memory"), dir: dir}
		for _, l := range lines {
			if err := s.add([]byte(l)); err != nil {
				t.Fatal(err)
			}
		}
		var want strings.Builder
		for _, l := range slices.Sorted(slices.Values(lines)) {
			want.WriteString(l + "\n")
		}
		sum := sha256.Sum256([]byte(want.String()))
		got, err := digest(s)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		if got != (Answer{int64(len(lines)), hex.EncodeToString(sum[:])}) {
			t.Errorf("%d rows, %s", got.Rows, got.SHA256)
		}
	})
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("%d files are left, %v", len(left), err)
	}
}

func answerOf(t *testing.T, query string, parts ...string) (Answer, error) {
	t.Helper()
	dir := t.TempDir()
	for i, p := range parts {
		if err := os.WriteFile(filepath.Join(dir, string(rune('a'+i))+".csv"), []byte(p), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ".hidden.csv"), []byte("not committed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return ReadAnswer(query, dir)
}

func TestReadAnswer(t *testing.T) {
	for _, test := range []struct{ query, parts, answer string }{
		{"q2", "", ""},
		{"q2", "3,1\n10,2\n|1,7\n3,1\n", "1,7\n10,2\n3,1\n3,1\n"},
		// The last row of a category is that of the most auctions, wherever it lies.
		{"q4", "10,9,5\n11,1,3\n10,10,4\n|10,2,6\n", "10,10,4\n11,1,3\n"},
		// Of a bidder's bids: by time, price, channel and extra.
		{"q18", "1,2,300,b,u,10,x\n1,2,1000,a,u,9,x\n|1,2,1000,a,u,10,x\n1,3,1,a,u,1,x\n1,2,1000,a,u,10,y\n", "1,2,1000,a,u,10,y\n1,3,1,a,u,1,x\n"},
		{"passthrough", "18446744073709551615\n|3\n", "2,0000000000000002,fffffffffffffffc\n"},
	} {
		var parts []string
		if test.parts != "" {
			parts = strings.Split(test.parts, "|")
		}
		got, err := answerOf(t, test.query, parts...)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(test.answer))
		if got != (Answer{int64(strings.Count(test.answer, "\n")), hex.EncodeToString(sum[:])}) {
			t.Errorf("%s of %q: %+v", test.query, test.parts, got)
		}
	}
}

// Counts make the same checksum whether all of them are seen or the last one of each key alone.
func TestCounts(t *testing.T) {
	var want uint64
	for key, count := range map[uint64]uint64{7: 3, 8: 1} {
		want += term(key, count)
	}
	var got string
	r := reduceCounts(func(line []byte) error { got = string(line); return nil })
	for _, line := range []string{"7,2", "8,1", "7,1", "7,3"} {
		if err := r.add([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if keys, sum, _ := strings.Cut(got, ",4,"); keys != "2" || len(sum) != 16 || !strings.HasSuffix(got, hexOf(want)) {
		t.Errorf("got %s, want the checksum %s", got, hexOf(want))
	}
}

func hexOf(v uint64) string {
	var b [8]byte
	for i := range b {
		b[i] = byte(v >> (56 - 8*i))
	}
	return hex.EncodeToString(b[:])
}

func TestDamagedAnswers(t *testing.T) {
	for _, test := range [][2]string{{"q2", "1,2\n3"}, {"q4", "1\n"}, {"q4", "1,x,1\n1,2,1\n"}, {"passthrough", "x\n"}, {"keyed-count", "1\n"}, {"q99", ""}} {
		if a, err := answerOf(t, test[0], test[1]); err == nil {
			t.Errorf("%s: %q is taken for %+v", test[0], test[1], a)
		}
	}
}

func TestExpected(t *testing.T) {
	for _, q := range Names() {
		for _, at := range []struct{ events, jitter int64 }{{200_000, 0}, {2_000_000, 0}, {200_000, 700}} {
			a, ok, err := Expected(q, at.events, 1, at.jitter)
			if err != nil || !ok || len(a.SHA256) != 64 || a.Rows < 1 {
				t.Errorf("%s, %+v: %+v, %v, %v", q, at, a, ok, err)
			}
		}
	}
	if _, ok, _ := Expected("q0", 200_000, 2, 0); ok {
		t.Error("there is an answer for another seed")
	}
}

func TestFind(t *testing.T) {
	if q, keys, err := find("keyed-count/12"); err != nil || q.name != keyedCount || keys != 12 {
		t.Error(q.name, keys, err)
	}
	for _, bad := range []string{"", "q6", "q0/1", "keyed-count/x"} {
		if _, _, err := find(bad); err == nil {
			t.Errorf("%q is a query", bad)
		}
	}
}

func TestCPUAt(t *testing.T) {
	s := []sample{{0, 10}, {100, 30}, {200, 130}}
	for at, want := range map[time.Duration]time.Duration{0: 10, 50: 20, 100: 30, 150: 80, 200: 130, 300: 130} {
		if got := cpuAt(s, at); got != want {
			t.Errorf("at %d: %d, want %d", at, got, want)
		}
	}
}

func TestDistribution(t *testing.T) {
	if d := distribution([]float64{3, 1, 2, 10}); *d != (Distribution{1, 2.5, 10}) {
		t.Error(*d)
	}
	if distribution(nil) != nil {
		t.Error("of nothing")
	}
}
