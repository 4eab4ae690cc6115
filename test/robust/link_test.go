package robust_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// link is a TCP proxy between two parts of the system, with faults. Bytes that a fault
// holds back are sent when the fault ends, as TCP does after packets were lost: a request
// may arrive late. They are never dropped or changed.
type link struct {
	name     string
	target   string
	listener net.Listener

	mu    sync.Mutex
	free  *sync.Cond
	mode  mode           // guarded by mu
	every int            // guarded by mu; reset a connection each time that many bytes have passed; 0 means never
	left  int            // guarded by mu; until the next reset
	pairs map[*pair]bool // guarded by mu
	delay time.Duration  // guarded by mu; of each piece of an answer
}

// mode is a fault of a link.
type mode int

const (
	passing  mode = iota
	refusing      // connections end, and new ones are closed at once
	holding       // bytes are held back, both ways
	holdingRequests
	holdingAnswers
	losingCommits   // a connection ends at a COMMIT, which is not sent
	losingCommitted // a connection ends after a COMMIT was sent, before its answer
)

// isCommit reports whether bytes to PostgreSQL have a COMMIT: as text, or by the name that pgx gives
// the prepared statement, which comes together with the last writes.
func isCommit(sent []byte) bool {
	digest := sha256.Sum256([]byte("COMMIT"))
	return bytes.Contains(sent, []byte("COMMIT\x00")) || bytes.Contains(sent, []byte("stmtcache_"+hex.EncodeToString(digest[:24])))
}

// pair is one proxied connection.
type pair struct {
	client, server net.Conn
	lost           atomic.Bool // its next answer does not arrive
}

func (p *pair) reset() {
	for _, c := range []net.Conn{p.client, p.server} {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // RST in place of FIN
		}
		_ = c.Close()
	}
}

// newLink starts a proxy to target. It ends with the test.
func newLink(t *testing.T, name, target string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{name: name, target: target, listener: listener, pairs: map[*pair]bool{}}
	l.free = sync.NewCond(&l.mu)
	go l.accept()
	t.Cleanup(func() {
		_ = listener.Close()
		l.set(refusing)
	})
	return l
}

func (l *link) address() string { return l.listener.Addr().String() }

// set begins a fault, or ends it (passing).
func (l *link) set(m mode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mode = m
	if m == passing {
		l.every, l.delay = 0, 0
	}
	if m == refusing {
		for p := range l.pairs {
			p.reset()
		}
	}
	l.free.Broadcast()
}

// breakEvery resets, each time that n bytes have passed, the connection that carried the last
// of them: in the middle of a request or of an answer.
func (l *link) breakEvery(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.every, l.left = n, n
}

// slow delays every piece of an answer.
func (l *link) slow(by time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = by
}

func (l *link) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.serve(client)
	}
}

func (l *link) serve(client net.Conn) {
	if !l.pass(0) {
		_ = client.Close()
		return
	}
	server, err := net.Dial("tcp", l.target)
	if err != nil {
		_ = client.Close()
		return
	}
	p := &pair{client: client, server: server}
	l.mu.Lock()
	l.pairs[p] = true
	l.mu.Unlock()
	defer func() {
		p.reset()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.pairs, p)
	}()
	var ways sync.WaitGroup
	ways.Go(func() { l.copy(p, server, client, holdingRequests) })
	ways.Go(func() { l.copy(p, client, server, holdingAnswers) })
	ways.Wait()
}

// copy carries bytes one way, and waits while a fault holds them.
func (l *link) copy(p *pair, to, from net.Conn, way mode) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			allowed := l.pass(way)
			send := n
			if allowed {
				send = l.spend(n)
			}
			if way == holdingRequests && isCommit(buffer[:n]) {
				switch l.is() {
				case losingCommits:
					p.reset()
					return
				case losingCommitted:
					p.lost.Store(true) // before the answer can come
				}
			}
			if way == holdingAnswers && p.lost.Load() {
				p.reset()
				return
			}
			if !allowed || send < n {
				_, _ = to.Write(buffer[:send])
				p.reset()
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				p.reset()
				return
			}
		}
		if err != nil {
			if err != io.EOF {
				p.reset()
				return
			}
			_ = to.(*net.TCPConn).CloseWrite()
			return
		}
	}
}

// pass waits while the link holds this way back, and reports whether it carries bytes. A new
// connection (0) waits for both ways.
func (l *link) pass(way mode) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.mode == holding || l.mode == holdingRequests && way != holdingAnswers || l.mode == holdingAnswers && way != holdingRequests {
		l.free.Wait()
	}
	if l.delay > 0 && way == holdingAnswers {
		delay := l.delay
		l.mu.Unlock()
		time.Sleep(delay)
		l.mu.Lock()
	}
	return l.mode != refusing
}

func (l *link) is() mode {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mode
}

// spend counts n bytes, and returns how many of them may be sent before the connection
// breaks.
func (l *link) spend(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.every == 0 || n < l.left {
		l.left -= n
		return n
	}
	n, l.left = l.left-1, l.every
	return n
}
