package file

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	_ operator.Source[int] = Source[int]{}
	_ operator.InOrder     = Source[int]{}
)

type fatal interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func text(line []byte, v *string) error {
	if *v != "" {
		return errors.New("row is not zero")
	}
	*v = string(line)
	return nil
}

func write(t fatal, path string, content []byte) string {
	t.Helper()
	switch Auto.of(path) {
	case Gzip:
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		w.Write(content)
		w.Close()
		content = b.Bytes()
	case Zstd:
		w, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		content = w.EncodeAll(content, nil)
		w.Close()
	}
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

var bg = operator.SourceContext{Name: "in", Parallelism: 1}

func splitsOf[T any](t fatal, s Source[T]) []operator.Split {
	t.Helper()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	splits, err := s.Splits(context.Background(), bg)
	if err != nil {
		t.Fatal(err)
	}
	return splits
}

// readSplit reads a split, going on with a new reader at the position whenever restart says so.
func readSplit[T any](t fatal, s Source[T], split operator.Split, limit func() int, restart func() bool) (all []T) {
	t.Helper()
	for {
		r, err := s.Open(context.Background(), bg, split)
		if err != nil {
			t.Fatal(err)
		}
		for {
			b := &record.Batch[T]{}
			status, err := r.Read(b, limit())
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b.Rows...)
			if status == operator.ReadEnd || restart() {
				split = r.Position()
				r.Close()
				r.Close()
				if status == operator.ReadEnd {
					return all
				}
				break
			}
		}
	}
}

func readAll[T any](t fatal, s Source[T]) (all []T) {
	t.Helper()
	for _, split := range splitsOf(t, s) {
		all = append(all, readSplit(t, s, split, func() int { return 100 }, func() bool { return false })...)
	}
	return all
}

// Every line comes once, in order, whatever the size of splits and reads, and wherever the job restarts.
func TestEveryLineOnce(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		var content bytes.Buffer
		var expect []string
		if rapid.Bool().Draw(t, "bom") {
			content.Write(bom)
		}
		n := rapid.IntRange(0, 40).Draw(t, "lines")
		for i := range n {
			line := fmt.Sprintf("%d%s", i, strings.Repeat("x", rapid.IntRange(0, 30).Draw(t, "length")))
			if rapid.IntRange(0, 99).Draw(t, "long") == 99 {
				line += strings.Repeat("y", 90_000)
			}
			content.WriteString(line)
			expect = append(expect, line)
			if i < n-1 || rapid.Bool().Draw(t, "end") {
				content.WriteString(rapid.SampledFrom([]string{"\n", "\n", "\r\n", "\n\n", "\n \t\r\n"}).Draw(t, "break"))
			}
		}
		name := filepath.Join(dir, "f"+rapid.SampledFrom([]string{"", ".gz", ".zst"}).Draw(t, "suffix"))
		write(t, name, content.Bytes())
		size := rapid.SampledFrom([]int64{1, 2, 3, 7, 20, 64, 1000, 100_000, 1 << 20}).Draw(t, "split size")
		if content.Len() > 20_000 {
			size = max(size, 1000)
		}
		s := Source[string]{Paths: []string{name}, Decode: text, SplitSize: size}
		limit := func() int { return rapid.IntRange(1, 12).Draw(t, "limit") }
		restart := func() bool { return rapid.IntRange(0, 3).Draw(t, "restart") == 0 }
		var got []string
		for _, split := range splitsOf(t, s) {
			got = append(got, readSplit(t, s, split, limit, restart)...)
		}
		if !slices.Equal(got, expect) {
			t.Fatalf("got %d lines, expected %d: %.200q, %.200q", len(got), len(expect), got, expect)
		}
	})
}

type person struct {
	Name  string `csv:"name"`
	Note  string `json:"note"`
	Age   int    `csv:"age,omitempty"`
	Score *float64
}

// CSV reads as encoding/csv reads it, quoted line breaks and all, from any position; without quoted line breaks in
// ranges as well.
func TestCSVEveryRecordOnce(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		oneLine := rapid.Bool().Draw(t, "one line")
		alphabet := []rune("ab,\"; é\n\n")
		if oneLine {
			alphabet = alphabet[:len(alphabet)-2]
		}
		var content bytes.Buffer
		w := csv.NewWriter(&content)
		w.UseCRLF = oneLine && rapid.Bool().Draw(t, "crlf")
		w.Write([]string{"other", "note", "age", "name", "score"})
		var expect []person
		for range rapid.IntRange(0, 20).Draw(t, "records") {
			field := rapid.StringOfN(rapid.SampledFrom(alphabet), 0, 8, -1)
			p := person{Name: field.Draw(t, "name"), Note: field.Draw(t, "note")}
			age, score := "", ""
			if rapid.Bool().Draw(t, "has age") {
				p.Age = rapid.IntRange(1, 99).Draw(t, "age")
				age = fmt.Sprint(p.Age)
			}
			if rapid.Bool().Draw(t, "has score") {
				v := rapid.Float64Range(-1, 1).Draw(t, "score")
				p.Score, score = &v, fmt.Sprint(v)
			}
			w.Write([]string{"x", p.Note, age, p.Name, score})
			expect = append(expect, p)
		}
		w.Flush()
		name := write(t, filepath.Join(dir, "f.csv"+rapid.SampledFrom([]string{"", ".gz"}).Draw(t, "suffix")), content.Bytes())
		s := Source[person]{Paths: []string{name}, Format: CSV, SplitSize: rapid.Int64Range(1, 200).Draw(t, "split size"), CSV: CSVOptions{OneLine: oneLine}}
		var got []person
		splits := splitsOf(t, s)
		if !oneLine && len(splits) != 1 {
			t.Fatalf("%d splits", len(splits))
		}
		for _, split := range splits {
			got = append(got, readSplit(t, s, split,
				func() int { return rapid.IntRange(1, 5).Draw(t, "limit") },
				func() bool { return rapid.Bool().Draw(t, "restart") })...)
		}
		if !reflect.DeepEqual(got, expect) {
			t.Fatalf("got %+v of\n%s", got, content.String())
		}
	})
}

func TestCSVVariants(t *testing.T) {
	dir := t.TempDir()
	all := []person{{Name: "a", Note: "n", Age: 3}, {Name: "b", Note: ""}}
	for name, c := range map[string]struct {
		content string
		options CSVOptions
	}{
		"bom, blank lines": {"\ufeff\n\nname,note,age,score\na,n,3,\n\nb,,,", CSVOptions{}},
		"quoted bom":       {"\ufeff\"name\",note,age,score\r\na,n,3,\r\nb,,,\r\n", CSVOptions{}},
		"case":             {"Name,NOTE,Age,SCORE\na,n,3,\nb,,,\n", CSVOptions{}},
		"no age":           {"score;note;name\n;n;a\n;;b\n", CSVOptions{Comma: ';'}},
		"no header":        {"a,n,3,\nb,,,\n", CSVOptions{NoHeader: true}},
		"given columns":    {"3\tx\ta\tn\t\n\tx\tb\t\t\n", CSVOptions{NoHeader: true, Comma: '\t', Columns: []string{"age", "x", "name", "note", "Score"}}},
	} {
		s := Source[person]{Paths: []string{write(t, filepath.Join(dir, name), []byte(c.content))}, Format: CSV, CSV: c.options}
		expect := slices.Clone(all)
		if name == "no age" {
			expect[0].Age = 0
		}
		for limit := 1; limit < 4; limit++ {
			got := readSplit(t, s, splitsOf(t, s)[0], func() int { return limit }, func() bool { return true })
			if !reflect.DeepEqual(got, expect) {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
	s := Source[[]string]{Paths: []string{write(t, filepath.Join(dir, "own"), []byte("h\n\"a\"\"\",b\n"))}, Format: CSV,
		DecodeFields: func(f [][]byte, v *[]string) error {
			for _, b := range f {
				*v = append(*v, string(b))
			}
			return nil
		}}
	if got := readAll(t, s); !reflect.DeepEqual(got, [][]string{{`a"`, "b"}}) {
		t.Errorf("own decoder: %q", got)
	}
}

func TestColumnTypes(t *testing.T) {
	type inner struct{ Deep uint8 }
	type row struct {
		inner
		At    time.Time     `csv:"at"`
		Day   time.Time     `csv:"day,omitempty,layout=Jan 2, 2006"`
		For   time.Duration `csv:"for"`
		OK    bool
		F32   float32
		Skip  chan int `csv:"-"`
		Plain *string
		Big   *bigText
		quiet int
	}
	hello := "hello, you"
	in := row{inner: inner{200}, At: time.Date(2001, 2, 3, 4, 5, 6, 7000, time.UTC), Day: time.Date(2001, 2, 3, 0, 0, 0, 0, time.UTC), For: time.Minute, OK: true, F32: 0.1, Plain: &hello, Big: &bigText{"x"}}
	s := Sink[row]{Format: CSV}
	e, err := s.newEncoder()
	if err != nil {
		t.Fatal(err)
	}
	line, err := e.append(slices.Clone(e.header), &in)
	if err != nil {
		t.Fatal(err)
	}
	line, err = e.append(line, &row{quiet: 1})
	if err != nil {
		t.Fatal(err)
	}
	const expect = "Deep,at,day,for,OK,F32,Plain,Big\n" +
		"200,2001-02-03T04:05:06.000007Z,\"Feb 3, 2001\",1m0s,true,0.1,\"hello, you\",<x>\n" +
		"0,0001-01-01T00:00:00Z,,0s,false,0,,\n"
	if string(line) != expect {
		t.Fatalf("encoded\n%s", line)
	}
	got := readAll(t, Source[row]{Paths: []string{write(t, filepath.Join(t.TempDir(), "f"), line)}, Format: CSV})
	if !reflect.DeepEqual(got, []row{in, {}}) {
		t.Errorf("decoded %+v", got)
	}
	for _, bad := range []error{
		second(columnsOf(reflect.TypeFor[int]())),
		second(columnsOf(reflect.TypeFor[time.Time]())),
		second(columnsOf(reflect.TypeFor[struct{ x int }]())),
		second(columnsOf(reflect.TypeFor[struct{ X []int }]())),
		second(columnsOf(reflect.TypeFor[struct{ X **int }]())),
		second(columnsOf(reflect.TypeFor[struct {
			X int `csv:"x,layout=2006"`
		}]())),
		second(columnsOf(reflect.TypeFor[struct {
			X int `csv:"x,wat"`
		}]())),
		second(columnsOf(reflect.TypeFor[struct {
			X int `csv:"x"`
			Y int `json:"x"`
		}]())),
	} {
		if bad == nil {
			t.Error("a type without columns passed")
		}
	}
}

func second[A any](_ A, err error) error { return err }

type bigText struct{ s string }

func (b bigText) MarshalText() ([]byte, error) { return []byte("<" + b.s + ">"), nil }
func (b *bigText) UnmarshalText(t []byte) error {
	b.s = strings.Trim(string(t), "<>")
	return nil
}

func TestJSONDefault(t *testing.T) {
	type row struct {
		A int       `json:"a"`
		T time.Time `json:"t"`
	}
	name := write(t, filepath.Join(t.TempDir(), "f.ndjson"), []byte(`{"a":1,"t":"2001-01-01T00:47:00Z","more":[1]}`+"\r\n"+`{"a":2}`))
	got := readAll(t, Source[row]{Paths: []string{name}})
	if len(got) != 2 || got[0].A != 1 || got[0].T.Year() != 2001 || got[1].A != 2 {
		t.Errorf("%+v", got)
	}
}

// Splits come in the order of paths, the matches of a pattern sorted, each file once, empty files never.
func TestOrderOfSplits(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", "c", "a", "[x]"} {
		write(t, filepath.Join(dir, name), []byte("1\n2\n3\n"))
	}
	write(t, filepath.Join(dir, "empty"), nil)
	t.Chdir(dir)
	s := Source[string]{Paths: []string{"c", "[x]", filepath.Join(dir, "?"), "*"}, Decode: text, SplitSize: 4, InOrder: true}
	var ids []string
	for _, split := range splitsOf(t, s) {
		rel, err := filepath.Rel(dir, split.ID)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, rel)
	}
	if got, want := fmt.Sprint(ids), "[c@0 c@4 [x]@0 [x]@4 a@0 a@4 b@0 b@4]"; got != want {
		t.Errorf("%s, expected %s", got, want)
	}
	if !s.SplitsInOrder() || !s.Bounded() {
		t.Error("in order, bounded")
	}
}

func classOf(err error) job.Class { return job.FailureOf("", "", err).Class }

func wantError(t *testing.T, what string, err error, class job.Class, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	if got := classOf(err); got != class {
		t.Errorf("%s: class %s, expected %s: %v", what, got, class, err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%s: %q does not say %q", what, err, p)
		}
	}
}

func TestInputErrors(t *testing.T) {
	dir := t.TempDir()
	splits := func(paths ...string) error {
		_, err := Source[string]{Paths: paths, Decode: text}.Splits(t.Context(), bg)
		return err
	}
	wantError(t, "nothing", splits(dir+"/x*.json", dir+"/y"), job.ClassRefused, "x*.json", "/y", "no file matches")
	wantError(t, "no directory", splits(dir+"/z/x*.json"), job.ClassRefused, "no file matches")
	wantError(t, "directory", splits(dir), job.ClassExternal, dir, "is a directory")
	wantError(t, "device", splits(os.DevNull), job.ClassExternal, os.DevNull, "not a regular file")
	file := write(t, filepath.Join(dir, "file"), []byte("x"))
	wantError(t, "file as directory", splits(file+"/x"), job.ClassExternal, file)
	denied := Source[string]{Paths: []string{file}, Decode: text, open: func(path string) (inputFile, error) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
	}}
	_, err := denied.Splits(t.Context(), bg)
	wantError(t, "denied", err, job.ClassExternal, file, "permission")
	bad := write(t, filepath.Join(dir, "\xff"), []byte("x"))
	wantError(t, "not UTF-8", splits(bad), job.ClassRefused, `\xff`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Source[string]{Paths: []string{file}, Decode: text}).Splits(ctx, bg); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// readErrors reads all of the first split and returns the rows and errors it gave.
func readErrors[T any](t *testing.T, s Source[T]) (rows []T, errs []error) {
	t.Helper()
	split := splitsOf(t, s)[0]
	r, err := s.Open(t.Context(), bg, split)
	if err != nil {
		return nil, []error{err}
	}
	defer r.Close()
	for range 100 {
		b := &record.Batch[T]{}
		status, err := r.Read(b, 3)
		rows = append(rows, b.Rows...)
		if err != nil {
			if n := len(errs); n > 0 && errs[n-1].Error() == err.Error() {
				return rows, errs // It does not go on.
			}
			errs = append(errs, err)
		}
		if status == operator.ReadEnd && err == nil {
			return rows, errs
		}
		// Reading goes on the same from the position, errors or not.
		again, err2 := s.Open(t.Context(), bg, r.Position())
		if err2 != nil {
			return rows, append(errs, err2)
		}
		r.Close()
		r = again
	}
	t.Fatal("reading does not end")
	return nil, nil
}

func TestRecordErrors(t *testing.T) {
	dir := t.TempDir()
	type row struct{ A int }
	bad := "{\"A\":1}\n\n{\"A\":x}\n{\"A\":2}\n" + strings.Repeat("z", 300) + "\n{\"A\":3}"
	for _, suffix := range []string{"", ".gz"} {
		name := write(t, filepath.Join(dir, "f.ndjson"+suffix), []byte(bad))
		rows, errs := readErrors(t, Source[row]{Paths: []string{name}})
		if !reflect.DeepEqual(rows, []row{{1}, {2}, {3}}) || len(errs) != 2 {
			t.Fatalf("%v %v", rows, errs)
		}
		wantError(t, "bad JSON", errs[0], job.ClassRecord, name, "line 3 (byte 9)", `"{\"A\":x}"`)
		wantError(t, "long bad JSON", errs[1], job.ClassRecord, name, "line 5 (byte 25)", "zzz\"... (300 bytes)")
		var e *RecordError
		if !errors.As(errs[1], &e) || len(e.Record) != 300 || e.Line != 5 || e.Path != name {
			t.Errorf("%+v", e)
		}
	}

	// Too long lines, at the edge, with both line breaks.
	edge := "0123456789\r\n0123456789\n0123456789x\n1\n0123456789xy\r\n0123456789x"
	name := write(t, filepath.Join(dir, "edge"), []byte(edge))
	lines, errs := readErrors(t, Source[string]{Paths: []string{name}, Decode: text, MaxLine: 10})
	if !slices.Equal(lines, []string{"0123456789", "0123456789", "1"}) || len(errs) != 3 {
		t.Fatalf("%q %v", lines, errs)
	}
	wantError(t, "too long", errs[0], job.ClassRecord, "line 3 (byte 23)", "limit of 10 bytes", "MaxLine")
	wantError(t, "too long", errs[1], job.ClassRecord, "line 5", "limit of 10 bytes")
	huge := write(t, filepath.Join(dir, "huge"), []byte("1\n"+strings.Repeat("x", 3<<20)+"\n2\n"))
	lines, errs = readErrors(t, Source[string]{Paths: []string{huge}, Decode: text, MaxLine: 1000})
	if !slices.Equal(lines, []string{"1", "2"}) || len(errs) != 1 {
		t.Fatalf("%q %v", lines, errs)
	}
	wantError(t, "huge", errs[0], job.ClassRecord, "line 2 (byte 2)")

	// In a range that does not begin the file, the offset is known.
	s := Source[row]{Paths: []string{write(t, filepath.Join(dir, "range"), []byte("{\"A\":1}\n{\"A\":2}\n{}{}\n"))}, SplitSize: 10}
	r, err := s.Open(t.Context(), bg, splitsOf(t, s)[1])
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = r.Read(&record.Batch[row]{}, 10)
	wantError(t, "range", err, job.ClassRecord, "range: byte 16: ", "{}{}")
}

func TestCSVErrors(t *testing.T) {
	dir := t.TempDir()
	type row struct {
		A int    `csv:"a"`
		B string `csv:"b"`
	}
	read := func(content string, oneLine bool, limit int) ([]row, []error) {
		s := Source[row]{Paths: []string{write(t, filepath.Join(dir, "f"), []byte(content))}, Format: CSV, MaxLine: limit, CSV: CSVOptions{OneLine: oneLine}}
		return readErrors(t, s)
	}
	rows, errs := read("a,b\n1,\"x\ny\"\n2\nz,z\n3,\"y\"z\n4,y\"\"\n5,z\n", false, 0)
	if !reflect.DeepEqual(rows, []row{{1, "x\ny"}, {5, "z"}}) || len(errs) != 4 {
		t.Fatalf("%v %v", rows, errs)
	}
	wantError(t, "fields", errs[0], job.ClassRecord, "line 4 (byte 12)", "1 fields where the header has 2")
	wantError(t, "number", errs[1], job.ClassRecord, "line 5", `column "a"`, `"z"`)
	wantError(t, "text behind", errs[2], job.ClassRecord, "line 6", "field 2", "behind the closing quote")
	wantError(t, "bare quote", errs[3], job.ClassRecord, "line 7", "field 2", "not quoted")
	_, errs = read("a,b\n1,\"x\n2,z\n3,z\n", false, 0)
	wantError(t, "open quote", errs[0], job.ClassRecord, "line 2", "not closed")
	_, errs = read("a,b\n1,\"x\n2,z\n3,z\n", false, 5)
	wantError(t, "open quote, limit", errs[0], job.ClassRecord, "line 2", "limit of 5 bytes", "quote")
	rows, errs = read("a,b\n1,\"x\n2,z\n", true, 0)
	if len(rows) != 1 || len(errs) != 1 {
		t.Errorf("%v %v", rows, errs)
	}
	for content, say := range map[string]string{
		"a,c\n":          `no column "b"`,
		"x\n1,2\n":       `no column "a", "b"`,
		"a,b,a\n1,2,3\n": `"a" twice`,
	} {
		_, errs = read(content, false, 0)
		if len(errs) == 0 {
			t.Errorf("header %q passed", content)
			continue
		}
		wantError(t, "header", errs[0], job.ClassRefused, filepath.Join(dir, "f"), say)
	}
	_, errs = read("\"a,b\n", false, 0)
	wantError(t, "broken header", errs[0], job.ClassRecord, "line 1", "header")
}

// What is there is checked against what was there: no split reads a file that is another one by now.
func TestChangedFile(t *testing.T) {
	dir := t.TempDir()
	var content bytes.Buffer
	for i := range 30_000 {
		fmt.Fprintf(&content, "line %d\n", i)
	}
	for _, name := range []string{"f", "f.gz"} {
		path := write(t, filepath.Join(dir, name), content.Bytes())
		original, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s := Source[string]{Paths: []string{path}, Decode: text}
		split := splitsOf(t, s)[0]
		r, err := s.Open(t.Context(), bg, split)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(&record.Batch[string]{}, 100); err != nil {
			t.Fatal(err)
		}
		split = r.Position()
		r.Close()
		flipped := slices.Clone(original)
		flipped[0] ^= 1
		for what, now := range map[string][]byte{
			"shrank":  original[:len(original)-1],
			"grew":    append(slices.Clone(original), "more\n"...),
			"flipped": flipped,
			"emptied": nil,
		} {
			if err := os.WriteFile(path, now, 0o666); err != nil {
				t.Fatal(err)
			}
			r, err := s.Open(t.Context(), bg, split)
			if what == "grew" && name == "f" {
				if err != nil {
					t.Errorf("a log that grows is refused: %v", err)
					continue
				}
				b := &record.Batch[string]{}
				for status := operator.ReadMore; status != operator.ReadEnd; {
					if status, err = r.Read(b, 100_000); err != nil {
						t.Fatal(err)
					}
				}
				if n := len(b.Rows); n != 29_900 || b.Rows[n-1] != "line 29999" {
					t.Errorf("%d rows", n)
				}
				r.Close()
				continue
			}
			wantError(t, what, err, job.ClassExternal, path, "changed")
		}
		os.Remove(path)
		_, err = s.Open(t.Context(), bg, split)
		wantError(t, "removed", err, job.ClassExternal, path)
	}

	path := write(t, filepath.Join(dir, "partial"), []byte("a\nb"))
	s := Source[string]{Paths: []string{path}, Decode: text}
	split := splitsOf(t, s)[0]
	write(t, path, []byte("a\nbcd\n"))
	_, err := s.Open(t.Context(), bg, split)
	wantError(t, "grew in a line", err, job.ClassExternal, path, "middle of a line")

	// A position where no line begins any more.
	write(t, path, bytes.Repeat([]byte("abc\n"), 30_000))
	s = Source[string]{Paths: []string{path}, Decode: text}
	b, err := decodeSplit(splitsOf(t, s)[0].Body)
	if err != nil {
		t.Fatal(err)
	}
	b.Next = 17
	r, err := s.Open(t.Context(), bg, b.split())
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Read(&record.Batch[string]{}, 1)
	wantError(t, "position", err, job.ClassExternal, path, "byte 17")
	r.Close()
}

func TestDamagedCompression(t *testing.T) {
	dir := t.TempDir()
	content := bytes.Repeat([]byte("some line or other\n"), 60)
	for _, name := range []string{"f.gz", "f.zst"} {
		path := write(t, filepath.Join(dir, name), content)
		whole, _ := os.ReadFile(path)
		for what, damaged := range map[string][]byte{"cut": whole[:len(whole)-3], "not compressed": content[:100]} {
			os.WriteFile(path, damaged, 0o666)
			_, errs := readErrors(t, Source[string]{Paths: []string{path}, Decode: text})
			if len(errs) == 0 {
				t.Errorf("%s %s passed", name, what)
				continue
			}
			wantError(t, what, errs[0], job.ClassRecord, path, "damaged or incomplete") // It comes again after every restart.
		}
		// The position of a longer file.
		write(t, path, []byte("a\n"))
		s := Source[string]{Paths: []string{path}, Decode: text}
		b, _ := decodeSplit(splitsOf(t, s)[0].Body)
		b.Next = 100
		r, err := s.Open(t.Context(), bg, b.split())
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.Read(&record.Batch[string]{}, 1)
		wantError(t, "position", err, job.ClassRecord, path, "98 bytes before the position")
		r.Close()
	}
}

// shrinking is a file that ends early while it is read.
type shrinking struct {
	*os.File
	end int64
	err error
}

func (s shrinking) ReadAt(p []byte, off int64) (int, error) {
	if off >= s.end {
		return 0, s.err
	}
	return s.File.ReadAt(p[:min(int64(len(p)), s.end-off)], off)
}

func TestFaultsWhileReading(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "f"), bytes.Repeat([]byte("0123456\n"), 100_000))
	split := splitsOf(t, Source[string]{Paths: []string{path}, Decode: text})[0]
	for _, fault := range []error{io.EOF, errors.New("device is gone")} {
		var opened int
		s := Source[string]{Paths: []string{path}, Decode: text, open: func(path string) (inputFile, error) {
			f, err := os.Open(path)
			opened++
			return shrinking{f, 400_000, fault}, err
		}}
		b, _ := decodeSplit(split.Body)
		_, err := s.Open(t.Context(), bg, split)
		if err == nil {
			t.Fatal("the fingerprint did not notice")
		}
		b.Size, b.End = 400_000, 400_000
		f, _ := os.Open(path)
		b.Print, _ = fingerprint(f, b.Size)
		f.Close()
		s.open = func(path string) (inputFile, error) {
			f, err := os.Open(path)
			return &late{shrinking: shrinking{f, 1 << 30, fault}}, err
		}
		r, err := s.Open(t.Context(), bg, b.split())
		if err != nil {
			t.Fatal(err)
		}
		r.(*reader[string]).file.(*late).end = 300_000
		rows := 0
		for {
			batch := &record.Batch[string]{}
			var status operator.ReadStatus
			status, err = r.Read(batch, 1000)
			rows += len(batch.Rows)
			if err != nil || status == operator.ReadEnd {
				break
			}
		}
		say := "shrank"
		if !errors.Is(fault, io.EOF) {
			say = fault.Error()
		}
		wantError(t, "fault", err, job.ClassExternal, path, say)
		if rows > 300_000/8 {
			t.Errorf("%d rows", rows)
		}
		if _, again := r.Read(&record.Batch[string]{}, 1); again == nil {
			t.Error("reading goes on behind a fault")
		}
		r.Close()
	}
}

type late struct{ shrinking }

func TestSourceValidate(t *testing.T) {
	good := Source[person]{Paths: []string{"x"}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	bad := Source[person]{Paths: []string{"", "[", "a/**/b"}, Format: 7, Compression: 9, SplitSize: -1, MaxLine: -1, Rate: -1,
		DecodeFields: func([][]byte, *person) error { return nil }}
	err := bad.Validate()
	for _, say := range []string{"empty path", `"["`, "**", "Format", "Compression", "SplitSize", "MaxLine", "Rate", "DecodeFields"} {
		if err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%q is not in: %v", say, err)
		}
	}
	for _, bad := range []interface{ Validate() error }{
		Source[int]{},
		Source[int]{Paths: []string{"x"}, Format: CSV},
		Source[person]{Paths: []string{"x"}, Format: CSV, Decode: func([]byte, *person) error { return nil }},
		Source[person]{Paths: []string{"x"}, Format: CSV, CSV: CSVOptions{Comma: '"'}},
		Source[person]{Paths: []string{"x"}, Format: CSV, CSV: CSVOptions{Columns: []string{"name"}}},
		Source[person]{Paths: []string{"x"}, Format: CSV, CSV: CSVOptions{NoHeader: true, Columns: []string{"name", ""}}},
	} {
		if bad.Validate() == nil {
			t.Errorf("%+v passed", bad)
		}
	}
}

func TestSourceRate(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "f"), bytes.Repeat([]byte("x\n"), 1000))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		s := Source[string]{Paths: []string{path}, Decode: text, Rate: 100, SplitSize: 200}
		wake := make(chan struct{}, 1)
		c := operator.SourceContext{Name: "in", Parallelism: 2, Now: time.Now, Wake: func() { wake <- struct{}{} }}
		start := time.Now()
		rows := 0
		var readers []operator.SplitReader[string]
		for _, split := range splitsOf(t, s)[:2] { // One subtask's half of the rate, for two splits at once.
			r, err := s.Open(ctx, c, split)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			readers = append(readers, r)
		}
		for len(readers) > 0 {
			waiting := 0
			for i := 0; i < len(readers); i++ {
				b := &record.Batch[string]{}
				status, err := readers[i].Read(b, 1024)
				if err != nil {
					t.Fatal(err)
				}
				rows += len(b.Rows)
				switch status {
				case operator.ReadEnd:
					readers = slices.Delete(readers, i, i+1)
					i--
				case operator.ReadWait:
					waiting++
				}
			}
			if waiting > 0 && waiting == len(readers) {
				<-wake
			}
		}
		if d := time.Since(start); rows != 200 || d < 3900*time.Millisecond || d > 4200*time.Millisecond {
			t.Errorf("%d records in %v", rows, d)
		}
	})
}

// Descriptions of splits of version 1 stay readable.
func TestSplitGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/split-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(golden) {
		line = bytes.TrimSpace(line)
		b, err := decodeSplit(line)
		if err != nil {
			t.Error(err)
		} else if got := b.split().Body; !bytes.Equal(got, line) {
			t.Errorf("%s is written as %s", line, got)
		}
	}
	path := write(t, filepath.Join(t.TempDir(), "f"), bytes.Repeat([]byte("0123456789\n"), 100_000))
	f, _ := os.Open(path)
	defer f.Close()
	for size, want := range map[int64]string{0: "2d06800538d394c2", 11: "af6f7bde4a52b393", 1_100_000: "5c529bb241ec098a"} {
		if got, err := fingerprint(f, size); err != nil || got != want {
			t.Errorf("fingerprint of %d bytes: %s, %v", size, got, err)
		}
	}
}

func FuzzSplitBody(f *testing.F) {
	golden, err := os.ReadFile("testdata/split-v1.json")
	if err != nil {
		f.Fatal(err)
	}
	for line := range bytes.Lines(golden) {
		f.Add(line)
	}
	for _, bad := range []string{"", "{}", `{"v":2}`, `{"v":1,"path":"x","compression":"none","start":5,"end":4,"of":1}`} {
		f.Add([]byte(bad))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, err := decodeSplit(raw)
		if err != nil {
			if classOf(err) != job.ClassRefused {
				t.Error(err)
			}
			return
		}
		again, err := decodeSplit(b.split().Body)
		if err != nil || again != b {
			t.Errorf("%s: %+v, %v", raw, again, err)
		}
	})
}

// Lines of any content, cut into splits of any size, are those that bytes.Split gives.
func FuzzNDJSONSplits(f *testing.F) {
	f.Add([]byte("a\nbb\r\n\nccc"), uint16(3), uint16(1))
	f.Add([]byte("\xef\xbb\xbfa\n\r\n\r\r\nb\r"), uint16(1), uint16(2))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte, size, limit uint16) {
		if len(content) > 2000 {
			return
		}
		var expect []string
		rest := bytes.TrimPrefix(content, bom)
		for _, line := range bytes.Split(rest, newline) {
			if line = bytes.TrimSuffix(line, []byte("\r")); !blank(line, NDJSON) {
				expect = append(expect, string(line))
			}
		}
		s := Source[string]{Paths: []string{write(t, filepath.Join(dir, "f"), content)}, Decode: text, SplitSize: int64(size) + 1}
		var got []string
		for _, split := range splitsOf(t, s) {
			got = append(got, readSplit(t, s, split, func() int { return int(limit%50) + 1 }, func() bool { return limit%3 == 0 })...)
		}
		if !slices.Equal(got, expect) {
			t.Errorf("%q: got %q, expected %q", content, got, expect)
		}
	})
}

// What encoding/csv accepts, we read the same, except that it makes LF of CR LF inside of quotes.
func FuzzCSVFields(f *testing.F) {
	f.Add([]byte("a,b\n\"x\"\"y\",\"line\nbreak\"\n1,\"\"\n"))
	f.Add([]byte("\n\na\n\"b\"\r\nc"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) > 2000 || bytes.Contains(content, []byte("\r")) || bytes.HasPrefix(content, bom) || len(content) == 0 {
			return
		}
		r := csv.NewReader(bytes.NewReader(content))
		r.FieldsPerRecord = -1
		expect, err := r.ReadAll()
		if err != nil {
			return
		}
		s := Source[[]string]{Paths: []string{write(t, filepath.Join(dir, "f"), content)}, Format: CSV, CSV: CSVOptions{NoHeader: true},
			DecodeFields: func(fields [][]byte, v *[]string) error {
				for _, b := range fields {
					*v = append(*v, string(b))
				}
				return nil
			}}
		got := readSplit(t, s, splitsOf(t, s)[0], func() int { return 2 }, func() bool { return true })
		if !reflect.DeepEqual(got, append([][]string(nil), expect...)) {
			a, _ := json.Marshal(got)
			t.Errorf("%q: got %s, expected %q", content, a, expect)
		}
	})
}

func BenchmarkReadNDJSON(b *testing.B) {
	path := write(b, filepath.Join(b.TempDir(), "f"), bytes.Repeat([]byte(`{"time":"2001-01-01T00:47:00Z","origin":"DTW","destination":"LAS","delay":66,"distance":1750}`+"\n"), 20_000))
	s := Source[int]{Paths: []string{path}, Decode: func(line []byte, v *int) error { *v = len(line); return nil }}
	split := splitsOf(b, s)[0]
	b.ReportAllocs()
	n := 0
	batch := &record.Batch[int]{}
	for b.Loop() {
		r, err := s.Open(b.Context(), bg, split)
		if err != nil {
			b.Fatal(err)
		}
		for status := operator.ReadMore; status != operator.ReadEnd; {
			batch.Rows = batch.Rows[:0]
			if status, err = r.Read(batch, 1024); err != nil {
				b.Fatal(err)
			}
			n += len(batch.Rows)
		}
		r.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/line")
}
