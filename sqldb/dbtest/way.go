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

// Way is a way to a PostgreSQL database that can be cut and opened again.
type Way struct {
	// Database is the string that [sqldb.Open] takes to go along the way.
	Database string

	t               testing.TB
	network, target string // of the server
	address         string

	mu       sync.Mutex
	listener net.Listener // guarded by mu; nil: closed
	conns    []net.Conn   // guarded by mu
}

// NewWay makes a fresh database and opens a way to it for the time of a test.
func NewWay(t testing.TB) *Way {
	t.Helper()
	server, err := pgconn.ParseConfig(Open(t, sqldb.Postgres))
	if err != nil {
		t.Fatal(err)
	}
	w := &Way{t: t, address: "127.0.0.1:0"}
	w.network, w.target = pgconn.NetworkAddress(server.Host, server.Port)
	w.Open()
	t.Cleanup(w.Close)
	w.Database = fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable", server.User, w.address, server.Database)
	return w
}

// Open lets callers in, at the same address each time.
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

// join connects a caller that has been accepted.
func (w *Way) join(listener net.Listener, caller net.Conn) {
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

// Close breaks what goes along the way and lets nobody in.
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
