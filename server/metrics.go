package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/auditlog"
	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/internal/inflight"
	"github.com/exeunt/exeunt/registry"
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
	m.registry.MustRegister(historyMeters(st)...)
	return m
}

// historyMeters measure the history of objects.
func historyMeters(st *store.Store) []prometheus.Collector {
	const name, help = "exeunt_history_left_versions_total", "Earlier versions of objects that this replica let go: by age, or before their time because of the size of the history."
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "exeunt_history_size_bytes", Help: "Size of the earlier versions of objects in the database.",
		}, func() float64 { return float64(st.History().Bytes()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{"reason": "age"}}, func() float64 {
			old, _ := st.History().Left()
			return float64(old)
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{"reason": "size"}}, func() float64 {
			_, large := st.History().Left()
			return float64(large)
		}),
	}
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

// sizeTimeout is how long a scrape waits for the size of the database.
const sizeTimeout = 5 * time.Second

var (
	versionInfo  = prometheus.NewDesc("exeunt_build_info", "1, with the version of this replica.", []string{"version"}, nil)
	databaseSize = prometheus.NewDesc("exeunt_database_size_bytes", "Size of the database.", []string{"engine"}, nil)
	diskSize     = prometheus.NewDesc("exeunt_data_disk_size_bytes", "Size of the file system that holds the data directory.", nil, nil)
	diskFree     = prometheus.NewDesc("exeunt_data_disk_free_bytes", "Free bytes of the file system that holds the data directory.", nil, nil)
	lastBackup   = prometheus.NewDesc("exeunt_backup_last_success_timestamp_seconds", "When the last whole backup of the database ended, in Unix time. Absent: there is none.", nil, nil)
	backupDue    = prometheus.NewDesc("exeunt_backup_due_timestamp_seconds", "When the next backup must have ended at the latest, in Unix time: the last one and --backup-every, or a day, and an hour.", nil, nil)
	certExpiry   = prometheus.NewDesc("exeunt_certificate_expiry_timestamp_seconds", "When a certificate of the server expires, in Unix time.", []string{"certificate"}, nil)
	timeouts     = prometheus.NewDesc("exeunt_database_timeouts_total", "Statements and connections of this replica that PostgreSQL ended because of a time limit: statement, lock, or idle_transaction.", []string{"limit"}, nil)
	paused       = prometheus.NewDesc("exeunt_collector_paused", "1 while the collector is paused (exeunt gc pause), otherwise 0.", nil, nil)
)

// stateMetrics are read at each scrape: the state of this replica's surroundings, for
// alerts and for "exeunt status".
type stateMetrics struct {
	version, data string
	db            *sqldb.DB
	backups       *backups
	identity      *access.Identity
	paused        func(context.Context) (bool, error)
	log           *slog.Logger
}

// Describe is part of prometheus.Collector.
func (m *stateMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{versionInfo, databaseSize, diskSize, diskFree, lastBackup, backupDue, certExpiry, timeouts, paused} {
		out <- desc
	}
}

// Collect is part of prometheus.Collector. What cannot be read is left out.
func (m *stateMetrics) Collect(out chan<- prometheus.Metric) {
	set := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	set(versionInfo, 1, m.version)
	statement, lock, idle := m.db.Timeouts()
	for limit, n := range map[string]int64{"statement": statement, "lock": lock, "idle_transaction": idle} {
		out <- prometheus.MustNewConstMetric(timeouts, prometheus.CounterValue, float64(n), limit)
	}
	ctx, cancel := context.WithTimeout(context.Background(), sizeTimeout)
	defer cancel()
	if size, err := m.db.Size(ctx); err == nil {
		set(databaseSize, float64(size), string(m.db.Engine()))
	} else {
		m.log.Warn("the size of the database is not known", "error", err)
	}
	if is, err := m.paused(ctx); err == nil {
		value := 0.0
		if is {
			value = 1
		}
		set(paused, value)
	}
	if last, due, err := m.backups.due(ctx); err == nil {
		set(backupDue, float64(due.Unix()))
		if last != nil {
			set(lastBackup, float64(last.Unix()))
		}
	} else {
		m.log.Warn("the last backup is not known", "error", err)
	}
	if size, free, err := disk(m.data); err == nil {
		set(diskSize, float64(size))
		set(diskFree, float64(free))
	}
	for name, expires := range m.identity.Expiries() {
		set(certExpiry, float64(expires.Unix()), name)
	}
}

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
