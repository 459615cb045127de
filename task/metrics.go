package task

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cairnstream/cairn/record"
)

// Collector gives the metrics of the tasks that run at the moment.
type collector struct {
	m       *Manager
	records *prometheus.Desc
	late    *prometheus.Desc
	badTime *prometheus.Desc
	mark    *prometheus.Desc
	seconds *prometheus.Desc
}

// Collector returns the metrics of m's tasks.
func (m *Manager) Collector() prometheus.Collector {
	labels := []string{"job", "operator", "subtask"}
	return &collector{
		m:       m,
		records: prometheus.NewDesc("cairn_task_records_total", "Records that went into and out of an operator since its task started.", append(labels, "direction"), nil),
		late:    prometheus.NewDesc("cairn_task_late_records_total", "Records dropped because their window was complete.", labels, nil),
		badTime: prometheus.NewDesc("cairn_task_bad_times_total", "Records whose event time cannot be right: absent or out of range, or too far ahead of the wall clock.", append(labels, "fault"), nil),
		mark:    prometheus.NewDesc("cairn_task_watermark_seconds", "Last watermark that an operator emitted, seconds since 1970 UTC.", labels, nil),
		seconds: prometheus.NewDesc("cairn_task_time_seconds_total", "Time that a task spent busy, idle, and waiting for room downstream.", append(labels, "state"), nil),
	}
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.records
	ch <- c.late
	ch <- c.badTime
	ch <- c.mark
	ch <- c.seconds
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.m.mu.Lock()
	var all []*run
	for _, r := range c.m.mu.runs {
		all = append(all, r)
	}
	c.m.mu.Unlock()
	for _, r := range all {
		for _, t := range r.deploy.Tasks {
			c.task(ch, r.deploy.Spec.Name, r.tasks[t])
		}
	}
}

func (c *collector) task(ch chan<- prometheus.Metric, name string, s *subtask) {
	if s.state.Load() == nil {
		return // Its chain is being made.
	}
	n := strconv.Itoa(s.task.Subtask)
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	for _, l := range s.chain {
		counter(c.records, float64(l.counters.In.Load()), name, l.name, n, "in")
		counter(c.records, float64(l.counters.Out.Load()), name, l.name, n, "out")
		counter(c.late, float64(l.counters.Late.Load()), name, l.name, n)
		for fault, n := range map[string]int64{"absent": l.counters.NoTime.Load(), "ahead": l.counters.Ahead.Load()} {
			if n > 0 {
				counter(c.badTime, float64(n), name, l.name, strconv.Itoa(s.task.Subtask), fault)
			}
		}
		if w := l.main.mark.Load(); w != record.MinTime && w != record.MaxTime {
			ch <- prometheus.MustNewConstMetric(c.mark, prometheus.GaugeValue, float64(w)/1000, name, l.name, n)
		}
	}
	idle := time.Duration(s.times.idle.Load())
	blocked := time.Duration(s.times.blocked.Load())
	busy := max(0, time.Since(s.begun)-idle-blocked)
	counter(c.seconds, busy.Seconds(), name, s.task.Vertex, n, "busy")
	counter(c.seconds, idle.Seconds(), name, s.task.Vertex, n, "idle")
	counter(c.seconds, blocked.Seconds(), name, s.task.Vertex, n, "backpressured")
}
