package server

import (
	"fmt"
	"testing"

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
