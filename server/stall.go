package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/internal/inflight"
)

// A client that stops reading would block the goroutine that answers it forever. Two
// guards disconnect it when it has read nothing for the stall timeout. A slow client
// that still reads is kept.
//
//   - stallListener gives every write to a connection a deadline: HTTP/1.1 and
//     TLS, and HTTP/2 when the client does not read from the socket.
//   - stallHandler watches the writes to one HTTP/2 stream: the client may read from
//     its connection and never open the stream's flow-control window.

// stallListener accepts connections whose writes have deadlines, and whose clients are
// strangers until they have shown a credential.
type stallListener struct {
	net.Listener
	timeout   time.Duration
	strangers *inflight.Strangers
}

func (l stallListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &stallConn{Conn: conn, timeout: l.timeout, client: l.strangers.Join(conn)}, nil
}

// stallConn gives each write the earlier of two deadlines: that of SetWriteDeadline,
// and timeout from now. After a write has timed out, all others fail immediately, so
// that closing the connection does not wait again.
type stallConn struct {
	net.Conn
	timeout time.Duration
	client  *inflight.Stranger

	mu       sync.Mutex
	explicit time.Time // set by SetWriteDeadline; guarded by mu
	broken   error     // guarded by mu
}

func (c *stallConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.client.Received(n)
	return n, err
}

func (c *stallConn) Close() error {
	c.client.Leave()
	return c.Conn.Close()
}

// connContext is for http.Server.ConnContext.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	return conn.(*stallConn).client.With(access.ConnContext(ctx, conn))
}

func (c *stallConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetWriteDeadline also applies to a pending write.
func (c *stallConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.explicit = t
	return c.Conn.SetWriteDeadline(c.next())
}

// next returns the deadline of the next write. The caller holds c.mu.
func (c *stallConn) next() time.Time {
	deadline := time.Now().Add(c.timeout)
	if !c.explicit.IsZero() && c.explicit.Before(deadline) {
		return c.explicit
	}
	return deadline
}

func (c *stallConn) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return c.broken
	}
	return c.Conn.SetWriteDeadline(c.next())
}

func (c *stallConn) end(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.broken = err
	}
	return err
}

func (c *stallConn) Write(b []byte) (int, error) {
	if err := c.begin(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	return n, c.end(err)
}

// CloseWrite is called by net/http so that a client can read an error response before
// the connection closes.
func (c *stallConn) CloseWrite() error {
	if conn, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return conn.CloseWrite()
	}
	return nil
}

// stallChunk is how many bytes a client of ReadFrom must read within the timeout.
const stallChunk = 256 << 10

// ReadFrom lets the kernel send a file (sendfile), in chunks with a deadline each. This
// works if the source is a file, or an io.LimitedReader of one, which net/http passes.
func (c *stallConn) ReadFrom(r io.Reader) (total int64, err error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok {
		limited = &io.LimitedReader{R: r, N: math.MaxInt64}
	}
	to, ok := c.Conn.(io.ReaderFrom)
	if _, file := limited.R.(*os.File); !file || !ok {
		// The time of a slow source must not count against the client.
		return io.Copy(struct{ io.Writer }{c}, r)
	}
	for limited.N > 0 && err == nil {
		if err := c.begin(); err != nil {
			return total, err
		}
		chunk := &io.LimitedReader{R: limited.R, N: min(limited.N, stallChunk)}
		size := chunk.N
		var n int64
		n, err = to.ReadFrom(chunk)
		total += n
		limited.N -= n
		err = c.end(err)
		if n < size {
			break // end of the source
		}
	}
	return total, err
}

// stallHandler resets HTTP/2 streams whose client reads nothing for the timeout.
func stallHandler(next http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.ProtoMajor < 2 {
			next.ServeHTTP(w, req)
			return
		}
		s := &stallWriter{ResponseWriter: w, controller: http.NewResponseController(w), timeout: timeout}
		next.ServeHTTP(s, req)
		// Buffered data is written after this handler. A stream that ends in time
		// drops the deadline.
		_ = s.controller.SetWriteDeadline(time.Now().Add(timeout))
	})
}

// stallWriter resets its stream when a write or flush takes longer than the timeout. It
// uses a timer, because an HTTP/2 deadline that passes between two writes resets the
// stream too, so it would have to be set and cleared for each write.
type stallWriter struct {
	http.ResponseWriter
	controller *http.ResponseController
	timeout    time.Duration
	timer      *time.Timer // created by the first write

	mu      sync.Mutex
	writing bool // guarded by mu
}

func (s *stallWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *stallWriter) begin() {
	s.mu.Lock()
	s.writing = true
	s.mu.Unlock()
	if s.timer == nil {
		s.timer = time.AfterFunc(s.timeout, s.reset)
		return
	}
	s.timer.Reset(s.timeout)
}

func (s *stallWriter) end() {
	s.timer.Stop()
	s.mu.Lock() // waits for reset: the stream must not be used after its handler returns
	s.writing = false
	s.mu.Unlock()
}

// reset makes the pending write fail.
func (s *stallWriter) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing {
		_ = s.controller.SetWriteDeadline(time.Now().Add(-time.Second))
	}
}

func (s *stallWriter) Write(b []byte) (int, error) {
	s.begin()
	defer s.end()
	return s.ResponseWriter.Write(b)
}

// FlushError implements what http.ResponseController looks for.
func (s *stallWriter) FlushError() error {
	s.begin()
	defer s.end()
	return s.controller.Flush()
}

// Flush implements what the library's watch handler looks for.
func (s *stallWriter) Flush() { _ = s.FlushError() }
