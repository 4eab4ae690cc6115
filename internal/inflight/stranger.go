package inflight

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// strangerFor is how long a connection may be a stranger's while none of its requests
	// is served: the TLS handshake and the headers of the first request.
	strangerFor = 30 * time.Second

	// What a stranger is charged, in bytes. strangerConn is for its buffers and goroutines.
	// A byte of a header may be a field of its own, which takes 60 bytes of memory in
	// HTTP/2 and 20 in HTTP/1: strangerByte. A client that connects, sends 4 kB with its
	// credential and is served is charged strangerUsual.
	strangerConn    = 128 << 10
	strangerByte    = 64
	strangerRequest = 64 << 10
	strangerUsual   = 448 << 10

	// Headers of known clients above largeHeader, in bytes, share maxLarge.
	largeHeader = 16 << 10
	maxLarge    = 64 << 20
)

// Strangers limits the connections of one listener whose clients have shown no valid
// credential yet, in time and in memory. It is safe for concurrent use.
//
// Each connection begins as a stranger's, until Known. A stranger is charged for its
// connection, for what it has sent, and for its requests that are being served. When all
// together are charged more than the limit, connections are closed: of the network with
// the largest charge, the one with the largest charge, and of those with a usual charge
// the oldest. So a client that is about to show its credential is the last to go.
//
// Of known clients it limits the memory of large headers.
type Strangers struct {
	limit int64

	mu       sync.Mutex
	conns    map[*Stranger]struct{} // guarded by mu
	networks map[string]int64       // charges by network; guarded by mu
	charged  int64                  // of all; guarded by mu
	large    int64                  // bytes of large headers of known clients; guarded by mu

	closed atomic.Int64
}

// NewStrangers makes a limit for a listener that serves a number of requests at once. 0:
// DefaultRequests, which is also the least.
func NewStrangers(requests int) *Strangers {
	return &Strangers{limit: int64(max(requests, DefaultRequests)) * strangerUsual, conns: map[*Stranger]struct{}{}, networks: map[string]int64{}}
}

// Count is the number of connections whose clients are not known.
func (s *Strangers) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Closed is how many connections were closed because their clients did not become known.
func (s *Strangers) Closed() int64 { return s.closed.Load() }

// Stranger is a connection of a client that may not be known yet.
type Stranger struct {
	all     *Strangers
	conn    net.Conn
	network string
	since   time.Time
	ended   atomic.Bool // known or closed: it is no longer charged

	// Guarded by all.mu.
	timer   *time.Timer
	sent    int64 // bytes that are charged
	charge  int64
	serving int   // requests
	guest   bool  // see Guest
	known   bool  // see Known
	large   int64 // bytes of large headers
}

// Join charges a new connection.
func (s *Strangers) Join(conn net.Conn) *Stranger {
	c := &Stranger{all: s, conn: conn, network: Network(conn.RemoteAddr().String()), since: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.timer = time.AfterFunc(strangerFor, c.expire)
	s.conns[c] = struct{}{}
	s.add(c, strangerConn)
	return c
}

// Network returns the client's address of HOST:PORT; of IPv6 the first 64 bits, which one
// client commonly has for itself.
func Network(address string) string {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return address
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	prefix, _ := ip.Prefix(64)
	return prefix.String()
}

// Received charges for bytes that the client sent.
func (c *Stranger) Received(n int) {
	if n <= 0 || c.ended.Load() {
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if !c.guest {
		c.sent += int64(n)
		c.all.add(c, strangerByte*int64(n))
	}
}

// Leave is for a connection that was closed.
func (c *Stranger) Leave() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.all.drop(c)
}

// expire closes the connection if it is not being served.
func (c *Stranger) expire() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	switch {
	case c.ended.Load():
	case c.serving > 0:
		c.timer.Reset(strangerFor)
	default:
		c.all.close(c)
	}
}

// add requires mu.
func (s *Strangers) add(c *Stranger, bytes int64) {
	if c.ended.Load() {
		return
	}
	c.charge += bytes
	s.charged += bytes
	s.networks[c.network] += bytes
	for s.charged > s.limit && len(s.conns) > 0 {
		s.close(s.worst())
	}
}

// worst requires mu.
func (s *Strangers) worst() (worst *Stranger) {
	for c := range s.conns {
		if worst == nil || s.worse(c, worst) {
			worst = c
		}
	}
	return worst
}

// worse requires mu.
func (s *Strangers) worse(c, d *Stranger) bool {
	if a, b := s.networks[c.network], s.networks[d.network]; a != b {
		return a > b
	}
	if a, b := max(c.charge, strangerUsual), max(d.charge, strangerUsual); a != b {
		return a > b
	}
	return c.since.Before(d.since)
}

// close requires mu.
func (s *Strangers) close(c *Stranger) {
	s.closed.Add(1)
	s.drop(c)
	_ = c.conn.Close() // its reader notices
}

// drop ends the charge. It reports false if that was done before. It requires mu.
func (s *Strangers) drop(c *Stranger) bool {
	if c.ended.Swap(true) {
		return false
	}
	c.timer.Stop()
	delete(s.conns, c)
	s.charged -= c.charge
	if s.networks[c.network] -= c.charge; s.networks[c.network] <= 0 {
		delete(s.networks, c.network)
	}
	return true
}

type strangerKey struct{}

// With returns the context of the connection's requests.
func (c *Stranger) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, strangerKey{}, c)
}

// Known says that the client of a request has shown a valid credential: its connection is
// a stranger's no longer.
func Known(ctx context.Context) {
	c, ok := ctx.Value(strangerKey{}).(*Stranger)
	if !ok || c.ended.Load() {
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.all.drop(c) {
		c.known = true
		c.all.large += c.large
	}
}

// Guest says that a request of a client without credentials is served while its client
// reads. Until the next request, or the end of all, what the client sends is not charged:
// acknowledgements of HTTP/2.
func Guest(ctx context.Context) {
	c, ok := ctx.Value(strangerKey{}).(*Stranger)
	if !ok || c.ended.Load() {
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.guest = true
	c.forget()
}

// forget requires mu.
func (c *Stranger) forget() {
	c.all.add(c, -strangerByte*c.sent)
	c.sent = 0
}

// Handler charges for the requests that next serves. It refuses large headers of known
// clients if there are too many.
func (s *Strangers) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c, ok := req.Context().Value(strangerKey{}).(*Stranger)
		header := headerSize(req)
		if !ok || c.ended.Load() && header <= largeHeader {
			next.ServeHTTP(w, req)
			return
		}
		if !c.begin(header, req.ProtoMajor) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the server is serving too many requests with large headers; please try again", http.StatusTooManyRequests)
			return
		}
		defer c.end(header)
		next.ServeHTTP(w, req)
	})
}

// headerSize is the memory of a request's headers, in bytes.
func headerSize(req *http.Request) int64 {
	size := 2 * len(req.RequestURI)
	for name, values := range req.Header {
		size += 64 + len(name)
		for _, value := range values {
			size += 16 + len(value)
		}
	}
	return int64(size)
}

func (c *Stranger) begin(header int64, protocol int) bool {
	s := c.all
	s.mu.Lock()
	defer s.mu.Unlock()
	if header > largeHeader {
		if c.known && s.large+header > maxLarge {
			return false
		}
		c.countLarge(header)
	}
	if protocol == 1 {
		c.forget() // the request is complete; in HTTP/2 the next may have begun
	}
	c.serving++
	c.guest = false
	s.add(c, strangerRequest+header)
	return true
}

func (c *Stranger) end(header int64) {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if header > largeHeader {
		c.countLarge(-header)
	}
	if c.serving--; c.serving == 0 {
		c.guest = false
	}
	c.all.add(c, -strangerRequest-header)
}

// countLarge requires mu.
func (c *Stranger) countLarge(bytes int64) {
	c.large += bytes
	if c.known {
		c.all.large += bytes
	}
}
