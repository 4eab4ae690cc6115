package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

// dialTimeout bounds the connection to the target.
const dialTimeout = 10 * time.Second

// relay forwards connections. A node finishes them before it leaves. A nil
// relay has none.
type relay struct {
	listener net.Listener
	forward  string
	log      *slog.Logger

	accepting sync.WaitGroup // the accept loop
	stopping  sync.Once

	mu     sync.Mutex
	open   map[net.Conn]bool // incoming connections; guarded by mu
	ended  chan struct{}     // closed when stopped and open is empty; guarded by mu
	closed bool              // accepts no more; guarded by mu
}

// listen opens the address, if there is one, and starts to relay.
func listen(c Config, log *slog.Logger) (*relay, error) {
	if c.Listen == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", c.Listen, err)
	}
	r := &relay{listener: l, forward: c.Forward, log: log, open: map[net.Conn]bool{}, ended: make(chan struct{})}
	r.accepting.Go(r.accept)
	return r, nil
}

// address is the address that peers see. A relay that listens on all interfaces
// is reached by the machine's name.
func (r *relay) address(advertise string) string {
	if r == nil || advertise != "" {
		return advertise
	}
	address := r.listener.Addr().String()
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		return net.JoinHostPort(machineName(), port)
	}
	return address
}

func (r *relay) accept() {
	for {
		conn, err := r.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // usually too many open files: temporary
			r.log.Warn("a connection could not be accepted", "error", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if r.begin(conn) {
			go r.serve(conn)
		}
	}
}

// begin records a connection, or closes it if the relay has stopped.
func (r *relay) begin(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = conn.Close()
		return false
	}
	r.open[conn] = true
	return true
}

func (r *relay) end(conn net.Conn) {
	_ = conn.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, conn)
	if r.closed && len(r.open) == 0 {
		close(r.ended)
	}
}

// serve relays one connection until both sides have ended.
func (r *relay) serve(conn net.Conn) {
	defer r.end(conn)
	target, err := net.DialTimeout("tcp", r.forward, dialTimeout)
	if err != nil {
		r.log.Warn("a connection could not be relayed", "to", r.forward, "error", err)
		return
	}
	defer func() { _ = target.Close() }()
	back := make(chan struct{})
	go func() {
		defer close(back)
		pass(conn, target)
	}()
	pass(target, conn)
	<-back
}

// pass copies one direction, and then closes its write side. The other
// direction continues: many protocols end one side first.
func pass(to, from net.Conn) {
	_, err := io.Copy(to, from)
	half, ok := to.(*net.TCPConn)
	if err != nil || !ok {
		_ = to.Close()
		_ = from.Close()
		return
	}
	_ = half.CloseWrite()
}

// stop accepts no more connections. Open ones continue.
func (r *relay) stop() {
	if r == nil {
		return
	}
	r.stopping.Do(func() {
		_ = r.listener.Close()
		r.accepting.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.closed = true
		if len(r.open) == 0 {
			close(r.ended)
		}
	})
}

// wait reports whether the last connection ended in time. Call it after stop.
func (r *relay) wait(ctx context.Context) bool {
	if r == nil {
		return true
	}
	select {
	case <-r.ended:
		return true
	default: // both may be ready: an ended connection counts
	}
	select {
	case <-r.ended:
		return true
	case <-ctx.Done():
		return false
	}
}

// count is the number of open connections.
func (r *relay) count() int {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)
}

// cut closes the open connections.
func (r *relay) cut() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn := range r.open {
		_ = conn.Close()
	}
}

// close stops the relay and closes all connections.
func (r *relay) close() {
	r.stop()
	r.cut()
	r.wait(context.Background())
}
