package nexmark

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every answer is the reference's, whatever the parallelism and the order of events.
func TestAnswers(t *testing.T) {
	for _, name := range Names() {
		for _, parallelism := range []int{1, 2, 4} {
			for _, jitter := range []int64{0, 700} {
				if testing.Short() && (parallelism != 2 || jitter != 0) {
					continue
				}
				t.Run(fmt.Sprintf("%s/parallelism=%d/jitter=%d", name, parallelism, jitter), func(t *testing.T) {
					o := Options{
						Query: name, Events: 200_000, Seed: 1, Jitter: jitter, Parallelism: parallelism, Check: true, Dir: t.TempDir(),
						CheckpointInterval: 200 * time.Millisecond,
					}
					check(t, o)
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
