package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/auditlog"
	"github.com/exeunt/exeunt/inflight"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

//go:generate go test . -run "TestMetricsPage|TestAPIPage" -update

// metrics holds the metrics of /metrics. docs/metrics.md lists them.
type metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
}

func newMetrics(db *sqldb.DB, st *store.Store, queues ...prometheus.Collector) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "exeunt_api_requests_total", Help: "API requests answered, by verb, resource and HTTP status.",
		}, []string{"verb", "resource", "code"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "exeunt_api_request_duration_seconds", Help: "Time to answer an API request; a watch counts until it ends.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"verb"}),
	}
	m.registry.MustRegister(
		m.requests, m.durations,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "exeunt_database_connections_in_use", Help: "Connections of this replica that read or write the database now.",
		}, func() float64 { return float64(db.InUse()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "exeunt_store_revision", Help: "Newest revision that this replica has seen.",
		}, func() float64 { return float64(st.Revision()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "exeunt_store_expired_objects_total", Help: "Objects that this replica removed because their time was over: Events.",
		}, func() float64 { return float64(st.Expired()) }),
	)
	m.registry.MustRegister(queues...)
	return m
}

// strangerMeters counts the connections of a listener whose clients are not known.
func strangerMeters(listener string, s *inflight.Strangers) []prometheus.Collector {
	labels := prometheus.Labels{"listener": listener}
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "exeunt_unauthenticated_connections", ConstLabels: labels, Help: "Open connections whose clients have shown no valid credential.",
		}, func() float64 { return float64(s.Count()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "exeunt_unauthenticated_connections_closed_total", ConstLabels: labels,
			Help: "Connections that were closed because their clients showed no credential in time, or all of them took too much memory.",
		}, func() float64 { return float64(s.Closed()) }),
	}
}

// accessMeters counts authentications, and what the audit log leaves
// out of them.
func accessMeters(t *access.Throttle, log *auditlog.Log) []prometheus.Collector {
	meters := []prometheus.Collector{prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "exeunt_audit_failed_authentications_unrecorded_total",
		Help: "Failed authentications that the audit log does not have, because there were too many.",
	}, func() float64 { return float64(log.Dropped()) })}
	for _, result := range []access.Result{access.Success, access.Failure, access.Throttled} {
		meters = append(meters, prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "exeunt_authentication_attempts_total", ConstLabels: prometheus.Labels{"result": result.String()},
			Help: "Authentications of clients, on all listeners; throttled ones were not tried because of failures before.",
		}, func() float64 { return float64(t.Attempts(result)) }))
	}
	return meters
}

func (m *metrics) observe(verb, resource string, code int, took time.Duration) {
	m.requests.WithLabelValues(verb, resource, strconv.Itoa(code)).Inc()
	m.durations.WithLabelValues(verb).Observe(took.Seconds())
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
