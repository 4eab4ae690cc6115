package server

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exeunt/exeunt/registry"
)

// registryMetrics count the requests to the registry.
type registryMetrics struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
}

func newRegistryMetrics() *registryMetrics {
	return &registryMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "exeunt_registry_requests_total", Help: "Registry requests answered, by verb, content and HTTP status. Those that their Host or Origin header refuses do not count.",
		}, []string{"verb", "content", "code"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "exeunt_registry_request_duration_seconds", Help: "Time to answer a registry request, from its header to the last byte that the client takes.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
		}, []string{"verb", "content"}),
	}
}

// observed counts a request. Requests that are none of the registry's have the verb
// other, so that clients cannot create time series.
func (m *registryMetrics) observed(to registry.Request, next http.Handler) http.Handler {
	verb, content := "other", ""
	if as, ok := recordedAs[to.Kind]; ok {
		verb, content = as[0], as[1]
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		start := time.Now()
		seen := &codeWriter{ResponseWriter: w}
		defer func() {
			m.requests.WithLabelValues(verb, content, strconv.Itoa(seen.code)).Inc()
			m.durations.WithLabelValues(verb, content).Observe(time.Since(start).Seconds())
		}()
		next.ServeHTTP(seen, req)
	})
}

// codeWriter remembers the status code of an answer. 0: there was none.
type codeWriter struct {
	http.ResponseWriter
	code int
}

// WriteHeader is part of http.ResponseWriter.
func (w *codeWriter) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write is part of http.ResponseWriter.
func (w *codeWriter) Write(p []byte) (int, error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// ReadFrom lets the kernel send a file (sendfile).
func (w *codeWriter) ReadFrom(src io.Reader) (int64, error) {
	if w.code == 0 {
		w.code = http.StatusOK
	}
	return io.Copy(w.ResponseWriter, src)
}

// Unwrap implements what http.ResponseController looks for.
func (w *codeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
