package serve

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/watermark"
)

// counting is a program with keyed state behind a hash edge.
type counting struct{}

func (counting) List() []job.ProgramInfo {
	return []job.ProgramInfo{{Name: "counting", Version: "v1"}}
}

func (counting) Build(s job.Spec) (*operator.Blueprint, error) {
	return stream.Build(stream.Program{Name: "counting", Build: func(j *stream.Job) {
		numbers := j.Source("numbers", datagen.Source[int64]{Make: func(n int64, v *int64) { *v = n }, Rate: 2000})
		timed := numbers.Timestamps(func(v *int64) time.Time { return time.UnixMilli(*v) }, watermark.Monotonous())
		timed.KeyBy(func(v *int64) int64 { return *v % 100 }).
			Process("count", func(s *operator.States[int64]) operator.Handler[int64, int64, int64] {
				n := s.Value[int64]("n")
				return operator.Handler[int64, int64, int64]{Record: func(c *operator.KeyedContext[int64, int64], _ *int64) { *n.Ref()++ }}
			}).Sink("out", &collect.Discard[int64]{})
	}}, s.Args)
}

// Every metric of a job that runs well is there under its name, with its labels.
func TestMetrics(t *testing.T) {
	endpoint, blob := stores(t)
	jm := startJM(t, endpoint, blob)
	listen, http := jm.ports()["listen"], jm.ports()["http"]
	eventually(t, "leader", isReady(t, http))
	workers := []*running{startTM(t, counting{}, listen), startTM(t, counting{}, listen)}
	spec := job.Spec{Name: "c", Program: "counting", Version: "v1", Settings: job.DefaultSettings()}
	spec.Settings.Parallelism, spec.Settings.CheckpointInterval = 4, 50*time.Millisecond // 4 slots: all that both have.
	b, err := counting{}.Build(spec)
	if err != nil {
		t.Fatal(err)
	}
	spec.Graph = b.Graph
	c := api(t, listen)
	sub, err := c.Submit(t.Context(), coordinator.Submission{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}

	want := map[string][]string{http: {
		`cairn_leader{cluster="default"} 1`,
		`cairn_job_status{job="c",status="running"} 1`,
		`cairn_job_restarts_total{cause="worker-lost",job="c"} 0`,
		`cairn_job_uptime_seconds{job="c"} `,
		`cairn_checkpoint_failed_total{job="c",reason="expired"} 0`,
		`cairn_checkpoint_skipped_total{job="c",reason="running"} `,
		`cairn_checkpoint_size_bytes{job="c",kind="`,
		`cairn_checkpoint_last_completed_timestamp_seconds{job="c"} `,
		`cairn_checkpoint_completed_total{job="c"} `,
		`cairn_blob_requests_total{op="put",result="ok"} `, `cairn_blob_request_seconds_count{op="put"} `, `cairn_blob_bytes_total{op="put"} `,
	}}
	for _, phase := range []string{"trigger", "align", "sync", "async", "upload", "publish", "commit"} {
		want[http] = append(want[http], fmt.Sprintf(`cairn_checkpoint_duration_seconds_count{job="c",phase=%q} `, phase))
	}
	for _, w := range workers {
		want[w.ports()["http"]] = []string{
			`cairn_task_records_total{direction="in",job="c",operator="count",subtask="`,
			`cairn_task_records_total{direction="out",job="c",operator="numbers",subtask="`,
			`cairn_task_bytes_total{direction="out",job="c",operator="numbers",subtask="`,
			`cairn_task_watermark_seconds{job="c",operator="count",subtask="`,
			`cairn_task_late_records_total{job="c",operator="count",subtask="`,
			`cairn_task_time_seconds_total{job="c",operator="count",state="idle",subtask="`,
			`cairn_state_size_bytes{job="c",operator="count",state="n",subtask="`,
			`cairn_state_entries{job="c",operator="count",state="n",subtask="`,
			`cairn_exchange_frames_total{direction="received"} `, `cairn_exchange_bytes_total{direction="sent"} `,
			`cairn_exchange_credit_wait_seconds_total `,
			"go_goroutines ", "process_resident_memory_bytes ",
		}
	}
	for addr, lines := range want {
		eventually(t, "metrics", func() error {
			_, text := get(t, addr, "/metrics")
			var missing []string
			for _, l := range lines {
				if !strings.Contains(text, "\n"+l) {
					missing = append(missing, l)
				}
			}
			if len(missing) > 0 {
				return fmt.Errorf("%d lines are missing:\n%s", len(missing), strings.Join(missing, "\n"))
			}
			return nil
		})
	}
	eventually(t, "entries of all keys", func() error {
		sum := 0
		for _, w := range workers {
			_, text := get(t, w.ports()["http"], "/metrics")
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, `cairn_state_entries{job="c"`) {
					var n int
					if _, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &n); err != nil {
						return fmt.Errorf("%q: %w", line, err)
					}
					sum += n
				}
			}
		}
		if sum != 100 {
			return fmt.Errorf("%d entries, want 100", sum)
		}
		return nil
	})
	if _, err := c.Cancel(t.Context(), string(sub.Job.ID)); err != nil {
		t.Error(err)
	}
	for _, w := range workers {
		w.end()
	}
	jm.end()
}
