package serve

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cairnstream/cairn/blob"
)

// metered is a blob.Store that counts what is asked of another.
type metered struct {
	blob.Store
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	bytes    *prometheus.CounterVec
}

// meterBlob wraps s; its metrics go to reg. They are registered once per registry: a second store of the same process
// is counted with the first.
func meterBlob(s blob.Store, reg prometheus.Registerer) blob.Store {
	return &metered{
		Store: s,
		requests: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cairn_blob_requests_total",
			Help: "Requests to the blob store by operation and result (ok, absent, exists, cancelled, error).",
		}, []string{"op", "result"})),
		seconds: register(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "cairn_blob_request_seconds",
			Help:    "Duration of requests to the blob store, their repetitions included; of a get until its first byte.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9), // 1 ms to 65 s
		}, []string{"op"})),
		bytes: register(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cairn_blob_bytes_total",
			Help: "Bytes of objects that were written (put) or opened for reading (get).",
		}, []string{"op"})),
	}
}

// register registers c, or finds what is registered under its name already.
func register[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	err := reg.Register(c)
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) {
		return there.ExistingCollector.(C)
	}
	if err != nil {
		panic(err) // Two metrics of one name with different labels: a bug that every start shows.
	}
	return c
}

// Unwrap is for blob.UploadsOf.
func (m *metered) Unwrap() blob.Store { return m.Store }

func (m *metered) observe(op string, began time.Time, n int64, err error) {
	result := "ok"
	switch {
	case err == nil:
		m.bytes.WithLabelValues(op).Add(float64(n))
	case errors.Is(err, blob.ErrNotExist):
		result = "absent"
	case errors.Is(err, blob.ErrExists):
		result = "exists"
	case errors.Is(err, context.Canceled):
		result = "cancelled"
	default:
		result = "error"
	}
	m.requests.WithLabelValues(op, result).Inc()
	m.seconds.WithLabelValues(op).Observe(time.Since(began).Seconds())
}

func (m *metered) Put(ctx context.Context, key string, body io.Reader, size int64) error {
	began := time.Now()
	err := m.Store.Put(ctx, key, body, size)
	m.observe("put", began, size, err)
	return err
}

func (m *metered) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	began := time.Now()
	err := m.Store.PutIfAbsent(ctx, key, data)
	m.observe("put", began, int64(len(data)), err)
	return err
}

func (m *metered) Get(ctx context.Context, key string) (io.ReadCloser, blob.Info, error) {
	began := time.Now()
	r, info, err := m.Store.Get(ctx, key)
	m.observe("get", began, info.Size, err)
	return r, info, err
}

func (m *metered) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	began := time.Now()
	r, err := m.Store.GetRange(ctx, key, off, n)
	m.observe("get", began, n, err)
	return r, err
}

func (m *metered) Stat(ctx context.Context, key string) (blob.Info, error) {
	began := time.Now()
	info, err := m.Store.Stat(ctx, key)
	m.observe("stat", began, 0, err)
	return info, err
}

func (m *metered) Delete(ctx context.Context, keys ...string) error {
	began := time.Now()
	err := m.Store.Delete(ctx, keys...)
	m.observe("delete", began, 0, err)
	return err
}

func (m *metered) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		began := time.Now()
		var last error
		defer func() { m.observe("list", began, 0, last) }()
		for info, err := range m.Store.List(ctx, prefix) {
			last = err
			if !yield(info, err) {
				return
			}
		}
	}
}
