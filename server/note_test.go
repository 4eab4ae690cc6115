package server

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestNotes: the log says what the server found at its start, and why it stops.
func TestNotes(t *testing.T) {
	t.Parallel()
	var log output
	r := start(t, Config{Data: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	until(t, "the server says what it found", func() bool {
		return strings.Contains(log.String(), `level=INFO msg="server started" version=test database=sqlite schema=`)
	})
	if text := log.String(); strings.Contains(text, "objects=0 ") || !strings.Contains(text, " failing=0 paused=false") {
		t.Errorf("the log is\n%s", text)
	}
	r.stop()
	if text := log.String(); strings.Count(text, `level=INFO msg="server stops: it got a signal"`) != 1 {
		t.Errorf("the log is\n%s", text)
	}
}

// TestWaitingReviews: the note names each queue with reviews that are due. The generated page has
// the metric, so its name is right.
func TestWaitingReviews(t *testing.T) {
	t.Parallel()
	gauge := func(queue string, n float64) prometheus.Collector {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: overdueMetric, Help: "due", ConstLabels: prometheus.Labels{"queue": queue}})
		g.Set(n)
		return g
	}
	got, err := waitingReviews([]prometheus.Collector{gauge("objects", 0), gauge("registry-manifests", 12), gauge("provisioned-resources", 1)})
	if want := "provisioned-resources: 1, registry-manifests: 12"; got != want || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil || !strings.Contains(string(page), "`"+overdueMetric+"`") {
		t.Errorf("docs/metrics.md does not have %s: %v", overdueMetric, err)
	}
}
