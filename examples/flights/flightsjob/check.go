package flightsjob

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Header is the first line of DailyJob's answer and of every part of it.
const Header = "origin,day,flights,total_delay,max_delay"

// Key is what there is one row for: the first two columns of an answer, an airport and the day or when the window starts.
type Key struct{ Airport, Start string }

func (k Key) String() string { return k.Airport + " " + k.Start }

func compareKeys(a, b Key) int {
	return strings.Compare(a.Airport+","+a.Start, b.Airport+","+b.Start)
}

// Output reads all parts, *.csv, of DailyJob below dir: rows without headers, by key. Hidden files are no output.
func Output(dir string) (map[Key][]string, error) { return output(dir, Header) }

func output(dir, header string) (map[Key][]string, error) {
	rows := map[Key][]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if hidden := strings.HasPrefix(e.Name(), "."); e.IsDir() {
			if hidden && path != dir {
				return fs.SkipDir
			}
			return nil
		} else if hidden || filepath.Ext(path) != ".csv" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := parse(text, header, rows); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the output: %w", err)
	}
	return rows, nil
}

func parse(text []byte, header string, rows map[Key][]string) error {
	if len(text) > 0 && text[len(text)-1] != '\n' {
		return errors.New("the last line is cut off")
	}
	r := csv.NewReader(bytes.NewReader(text))
	r.FieldsPerRecord = strings.Count(header, ",") + 1
	list, err := r.ReadAll()
	if err != nil {
		return err
	}
	if len(list) == 0 || strings.Join(list[0], ",") != header {
		return fmt.Errorf("the first line is not %s", header)
	}
	for _, f := range list[1:] {
		k := Key{f[0], f[1]}
		rows[k] = append(rows[k], strings.Join(f, ","))
	}
	return nil
}

// Check compares the output of any of the jobs below dir with the expected answer, its header first; order aside. The
// error counts and shows what is missing, what is there too often or should not be, and what differs.
func Check(dir string, expected []byte) error {
	header, _, _ := strings.Cut(string(expected), "\n")
	want := map[Key][]string{}
	if err := parse(expected, header, want); err != nil {
		return fmt.Errorf("expected answer: %w", err)
	}
	got, err := output(dir, header)
	if err != nil {
		return err
	}
	d := differences{}
	for _, k := range keys(want, got) {
		w, g := slices.Clone(want[k]), slices.Clone(got[k])
		slices.Sort(w)
		slices.Sort(g)
		switch {
		case slices.Equal(w, g):
		case len(g) == 0:
			d.add("missing", w...)
		case len(w) == 0:
			d.add("not expected", g...)
		case len(g) > len(w) && slices.Equal(slices.Compact(slices.Clone(g)), w):
			d.add("more than once", g[0])
		default:
			d.add("different", fmt.Sprintf("%s instead of %s", strings.Join(g, " and "), strings.Join(w, " and ")))
		}
	}
	return d.err(dir)
}

// CheckAtLeastOnce compares the output of a run of DailyJob in at-least-once mode: of every expected (origin, day) the row with
// the most flights has at least the expected number. surplus is by how many flights the rows exceed that altogether.
func CheckAtLeastOnce(dir string, expected []byte) (surplus int64, err error) {
	want := map[Key][]string{}
	if err := parse(expected, Header, want); err != nil {
		return 0, fmt.Errorf("expected answer: %w", err)
	}
	got, err := Output(dir)
	if err != nil {
		return 0, err
	}
	d := differences{}
	for _, k := range keys(want, got) {
		wantFlights, _, err := flights(want[k])
		if err != nil {
			return 0, err
		}
		most, sum, err := flights(got[k])
		if err != nil {
			return 0, err
		}
		switch {
		case len(want[k]) == 0:
			d.add("not expected", got[k]...)
		case len(got[k]) == 0:
			d.add("missing", want[k]...)
		case most < wantFlights:
			d.add("fewer flights", fmt.Sprintf("%s instead of %s", strings.Join(got[k], " and "), want[k][0]))
		}
		surplus += sum - wantFlights
	}
	return surplus, d.err(dir)
}

func flights(rows []string) (most, sum int64, err error) {
	for _, row := range rows {
		n, err := strconv.ParseInt(strings.Split(row, ",")[2], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("row %s: %w", row, err)
		}
		most = max(most, n)
		sum += n
	}
	return most, sum, nil
}

func keys(a, b map[Key][]string) []Key {
	var list []Key
	for k := range a {
		list = append(list, k)
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, compareKeys)
	return list
}

// differences are rows by what is wrong with them.
type differences map[string][]string

func (d differences) add(what string, rows ...string) { d[what] = append(d[what], rows...) }

const shown = 5

func (d differences) err(dir string) error {
	if len(d) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the output in %s is not as expected", dir)
	for _, what := range []string{"missing", "not expected", "more than once", "fewer flights", "different"} {
		rows := d[what]
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%d %s:", len(rows), what)
		for _, row := range rows[:min(shown, len(rows))] {
			fmt.Fprintf(&b, "\n  %s", row)
		}
		if len(rows) > shown {
			fmt.Fprintf(&b, "\n  ...")
		}
	}
	return errors.New(b.String())
}
