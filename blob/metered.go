package blob

import (
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metered counts and times what is asked of a store:
//
//	cairn_blob_requests_total{op,result}   result is ok, missing, exists, transient, permanent or canceled
//	cairn_blob_request_seconds{op}         of get and get-range until the first byte can be read
//	cairn_blob_bytes_total{op}             bytes of objects that were stored or read
//
// Several stores may share a registerer: they count into the same metrics.
func Metered(s Store, r prometheus.Registerer) (Store, error) {
	m := &metered{inner: s}
	var err error
	m.requests, err = register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cairn_blob_requests_total", Help: "Requests to the blob store, by operation and result.",
	}, []string{"op", "result"}))
	if err != nil {
		return nil, err
	}
	m.seconds, err = register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "cairn_blob_request_seconds", Help: "Duration of requests to the blob store, retries included.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 9), // 1 ms to 65 s
	}, []string{"op"}))
	if err != nil {
		return nil, err
	}
	m.bytes, err = register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cairn_blob_bytes_total", Help: "Bytes of objects written to or read from the blob store, by operation.",
	}, []string{"op"}))
	if err != nil {
		return nil, err
	}
	return m, nil
}

// register gives the collector that is registered under this name already, if there is one.
func register[C prometheus.Collector](r prometheus.Registerer, c C) (C, error) {
	err := r.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing, nil
		}
	}
	return c, err
}

type metered struct {
	inner    Store
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	bytes    *prometheus.CounterVec
}

func (m *metered) done(op string, begin time.Time, err error) {
	m.seconds.WithLabelValues(op).Observe(time.Since(begin).Seconds())
	m.requests.WithLabelValues(op, result(err)).Inc()
}

// result is the label for how a request ended; there are few of them, whatever the errors say.
func result(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrNotExist):
		return "missing"
	case errors.Is(err, ErrExists):
		return "exists"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case IsTransient(err):
		return "transient"
	}
	return "permanent"
}

func (m *metered) Put(ctx context.Context, key string, body io.Reader, size int64) error {
	begin := time.Now()
	err := m.inner.Put(ctx, key, body, size)
	m.done("put", begin, err)
	if err == nil {
		m.bytes.WithLabelValues("put").Add(float64(size))
	}
	return err
}

func (m *metered) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	begin := time.Now()
	err := m.inner.PutIfAbsent(ctx, key, data)
	m.done("put-if-absent", begin, err)
	if err == nil {
		m.bytes.WithLabelValues("put-if-absent").Add(float64(len(data)))
	}
	return err
}

func (m *metered) Get(ctx context.Context, key string) (io.ReadCloser, Info, error) {
	begin := time.Now()
	body, info, err := m.inner.Get(ctx, key)
	m.done("get", begin, err)
	return m.counted("get", body, err), info, err
}

func (m *metered) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	begin := time.Now()
	body, err := m.inner.GetRange(ctx, key, off, n)
	m.done("get-range", begin, err)
	return m.counted("get-range", body, err), err
}

func (m *metered) Stat(ctx context.Context, key string) (Info, error) {
	begin := time.Now()
	info, err := m.inner.Stat(ctx, key)
	m.done("stat", begin, err)
	return info, err
}

func (m *metered) Delete(ctx context.Context, keys ...string) error {
	begin := time.Now()
	err := m.inner.Delete(ctx, keys...)
	m.done("delete", begin, err)
	return err
}

// List counts as one request, however many a store makes of it; what the caller does in between is in its time.
func (m *metered) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		begin := time.Now()
		var failed error
		for info, err := range m.inner.List(ctx, prefix) {
			if err != nil {
				failed = err
			}
			if !yield(info, err) {
				break
			}
		}
		m.done("list", begin, failed)
	}
}

func (m *metered) counted(op string, body io.ReadCloser, err error) io.ReadCloser {
	if err != nil {
		return nil
	}
	return &countedBody{ReadCloser: body, bytes: m.bytes.WithLabelValues(op)}
}

// countedBody counts what is read of an object.
type countedBody struct {
	io.ReadCloser
	bytes prometheus.Counter
}

func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.bytes.Add(float64(n))
	return n, err
}
