package review

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The steps that are timed.
const (
	stepClaim  = "claim"
	stepReview = "review"
	stepEffect = "effect"
)

const (
	// statsAge is how old the cached numbers of the queue may be: counting a long
	// queue is expensive, and Prometheus scrapes every replica.
	statsAge     = 15 * time.Second
	statsTimeout = 5 * time.Second
)

// metrics are the metrics of one queue. Counters are of this process; gauges are
// read from the database and are the same on all replicas.
type metrics struct {
	reviews    *prometheus.CounterVec // by outcome
	failures   *prometheus.CounterVec // by event
	acted      prometheus.Counter
	turnErrors prometheus.Counter
	durations  *prometheus.HistogramVec // by step

	depth, overdue, failing, claimed, oldest, lag *prometheus.Desc

	mu    sync.Mutex
	stats Stats     // guarded by mu
	read  time.Time // of stats; guarded by mu
}

func newMetrics(queue string) *metrics {
	labels := prometheus.Labels{"queue": queue}
	gauge := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("exeunt_review_queue_"+name, help, nil, labels)
	}
	m := &metrics{
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "exeunt_reviews_total", ConstLabels: labels,
			Help: "Tasks reviewed, by outcome: done, postponed, failed, or left for another review.",
		}, []string{"outcome"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "exeunt_review_failures_total", ConstLabels: labels, Help: "Reviews that failed, by the event that caused them.",
		}, []string{"event"}),
		acted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "exeunt_reviews_acted_total", ConstLabels: labels, Help: "Reviews that acted.",
		}),
		turnErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "exeunt_review_turn_errors_total", ConstLabels: labels,
			Help: "Turns that failed as a whole: the database did not work.",
		}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "exeunt_review_duration_seconds", ConstLabels: labels,
			Help:    "Time to claim a batch, to review one in its transaction, and to run one effect.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"step"}),
		depth:   gauge("depth", "Tasks in the queue."),
		overdue: gauge("overdue", "Tasks that are due."),
		failing: gauge("failing", "Tasks that failed last time."),
		claimed: gauge("claimed", "Tasks under review."),
		oldest:  gauge("oldest_age_seconds", "Time since the oldest task was enqueued."),
		lag:     gauge("lag_seconds", "Time since the task due first became due."),
	}
	for _, outcome := range []string{"done", "postponed", "failed", "left"} {
		m.reviews.WithLabelValues(outcome)
	}
	return m
}

func (m *metrics) count(r Result) {
	m.reviews.WithLabelValues("done").Add(float64(r.Done))
	m.reviews.WithLabelValues("postponed").Add(float64(r.Postponed))
	m.reviews.WithLabelValues("failed").Add(float64(r.Failed))
	m.reviews.WithLabelValues("left").Add(float64(r.Left))
	m.acted.Add(float64(r.Acted))
}

// time starts a step; the function it returns ends it.
func (m *metrics) time(step string) func() {
	start := time.Now()
	return func() { m.durations.WithLabelValues(step).Observe(time.Since(start).Seconds()) }
}

func (m *metrics) parts() []prometheus.Collector {
	return []prometheus.Collector{m.reviews, m.failures, m.acted, m.turnErrors, m.durations}
}

// Describe makes an Engine a prometheus.Collector of its queue's metrics.
func (e *Engine) Describe(out chan<- *prometheus.Desc) {
	m := e.metrics
	for _, part := range m.parts() {
		part.Describe(out)
	}
	for _, desc := range []*prometheus.Desc{m.depth, m.overdue, m.failing, m.claimed, m.oldest, m.lag} {
		out <- desc
	}
}

// Collect is part of prometheus.Collector. If the queue cannot be counted, it
// sends the counters without the gauges.
func (e *Engine) Collect(out chan<- prometheus.Metric) {
	m := e.metrics
	for _, part := range m.parts() {
		part.Collect(out)
	}
	s, err := e.Recent()
	if err != nil {
		e.options.Logger.Warn("review queue not counted", "error", err)
		return
	}
	now := e.options.Now()
	set := func(desc *prometheus.Desc, value float64) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	set(m.depth, float64(s.Depth))
	set(m.overdue, float64(s.Overdue))
	set(m.failing, float64(s.Failing))
	set(m.claimed, float64(s.Claimed))
	set(m.oldest, secondsSince(s.Oldest, now))
	set(m.lag, secondsSince(s.Due, now))
}

// Recent is Stats, cached for statsAge.
func (e *Engine) Recent() (Stats, error) {
	m := e.metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.read.IsZero() && time.Since(m.read) < statsAge {
		return m.stats, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	s, err := e.Stats(ctx)
	if err != nil {
		return Stats{}, err
	}
	m.stats, m.read = s, time.Now()
	return s, nil
}

// secondsSince is 0 for the zero time and for times in the future.
func secondsSince(t, now time.Time) float64 {
	if t.IsZero() || t.After(now) {
		return 0
	}
	return now.Sub(t).Seconds()
}
