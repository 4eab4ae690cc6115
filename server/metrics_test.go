package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/exeunt/exeunt/api"
)

// TestSeriesAreBounded: however many resources clients define and use, the number of time
// series is bounded, and every request is counted.
func TestSeriesAreBounded(t *testing.T) {
	meters := openMetrics(t)
	const resources = 3 * maxResources
	for i := range resources {
		meters.observe(api.Observation{Verb: "GET", Group: "g", Version: "v1", Resource: fmt.Sprint("r", i), Scope: "resource", Code: 200})
	}
	families, err := meters.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "apiserver_request_total" {
			continue
		}
		total := 0.0
		for _, m := range f.GetMetric() {
			total += m.GetCounter().GetValue()
		}
		if len(f.GetMetric()) > maxResources+1 || total != resources {
			t.Errorf("%d time series have %v requests, want %d at most with %d", len(f.GetMetric()), total, maxResources+1, resources)
		}
		return
	}
	t.Error("there is no apiserver_request_total")
}

// TestRequestSeries: requests and their times have the names and labels that Kubernetes' dashboards read.
func TestRequestSeries(t *testing.T) {
	meters := openMetrics(t)
	meters.observe(api.Observation{Verb: "PATCH", DryRun: "All", Group: "apps", Version: "v1", Resource: "deployments", Subresource: "scale",
		Scope: "resource", Code: 200, Took: 70 * time.Millisecond})
	const labels = `component="apiserver",dry_run="All",group="apps",resource="deployments",scope="resource",subresource="scale",verb="PATCH",version="v1"`
	var page strings.Builder
	families, err := meters.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&page, f); err != nil {
			t.Fatal(err)
		}
	}
	for _, line := range []string{
		`apiserver_request_total{code="200",` + labels + `} 1`,
		`apiserver_request_duration_seconds_bucket{` + labels + `,le="0.05"} 0`,
		`apiserver_request_duration_seconds_bucket{` + labels + `,le="0.1"} 1`,
		`apiserver_request_duration_seconds_sum{` + labels + `} 0.07`,
	} {
		if !strings.Contains(page.String(), line+"\n") {
			t.Errorf("the page has no line %s", line)
		}
	}
}
