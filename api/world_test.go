package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/tidwall/gjson"
	"k8s.io/klog/v2"

	"github.com/exeunt/exeunt/access/accesstest"
	"github.com/exeunt/exeunt/api/health"
	"github.com/exeunt/exeunt/api/openapi"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/kind/definition"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

// TestMain keeps the libraries' own log out of the tests' output.
func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	dbtest.Main(m)
}

const (
	configMaps = "/api/v1/namespaces/shop/configmaps"
	// patience limits how long a test waits for an expected event.
	patience = dbtest.Patience
)

// world is a whole API on a new database, with all filters and the definition controller. Its
// requests come from a client with a certificate.
type world struct {
	t    testing.TB
	api  *API
	stop func() // ends the store and the controller, once
}

// newWorld has one namespace. Without a database in the options it creates a SQLite database.
func newWorld(t testing.TB, options store.Options) *world {
	t.Helper()
	if options.DB == nil {
		options.DB = dbtest.OpenDB(t, sqldb.SQLite)
	}
	w := newReplica(t, options)
	w.want(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	return w
}

// newReplica is a world on a database that other worlds may share.
func newReplica(t testing.TB, options store.Options) *world {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(context.Background())
	st, stopStore := storetest.Start(t, options)
	definitions := custom.Definition()
	kinds := kind.NewRegistry(append(builtin.Kinds(), definitions))
	controller := definition.New(st, kinds, definitions, nil, log)
	if err := controller.Load(ctx); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- controller.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		stopStore()
	})
	t.Cleanup(stop)
	w := &world{t, New(Config{
		Store: st, Kinds: kinds, Access: accesstest.Control(), Admission: accesstest.NoAdmission{}, OpenAPI: openapi.New(kinds, "test"),
		Metrics: http.NotFoundHandler(), Logger: log, Version: "test",
		Checks: func() []health.Check {
			return []health.Check{{Name: "database", Run: st.Ping}, {Name: "admission", Run: func(context.Context) error { return nil }}}
		},
	}), stop}
	t.Cleanup(func() { w.api.Close(context.Background()) })
	return w
}

// known makes a request come from a client with a certificate.
func known(req *http.Request) *http.Request { return accesstest.Admin(req) }

// reply is an answer with its body read.
type reply struct {
	code   int
	header http.Header
	body   string
}

func (r reply) get(path string) string { return gjson.Get(r.body, path).String() }

// send sends a request with headers, given as "Name: value".
func (w *world) send(method, path, body string, headers ...string) reply {
	req := known(httptest.NewRequest(method, path, strings.NewReader(body)))
	req.Header.Set("User-Agent", "tester/1.0")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	return w.answer(req)
}

// as sends a request of another client.
func (w *world) as(name string, groups []string, method, path, body string, headers ...string) reply {
	req := accesstest.As(httptest.NewRequest(method, path, strings.NewReader(body)), name, groups...)
	req.Header.Set("User-Agent", "tester/1.0")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	return w.answer(req)
}

func (w *world) answer(req *http.Request) reply {
	recorder := httptest.NewRecorder()
	w.api.ServeHTTP(recorder, req)
	return reply{recorder.Code, recorder.Header(), recorder.Body.String()}
}

// want is send for a request whose status code is known.
func (w *world) want(code int, method, path, body string, headers ...string) reply {
	w.t.Helper()
	r := w.send(method, path, body, headers...)
	if r.code != code {
		w.t.Fatalf("%s %s answered %d, want %d: %s", method, path, r.code, code, r.body)
	}
	return r
}

// configMap creates one and returns its resourceVersion.
func (w *world) configMap(name, more string) string {
	w.t.Helper()
	return w.want(http.StatusCreated, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":%q%s}}`, name, more)).get("metadata.resourceVersion")
}

// patch merges something into an object and returns its new resourceVersion.
func (w *world) patch(path, body string) string {
	w.t.Helper()
	return w.want(http.StatusOK, "PATCH", path, body, "Content-Type: application/merge-patch+json").get("metadata.resourceVersion")
}

// define creates a kind Widget with /status and /scale and waits for it.
func (w *world) define() {
	w.t.Helper()
	w.want(http.StatusCreated, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgetDefinition)
	dbtest.Until(w.t, "widgets are served", func() error {
		if r := w.send("GET", widgets, ""); r.code != http.StatusOK {
			return fmt.Errorf("%d %s", r.code, r.body)
		}
		return nil
	})
}

const (
	widgets          = "/apis/test.dev/v1/namespaces/shop/widgets"
	widgetDefinition = `{"metadata":{"name":"widgets.test.dev"},"spec":{"group":"test.dev","scope":"Namespaced",
	"names":{"plural":"widgets","singular":"widget","kind":"Widget","shortNames":["wi"]},
	"versions":[{"name":"v1","served":true,"storage":true,
		"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas","labelSelectorPath":".status.selector"}},
		"selectableFields":[{"jsonPath":".spec.color"}],
		"schema":{"openAPIV3Schema":{"type":"object","properties":{
			"spec":{"type":"object","properties":{"replicas":{"type":"integer","minimum":0},"color":{"type":"string"},"parts":{"type":"array","items":{"type":"string"}}}},
			"status":{"type":"object","properties":{"replicas":{"type":"integer"},"selector":{"type":"string"}}}}}}}]}}`
)

// watching is an open watch over a connection.
type watching struct {
	t      testing.TB
	code   int
	frames *bufio.Scanner
	body   io.Closer
}

// watch opens a watch of a collection. All its waits have a timeout.
func (w *world) watch(query string) *watching {
	w.t.Helper()
	return w.watchBegun(query, func() {})
}

// watchBegun calls begun when the response begins, before any event is sent.
func (w *world) watchBegun(query string, begun func()) *watching {
	w.t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		w.api.ServeHTTP(&beginning{ResponseWriter: rw, begun: begun}, known(req))
	}))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	req, err := http.NewRequestWithContext(ctx, "GET", server.URL+query, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json")
	answer, err := server.Client().Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		cancel()
		_ = answer.Body.Close()
		server.Close()
	})
	frames := bufio.NewScanner(answer.Body)
	frames.Buffer(nil, 1<<20)
	return &watching{w.t, answer.StatusCode, frames, answer.Body}
}

// next returns the type and the object of the next event.
func (x *watching) next() (string, gjson.Result) {
	x.t.Helper()
	if !x.frames.Scan() {
		x.t.Fatalf("the watch ended: %v", x.frames.Err())
	}
	frame := gjson.ParseBytes(x.frames.Bytes())
	return frame.Get("type").String(), frame.Get("object")
}

// wants reads events and compares them: "ADDED a", "MODIFIED a", …
func (x *watching) wants(events ...string) {
	x.t.Helper()
	for _, want := range events {
		kind, obj := x.next()
		if got := kind + " " + obj.Get("metadata.name").String(); got != want {
			x.t.Fatalf("event %q, want %q: %s", got, want, obj.Raw)
		}
	}
}

// ends waits for a clean end.
func (x *watching) ends() {
	x.t.Helper()
	if x.frames.Scan() {
		x.t.Fatalf("another event: %s", x.frames.Text())
	}
	if err := x.frames.Err(); err != nil {
		x.t.Fatalf("the watch broke off: %v", err)
	}
}

// beginning calls begun before its first header is written.
type beginning struct {
	http.ResponseWriter
	begun func()
}

func (b *beginning) WriteHeader(code int) {
	b.begun()
	b.begun = func() {}
	b.ResponseWriter.WriteHeader(code)
}

func (b *beginning) Flush() { b.ResponseWriter.(http.Flusher).Flush() }

func (b *beginning) Unwrap() http.ResponseWriter { return b.ResponseWriter }
