package task_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/watermark"
)

// BenchmarkIdle is the CPU time of a job without data: 200 subtasks each of which is joined to all
// others, 40,000 channels, with a checkpoint a second, in one process. One iteration is a second;
// %core is the share of a core that it takes.
func BenchmarkIdle(b *testing.B) {
	for _, x := range []struct {
		name    string
		readers int
		align   bool
	}{{"100 to 100", 100, false}, {"200 to 200", 200, false}, {"200 to 200 aligned", 200, true}} {
		b.Run(x.name, func(b *testing.B) {
			src := newTap(x.readers)
			st := watermark.Monotonous().Idle(100 * time.Millisecond)
			if x.align {
				st = st.Align("g", time.Minute)
			}
			s := job.DefaultSettings()
			s.MaxParallelism = 256
			c := newCluster(b, 1, stream.Program{Name: "idle", Build: func(j *stream.Job) {
				j.Source("src", src).
					Timestamps(atOf, st).
					KeyBy(func(e *event) string { return e.Key }).
					Process("count", func(s *operator.States[string]) operator.Handler[string, event, event] {
						n := s.Value[int64]("n")
						return operator.Handler[string, event, event]{Record: func(c *operator.KeyedContext[string, event], e *event) { *n.Ref()++ }}
					}).
					Sink("out", &collect.Discard[event]{})
			}}, s)
			c.deploy(x.readers)
			quiet := time.Now().Add(2 * time.Second) // Everything is idle by then.
			c.pass("idleness", func() bool { return time.Now().After(quiet) })
			c.checkpoint(true)
			start, cpu := time.Now(), cpuTime()
			n := 0
			for b.Loop() {
				n++
				c.checkpoint(true)
				next := start.Add(time.Duration(n) * time.Second)
				c.pass("the next second", func() bool { return time.Now().After(next) })
			}
			b.StopTimer()
			b.ReportMetric(100*(cpuTime()-cpu).Seconds()/time.Since(start).Seconds(), "%core")
			c.crash()
		})
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
