package server

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/backup"
	"github.com/exeunt/exeunt/sqldb"
)

// sizeTimeout is how long a scrape waits for the size of the database.
const sizeTimeout = 5 * time.Second

var (
	versionInfo  = prometheus.NewDesc("exeunt_build_info", "1, with the version of this replica.", []string{"version"}, nil)
	databaseSize = prometheus.NewDesc("exeunt_database_size_bytes", "Size of the database.", []string{"engine"}, nil)
	diskSize     = prometheus.NewDesc("exeunt_data_disk_size_bytes", "Size of the file system that holds the data directory.", nil, nil)
	diskFree     = prometheus.NewDesc("exeunt_data_disk_free_bytes", "Free bytes of the file system that holds the data directory.", nil, nil)
	lastBackup   = prometheus.NewDesc("exeunt_backup_last_success_timestamp_seconds", "When the last whole backup of the database ended, in Unix time. Absent: there is none.", nil, nil)
	certExpiry   = prometheus.NewDesc("exeunt_certificate_expiry_timestamp_seconds", "When a certificate of the server expires, in Unix time.", []string{"certificate"}, nil)
	timeouts     = prometheus.NewDesc("exeunt_database_timeouts_total", "Statements and connections of this replica that PostgreSQL ended because of a time limit: statement, lock, or idle_transaction.", []string{"limit"}, nil)
	paused       = prometheus.NewDesc("exeunt_collector_paused", "1 while the collector is paused (exeunt gc pause), otherwise 0.", nil, nil)
)

// stateMetrics are read at each scrape: the state of this replica's surroundings, for
// alerts and for "exeunt status".
type stateMetrics struct {
	version, data string
	db            *sqldb.DB
	identity      *access.Identity
	paused        func(context.Context) (bool, error)
	log           *slog.Logger
}

// Describe is part of prometheus.Collector.
func (m *stateMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{versionInfo, databaseSize, diskSize, diskFree, lastBackup, certExpiry, timeouts, paused} {
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
	if last, found, err := backup.Last(ctx, m.db); err == nil && found {
		set(lastBackup, float64(last.At.Unix()))
	} else if err != nil {
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
