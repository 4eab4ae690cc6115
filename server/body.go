package server

import (
	"io"
	"net/http"
	"time"
)

// bodyLimits limit how long a client may take to send a request's body, over HTTP/1
// and HTTP/2.
type bodyLimits struct {
	total time.Duration // for the whole body
	stall time.Duration // between two reads with data; 0: no limit
	rate  int64         // total grows by one second per rate bytes received; 0: it is fixed
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
		next.ServeHTTP(&bodyResponse{w, body}, limited)
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
	http.ResponseWriter
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

// Flush implements what the library's watch handler looks for.
func (w *bodyResponse) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

func (w *bodyResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }
