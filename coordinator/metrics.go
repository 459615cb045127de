package coordinator

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cairnstream/cairn/coordinator/checkpoint"
	"github.com/cairnstream/cairn/coordinator/lifecycle"
)

// metrics are those of all jobs of one leadership. The label job is the job's name.
type metrics struct {
	reg        prometheus.Registerer
	registered []prometheus.Collector

	status    *prometheus.GaugeVec
	restarts  *prometheus.CounterVec
	completes *prometheus.CounterVec
	failed    *prometheus.CounterVec
	skipped   *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	size      *prometheus.GaugeVec
	last      *prometheus.GaugeVec
	uptime    *prometheus.Desc

	mu struct {
		sync.Mutex
		state map[string]JobState  // Of every job's name.
		since map[string]time.Time // When the job began to run; only of those that do.
	}
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		reg: reg,
		status: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cairn_job_status", Help: "1 for the status that the job has.",
		}, []string{"job", "status"}),
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cairn_job_restarts_total", Help: "Restarts of the job, by cause.",
		}, []string{"job", "cause"}),
		completes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cairn_checkpoint_completed_total", Help: "Checkpoints that committed.",
		}, []string{"job"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cairn_checkpoint_failed_total", Help: "Checkpoints that failed, by reason.",
		}, []string{"job", "reason"}),
		skipped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cairn_checkpoint_skipped_total", Help: "Checkpoints that were due and did not start, by reason.",
		}, []string{"job", "reason"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "cairn_checkpoint_duration_seconds", Help: "Duration of the phases of completed checkpoints; of the slowest task where tasks take part.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}, []string{"job", "phase"}),
		size: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cairn_checkpoint_size_bytes", Help: "Bytes written for the last completed checkpoint.",
		}, []string{"job", "kind"}),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cairn_checkpoint_last_completed_timestamp_seconds", Help: "When the last checkpoint completed.",
		}, []string{"job"}),
		uptime: prometheus.NewDesc("cairn_job_uptime_seconds", "Time since every task of the job began to run; 0 when not all do.", []string{"job"}, nil),
	}
	m.mu.state, m.mu.since = map[string]JobState{}, map[string]time.Time{}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.status, m.restarts, m.completes, m.failed, m.skipped, m.duration, m.size, m.last, uptime{m}} {
		if err := m.register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// register adds c until unregister; after an error nothing is left.
func (m *metrics) register(c prometheus.Collector) error {
	if m.reg == nil {
		return nil
	}
	if err := m.reg.Register(c); err != nil {
		m.unregister()
		return fmt.Errorf("register metrics: %w", err)
	}
	m.registered = append(m.registered, c)
	return nil
}

// unregister makes room for the next leadership's.
func (m *metrics) unregister() {
	for _, c := range m.registered {
		m.reg.Unregister(c)
	}
}

func (m *metrics) state(name string, s JobState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, ok := m.mu.state[name]; ok {
		m.status.DeleteLabelValues(name, string(old))
	} else {
		m.zero(name)
	}
	m.mu.state[name] = s
	m.status.WithLabelValues(name, string(s)).Set(1)
	switch s {
	case JobRunning:
		m.mu.since[name] = time.Now()
	case JobFinishing:
	default:
		delete(m.mu.since, name)
	}
}

// zero makes the counters of a job that is new here, so that a rate has a beginning to count from.
func (m *metrics) zero(name string) {
	m.completes.WithLabelValues(name)
	for _, r := range checkpoint.Reasons {
		if r.Failed() {
			m.failed.WithLabelValues(name, string(r))
		}
	}
	for _, r := range checkpoint.Skips {
		m.skipped.WithLabelValues(name, string(r))
	}
	for _, c := range lifecycle.Causes {
		m.restarts.WithLabelValues(name, string(c))
	}
}

func (m *metrics) jobEnded(name string, s JobState) { m.state(name, s) }

func (m *metrics) phase(name, phase string, took time.Duration) {
	m.duration.WithLabelValues(name, phase).Observe(took.Seconds())
}

func (m *metrics) checkpointCompleted(name string, incremental bool, bytes int64, at time.Time) {
	kind := "full"
	if incremental {
		kind = "incremental"
	}
	m.completes.WithLabelValues(name).Inc()
	m.size.WithLabelValues(name, kind).Set(float64(bytes))
	m.last.WithLabelValues(name).Set(float64(at.UnixNano()) / 1e9)
}

// uptime computes cairn_job_uptime_seconds when it is asked for.
type uptime struct{ m *metrics }

func (u uptime) Describe(ch chan<- *prometheus.Desc) { ch <- u.m.uptime }

func (u uptime) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	u.m.mu.Lock()
	up := map[string]float64{}
	for name := range u.m.mu.state {
		up[name] = 0
		if since, ok := u.m.mu.since[name]; ok {
			up[name] = now.Sub(since).Seconds()
		}
	}
	u.m.mu.Unlock()
	for name, s := range up {
		ch <- prometheus.MustNewConstMetric(u.m.uptime, prometheus.GaugeValue, s, name)
	}
}
