package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/broker/mesh"
	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const nodes = "meshnodes.mesh.exeunt.dev"

// world is a server with a mesh, over TLS. The agents in it are functions, not
// processes: package test/mesh has those.
type world struct {
	*testing.T
	store  *store.Store
	mesh   *mesh.Mesh
	server *httptest.Server

	mu        sync.Mutex
	intercept func(next http.Handler, w http.ResponseWriter, req *http.Request) // guarded by mu; nil if there is none
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	db := dbtest.OpenDB(t, sqldb.SQLite)
	st := storetest.Run(t, store.Options{DB: db})
	w := &world{T: t, store: st}
	var err error
	if w.mesh, err = mesh.New(db, st, kind.NewRegistry(nil), mesh.Options{Logger: log, Heartbeat: time.Second}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.mesh.Run(ctx) }()
	handler := w.mesh.NodeHandler()
	w.server = httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		w.mu.Lock()
		intercept := w.intercept
		w.mu.Unlock()
		if intercept != nil {
			intercept(handler, rw, req)
			return
		}
		handler.ServeHTTP(rw, req)
	}))
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		w.server.Close()
	})
	storetest.Create(t, st, storetest.Namespace(t, "shop"))
	return w
}

func (w *world) intercepted(by func(next http.Handler, w http.ResponseWriter, req *http.Request)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.intercept = by
}

func (w *world) token() string {
	w.Helper()
	t, err := w.mesh.Mint(w.Context(), mesh.Order{Project: "shop", TTL: time.Hour})
	if err != nil {
		w.Fatal(err)
	}
	return t.Text
}

// config is that of an agent with a fresh directory and token.
func (w *world) config(name string) Config {
	w.Helper()
	return Config{
		Servers: []string{w.server.URL}, Token: w.token(), CAHash: Fingerprint(w.server.Certificate()), Name: name,
		State: filepath.Join(w.TempDir(), "node"), DrainTimeout: 20 * time.Second, Logger: slog.New(slog.DiscardHandler),
	}
}

// process is a running agent.
type process struct {
	w     *world
	stop  context.CancelFunc
	ended chan struct{}
	err   error // read it after ended
}

func (w *world) start(c Config) *process {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{w: w, stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = Run(ctx, c)
	}()
	w.Cleanup(func() {
		cancel()
		<-p.ended
	})
	return p
}

// wait returns how the agent ended.
func (p *process) wait() error {
	p.w.Helper()
	select {
	case <-p.ended:
		return p.err
	case <-time.After(time.Minute):
		p.w.Fatal("the agent does not end")
		return nil
	}
}

// node reads a node's object; nil if there is none.
func (w *world) node(name string) *v1alpha1.MeshNode {
	w.Helper()
	o, err := w.store.Get(w.Context(), object.Key{Kind: nodes, Namespace: "shop", Name: name})
	if object.Is(err, object.NotFound) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	n := &v1alpha1.MeshNode{}
	if err := json.Unmarshal(o.Body, n); err != nil {
		w.Fatal(err)
	}
	return n
}

// joined starts an agent and waits until it is in the mesh and knows its peers.
func (w *world) joined(c Config) *process {
	w.Helper()
	p := w.start(c)
	dbtest.Await(w, c.Name+" to join", func() bool {
		select {
		case <-p.ended:
			w.Fatalf("the agent ended: %v", p.err)
		default:
		}
		_, err := os.Stat(filepath.Join(c.State, peersFile))
		return err == nil
	})
	return p
}

func (w *world) delete(name string) {
	w.Helper()
	if _, err := w.store.Delete(w.Context(), store.DeleteRequest{Key: object.Key{Kind: nodes, Namespace: "shop", Name: name}}); err != nil {
		w.Fatal(err)
	}
}

// leftHow returns how the node of a token left, as the token records it.
func (w *world) leftHow(token string) string {
	w.Helper()
	list, err := w.mesh.Tokens(w.Context(), "shop")
	if err != nil {
		w.Fatal(err)
	}
	for _, t := range list.Items {
		if strings.Contains(token, t.ID) {
			return t.LeftHow
		}
	}
	w.Fatalf("no token %s", token)
	return ""
}

// echo is a place to relay to: it sends back what it gets.
func (w *world) echo() string {
	w.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// dial opens a connection and checks that the echo answers.
func (w *world) dial(address string) net.Conn {
	w.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = conn.Close() })
	if err := talk(conn); err != nil {
		w.Fatal(err)
	}
	return conn
}

func talk(conn net.Conn) error {
	if _, err := conn.Write([]byte("hello")); err != nil {
		return err
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(conn, got); err != nil {
		return err
	}
	if string(got) != "hello" {
		return errors.New("got " + string(got))
	}
	return nil
}

func meshNode(n *v1alpha1.MeshNode) mesh.Node {
	return mesh.Node{UID: string(n.UID), Project: n.Namespace, Name: n.Name}
}
