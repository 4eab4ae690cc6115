// Package otlptest receives the spans that a server under test sends.
package otlptest

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Receiver is an OpenTelemetry collector in this process.
type Receiver struct {
	URL string

	mu    sync.Mutex
	spans map[string][]span // by trace id; guarded by mu
}

type span struct{ name, id, parent string }

// NewReceiver listens until the test ends.
func NewReceiver(t testing.TB) *Receiver {
	t.Helper()
	r := &Receiver{spans: map[string][]span{}}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var sent collector.ExportTraceServiceRequest
		if err != nil || req.URL.Path != "/v1/traces" || proto.Unmarshal(body, &sent) != nil {
			t.Errorf("%s: %d bytes, %v", req.URL, len(body), err)
			return
		}
		r.add(&sent)
	}))
	t.Cleanup(s.Close)
	r.URL = s.URL
	return r
}

func (r *Receiver) add(sent *collector.ExportTraceServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range sent.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				trace := hex.EncodeToString(s.TraceId)
				r.spans[trace] = append(r.spans[trace], span{s.Name, hex.EncodeToString(s.SpanId), hex.EncodeToString(s.ParentSpanId)})
			}
		}
	}
}

// Names counts the spans of a trace by name.
func (r *Receiver) Names(trace string) map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := map[string]int{}
	for _, s := range r.spans[trace] {
		names[s.name]++
	}
	return names
}

// WantParents checks, when all spans were sent, that the parent of each is in the trace or
// is the client's span.
func (r *Receiver) WantParents(t testing.TB, trace, client string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := map[string]bool{client: true}
	for _, s := range r.spans[trace] {
		ids[s.id] = true
	}
	for _, s := range r.spans[trace] {
		if !ids[s.parent] {
			t.Errorf("the parent of the span %q is not in the trace", s.name)
		}
	}
}
