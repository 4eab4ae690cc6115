package server

import (
	"io"
	"net/http"
	"time"
)

// bodyLimits bound how long a client may take to send a request's body. They work
// for HTTP/1 and HTTP/2 alike.
type bodyLimits struct {
	total time.Duration // for all of it; 0: any
	stall time.Duration // without a byte; 0: any
	rate  int64         // bytes a second, on average, that total grows by; 0: it does not
}

var (
	// apiBodies are of at most 3 MiB: that is 1.3 Mbit/s.
	apiBodies = bodyLimits{total: 20 * time.Second}
	// registryBodies may be of any size, and take as long as they make progress.
	registryBodies = bodyLimits{total: time.Minute, stall: 30 * time.Second, rate: 4 << 10}
)

// drainFor is how long the rest of a body is waited for when the answer does not
// need it. A client that has sent all of it keeps its connection; for others it is
// closed.
const drainFor = 200 * time.Millisecond

// boundBodies holds the clients of a handler to limits.
func boundBodies(limits bodyLimits, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.ContentLength == 0 || req.Body == nil {
			next.ServeHTTP(w, req)
			return
		}
		now := time.Now()
		body := &boundBody{ReadCloser: req.Body, limits: limits, connection: http.NewResponseController(w), began: now}
		body.allow(now)
		req.Body = body
		defer body.abandon()
		next.ServeHTTP(&answerToBody{w, body}, req)
	})
}

// boundBody is a body whose reads end with a timeout when the client is too
// slow. It is for one goroutine.
type boundBody struct {
	io.ReadCloser
	limits     bodyLimits
	connection *http.ResponseController
	began      time.Time
	allowed    time.Time // when the deadline was set
	received   int64
	over       bool // all of it has come, or the rest is not wanted
}

// refresh is how often the deadline of a body that makes progress is set again.
const refresh = time.Second

func (b *boundBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.received += int64(n)
	switch now := time.Now(); {
	case b.over:
	case err == io.EOF:
		b.over = true
		b.setDeadline(time.Time{}) // else it would end the request
	case n > 0 && b.limits.stall > 0 && now.Sub(b.allowed) > refresh:
		b.allow(now)
	}
	return n, err
}

// allow sets the deadline.
func (b *boundBody) allow(now time.Time) {
	b.allowed = now
	end := b.began.Add(b.limits.total)
	if b.limits.rate > 0 {
		end = end.Add(time.Duration(b.received/b.limits.rate) * time.Second)
	}
	if stall := now.Add(b.limits.stall); b.limits.stall > 0 && stall.Before(end) {
		end = stall
	}
	b.setDeadline(end)
}

// abandon gives up on what has not come. The server would wait for it, before it
// sends the answer and again before it closes the connection.
func (b *boundBody) abandon() {
	if !b.over {
		b.over = true
		b.setDeadline(time.Now().Add(drainFor))
	}
}

// setDeadline fails only if the connection has gone, which the next read tells.
func (b *boundBody) setDeadline(end time.Time) { _ = b.connection.SetReadDeadline(end) }

// answerToBody is the answer to a request with a body. When it begins, the rest
// of the body is not wanted any more.
type answerToBody struct {
	http.ResponseWriter
	body *boundBody
}

func (w *answerToBody) WriteHeader(code int) {
	if code >= http.StatusOK {
		w.body.abandon()
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *answerToBody) Write(b []byte) (int, error) {
	w.body.abandon()
	return w.ResponseWriter.Write(b)
}

// Flush is what the library's watch handler looks for.
func (w *answerToBody) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

func (w *answerToBody) Unwrap() http.ResponseWriter { return w.ResponseWriter }
