package grpc

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the counters of this package. A Server and a Dialer may share them.
type Metrics struct {
	sent, received           prometheus.Counter
	sentBytes, receivedBytes prometheus.Counter
	creditWait               prometheus.Counter
}

// NewMetrics makes the counters and registers them with reg, unless it is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	frames := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cairn_exchange_frames_total",
		Help: "Encoded batches that went to or came from other processes.",
	}, []string{"direction"})
	bytes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cairn_exchange_bytes_total",
		Help: "Bytes of the encoded batches that went to or came from other processes.",
	}, []string{"direction"})
	wait := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "cairn_exchange_credit_wait_seconds_total",
		Help: "Time that subtasks waited for credit of a channel to another process.",
	})
	if reg != nil {
		reg.MustRegister(frames, bytes, wait)
	}
	return &Metrics{
		sent: frames.WithLabelValues("sent"), received: frames.WithLabelValues("received"),
		sentBytes: bytes.WithLabelValues("sent"), receivedBytes: bytes.WithLabelValues("received"),
		creditWait: wait,
	}
}
