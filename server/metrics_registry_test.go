package server

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/exeunt/exeunt/registry"
)

// TestRegistryRequestsAreCounted by what they do and how they end; an unknown request gets
// no time series of its own.
func TestRegistryRequestsAreCounted(t *testing.T) {
	m := newRegistryMetrics()
	serve := func(kind registry.Kind, handler http.HandlerFunc) {
		w := httptest.NewRecorder()
		m.observed(registry.Request{Kind: kind}, handler).ServeHTTP(w, httptest.NewRequest("BREW", "/v2/some/path", nil))
	}
	serve(registry.BlobGet, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, strings.NewReader("bytes")) })
	serve(registry.BlobGet, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	serve(registry.ManifestPut, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	serve(registry.Ping, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	want := `
# HELP exeunt_registry_requests_total Registry requests answered, by verb, content and HTTP status. Those that their Host or Origin header refuses do not count.
# TYPE exeunt_registry_requests_total counter
exeunt_registry_requests_total{code="200",content="",verb="other"} 1
exeunt_registry_requests_total{code="200",content="blobs",verb="get"} 1
exeunt_registry_requests_total{code="404",content="blobs",verb="get"} 1
exeunt_registry_requests_total{code="201",content="manifests",verb="update"} 1
`
	if err := testutil.CollectAndCompare(m.requests, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
