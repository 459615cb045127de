package task

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/statebackend"
)

// Collector gives the metrics of the tasks that run at the moment.
type collector struct {
	m       *Manager
	records *prometheus.Desc
	late    *prometheus.Desc
	lateBy  *prometheus.Desc
	latest  *prometheus.Desc
	badTime *prometheus.Desc
	mark    *prometheus.Desc
	seconds *prometheus.Desc
	bytes   *prometheus.Desc
	size    *prometheus.Desc
	entries *prometheus.Desc
	disk    *prometheus.Desc
	budget  *prometheus.Desc
}

// Collector returns the metrics of m's tasks.
func (m *Manager) Collector() prometheus.Collector {
	labels := []string{"job", "operator", "subtask"}
	return &collector{
		m:       m,
		records: prometheus.NewDesc("cairn_task_records_total", "Records that went into and out of an operator since its task started.", append(labels, "direction"), nil),
		late:    prometheus.NewDesc("cairn_task_late_records_total", "Records dropped because their window was complete.", labels, nil),
		lateBy:  prometheus.NewDesc("cairn_task_late_seconds", "How far late records were behind the watermark.", labels, nil),
		latest:  prometheus.NewDesc("cairn_task_late_most_seconds", "How far the latest of the late records was behind the watermark.", labels, nil),
		badTime: prometheus.NewDesc("cairn_task_bad_times_total", "Records whose event time cannot be right: absent or out of range, or too far ahead of the wall clock.", append(labels, "fault"), nil),
		mark:    prometheus.NewDesc("cairn_task_watermark_seconds", "Last watermark that an operator emitted, seconds since 1970 UTC.", labels, nil),
		seconds: prometheus.NewDesc("cairn_task_time_seconds_total", "Time that a task spent busy, idle, and waiting for room downstream.", append(labels, "state"), nil),
		bytes:   prometheus.NewDesc("cairn_task_bytes_total", "Encoded bytes that an operator sent to other processes since its task started.", append(labels, "direction"), nil),
		size:    prometheus.NewDesc("cairn_state_size_bytes", "Memory of a state, without what its keys and values point to, as of the scrape before.", append(labels, "state"), nil),
		entries: prometheus.NewDesc("cairn_state_entries", "Entries of a state, as of the scrape before.", append(labels, "state"), nil),
		disk:    prometheus.NewDesc("cairn_state_disk_bytes", "Local files of a state that is on disk, as of the scrape before.", append(labels, "state"), nil),
		budget:  prometheus.NewDesc("cairn_state_memory_budget_bytes", "Memory that the states on disk of a TaskManager share: --state-memory.", nil, nil),
	}
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.records
	ch <- c.late
	ch <- c.lateBy
	ch <- c.latest
	ch <- c.badTime
	ch <- c.mark
	ch <- c.seconds
	ch <- c.bytes
	ch <- c.size
	ch <- c.entries
	ch <- c.disk
	ch <- c.budget
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.m.mu.Lock()
	var all []*run
	for _, r := range c.m.mu.runs {
		all = append(all, r)
	}
	c.m.mu.Unlock()
	if b := c.m.cfg.StateMemory; b != nil {
		ch <- prometheus.MustNewConstMetric(c.budget, prometheus.GaugeValue, float64(b.Bytes()))
	}
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
		c.lateness(ch, &l.counters, name, l.name, n)
		for fault, n := range map[string]int64{"absent": l.counters.NoTime.Load(), "ahead": l.counters.Ahead.Load()} {
			if n > 0 {
				counter(c.badTime, float64(n), name, l.name, strconv.Itoa(s.task.Subtask), fault)
			}
		}
		if w := l.main.mark.Load(); w != record.MinTime && w != record.MaxTime {
			ch <- prometheus.MustNewConstMetric(c.mark, prometheus.GaugeValue, float64(w)/1000, name, l.name, n)
		}
	}
	if senders := s.senders.Load(); senders != nil {
		for op, outs := range *senders {
			var sent int64
			for _, o := range outs {
				sent += o.Sent()
			}
			counter(c.bytes, float64(sent), name, op, n, "out")
		}
	}
	if sizes := s.sizes.Load(); sizes != nil {
		for _, z := range *sizes {
			ch <- prometheus.MustNewConstMetric(c.size, prometheus.GaugeValue, float64(z.Bytes), name, z.operator, n, z.State)
			ch <- prometheus.MustNewConstMetric(c.entries, prometheus.GaugeValue, float64(z.Entries), name, z.operator, n, z.State)
			if z.Disk > 0 {
				ch <- prometheus.MustNewConstMetric(c.disk, prometheus.GaugeValue, float64(z.Disk), name, z.operator, n, z.State)
			}
		}
	}
	if s.measuring.CompareAndSwap(false, true) {
		s.mail.post(s.measureState)
	}
	idle := time.Duration(s.times.idle.Load())
	blocked := time.Duration(s.times.blocked.Load())
	busy := max(0, time.Since(s.begun)-idle-blocked)
	counter(c.seconds, busy.Seconds(), name, s.task.Vertex, n, "busy")
	counter(c.seconds, idle.Seconds(), name, s.task.Vertex, n, "idle")
	counter(c.seconds, blocked.Seconds(), name, s.task.Vertex, n, "backpressured")
}

// stateSize is the size of one state.
type stateSize struct {
	operator string
	statebackend.Size
}

// measureState notes the sizes of the states for the next scrape. Only the task's goroutine may look at them, and a
// scrape must not wait for it.
func (s *subtask) measureState() error {
	defer s.measuring.Store(false)
	var out []stateSize
	for _, l := range s.chain {
		if l.state == nil {
			continue
		}
		for _, z := range l.state.Sizes() {
			out = append(out, stateSize{l.name, z})
		}
	}
	s.sizes.Store(&out)
	return nil
}

// lateness tells how late the late records of an operator were, once there are any.
func (c *collector) lateness(ch chan<- prometheus.Metric, k *operator.Counters, labels ...string) {
	buckets, total := map[float64]uint64{}, uint64(0)
	for i, bound := range operator.LateBounds {
		total += uint64(k.LateBy[i].Load())
		buckets[bound.Seconds()] = total
	}
	if total += uint64(k.LateBy[len(operator.LateBounds)].Load()); total == 0 {
		return
	}
	ch <- prometheus.MustNewConstHistogram(c.lateBy, total, float64(k.LateSum.Load())/1000, buckets, labels...)
	ch <- prometheus.MustNewConstMetric(c.latest, prometheus.GaugeValue, float64(k.LateMost.Load())/1000, labels...)
}
