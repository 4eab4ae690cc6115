package server

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exeunt/exeunt/registry"
)

// registryMetrics count and log the requests to the registry.
type registryMetrics struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec

	slow atomic.Int64 // of a time.Duration; not positive: no request is slow
	all  atomic.Bool  // log every request
	log  *slog.Logger
}

func newRegistryMetrics(c Config) *registryMetrics {
	m := &registryMetrics{
		log: c.Logger,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "exeunt_registry_requests_total", Help: "Registry requests answered, by verb, content and HTTP status. Those that their Host or Origin header refuses do not count.",
		}, []string{"verb", "content", "code"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "exeunt_registry_request_duration_seconds", Help: "Time to answer a registry request, from its header to the last byte that the client takes.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
		}, []string{"verb", "content"}),
	}
	m.setLog(c)
	return m
}

// setLog sets which requests are logged, also while the registry serves.
func (m *registryMetrics) setLog(c Config) {
	m.slow.Store(int64(c.SlowRequest))
	m.all.Store(c.LogRequests)
}

// observed counts and logs a request of a client. Requests that are none of the registry's have the verb
// other, so that clients cannot create time series.
func (m *registryMetrics) observed(client registry.Client, to registry.Request, next http.Handler) http.Handler {
	verb, content := "other", ""
	if as, ok := recordedAs[to.Kind]; ok {
		verb, content = as[0], as[1]
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		seen := &codeWriter{ResponseWriter: w, start: time.Now()}
		defer func() {
			took := time.Since(seen.start)
			m.requests.WithLabelValues(verb, content, strconv.Itoa(seen.code)).Inc()
			m.durations.WithLabelValues(verb, content).Observe(took.Seconds())
			m.logRequest(seen, req, client, took, content != "uploads" && to.Kind != registry.UploadPut)
		}()
		next.ServeHTTP(seen, req)
	})
}

// logRequest logs a request whose answer began late, and every request if the settings
// say so. How long the bytes take is up to the client: so uploads are not timed, and the
// time of a pull ends where its bytes begin.
func (m *registryMetrics) logRequest(seen *codeWriter, req *http.Request, client registry.Client, took time.Duration, timed bool) {
	slow := timed && m.slow.Load() > 0 && int64(seen.began) >= m.slow.Load()
	if !slow && !m.all.Load() {
		return
	}
	name := ""
	if known, ok := client.(*registryClient); ok {
		name = known.user.GetName()
	}
	attributes := []any{
		"method", req.Method, "path", req.URL.Path, "status", seen.code, "took", took.Round(time.Millisecond / 100),
		"user", name, "from", req.RemoteAddr,
	}
	if slow {
		m.log.Warn("slow registry request", append(attributes, "steps", fmt.Sprintf("answer begun after %dms", seen.began.Milliseconds()))...)
		return
	}
	m.log.Info("registry request", attributes...)
}

// codeWriter remembers the status code of an answer, and when the answer began. Code 0:
// there was none.
type codeWriter struct {
	http.ResponseWriter
	start time.Time
	code  int
	began time.Duration // since start
}

func (w *codeWriter) begin(code int) {
	if w.code == 0 {
		w.code, w.began = code, time.Since(w.start)
	}
}

// WriteHeader is part of http.ResponseWriter.
func (w *codeWriter) WriteHeader(code int) {
	w.begin(code)
	w.ResponseWriter.WriteHeader(code)
}

// Write is part of http.ResponseWriter.
func (w *codeWriter) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// ReadFrom lets the kernel send a file (sendfile).
func (w *codeWriter) ReadFrom(src io.Reader) (int64, error) {
	w.begin(http.StatusOK)
	return io.Copy(w.ResponseWriter, src)
}

// Unwrap implements what http.ResponseController looks for.
func (w *codeWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
