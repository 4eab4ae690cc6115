package inflight

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// peer is a connection from an address that remembers whether it was closed.
type peer struct {
	net.Conn
	address string
	closed  atomic.Bool
}

func (p *peer) RemoteAddr() net.Addr {
	a, err := net.ResolveTCPAddr("tcp", p.address)
	if err != nil {
		panic(err)
	}
	return a
}

func (p *peer) Close() error { p.closed.Store(true); return nil }

// join makes a connection that has sent a number of bytes.
func join(s *Strangers, address string, sent int) (*peer, *Stranger) {
	p := &peer{address: address}
	c := s.Join(p)
	c.Received(sent)
	return p, c
}

// serve sends a request over a connection to a handler.
func serve(s *Strangers, c *Stranger, req *http.Request, handler http.HandlerFunc) int {
	w := httptest.NewRecorder()
	s.Handler(handler).ServeHTTP(w, req.WithContext(c.With(req.Context())))
	return w.Code
}

func request(header int) *http.Request {
	req := httptest.NewRequest("GET", "/", nil)
	req.Header.Set("X", strings.Repeat("x", header))
	return req
}

// empty means nothing is charged.
func (s *Strangers) empty(t *testing.T) {
	t.Helper()
	if s.charged != 0 || s.large != 0 || len(s.conns) != 0 || len(s.networks) != 0 {
		t.Errorf("charged %d, large %d, connections %d, networks %v; want nothing", s.charged, s.large, len(s.conns), s.networks)
	}
}

// TestStrangersEnd: a connection whose client shows no credential is closed in time,
// unless it is being served, or known.
func TestStrangersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStrangers(0)
		silent, _ := join(s, "192.0.2.1:1", 100)
		known, k := join(s, "192.0.2.1:2", 100)
		busy, b := join(s, "192.0.2.1:3", 100)
		serve(s, k, request(1), func(_ http.ResponseWriter, req *http.Request) { Known(req.Context()) })
		serve(s, b, request(1), func(http.ResponseWriter, *http.Request) {
			time.Sleep(2*strangerFor + time.Second)
			if !silent.closed.Load() || known.closed.Load() || busy.closed.Load() || s.Count() != 1 || s.Closed() != 1 {
				t.Errorf("closed: %v, %v, %v, want the first only; %d, %d", silent.closed.Load(), known.closed.Load(), busy.closed.Load(), s.Count(), s.Closed())
			}
		})
		time.Sleep(strangerFor)
		if !busy.closed.Load() || known.closed.Load() {
			t.Errorf("closed: %v, %v, want the first only", busy.closed.Load(), known.closed.Load())
		}
		k.Leave()
		s.empty(t)
	})
}

// TestStrangersAreBounded: whatever strangers send, their charge is within the limit, and
// clients that behave as usual are not closed while others do not.
func TestStrangersAreBounded(t *testing.T) {
	for name, attack := range map[string]func(s *Strangers, i int){
		"idle connections":       func(s *Strangers, i int) { join(s, fmt.Sprintf("192.0.2.1:%d", i+1), 0) },
		"many addresses":         func(s *Strangers, i int) { join(s, fmt.Sprintf("192.0.2.%d:%d", 1+i%200, i+1), 5000) },
		"headers without an end": func(s *Strangers, i int) { join(s, fmt.Sprintf("192.0.2.1:%d", i+1), 40_000) },
		"many requests at a time": func(s *Strangers, i int) {
			_, c := join(s, fmt.Sprintf("192.0.2.1:%d", i+1), 500)
			c.begin(1000, 2)
			c.begin(1000, 2)
			c.begin(1000, 2)
		},
		"large headers": func(s *Strangers, i int) { _, c := join(s, fmt.Sprintf("192.0.2.1:%d", i+1), 500); c.begin(1<<20, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			s := NewStrangers(0)
			for i := range 3000 {
				attack(s, i)
				if s.charged > s.limit {
					t.Fatalf("charged %d, want %d at most", s.charged, s.limit)
				}
				p, c := join(s, "198.51.100.1:1", 4000)
				c.begin(1000, 2)
				attack(s, 10_000+i)
				if p.closed.Load() {
					t.Fatalf("a client that behaves as usual was closed after %d", i)
				}
				c.end(1000)
				c.Leave()
			}
			if s.Closed() == 0 {
				t.Error("no connection was closed")
			}
		})
	}
}

// TestSameNetwork: of connections that behave as usual, from one address, the oldest is
// closed.
func TestSameNetwork(t *testing.T) {
	s := NewStrangers(0)
	first, _ := join(s, "192.0.2.1:1", 0)
	for i := range 3000 {
		p, c := join(s, fmt.Sprintf("192.0.2.1:%d", i+2), 4000)
		if c.begin(1000, 2); p.closed.Load() {
			t.Fatalf("connection %d was closed when it came", i)
		}
	}
	if !first.closed.Load() {
		t.Error("the oldest is open")
	}
}

// TestStrangersCharge: the charge of a request ends with it, and a guest may send
// acknowledgements.
func TestStrangersCharge(t *testing.T) {
	s := NewStrangers(0)
	_, c := join(s, "192.0.2.1:1", 1000)
	serve(s, c, request(100_000), func(_ http.ResponseWriter, req *http.Request) {
		if s.charged < strangerConn+100_000 {
			t.Errorf("charged %d", s.charged)
		}
		Guest(req.Context())
		before := s.charged
		if c.Received(1 << 30); s.charged != before {
			t.Errorf("a guest is charged %d more", s.charged-before)
		}
	})
	if s.charged != strangerConn {
		t.Errorf("charged %d after the request, want %d", s.charged, strangerConn)
	}
	if c.Received(10); s.charged != strangerConn+10*strangerByte {
		t.Error("what a guest sends after its request is not charged")
	}
	c.Leave()
	s.empty(t)
}

// TestLargeHeaders: known clients share the memory of large headers. Requests with small
// ones are served always.
func TestLargeHeaders(t *testing.T) {
	s := NewStrangers(0)
	_, first := join(s, "192.0.2.1:1", 0)
	_, c := join(s, "192.0.2.1:2", 0)
	serve(s, c, request(1), func(_ http.ResponseWriter, req *http.Request) { Known(req.Context()) })
	var nested func(n int)
	refused := 0
	nested = func(n int) {
		code := serve(s, c, request(10<<20), func(http.ResponseWriter, *http.Request) { nested(n + 1) })
		if code == http.StatusTooManyRequests {
			if refused = n; serve(s, c, request(1000), func(http.ResponseWriter, *http.Request) {}) != http.StatusOK {
				t.Error("a small request is refused")
			}
		}
	}
	// A client that becomes known with a large request is counted from then on.
	serve(s, first, request(20<<20), func(_ http.ResponseWriter, req *http.Request) { Known(req.Context()); nested(0) })
	if refused != 4 {
		t.Errorf("%d large requests were served, want 4", refused)
	}
	s.empty(t)
}

func TestNetwork(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.7:99": "192.0.2.7", "[::ffff:192.0.2.7]:99": "192.0.2.7",
		"[2001:db8:1:2:3::4]:99": "2001:db8:1:2::/64", "[fe80::1%eth0]:99": "fe80::/64", "pipe": "pipe",
	} {
		if got := Network(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// TestBegin: large headers of known clients fill their limit, and not that of strangers. A request of HTTP/1 is complete: what was
// sent for it is no longer charged.
func TestBegin(t *testing.T) {
	s := NewStrangers(0)
	s.large = maxLarge
	for protocol, left := range map[int]int64{1: 0, 2: 1000} {
		_, c := join(s, "192.0.2.1:1", 1000)
		if !c.begin(largeHeader+1, protocol) || c.sent != left {
			t.Errorf("HTTP/%d: a stranger's large header is refused, or %d bytes are charged, want %d", protocol, c.sent, left)
		}
		c.known = true
		if c.begin(largeHeader+1, protocol) || !c.begin(largeHeader, protocol) {
			t.Errorf("HTTP/%d: a known client's", protocol)
		}
		c.Leave()
	}
}
