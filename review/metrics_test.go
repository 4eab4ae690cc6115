package review_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/exeunt/exeunt/review"
)

func TestMetrics(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.enqueue(0, "acted", "again", "failed", "kept")
		f.now = f.now.Add(time.Second)
		verdicts := map[string]review.Verdict{
			"acted": review.Acted(), "again": review.Again(time.Hour), "failed": review.Failed(errTest), "kept": review.Kept(),
		}
		e := f.engine(queue, by(func(task review.Task) review.Verdict { return verdicts[task.Key] }), review.Options{})
		f.turn(e)
		f.now = f.now.Add(10 * time.Second)

		registry := prometheus.NewPedanticRegistry()
		if err := registry.Register(e); err != nil {
			t.Fatal(err)
		}
		other := queue
		other.Name = "others"
		if err := registry.Register(f.engine(other, collector{}, review.Options{})); err != nil {
			t.Fatalf("a second queue: %v", err)
		}
		if _, err := registry.Gather(); err != nil {
			t.Errorf("gather both: %v", err)
		}
		want := `
# HELP exeunt_review_failures_total Reviews that failed, by the event that caused them.
# TYPE exeunt_review_failures_total counter
exeunt_review_failures_total{event="test",queue="things"} 1
# HELP exeunt_review_queue_depth Tasks in the queue.
# TYPE exeunt_review_queue_depth gauge
exeunt_review_queue_depth{queue="things"} 2
# HELP exeunt_review_queue_failing Tasks that failed last time.
# TYPE exeunt_review_queue_failing gauge
exeunt_review_queue_failing{queue="things"} 1
# HELP exeunt_review_queue_lag_seconds Time since the task due first became due.
# TYPE exeunt_review_queue_lag_seconds gauge
exeunt_review_queue_lag_seconds{queue="things"} 9
# HELP exeunt_review_queue_oldest_age_seconds Time since the oldest task was enqueued.
# TYPE exeunt_review_queue_oldest_age_seconds gauge
exeunt_review_queue_oldest_age_seconds{queue="things"} 11
# HELP exeunt_review_queue_overdue Tasks that are due.
# TYPE exeunt_review_queue_overdue gauge
exeunt_review_queue_overdue{queue="things"} 1
# HELP exeunt_reviews_acted_total Reviews that acted.
# TYPE exeunt_reviews_acted_total counter
exeunt_reviews_acted_total{queue="things"} 1
# HELP exeunt_reviews_total Tasks reviewed, by outcome: done, postponed, failed, or left for another review.
# TYPE exeunt_reviews_total counter
exeunt_reviews_total{outcome="done",queue="things"} 2
exeunt_reviews_total{outcome="failed",queue="things"} 1
exeunt_reviews_total{outcome="left",queue="things"} 0
exeunt_reviews_total{outcome="postponed",queue="things"} 1
`
		names := []string{
			"exeunt_review_failures_total",
			"exeunt_review_queue_depth", "exeunt_review_queue_failing", "exeunt_review_queue_lag_seconds",
			"exeunt_review_queue_oldest_age_seconds", "exeunt_review_queue_overdue", "exeunt_reviews_acted_total", "exeunt_reviews_total",
		}
		if err := testutil.CollectAndCompare(e, strings.NewReader(want), names...); err != nil {
			t.Error(err)
		}
		if n := testutil.CollectAndCount(e, "exeunt_review_duration_seconds"); n != 2 {
			t.Errorf("%d steps are timed, want claim and review", n)
		}
	})
}
