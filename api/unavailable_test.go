package api

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

// everyVerb is a request of each kind, by the fast path and by the library's.
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

// comesBack checks that an answer is a 503 after which clients come back by
// themselves.
func (w *world) comesBack(what string, r reply) {
	w.t.Helper()
	if r.code != http.StatusServiceUnavailable || r.header.Get("Retry-After") != "1" {
		w.t.Errorf("%s answered %d, Retry-After %q: %s", what, r.code, r.header.Get("Retry-After"), r.body)
	}
	if strings.HasPrefix(r.body, "{") && (r.get("reason") != "ServiceUnavailable" || r.get("details.retryAfterSeconds") != "1") {
		w.t.Errorf("%s answered %s", what, r.body)
	}
}

// TestStoppedStore: who writes while the last batch is over is sent elsewhere;
// nothing was done.
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
		t.Errorf("something was done:\n%s\n%s", before, after)
	}
}

// TestShuttingDown: new watches go elsewhere, and so do load balancers; what is
// short is still served.
func TestShuttingDown(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.api.Close()
	for _, path := range []string{configMaps + "?watch=true", configMaps + "?watch=true&pretty=true", "/readyz", "/healthz"} {
		w.comesBack("GET "+path, w.send("GET", path, ""))
	}
	w.want(http.StatusOK, "GET", "/livez", "")
	w.configMap("a", "")
}

// TestNoRetryAfterATimeout: client-go sends a request with Retry-After again by
// itself, and a write whose time is over may have been done.
func TestNoRetryAfterATimeout(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.configMap("a", "")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, v := range everyVerb() {
		req := known(httptest.NewRequest(v[0], v[1], strings.NewReader(v[2]))).WithContext(ctx)
		req.Header.Set("Content-Type", v[3])
		if r := w.answer(req); r.code != http.StatusGatewayTimeout && r.code != http.StatusOK || r.header.Get("Retry-After") != "" {
			t.Errorf("%s %s answered %d, Retry-After %q: %s", v[0], v[1], r.code, r.header.Get("Retry-After"), r.body)
		}
	}
}

// TestDatabaseGone cuts the way to PostgreSQL and opens it again.
func TestDatabaseGone(t *testing.T) {
	config, err := pgconn.ParseConfig(dbtest.Open(t, sqldb.Postgres))
	if err != nil {
		t.Fatal(err)
	}
	way := newWay(t, config)
	database := fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", config.User, way.address, config.Database)
	w := newWorld(t, store.Options{DB: dbtest.Connect(t, database)})
	w.configMap("a", "")

	way.close()
	for _, v := range everyVerb() {
		w.comesBack(v[0]+" "+v[1], w.send(v[0], v[1], v[2], "Content-Type: "+v[3]))
	}
	w.comesBack("readyz", w.send("GET", "/readyz", ""))
	w.want(http.StatusOK, "GET", "/livez", "")

	way.open()
	w.until("the server serves again", func() error {
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

// way is the way to a server: what comes to address goes on to it, unless the
// way is closed.
type way struct {
	t               *testing.T
	network, target string // of the server
	address         string

	mu       sync.Mutex
	listener net.Listener // guarded by mu; nil: closed
	conns    []net.Conn   // guarded by mu
}

func newWay(t *testing.T, server *pgconn.Config) *way {
	w := &way{t: t, address: "127.0.0.1:0"}
	w.network, w.target = pgconn.NetworkAddress(server.Host, server.Port)
	w.open()
	t.Cleanup(w.close)
	return w
}

func (w *way) open() {
	w.t.Helper()
	listener, err := net.Listen("tcp", w.address)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listener, w.address = listener, listener.Addr().String()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			w.join(listener, conn)
		}
	}()
}

// join connects a caller that has been accepted.
func (w *way) join(listener net.Listener, caller net.Conn) {
	server, err := net.Dial(w.network, w.target)
	if err != nil {
		_ = caller.Close()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener != listener { // closed meanwhile
		_, _ = caller.Close(), server.Close()
		return
	}
	w.conns = append(w.conns, caller, server)
	for _, pair := range [][2]net.Conn{{caller, server}, {server, caller}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			_, _ = pair[0].Close(), pair[1].Close()
		}()
	}
}

// close breaks what goes along the way and lets nobody in.
func (w *way) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener == nil {
		return
	}
	_ = w.listener.Close()
	w.listener = nil
	for _, conn := range w.conns {
		_ = conn.Close()
	}
	w.conns = nil
}
