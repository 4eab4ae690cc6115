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

// dialTimeout is how long the place that connections are relayed to may take to
// accept one.
const dialTimeout = 10 * time.Second

// relay passes connections on. They are what a node has to finish before it
// leaves. A nil relay has none.
type relay struct {
	listener net.Listener
	forward  string
	log      *slog.Logger

	accepting sync.WaitGroup // the accept loop
	stopping  sync.Once

	mu     sync.Mutex
	open   map[net.Conn]bool // incoming ones; guarded by mu
	ended  chan struct{}     // closed when stopped and open is empty; guarded by mu
	closed bool              // no more are accepted; guarded by mu
}

// listen opens the address, if there is one, and relays from then on.
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

// address is what peers are told. A relay that listens everywhere is reached by
// the machine's name.
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
		if err != nil { // too many files, most often: it passes
			r.log.Warn("a connection could not be accepted", "error", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if r.begin(conn) {
			go r.serve(conn)
		}
	}
}

// begin notes a connection, or closes one that came too late.
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

// pass copies one way, and then says that there is no more. The other way goes
// on: many protocols end one side first.
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

// stop takes no more connections. Those that are open go on.
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

// wait says whether the last connection ended in time. Call it after stop.
func (r *relay) wait(ctx context.Context) bool {
	if r == nil {
		return true
	}
	select {
	case <-r.ended:
		return true
	default: // it may have ended although the time is over too
	}
	select {
	case <-r.ended:
		return true
	case <-ctx.Done():
		return false
	}
}

// count is how many connections are open.
func (r *relay) count() int {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.open)
}

// cut ends the connections that are open.
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

// close ends everything.
func (r *relay) close() {
	r.stop()
	r.cut()
	r.wait(context.Background())
}
