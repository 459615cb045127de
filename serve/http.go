package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
)

// newRegistry makes a registry with the metrics of the process and of Go.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// readiness is what /readyz answers: every reason why the process cannot do its work.
type readiness struct {
	mu struct {
		sync.Mutex
		reasons map[string]string
	}
}

// newReadiness starts with the given reasons, by what they are about.
func newReadiness(reasons map[string]string) *readiness {
	r := &readiness{}
	r.mu.reasons = reasons
	return r
}

// set notes why the process is not ready as far as what is concerned; "": it is.
func (r *readiness) set(what, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reason == "" {
		delete(r.mu.reasons, what)
	} else {
		r.mu.reasons[what] = reason
	}
}

func (r *readiness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	text := ""
	for what, reason := range r.mu.reasons {
		text += fmt.Sprintf("%s: %s\n", what, reason)
	}
	r.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if text != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, text)
		return
	}
	fmt.Fprintln(w, "ready")
}

// endpoints are /metrics, /healthz and /readyz, and /debug/pprof if profiles are wanted.
func endpoints(reg *prometheus.Registry, ready *readiness, profiles bool, log *zap.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		ErrorLog: zap.NewStdLog(log), ErrorHandling: promhttp.ContinueOnError, // A metric that fails must not hide the rest.
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintln(w, "alive")
	})
	mux.Handle("GET /readyz", ready)
	if profiles {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// serveHTTP answers on l until ctx is done.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler, log *zap.Logger) error {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    zap.NewStdLog(log),
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return ctx.Err()
}
