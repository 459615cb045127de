package flightsjob

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/cli"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/stream"
)

// plainFlights reads the input without the job's own decoder.
func plainFlights(t *testing.T) (list []struct {
	Time                time.Time
	Origin, Destination string
	Delay               int
}) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(inputText(t)))
	for d.More() {
		var f struct {
			Time                time.Time
			Origin, Destination string
			Delay               int
		}
		if err := d.Decode(&f); err != nil {
			t.Fatal(err)
		}
		list = append(list, f)
	}
	return list
}

// plainSliding puts every flight into each of its three windows.
func plainSliding(t *testing.T) (rows []string) {
	type win struct{ destination, start string }
	sums := map[win][2]int{}
	for _, f := range plainFlights(t) {
		start := f.Time.Truncate(2 * time.Hour)
		for range 3 {
			w := win{f.Destination, start.Format(time.RFC3339)}
			s := sums[w]
			sums[w] = [2]int{s[0] + 1, s[1] + f.Delay}
			start = start.Add(-2 * time.Hour)
		}
	}
	for w, s := range sums {
		rows = append(rows, fmt.Sprintf("%s,%s,%d,%d", w.destination, w.start, s[0], s[1]))
	}
	slices.Sort(rows)
	return rows
}

// plainSessions sorts the flights of each airport and cuts them where six hours or more pass.
func plainSessions(t *testing.T) (rows []string) {
	flights := plainFlights(t)
	slices.SortStableFunc(flights, func(a, b struct {
		Time                time.Time
		Origin, Destination string
		Delay               int
	}) int {
		return strings.Compare(a.Origin, b.Origin)*2 + a.Time.Compare(b.Time)
	})
	for i := 0; i < len(flights); {
		j, delay := i, 0
		for j < len(flights) && flights[j].Origin == flights[i].Origin && (j == i || flights[j].Time.Sub(flights[j-1].Time) < 6*time.Hour) {
			delay += flights[j].Delay
			j++
		}
		rows = append(rows, fmt.Sprintf("%s,%s,%s,%d,%d", flights[i].Origin, flights[i].Time.Format(time.RFC3339), flights[j-1].Time.Format(time.RFC3339), j-i, delay))
		i = j
	}
	slices.Sort(rows)
	return rows
}

// failing fails once, behind so many records.
type failing struct {
	operator.Source[Flight]
	left   *atomic.Int64
	failed *atomic.Bool
}

func (s failing) Open(ctx context.Context, c operator.SourceContext, split operator.Split) (operator.SplitReader[Flight], error) {
	r, err := s.Source.Open(ctx, c, split)
	return failingReader{r, s}, err
}

type failingReader struct {
	operator.SplitReader[Flight]
	s failing
}

func (r failingReader) Read(b *record.Batch[Flight], limit int) (operator.ReadStatus, error) {
	before := len(b.Rows)
	status, err := r.SplitReader.Read(b, min(limit, 100))
	if n := int64(len(b.Rows) - before); err == nil && r.s.left.Add(-n) < 0 && r.s.failed.CompareAndSwap(false, true) {
		return status, job.Errorf(job.ClassInfrastructure, "a crash in the middle of the stream")
	}
	return status, err
}

// The windowed jobs give what plain Go gives, at parallelism 1 and 4, also with a crash in the
// middle.
func TestWindowedJobs(t *testing.T) {
	dir := t.TempDir()
	if _, err := Deal(dir, 4); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, header string
		build        func(*stream.Job, operator.Source[Flight])
		want         []string
	}{
		{"flights-sliding", "destination,window_start,flights,total_delay", sliding, plainSliding(t)},
		{"flights-sessions", "origin,first,last,flights,total_delay", sessions, plainSessions(t)},
	} {
		for _, parallelism := range []int{1, 4} {
			for _, crash := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/parallelism=%d/crash=%v", c.name, parallelism, crash), func(t *testing.T) {
					var left atomic.Int64
					var failed atomic.Bool
					left.Store(Lines / 2)
					build := func(j *stream.Job) {
						src := input(j)
						if crash {
							src = failing{src, &left, &failed}
						}
						c.build(j, src)
					}
					out := filepath.Join(t.TempDir(), "out")
					app := cli.New(cairn.NewPrograms(cairn.Program(c.name, build)))
					var log bytes.Buffer
					app.Stdout, app.Stderr = &log, &log
					args := []string{"run", c.name, "--arg", "input=" + filepath.Join(dir, "*.ndjson"), "--arg", "output=" + out,
						"--parallelism", fmt.Sprint(parallelism)}
					if crash {
						args = append(args, "--arg", "rate=20000", "--set", "checkpoint.interval=100ms")
					}
					if code := app.Program(args); code != 0 {
						t.Fatalf("exit code %d\n%s", code, &log)
					}
					if crash && !failed.Load() {
						t.Error("it did not crash")
					}
					if got := csvRows(t, out, c.header); !slices.Equal(got, c.want) {
						t.Errorf("%d rows, want %d", len(got), len(c.want))
					}
				})
			}
		}
	}
}

// csvRows are the rows of all parts below dir, sorted.
func csvRows(t *testing.T, dir, header string) (rows []string) {
	t.Helper()
	parts, err := filepath.Glob(filepath.Join(dir, "*.csv"))
	if err != nil || len(parts) == 0 {
		t.Fatalf("%d parts, %v", len(parts), err)
	}
	for _, p := range parts {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		if lines[0] != header {
			t.Fatalf("%s begins with %s", p, lines[0])
		}
		rows = append(rows, lines[1:]...)
	}
	slices.Sort(rows)
	return rows
}
