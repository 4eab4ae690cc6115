package broker_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/test/harness"
)

// The surroundings of the server: a proxy in front of its management cluster, and the
// webhook that receives its events.

// gate is a proxy in front of the management cluster. It can drop connections, refuse
// requests, or let them hang.
type gate struct {
	kubeconfig string
	mu         sync.Mutex
	forward    http.Handler
	refuse     func(*http.Request) (int, string) // 0 means forward; -1 means drop the connection

	hangAt func(*http.Request) bool // nil means never
	after  bool                     // hang after the request was forwarded
	hangs  chan struct{}            // closed when a request hangs

	watched []string // the resources that were watched
}

// watches returns the resources that the server has watched, each once.
func (g *gate) watches() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	slices.Sort(g.watched)
	return slices.Compact(slices.Clone(g.watched))
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{kubeconfig: filepath.Join(t.TempDir(), "management")}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"m","cluster":{"server":%q}}],"contexts":[{"name":"m","context":{"cluster":"m"}}],"current-context":"m"}`, server.URL)
	if err := os.WriteFile(g.kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return g
}

// open forwards requests to a server, as its administrator.
func (g *gate) open(config *rest.Config) {
	g.mu.Lock()
	defer g.mu.Unlock()
	target, err := url.Parse(config.Host)
	if err != nil {
		panic(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		panic(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = transport
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { panic(http.ErrAbortHandler) }
	g.forward = proxy
}

func (g *gate) set(refuse func(*http.Request) (int, string)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuse = refuse
}

// hang makes the first request that matches hang until its client disconnects: before it
// is forwarded, or with after, before it is answered. The channel is closed when the
// request hangs.
func (g *gate) hang(match func(*http.Request) bool, after bool) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hangAt, g.after, g.hangs = match, after, make(chan struct{})
	return g.hangs
}

// hung reports whether this request hangs. Only one request does.
func (g *gate) hung(r *http.Request) (hang, after bool, hangs chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hangAt == nil || !g.hangAt(r) {
		return false, false, nil
	}
	g.hangAt = nil
	return true, g.after, g.hangs
}

// down drops every connection.
func down(*http.Request) (int, string) { return -1, "" }

// deny refuses one verb on one resource, as an API server does.
func deny(method, resource string, code int, reason, message string) func(*http.Request) (int, string) {
	return func(r *http.Request) (int, string) {
		if r.Method != method || !strings.Contains(r.URL.Path+"/", "/"+resource+"/") {
			return 0, ""
		}
		return code, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":%q}`, code, reason, message)
	}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	forward, refuse := g.forward, g.refuse
	if r.URL.Query().Get("watch") != "" {
		g.watched = append(g.watched, path.Base(r.URL.Path))
	}
	g.mu.Unlock()
	if hang, after, hangs := g.hung(r); hang {
		if after {
			forward.ServeHTTP(httptest.NewRecorder(), r)
		}
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the proxy does not notice that the client disconnects
		close(hangs)
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}
	code, body := 0, ""
	if refuse != nil {
		code, body = refuse(r)
	}
	switch {
	case code < 0 || forward == nil:
		panic(http.ErrAbortHandler)
	case code > 0:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	default:
		forward.ServeHTTP(w, r)
	}
}

// webhook records the events that it receives.
type webhook struct {
	url    string
	mu     sync.Mutex
	refuse bool
	tokens []string // in order of arrival, repeated ones too
}

func newWebhook(t *testing.T) *webhook {
	t.Helper()
	h := &webhook{}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

func (h *webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var event struct {
		ID   string         `json:"id"`
		Type string         `json:"type"`
		Data map[string]any `json:"data"`
	}
	err := json.NewDecoder(r.Body).Decode(&event)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil || event.ID != r.Header.Get("Idempotency-Key") || h.refuse {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	h.tokens = append(h.tokens, event.ID)
}

func (h *webhook) set(refuse bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refuse = refuse
}

func (h *webhook) refuses() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refuse
}

// counts returns how often the webhook received each event of a resource.
func (h *webhook) counts(uid string) map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := map[string]int{}
	for _, token := range h.tokens {
		if strings.HasSuffix(token, "/"+uid) {
			counts[token]++
		}
	}
	return counts
}

// typesOf lists the event types of a resource, by first arrival.
func (h *webhook) typesOf(uid string) (types []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, token := range h.tokens {
		kind, id, _ := strings.Cut(token, "/")
		kind = strings.TrimPrefix(kind, "broker.ProvisionedResource")
		if id == uid && !slices.Contains(types, kind) {
			types = append(types, kind)
		}
	}
	return types
}

// awaitEvents waits until the webhook has received exactly these events, in this order.
func (w *world) awaitEvents(uid string, want ...string) {
	w.Helper()
	harness.Until(w, "the events at the webhook", func() error {
		if got := w.webhook.typesOf(uid); !slices.Equal(got, want) {
			return fmt.Errorf("it received %q, want %q", got, want)
		}
		return nil
	})
}
