package task_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/watermark"
)

// A checkpoint that comes while the last windows fire, at the end of the input, is one behind the end for every task. If it
// were taken between two timers, its readers would close with it, no barrier could follow, and the job would never end.
func TestCheckpointWhileTheLastTimersFire(t *testing.T) {
	const n = 5000
	fires, hold := make(chan struct{}), make(chan struct{})
	var once sync.Once
	out := collect.New[string]()
	p := stream.Program{Name: "late", Build: func(j *stream.Job) {
		count := window.Functions[string, event, int64, string]{
			AddTo: func(c *int64, _ *event) { *c++ },
			ResultOf: func(p window.Pane[string], c *int64) string {
				once.Do(func() { close(fires); <-hold })
				return fmt.Sprint(p.Key, "=", *c)
			},
		}
		j.Source("events", datagen.Source[event]{Count: n, Make: func(n int64, e *event) { e.Key, e.At = fmt.Sprint(n), n }}).
			Timestamps(func(e *event) time.Time { return time.UnixMilli(e.At) }, watermark.Bounded(time.Hour)).
			KeyBy(func(e *event) string { return e.Key }).
			Window("counts", window.Tumbling(time.Minute)).Aggregate(count).
			Sink("out", out)
	}}
	c := newCluster(t, 1, p, settings(job.ExactlyOnce, "fs"))
	c.deploy(1)
	<-fires                                                      // Nothing but the end of the input brings the watermark this far.
	time.AfterFunc(100*time.Millisecond, func() { close(hold) }) // By then the barrier is in the gate; later is as good.
	c.checkpoint(true)
	c.finish()
	if out.Len() != n {
		t.Errorf("%d rows, want %d", out.Len(), n)
	}
}
