package nexmark

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var full = flag.Bool("full", false, "check every answer at every parallelism")

// Every answer is the reference's, whatever the parallelism and the order of events.
func TestAnswers(t *testing.T) {
	for i, name := range Names() {
		for k, parallelism := range []int{1, 2, 4} {
			for n, jitter := range []int64{0, 700} {
				if !*full && (i%3 != k || i/3%2 != n) { // Each answer once, and all combinations in turn.
					continue
				}
				t.Run(fmt.Sprintf("%s/parallelism=%d/jitter=%d", name, parallelism, jitter), func(t *testing.T) {
					if testing.Short() {
						t.Skip("needs a cluster for each answer")
					}
					check(t, Options{
						Query: name, Events: 200_000, Seed: 1, Jitter: jitter, Parallelism: parallelism, Check: true, Dir: t.TempDir(),
						CheckpointInterval: 200 * time.Millisecond,
					})
				})
			}
		}
	}
}

func check(t *testing.T, o Options) {
	t.Helper()
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Verified == nil || !*r.Verified {
		want, _, err := Expected(o.Query, o.Events, o.Seed, o.Jitter)
		t.Errorf("%d rows, %s; want %d, %s (%v)", r.Rows, r.SHA256, want.Rows, want.SHA256, err)
	}
}

// A timed run has its figures, and an answer that nobody knows is no wrong one.
func TestRun(t *testing.T) {
	r, err := Run(context.Background(), Options{Query: "q12", Events: 30_000, Seed: 9, TaskManagers: 2, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if r.Verified != nil || r.Rows == 0 || len(r.SHA256) != 64 || r.PeakRSSBytes == 0 {
		t.Errorf("%+v", r)
	}
	if r.Seconds == nil || *r.Seconds <= 0 || r.CPUSeconds == nil || *r.CPUSeconds <= 0 || r.EventsPerSecond == nil || r.EventsPerCPUSecond == nil {
		t.Errorf("%+v", r)
	}
}

func TestRunRefuses(t *testing.T) {
	for _, o := range []Options{{}, {Query: "q6"}, {Query: "q0", Events: -1}, {Query: "q0", Jitter: -1}, {Query: "keyed-count/0"}, {Query: "q0", Backend: "tape"}} {
		o.Dir, o.Check = t.TempDir(), true
		if _, err := Run(context.Background(), o); err == nil {
			t.Errorf("%+v ran", o)
		}
	}
}
