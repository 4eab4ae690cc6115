package collect

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exeunt/exeunt/review"
)

// The workers and the outcomes of reviews, as metrics name them.
const (
	workerManifest = "manifest"
	workerBlob     = "blob"
	workerUnlink   = "unlink"

	outcomeKept      = "kept"
	outcomeDeleted   = "deleted"
	outcomePostponed = "postponed"
	outcomeFailed    = "failed"
)

// counted is one review, for the metrics.
type counted struct{ worker, event, outcome string }

// recovered is a number of reclaimed bytes.
type recovered struct {
	worker, event string
	bytes         int64
}

// countingTx is the transaction of a review. It collects what the collector
// counts after the commit.
type countingTx struct {
	review.Tx
	worker  string
	tasks   []review.Task // under review in this transaction
	reviews []counted
	bytes   []recovered
	changed []int64 // ids of the repositories that lost a manifest or a blob
}

// begin records the reviews that fail if the transaction fails.
func (t *countingTx) begin(worker string, tasks []review.Task) { t.worker, t.tasks = worker, tasks }

// failures returns the reviews that failed with their transaction. The engine
// halves a failing batch until one task is left: only that one counts. None
// counts if the process is stopping.
func (t *countingTx) failures(ctx context.Context) []counted {
	if len(t.tasks) != 1 || errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return []counted{{t.worker, t.tasks[0].Event, outcomeFailed}}
}

// note counts a review after the commit.
func (t *countingTx) note(task review.Task, outcome string) {
	t.reviews = append(t.reviews, counted{t.worker, task.Event, outcome})
}

// giveBack counts reclaimed bytes after the commit.
func (t *countingTx) giveBack(r recovered) {
	if r.bytes > 0 {
		t.bytes = append(t.bytes, r)
	}
}

// metrics are the metrics of this process. The engines have their own: depth,
// overdue and durations of each queue.
type metrics struct {
	reviews *prometheus.CounterVec // by worker, event and outcome
	seconds *prometheus.CounterVec // by worker and event
	bytes   *prometheus.CounterVec // by worker and event
	uploads prometheus.Counter

	timeouts prometheus.Counter
}

func newMetrics() *metrics {
	return &metrics{
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
		timeouts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "exeunt_registry_gc_remove_timeouts_total", Help: "Removals of bytes that the blob store did not end in time. They are retried.",
		}),
	}
}

// count counts reviews that took this long together.
func (m *metrics) count(took time.Duration, reviews ...counted) {
	for _, r := range reviews {
		m.reviews.WithLabelValues(r.worker, r.event, r.outcome).Inc()
		m.seconds.WithLabelValues(r.worker, r.event).Add(took.Seconds() / float64(len(reviews)))
	}
}

func (m *metrics) giveBack(list ...recovered) {
	for _, r := range list {
		m.bytes.WithLabelValues(r.worker, r.event).Add(float64(r.bytes))
	}
}

// Meters are the metrics besides those of the queues.
func (c *Collector) Meters() []prometheus.Collector {
	return []prometheus.Collector{c.metrics.reviews, c.metrics.seconds, c.metrics.bytes, c.metrics.uploads, c.metrics.timeouts}
}

// Engines are the queues, also those that do not run.
func (c *Collector) Engines() []*review.Engine {
	return []*review.Engine{c.removed, c.manifests, c.blobRows, c.unlinks}
}

// Stats is the state of the collection, for operators, and its settings.
type Stats struct {
	Paused            bool              `json:"paused"`
	Off               bool              `json:"off"` // this process does not collect
	CollectManifests  bool              `json:"collectManifests"`
	CollectBlobs      bool              `json:"collectBlobs"`
	CollectSignatures bool              `json:"collectSignatures"` // delete them with their image
	Repositories      review.Stats      `json:"repositories"`      // removed ones, which can be restored or wait for removal
	Manifests         review.Stats      `json:"manifests"`
	Blobs             review.Stats      `json:"blobs"`
	Unlinks           review.Stats      `json:"unlinks"`
	UnlinkBytes       int64             `json:"unlinkBytes"`      // in the unlink queue
	Reclaimed         int64             `json:"givenBackBytes"`   // removed today, UTC
	Uploads           int               `json:"uploads"`          // open ones
	Abandoned         int               `json:"abandonedUploads"` // of them, those that will be removed
	ReviewAfter       map[string]string `json:"reviewAfter"`      // the delays of all events
}

// Stats counts the queues. It reads every row of them.
func (c *Collector) Stats(ctx context.Context) (Stats, error) {
	o := c.options
	s := Stats{Off: o.Off, CollectManifests: !o.KeepManifests, CollectBlobs: !o.KeepBlobs, CollectSignatures: !o.KeepSignatures}
	var err error
	if s.Paused, err = c.paused(ctx); err != nil {
		return Stats{}, err
	}
	if s.ReviewAfter, err = c.delays(ctx); err != nil {
		return Stats{}, err
	}
	if s.Repositories, err = c.removed.Stats(ctx); err != nil {
		return Stats{}, err
	}
	if s.Manifests, err = c.manifests.Stats(ctx); err != nil {
		return Stats{}, err
	}
	if s.Blobs, err = c.blobRows.Stats(ctx); err != nil {
		return Stats{}, err
	}
	if s.Unlinks, err = c.unlinks.Stats(ctx); err != nil {
		return Stats{}, err
	}
	if _, err := c.db.Row(ctx, unlinkBytes, nil, &s.UnlinkBytes); err != nil {
		return Stats{}, wrap("count bytes to be removed", err)
	}
	now := c.options.Now()
	if _, err := c.db.Row(ctx, reclaimed, []any{day(now)}, &s.Reclaimed); err != nil {
		return Stats{}, wrap("count reclaimed bytes", err)
	}
	_, err = c.db.Row(ctx, countUploads, []any{now.Add(-c.options.UploadExpiry).UnixMilli(), now.UnixMilli()}, &s.Uploads, &s.Abandoned)
	return s, wrap("count uploads", err)
}
