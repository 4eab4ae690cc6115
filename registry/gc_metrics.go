package registry

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exeunt/exeunt/review"
)

// The workers and what a review came to, in metrics.
const (
	workerManifest = "manifest"
	workerBlob     = "blob"
	workerUnlink   = "unlink"

	outcomeKept      = "kept"
	outcomeDeleted   = "deleted"
	outcomePostponed = "postponed"
	outcomeFailed    = "failed"
)

// counted is a review that is to be counted.
type counted struct{ worker, event, outcome string }

// recovered is bytes that were given back.
type recovered struct {
	worker, event string
	bytes         int64
}

// countingTx is the transaction of a review. It collects what to count, and the
// collector counts it after the commit.
type countingTx struct {
	review.Tx
	worker  string
	tasks   []review.Task // under review in this transaction
	reviews []counted
	bytes   []recovered
	changed []int64 // ids of repositories that lost a manifest or a blob
}

// begin says which reviews fail if the transaction does.
func (t *countingTx) begin(worker string, tasks []review.Task) { t.worker, t.tasks = worker, tasks }

// failures are the reviews that failed with their transaction. The engine halves
// a batch that fails, until the one task is left that is to blame: only that one
// counts. None is to blame if the process stops.
func (t *countingTx) failures(ctx context.Context) []counted {
	if len(t.tasks) != 1 || errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return []counted{{t.worker, t.tasks[0].Event, outcomeFailed}}
}

// note counts a review with the commit.
func (t *countingTx) note(worker, event, outcome string) {
	t.reviews = append(t.reviews, counted{worker, event, outcome})
}

// giveBack counts bytes with the commit.
func (t *countingTx) giveBack(r recovered) {
	if r.bytes > 0 {
		t.bytes = append(t.bytes, r)
	}
}

// gcMetrics are those of this process. The engines have their own: depth,
// overdue and durations of each queue.
type gcMetrics struct {
	reviews *prometheus.CounterVec // by worker, event and outcome
	seconds *prometheus.CounterVec // by worker and event
	bytes   *prometheus.CounterVec // by worker and event
	uploads prometheus.Counter
}

func newGCMetrics() *gcMetrics {
	return &gcMetrics{
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "exeunt_registry_gc_reviews_total",
			Help: "Reviews of the registry's collector, by worker, by the event that caused them, and by outcome.",
		}, []string{"worker", "event", "outcome"}),
		seconds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "exeunt_registry_gc_review_seconds_total",
			Help: "Time spent on these reviews, by worker and event. Those of one transaction have equal parts of its time.",
		}, []string{"worker", "event"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "exeunt_registry_gc_deleted_bytes_total",
			Help: "Bytes given back by the registry's collector: by worker unlink those of the blob store, by worker blob those of small blobs in the database.",
		}, []string{"worker", "event"}),
		uploads: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "exeunt_registry_gc_abandoned_uploads_total", Help: "Uploads that were abandoned and removed.",
		}),
	}
}

// count counts reviews that took so long together.
func (m *gcMetrics) count(took time.Duration, reviews ...counted) {
	for _, r := range reviews {
		m.reviews.WithLabelValues(r.worker, r.event, r.outcome).Inc()
		m.seconds.WithLabelValues(r.worker, r.event).Add(took.Seconds() / float64(len(reviews)))
	}
}

func (m *gcMetrics) giveBack(list ...recovered) {
	for _, r := range list {
		m.bytes.WithLabelValues(r.worker, r.event).Add(float64(r.bytes))
	}
}

func (c *Collector) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.removed, c.manifests, c.blobRows, c.unlinks, c.metrics.reviews, c.metrics.seconds, c.metrics.bytes, c.metrics.uploads}
}

// Describe makes a Collector a prometheus.Collector of its metrics.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, part := range c.collectors() {
		part.Describe(out)
	}
}

// Collect is the other half of Describe.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	for _, part := range c.collectors() {
		part.Collect(out)
	}
}
