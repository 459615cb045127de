package task_test

import (
	"testing"

	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/stream"
)

type row struct{ Key, Value, Time uint64 }

func fillRows(first int64, rows []row) {
	for i := range rows {
		n := uint64(first) + uint64(i)
		z := n * 0x9E3779B97F4A7C15
		z ^= z >> 29
		rows[i] = row{Key: (z >> 32) * 100_000 >> 32, Value: n, Time: n}
	}
}

// sumJob is filter, map, key-by, running sum, with a hash edge in process.
func sumJob(n int64, extra int, sink operator.Sink[row]) stream.Program {
	return stream.Program{Name: "sum", Build: func(j *stream.Job) {
		s := j.Source("rows", datagen.Source[row]{Count: n, NumSplits: 1, Fill: fillRows}).
			Filter("some", func(r *row) bool { return r.Value&7 != 0 }).
			Map("double", func(r *row) row { return row{r.Key, r.Value * 2, r.Time} })
		for range extra {
			s = s.Map("", func(r *row) row { return row{r.Key, r.Value + 1, r.Time} })
		}
		s.KeyBy(func(r *row) uint64 { return r.Key }).
			Process("sum", func(s *operator.States[uint64]) operator.Handler[uint64, row, row] {
				sum := s.Value[uint64]("sum")
				return operator.Handler[uint64, row, row]{Record: func(c *operator.KeyedContext[uint64, row], r *row) {
					p := sum.Ref()
					*p += r.Value
					c.Emit(row{r.Key, *p, r.Time})
				}}
			}).
			Sink("out", sink)
	}}
}

func sumLoop(n int64) uint64 {
	sums := map[uint64]uint64{}
	buf := make([]row, 1024)
	var check uint64
	for at := int64(0); at < n; at += int64(len(buf)) {
		rows := buf[:min(int64(len(buf)), n-at)]
		fillRows(at, rows)
		for i := range rows {
			r := &rows[i]
			if r.Value&7 == 0 {
				continue
			}
			m := row{r.Key, r.Value * 2, r.Time}
			s := sums[m.Key] + m.Value
			sums[m.Key] = s
			check += s ^ m.Time
		}
	}
	return check
}

// BenchmarkSum compares the job with a loop that does the same work.
func BenchmarkSum(b *testing.B) {
	b.Run("loop", func(b *testing.B) {
		sumLoop(int64(b.N))
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
	})
	for _, extra := range []int{0, 8} {
		name := "job"
		if extra > 0 {
			name = "job+8maps"
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var check uint64
			sink := &collect.Discard[row]{Each: func(r *row) { check += r.Value ^ r.Time }}
			s := job.DefaultSettings()
			s.CheckpointMode = job.Off
			c := newCluster(b, 1, sumJob(int64(b.N), extra, sink), s)
			c.deployOnly(1)
			b.ResetTimer()
			c.all(job.Start{Run: c.run()})
			n := len(c.plan.Tasks())
			c.until("end of data", func() bool { return c.count(job.TaskEndOfData, job.TaskFinished) == n })
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
			c.crash()
		})
	}
}
