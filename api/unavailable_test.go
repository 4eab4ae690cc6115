package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

// everyVerb has one request per verb, by the fast path and by the library.
func everyVerb() [][4]string {
	const merge = "application/merge-patch+json"
	return [][4]string{
		{"GET", configMaps + "/a", "", ""},
		{"GET", configMaps + "/a?pretty=true", "", ""},
		{"GET", configMaps, "", ""},
		{"GET", configMaps + "?pretty=true", "", ""},
		{"POST", configMaps, `{"metadata":{"generateName":"x-"}}`, "application/json"},
		{"POST", configMaps, "metadata: {generateName: x-}", "application/yaml"},
		{"PUT", configMaps + "/a", `{"metadata":{"name":"a"},"data":{"x":"y"}}`, "application/json"},
		{"PATCH", configMaps + "/a", `{"data":{"x":"z"}}`, merge},
		{"DELETE", configMaps + "/a", "", ""},
		{"DELETE", configMaps, "", ""},
	}
}

// comesBack checks that an answer is a 503 that clients retry by themselves.
func (w *world) comesBack(what string, r reply) {
	w.t.Helper()
	if r.code != http.StatusServiceUnavailable || r.header.Get("Retry-After") != "1" {
		w.t.Errorf("%s answered %d, Retry-After %q: %s", what, r.code, r.header.Get("Retry-After"), r.body)
	}
	if strings.HasPrefix(r.body, "{") && (r.get("reason") != "ServiceUnavailable" || r.get("details.retryAfterSeconds") != "1") {
		w.t.Errorf("%s answered %s", what, r.body)
	}
}

// TestStoppedStore: a write after the last batch gets a 503, and nothing is written.
func TestStoppedStore(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.configMap("a", "")
	before := w.want(http.StatusOK, "GET", configMaps, "").body
	w.stop()
	for _, v := range everyVerb() {
		if v[0] != "GET" {
			w.comesBack(v[0]+" "+v[1], w.send(v[0], v[1], v[2], "Content-Type: "+v[3]))
		}
	}
	if after := w.want(http.StatusOK, "GET", configMaps, "").body; after != before {
		t.Errorf("a refused request changed something:\n%s\n%s", before, after)
	}
}

// TestShuttingDown: new watches and readiness probes get a 503; short requests are still
// served.
func TestShuttingDown(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.api.Close(t.Context())
	for _, path := range []string{configMaps + "?watch=true", configMaps + "?watch=true&pretty=true", "/readyz", "/healthz"} {
		w.comesBack("GET "+path, w.send("GET", path, ""))
	}
	w.want(http.StatusOK, "GET", "/livez", "")
	w.configMap("a", "")
}

// TestNoRetryAfterATimeout: client-go retries a request with Retry-After by itself, but a write
// that timed out may have been committed. Every verb that waits for the database answers
// 504. A GET of an object in memory does not wait and answers.
func TestNoRetryAfterATimeout(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.configMap("a", "")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, v := range everyVerb() {
		req := known(httptest.NewRequest(v[0], v[1], strings.NewReader(v[2]))).WithContext(ctx)
		req.Header.Set("Content-Type", v[3])
		want, name := http.StatusGatewayTimeout, ""
		if v[0] == "GET" && strings.HasPrefix(v[1], configMaps+"/a") {
			want, name = http.StatusOK, "a"
		}
		if r := w.answer(req); r.code != want || r.get("metadata.name") != name || r.header.Get("Retry-After") != "" {
			t.Errorf("%s %s answered %d, want %d; Retry-After %q: %s", v[0], v[1], r.code, want, r.header.Get("Retry-After"), r.body)
		}
	}
}

// TestDatabaseGone breaks the connection to PostgreSQL and restores it.
func TestDatabaseGone(t *testing.T) {
	way := dbtest.NewWay(t)
	w := newWorld(t, store.Options{DB: dbtest.Connect(t, way.Database)})
	w.configMap("a", "")

	way.Close()
	for _, v := range everyVerb() {
		w.comesBack(v[0]+" "+v[1], w.send(v[0], v[1], v[2], "Content-Type: "+v[3]))
	}
	w.comesBack("readyz", w.send("GET", "/readyz", ""))
	w.want(http.StatusOK, "GET", "/livez", "")

	way.Open()
	dbtest.Until(w.t, "the server serves again", func() error {
		if r := w.send("POST", configMaps, `{"metadata":{"name":"b"}}`); r.code != http.StatusCreated {
			return fmt.Errorf("%d %s", r.code, r.body)
		}
		return nil
	})
	w.want(http.StatusOK, "GET", "/readyz", "")
	if list := w.want(http.StatusOK, "GET", configMaps, ""); list.get("items.#.metadata.name") != `["a","b"]` || list.get("items.0.data") != "" {
		t.Errorf("refused requests left something: %s", list.body)
	}
}

// TestWatchWithoutDatabase: a watch that needs the log while the database is away ends with 429,
// after which client-go continues from its last version. After 503 or 504 it would list again.
func TestWatchWithoutDatabase(t *testing.T) {
	eachWatchPath(t, func(t *testing.T, base string) {
		way := dbtest.NewWay(t)
		w := newWorld(t, store.Options{DB: dbtest.Connect(t, way.Database)})
		old := w.configMap("a", "")
		w.configMap("b", "")
		way.Close()
		x := w.watch(base + "&resourceVersion=" + old)
		kind, obj := x.next()
		if x.code != http.StatusOK || kind != "ERROR" || obj.Get("code").Int() != http.StatusTooManyRequests || obj.Get("details.retryAfterSeconds").Int() != 1 {
			t.Errorf("%d %s %s", x.code, kind, obj.Raw)
		}
		x.ends()
	})
}

// breaks is what a watch writes to: after the first object the database is gone.
type breaks struct {
	sink
	way         *dbtest.Way
	sent, marks int
}

func (b *breaks) added(object.Object) error {
	b.sent++
	b.way.Close()
	return nil
}

func (b *breaks) bookmark(int64, bool) error {
	b.marks++
	return nil
}

// TestStateBreaksOff: if the state that a watch begins with cannot be read to its end, the client learns
// it, and is not told that it has all: it would take the rest for deleted.
func TestStateBreaksOff(t *testing.T) {
	way := dbtest.NewWay(t)
	w := newWorld(t, store.Options{DB: dbtest.Connect(t, way.Database)})
	const all = 12
	for i := range all {
		w.want(http.StatusCreated, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"c-%d"},"data":{"x":"%s"}}`, i, strings.Repeat("x", 100_000)))
	}
	v, _ := w.api.Kinds.Snapshot().Lookup(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
	e, err := w.api.endpoint(v)
	if err != nil {
		t.Fatal(err)
	}
	plan := watchPlan{state: true, marked: true}
	state, err := e.main.openState(t.Context(), &metainternal.ListOptions{}, plan)
	if err != nil {
		t.Fatal(err)
	}
	out := &breaks{way: way}
	if err := e.main.sendState(plan, state, out); err == nil || out.marks != 0 || out.sent == 0 || out.sent == all {
		t.Errorf("%d objects and %d marks were sent: %v", out.sent, out.marks, err)
	}
}

// TestDatabaseFull: without space, writes get a 507 and reads continue; with space, writes
// work again.
func TestDatabaseFull(t *testing.T) {
	db := dbtest.OpenDB(t, sqldb.SQLite)
	w := newWorld(t, store.Options{DB: db})
	w.configMap("a", "")
	dbtest.Fill(t, db)
	large := `{"metadata":{"name":"b"},"data":{"x":"` + strings.Repeat("x", 100_000) + `"}}`
	for _, contentType := range []string{"application/json", "application/yaml"} {
		r := w.send("POST", configMaps, large, "Content-Type: "+contentType)
		if r.code != http.StatusInsufficientStorage || r.get("reason") != "InsufficientStorage" || r.header.Get("Retry-After") != "" || !strings.Contains(r.body, "database is full") {
			t.Errorf("POST as %s answered %d: %s", contentType, r.code, r.body)
		}
	}
	w.want(http.StatusOK, "GET", configMaps+"/a", "")
	dbtest.Empty(t, db)
	if r := w.send("POST", configMaps, large); r.code != http.StatusCreated {
		t.Errorf("with space again: %d %s", r.code, r.body)
	}
}

// malformed is SQLite's error for a damaged file.
type malformed struct{}

func (malformed) Error() string { return "database disk image is malformed (11)" }
func (malformed) Code() int     { return 11 }

// TestDamagedDatabase: clients get a 500 without details, and the log tells operators what to
// do.
func TestDamagedDatabase(t *testing.T) {
	w := newWorld(t, store.Options{})
	var log strings.Builder
	w.api.Logger = slog.New(slog.NewTextHandler(&log, nil))
	v, _ := w.api.Kinds.Snapshot().Lookup(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"})
	e, err := w.api.endpoint(v)
	if err != nil {
		t.Fatal(err)
	}
	err = e.main.statusError(fmt.Errorf("read object: %w", malformed{}), object.Key{Name: "a"})
	if status := apierrors.APIStatus(nil); !errors.As(err, &status) || status.Status().Code != http.StatusInternalServerError || !strings.Contains(err.Error(), "restore it from a backup") {
		t.Errorf("the client gets %v", err)
	}
	if !strings.Contains(log.String(), "docs/operating.md, Backup") || !strings.Contains(log.String(), "malformed") {
		t.Errorf("the log says %s", log.String())
	}
}
