package flightsjob

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func inputText(t testing.TB) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(Input))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The expected answer is right: plain Go comes to the same, and so do the job's own decoding and aggregation.
func TestExpected(t *testing.T) {
	want := map[Key][]string{}
	if err := parse(Expected, Header, want); err != nil {
		t.Fatal(err)
	}
	rows, err := Reference(bytes.NewReader(inputText(t)))
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != len(want) {
		t.Fatalf("%d rows, expected %d", len(rows), len(want))
	}
	for k, row := range rows {
		if len(want[k]) != 1 || want[k][0] != row {
			t.Errorf("%s, expected %s", row, want[k])
		}
	}

	type pane struct {
		origin string
		day    time.Time
	}
	sums := map[pane]*[2]Delays{} // Two halves, so that Merge has something to do.
	lines := 0
	for line := range bytes.Lines(inputText(t)) {
		var f Flight
		if err := Decode(bytes.TrimSpace(line), &f); err != nil {
			t.Fatal(err)
		}
		p := pane{f.Origin, f.Time.Truncate(24 * time.Hour)}
		if sums[p] == nil {
			sums[p] = &[2]Delays{}
		}
		Delays{}.Add(&sums[p][lines%2], &f)
		lines++
	}
	if lines != Lines || len(sums) != len(want) {
		t.Fatalf("%d lines, %d rows", lines, len(sums))
	}
	for p, d := range sums {
		Delays{}.Merge(&d[0], &d[1])
		got := Delays{}.Result(window.Pane[string]{Key: p.origin, Start: p.day.UnixMilli()}, &d[0])
		k := Key{got.Origin, got.Day.Format(time.DateOnly)}
		var b bytes.Buffer
		b.WriteString(strings.Join([]string{k.Airport, k.Start}, ","))
		for _, n := range []int64{got.Flights, got.TotalDelay, got.MaxDelay} {
			b.WriteByte(',')
			text, _ := json.Marshal(n)
			b.Write(text)
		}
		if b.String() != want[k][0] {
			t.Errorf("%s, expected %s", b.String(), want[k])
		}
	}
}

// The short cut never differs from encoding/json.
func TestDecode(t *testing.T) {
	const good = `{"time":"2001-01-01T00:47:00Z","origin":"DTW","destination":"LAS","delay":66,"distance":1750}`
	for line := range bytes.Lines(inputText(t)) {
		compareDecoders(t, bytes.TrimSpace(line))
	}
	for _, change := range [][2]string{
		{"66", "-66"}, {"66", "066"}, {"66", "+6"}, {"66", "--6"}, {"66", "6.5"}, {"66", ""}, {"66", "99999999999"}, {"66", "null"},
		{"DTW", ""}, {"DTW", `D\u0041`}, {"DTW", "Dü"}, {"DTW", "D\nW"}, {"01-01T", "02-30T"}, {"01-01T", "01-00T"}, {"01-01T", "13-01T"},
		{"00:47", "24:00"}, {"00Z", "00+01:00"}, {"00Z", "00.5Z"}, {"}", "} "}, {"}", ""}, {"}", "}}"}, {"2001", "0000"}, {"{", "{ "}, {",", ", "},
	} {
		compareDecoders(t, []byte(strings.Replace(good, change[0], change[1], 1)))
	}
	var f Flight
	if !decodeFast([]byte(good), &f) {
		t.Error("the short cut is not taken")
	}
	for _, bad := range []string{"", "{}", "x", good[:50], `{"origin":"A"}`} {
		if Decode([]byte(bad), &f) == nil {
			t.Errorf("%s passed", bad)
		}
	}
}

func compareDecoders(t *testing.T, line []byte) {
	t.Helper()
	var fast, slow Flight
	if !decodeFast(line, &fast) {
		return
	}
	if err := json.Unmarshal(line, &slow); err != nil {
		t.Errorf("%s: decoded, but %v", line, err)
	} else if slow.Time = slow.Time.UTC(); !reflect.DeepEqual(fast, slow) {
		t.Errorf("%s: %+v, expected %+v", line, fast, slow)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"time":"2001-01-01T00:47:00Z","origin":"DTW","destination":"LAS","delay":-66,"distance":1750}`))
	f.Fuzz(compareDecoders)
}

func TestDeal(t *testing.T) {
	dir := t.TempDir()
	paths, err := Deal(dir, 3)
	if err != nil {
		t.Fatal(err)
	}
	var hands [][][]byte
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		hands = append(hands, bytes.SplitAfter(text, []byte("\n")))
	}
	var all []byte
	for i := range Lines {
		all = append(all, hands[i%3][i/3]...)
	}
	if !bytes.Equal(all, inputText(t)) {
		t.Error("lines were lost or changed")
	}
	if _, err := Deal(dir, 0); err == nil {
		t.Error("dealt to nobody")
	}
	path, err := Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(path); !bytes.Equal(text, Input) {
		t.Error("the input was not written as it is")
	}
}

const small = Header + "\nABE,2001-02-02,1,3,3\nABE,2001-02-07,2,-13,-13\nACV,2001-02-02,3,4,4\n"

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		parts   []string
		say     []string // Empty: equal.
		atLeast string   // What the lenient check says; empty: fine.
		surplus int64
	}{
		"equal":     {parts: []string{small}},
		"two parts": {parts: []string{Header + "\nACV,2001-02-02,3,4,4\n", Header + "\nABE,2001-02-07,2,-13,-13\nABE,2001-02-02,1,3,3\n"}},
		"empty":     {parts: nil, say: []string{"3 missing", "ABE,2001-02-02,1,3,3"}, atLeast: "3 missing"},
		"missing":   {parts: []string{Header + "\nABE,2001-02-02,1,3,3\n"}, say: []string{"2 missing", "ACV"}, atLeast: "2 missing"},
		"extra":     {parts: []string{small + "XXX,2001-02-02,1,3,3\n"}, say: []string{"1 not expected", "XXX"}, atLeast: "1 not expected", surplus: 1},
		"twice":     {parts: []string{small, Header + "\nABE,2001-02-07,2,-13,-13\n"}, say: []string{"1 more than once", "2001-02-07"}, surplus: 2},
		"more":      {parts: []string{strings.Replace(small, "07,2,-13", "07,3,-26", 1)}, say: []string{"1 different", "ABE,2001-02-07,3,-26,-13 instead of ABE,2001-02-07,2,-13,-13"}, surplus: 1},
		"fewer":     {parts: []string{strings.Replace(small, "07,2", "07,1", 1)}, say: []string{"1 different"}, atLeast: "1 fewer flights", surplus: -1},
		"split":     {parts: []string{strings.Replace(small, "07,2,-13,-13", "07,1,-13,-13\nABE,2001-02-07,1,0,0", 1)}, say: []string{"1 different"}, atLeast: "1 fewer flights"},
		"cut off":   {parts: []string{small[:len(small)-1]}, say: []string{"cut off"}, atLeast: "cut off"},
		"no header": {parts: []string{small[len(Header)+1:]}, say: []string{"first line"}, atLeast: "first line"},
	} {
		dir := t.TempDir()
		for i, p := range c.parts {
			sub := filepath.Join(dir, strings.Repeat("s/", i))
			os.MkdirAll(sub, 0o777)
			os.WriteFile(filepath.Join(sub, "part.csv"), []byte(p), 0o666)
		}
		os.WriteFile(filepath.Join(dir, ".hidden.csv"), []byte("no"), 0o666)
		os.WriteFile(filepath.Join(dir, ".part.csv.pending"), []byte("no"), 0o666)
		err := Check(dir, []byte(small))
		if (err == nil) != (c.say == nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, say := range c.say {
			if err != nil && !strings.Contains(err.Error(), say) {
				t.Errorf("%s: %v does not say %q", name, err, say)
			}
		}
		surplus, err := CheckAtLeastOnce(dir, []byte(small))
		if (err == nil) != (c.atLeast == "") || err != nil && !strings.Contains(err.Error(), c.atLeast) || surplus != c.surplus && c.atLeast == "" {
			t.Errorf("%s, at least once: surplus %d, %v", name, surplus, err)
		}
	}
	if Check(filepath.Join(t.TempDir(), "none"), Expected) == nil {
		t.Error("no directory passed")
	}
}

// The job is complete, and says what is wrong with its arguments.
func TestJob(t *testing.T) {
	p := stream.Program{Name: "flights-daily", Build: DailyJob}
	if _, err := stream.Build(p, map[string]string{"input": "x", "output": "y", "rate": "100", "files-in-order": "true"}); err != nil {
		t.Error(err)
	}
	_, err := stream.Build(p, map[string]string{"rate": "fast", "files-in-order": "perhaps"})
	for _, say := range []string{"input", "output", "rate", "files-in-order"} {
		if err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%q is not in: %v", say, err)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	line := []byte(`{"time":"2001-01-01T00:47:00Z","origin":"DTW","destination":"LAS","delay":66,"distance":1750}`)
	var f Flight
	b.ReportAllocs()
	for b.Loop() {
		if err := Decode(line, &f); err != nil {
			b.Fatal(err)
		}
	}
}
