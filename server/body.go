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
	"github.com/exeunt/exeunt/api/record"
	"github.com/exeunt/exeunt/internal/inflight"
)

// bodyLimits limit how long a client may take to send a request's body, over HTTP/1
// and HTTP/2.
type bodyLimits struct {
	total time.Duration // for the whole body
	stall time.Duration // between two reads with data; 0 means no limit
	rate  int64         // total grows by one second per rate bytes received; 0 if it is fixed
}

var (
	// apiBodies: at most 3 MiB in 20 seconds, which needs 1.3 Mbit/s.
	apiBodies = bodyLimits{total: 20 * time.Second}
	// registryBodies have any size and may take as long as they make progress.
	registryBodies = bodyLimits{total: time.Minute, stall: 30 * time.Second, rate: 4 << 10}
)

// drainTimeout is how long the server waits for the rest of a body that the answer does
// not need. If the rest arrives in time, the connection is kept; otherwise it is
// closed.
const drainTimeout = 200 * time.Millisecond

// limitBodies applies limits to the request bodies of a handler.
func limitBodies(limits bodyLimits, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.ContentLength == 0 || req.Body == nil {
			next.ServeHTTP(w, req)
			return
		}
		now := time.Now()
		body := &limitedBody{ReadCloser: req.Body, limits: limits, connection: http.NewResponseController(w), began: now}
		body.extendDeadline(now)
		defer body.abandon()
		// A copy: net/http looks at the Body of the original before it answers. If
		// that is of another type, it waits for a body that the answer does not need,
		// also if the client waits for "100 Continue".
		limited := req.WithContext(req.Context())
		limited.Body = body
		next.ServeHTTP(&bodyResponse{record.Flushing{ResponseWriter: w}, body}, limited)
	})
}

// limitedBody is a body whose reads time out if the client is too slow. It is not safe
// for concurrent use.
type limitedBody struct {
	io.ReadCloser
	limits      bodyLimits
	connection  *http.ResponseController
	began       time.Time
	deadlineSet time.Time // when the deadline was last set
	received    int64
	finished    bool // the body is complete, or the rest is not needed
}

// refreshEvery is the minimum time between two updates of the deadline.
const refreshEvery = time.Second

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.received += int64(n)
	switch now := time.Now(); {
	case b.finished:
	case err == io.EOF:
		b.finished = true
		b.setDeadline(time.Time{}) // otherwise the deadline would end the request
	case n > 0 && b.limits.stall > 0 && now.Sub(b.deadlineSet) > refreshEvery:
		b.extendDeadline(now)
	}
	return n, err
}

// extendDeadline sets the read deadline from the limits and the bytes received.
func (b *limitedBody) extendDeadline(now time.Time) {
	b.deadlineSet = now
	end := b.began.Add(b.limits.total)
	if b.limits.rate > 0 {
		end = end.Add(time.Duration(b.received/b.limits.rate) * time.Second)
	}
	if stall := now.Add(b.limits.stall); b.limits.stall > 0 && stall.Before(end) {
		end = stall
	}
	b.setDeadline(end)
}

// abandon gives the rest of the body drainTimeout to arrive. Without it, net/http would
// wait for the rest before it sends the answer and before it closes the connection.
func (b *limitedBody) abandon() {
	if !b.finished {
		b.finished = true
		b.setDeadline(time.Now().Add(drainTimeout))
	}
}

// setDeadline fails only if the connection is closed; the next read reports that.
func (b *limitedBody) setDeadline(end time.Time) { _ = b.connection.SetReadDeadline(end) }

// bodyResponse is the response to a request with a body. When the response begins,
// the rest of the body is no longer needed.
type bodyResponse struct {
	record.Flushing
	body *limitedBody
}

func (w *bodyResponse) WriteHeader(code int) {
	if code >= http.StatusOK {
		w.body.abandon()
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *bodyResponse) Write(b []byte) (int, error) {
	w.body.abandon()
	return w.ResponseWriter.Write(b)
}

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
