package server

import (
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/auditlog"
	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/internal/inflight"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

//go:generate go test . -run "TestMetricsPage|TestAPIPage" -update

// metrics holds the metrics of /metrics. docs/metrics.md lists them.
type metrics struct {
	registry  *prometheus.Registry
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec

	mu        sync.RWMutex
	resources map[resourceName]bool // that have time series; guarded by mu
}

// Names, labels and buckets are those of k8s.io/apiserver/pkg/endpoints/metrics, which
// Kubernetes' dashboards read.
var requestLabels = []string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"}

type resourceName struct{ group, version, resource, subresource string }

// maxResources limits the resources with time series of their own. Clients that may create
// CustomResourceDefinitions can name any number of them.
const maxResources = 1000

func newMetrics(db *sqldb.DB, st *store.Store) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total", Help: "API requests answered, as Kubernetes counts them.",
		}, slices.Concat(requestLabels, []string{"code"})),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_duration_seconds", Help: "Time to answer an API request, as Kubernetes measures it; a watch counts until it ends.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
		}, requestLabels),
		resources: map[resourceName]bool{},
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
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "exeunt_archive_evicted_cascades_total", Help: "Deletions that this replica removed from the archive before their time, because of its size.",
		}, func() float64 { return float64(st.Evicted()) }),
	)
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

func (m *metrics) observe(o api.Observation) {
	name := m.bounded(resourceName{o.Group, o.Version, o.Resource, o.Subresource})
	labels := []string{o.Verb, o.DryRun, name.group, name.version, name.resource, name.subresource, o.Scope, "apiserver", strconv.Itoa(o.Code)}
	m.requests.WithLabelValues(labels...).Inc()
	m.durations.WithLabelValues(labels[:len(labels)-1]...).Observe(o.Took.Seconds())
}

// bounded returns the name, or the resource "other" if too many others have time series.
func (m *metrics) bounded(name resourceName) resourceName {
	m.mu.RLock()
	known := m.resources[name]
	m.mu.RUnlock()
	if known {
		return name
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.resources) >= maxResources && !m.resources[name] {
		return resourceName{resource: "other"}
	}
	m.resources[name] = true
	return name
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}
