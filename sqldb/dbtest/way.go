package dbtest

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/exeunt/exeunt/sqldb"
)

// Way is a TCP proxy to a PostgreSQL database that a test can close and reopen.
type Way struct {
	// Database is the string that [sqldb.Open] takes to connect through the proxy.
	Database string
	Direct   string // the same database, without the proxy

	t               testing.TB
	network, target string // of the server
	address         string

	mu       sync.Mutex
	listener net.Listener // guarded by mu; nil if closed
	conns    []net.Conn   // guarded by mu
}

// NewWay makes a fresh database and opens a proxy to it for the time of a test.
func NewWay(t testing.TB) *Way {
	t.Helper()
	direct := Open(t, sqldb.Postgres)
	server, err := pgconn.ParseConfig(direct)
	if err != nil {
		t.Fatal(err)
	}
	w := &Way{t: t, Direct: direct, address: "127.0.0.1:0"}
	w.network, w.target = pgconn.NetworkAddress(server.Host, server.Port)
	w.Open()
	t.Cleanup(w.Close)
	w.Database = fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", server.User, w.address, server.Database)
	return w
}

// Open accepts connections, at the same address each time.
func (w *Way) Open() {
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

// join connects an accepted client to the server.
func (w *Way) join(listener net.Listener, client net.Conn) {
	server, err := net.Dial(w.network, w.target)
	if err != nil {
		_ = client.Close()
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener != listener { // closed meanwhile
		_, _ = client.Close(), server.Close()
		return
	}
	w.conns = append(w.conns, client, server)
	for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			_, _ = pair[0].Close(), pair[1].Close()
		}()
	}
}

// Close breaks all connections and accepts no more.
func (w *Way) Close() {
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
