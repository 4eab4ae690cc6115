package server

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/exeunt/exeunt/registry"
)

// TestRegistryRequestsAreCounted by what they do and how they end; an unknown request gets
// no time series of its own.
func TestRegistryRequestsAreCounted(t *testing.T) {
	m := newRegistryMetrics(Config{})
	serve := func(kind registry.Kind, handler http.HandlerFunc) {
		w := httptest.NewRecorder()
		m.observed(nil, registry.Request{Kind: kind}, handler).ServeHTTP(w, httptest.NewRequest("BREW", "/v2/some/path", nil))
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

// TestRegistryRequestLog: a request is slow if its answer begins late. The time that the
// client takes for its bytes does not count, and uploads are never slow.
func TestRegistryRequestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = time.Minute
		var out strings.Builder
		m := newRegistryMetrics(Config{SlowRequest: slow, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		late := func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(slow)
			w.WriteHeader(http.StatusOK)
		}
		log := func(kind registry.Kind, handler http.HandlerFunc) string {
			out.Reset()
			m.observed(nil, registry.Request{Kind: kind}, handler).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/v2/shop/web/x", nil))
			return out.String()
		}
		if got := log(registry.ManifestGet, late); !strings.Contains(got, `msg="slow registry request" method=GET path=/v2/shop/web/x status=200`) ||
			!strings.Contains(got, `steps="answer begun after `) {
			t.Errorf("a late answer is logged as %q", got)
		}
		for _, kind := range []registry.Kind{registry.UploadPut, registry.UploadPatch, registry.UploadStart} {
			if got := log(kind, late); got != "" {
				t.Errorf("an upload is logged: %q", got)
			}
		}
		m.setLog(Config{LogRequests: true})
		if got := log(registry.ManifestGet, late); !strings.Contains(got, `msg="registry request"`) {
			t.Errorf("with --log-requests the log has %q", got)
		}
	})
}

// TestRegistryAnswerTime: the answer of a pull begins with its header.
func TestRegistryAnswerTime(t *testing.T) {
	w := &codeWriter{ResponseWriter: httptest.NewRecorder(), start: time.Now().Add(-time.Hour)}
	w.WriteHeader(http.StatusOK)
	began := w.began
	w.start = w.start.Add(-time.Hour)
	if _, err := w.ReadFrom(strings.NewReader("bytes")); err != nil || began < time.Hour || w.began != began {
		t.Errorf("the answer began after %s, and after its bytes after %s: %v", began, w.began, err)
	}
}
