package api

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/api/record"
	"github.com/exeunt/exeunt/store"
)

// lines collects a log.
type lines struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// take returns the log and empties it.
func (l *lines) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// TestSlowRequests: a slow request is logged with its steps, in order, whether a fast
// path or the library serves it. A watch and a path outside the API are never slow.
func TestSlowRequests(t *testing.T) {
	t.Run("without an audit log", func(t *testing.T) { testSlowRequests(t, newWorld(t, store.Options{})) })
	t.Run("with an audit log", func(t *testing.T) { testSlowRequests(t, newAudited(t, "- level: Metadata\n").world) })
}

func testSlowRequests(t *testing.T, w *world) {
	t.Helper()
	var log lines
	w.api.Logger = slog.New(slog.NewTextHandler(&log, nil))
	w.api.SetLimits(Limits{SlowRequest: time.Nanosecond})
	const yaml = "Accept: application/yaml"
	steps := regexp.MustCompile(`steps="([^"]*)"`)
	for _, test := range []struct{ method, path, body, header, want string }{
		{"POST", configMaps, `{"metadata":{"name":"a"}}`, "", "authorized received admitted decoded stored"},
		{"PUT", configMaps + "/a", `{"metadata":{"name":"a"},"data":{"a":"1"}}`, "", "authorized received admitted decoded stored"},
		{"PATCH", configMaps + "/a", `{"data":{"a":"2"}}`, "Content-Type: application/merge-patch+json", "authorized received admitted decoded stored"},
		{"GET", configMaps + "/a", "", "", "authorized admitted read"},
		{"GET", configMaps + "?limit=5", "", "", "authorized admitted read"},
		{"DELETE", configMaps + "/a", "", "", "authorized admitted decoded stored"},
		{"POST", configMaps, `{"metadata":{"name":"b"}}`, yaml, "authorized received admitted decoded stored"},
		{"PUT", configMaps + "/b", `{"metadata":{"name":"b"},"data":{"a":"1"}}`, yaml, "authorized received admitted decoded stored"},
		{"GET", configMaps + "/b", "", yaml, "authorized admitted read"},
		{"GET", configMaps, "", yaml, "authorized admitted read"},
		{"DELETE", configMaps + "/b", "", yaml, "authorized admitted decoded stored"},
		{"GET", "/version", "", "", ""},
	} {
		var headers []string
		if test.header != "" {
			headers = append(headers, test.header)
		}
		if r := w.send(test.method, test.path, test.body, headers...); r.code >= 300 {
			t.Fatalf("%s %s: %d %s", test.method, test.path, r.code, r.body)
		}
		got := log.take()
		if test.want == "" {
			if got != "" {
				t.Errorf("%s %s is logged: %s", test.method, test.path, got)
			}
			continue
		}
		names := ""
		if match := steps.FindStringSubmatch(got); match != nil {
			names = regexp.MustCompile(` after \d+ms,?`).ReplaceAllString(match[1], "")
		}
		if names != test.want || strings.Count(got, "msg=\"slow request\" method="+test.method+" ") != 1 || !strings.Contains(got, "agent=tester/1.0 ") {
			t.Errorf("%s %s %s: steps %q, want %q; the log has %s", test.method, test.path, test.header, names, test.want, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the client of the watch is gone at once
	w.answer(known(httptest.NewRequestWithContext(ctx, "GET", configMaps+"?watch=1", nil)))
	if got := log.take(); strings.Contains(got, "slow request") {
		t.Errorf("a watch is logged: %s", got)
	}
}

// TestRequestLog: on demand every request is in the log, with its client. The query of a
// path outside the API is not: it may have a secret.
func TestRequestLog(t *testing.T) {
	w := newWorld(t, store.Options{})
	var log lines
	w.api.Logger = slog.New(slog.NewTextHandler(&log, nil))
	w.send("GET", configMaps, "")
	if got := log.take(); got != "" {
		t.Errorf("requests are logged without a demand: %s", got)
	}
	w.api.SetLimits(Limits{LogRequests: true})
	w.send("GET", configMaps+"/none?pretty=true", "", "User-Agent: "+strings.Repeat("x", 100))
	want := regexp.MustCompile(`level=INFO msg=request method=GET path=` + configMaps + `/none query="pretty=true" status=404 took=\S+ user=\S+ agent=x{64}… from=192\.0\.2\.1:1234 audit=\S+\n$`)
	if got := log.take(); !want.MatchString(got) {
		t.Errorf("the log has %q", got)
	}
	w.send("GET", "/version?token=secret", "")
	if got := log.take(); !strings.Contains(got, "path=/version status=200") || strings.Contains(got, "secret") {
		t.Errorf("the log has %q", got)
	}
}

// BenchmarkSteps is what a fast write pays for its steps: nothing is allocated.
func BenchmarkSteps(b *testing.B) {
	seen := &observedWriter{Flushing: record.Flushing{ResponseWriter: httptest.NewRecorder()}}
	a := &API{}
	a.SetLimits(Limits{SlowRequest: 500 * time.Millisecond})
	req := httptest.NewRequest("GET", configMaps, nil)
	ctx := context.WithValue(b.Context(), seenKey{}, seen)
	b.ReportAllocs()
	for b.Loop() {
		seen.steps.count, seen.steps.start = 0, time.Now()
		for _, name := range []string{stepAuthorized, stepReceived, stepAdmitted, stepDecoded, stepStored} {
			mark(ctx, name)
		}
		a.logRequest(seen, req, time.Since(seen.steps.start))
	}
}
