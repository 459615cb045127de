package flightsjob

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/cli"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/stream"
)

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

// The windowed jobs give what plain Go gives, at parallelism 1 and 4, also with a crash in the middle.
func TestWindowedJobs(t *testing.T) {
	dir := t.TempDir()
	if _, err := Deal(dir, 4); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		build     func(*stream.Job, operator.Source[Flight])
		reference func(io.Reader) ([]byte, error)
	}{
		{"flights-sliding", sliding, SlidingReference},
		{"flights-sessions", sessions, SessionsReference},
	} {
		want, err := c.reference(bytes.NewReader(inputText(t)))
		if err != nil {
			t.Fatal(err)
		}
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
					if err := Check(out, want); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}
