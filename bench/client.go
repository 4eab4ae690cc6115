package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

const (
	userAgent = "exeunt-bench"
	// requestTimeout bounds every request except watches, so that a server that
	// hangs shows up as errors.
	requestTimeout = time.Minute
)

// Headers are shared by all requests: the transport does not change them, and a
// set user agent saves a copy per request.
var (
	plainHeader = http.Header{"Accept": {"application/json"}, "User-Agent": {userAgent}}
	writeHeader = http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}, "User-Agent": {userAgent}}
	mergeHeader = http.Header{"Accept": {"application/json"}, "Content-Type": {"application/merge-patch+json"}, "User-Agent": {userAgent}}
	gzipHeader  = http.Header{"Accept": {"application/json"}, "Accept-Encoding": {"gzip"}, "User-Agent": {userAgent}}
)

// pool is a set of connections to one server. It is safe for concurrent use.
type pool struct {
	base  *url.URL
	trips []http.RoundTripper
}

// openPool prepares n connections; each is opened on first use.
func openPool(config *rest.Config, n int) (*pool, error) {
	config = rest.CopyConfig(config)
	// Compression is part of the measurement: only explicit requests get it.
	config.DisableCompression = true
	config.UserAgent = userAgent
	config.GroupVersion, config.APIPath = nil, ""
	if config.Dial == nil {
		// client-go shares one transport, and so one HTTP/2 connection, per
		// configuration; an own dialer makes each configuration unique.
		config.Dial = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("server address: %w", err)
	}
	p := &pool{base: base}
	for range n {
		trip, err := rest.TransportFor(config)
		if err != nil {
			return nil, fmt.Errorf("prepare connection to %s: %w", base, err)
		}
		p.trips = append(p.trips, trip)
	}
	return p, nil
}

// close closes the idle connections.
func (p *pool) close() {
	for _, trip := range p.trips {
		utilnet.CloseIdleConnectionsFor(trip)
	}
}

// client returns a client; clients are spread over the pool's connections.
func (p *pool) client(worker int) client {
	return client{base: p.base, trip: p.trips[worker%len(p.trips)]}
}

// connect opens every connection now, so that no workload pays for handshakes.
func (p *pool) connect(ctx context.Context) error {
	for i := range p.trips {
		if _, err := p.client(i).get(ctx, "/version", ""); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
	}
	return nil
}

// client is one worker's connection to the server.
type client struct {
	base *url.URL
	trip http.RoundTripper
}

// send sends a request and returns the response, whose body must be closed. Any
// status but 2xx is a *statusError.
func (c client) send(ctx context.Context, method, path, query string, header http.Header, body *payload) (*http.Response, error) {
	target := *c.base
	target.Path = strings.TrimSuffix(target.Path, "/") + path
	target.RawQuery = query
	req := (&http.Request{
		Method: method, URL: &target, Host: target.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if body != nil {
		req.ContentLength = body.size()
		req.Body = body.reader()
		req.GetBody = func() (io.ReadCloser, error) { return body.reader(), nil }
	}
	answer, err := c.trip.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if answer.StatusCode/100 == 2 {
		return answer, nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 600))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %s: %w", method, path, answer.Status, err)
	}
	return nil, &statusError{method: method, path: path, code: answer.StatusCode, text: string(bytes.TrimSpace(text))}
}

// discard sends a request and reads the response to its end. It returns the
// number of bytes in the response's body.
func (c client) discard(ctx context.Context, method, path, query string, header http.Header, body *payload) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := c.send(ctx, method, path, query, header, body)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, answer.Body)
	if closeErr := answer.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return n, fmt.Errorf("%s %s: read answer: %w", method, path, err)
	}
	return n, nil
}

// get reads a small response.
func (c client) get(ctx context.Context, path, query string) ([]byte, error) {
	return c.read(ctx, http.MethodGet, path, query, plainHeader, nil)
}

// read sends a request and returns the response's body.
func (c client) read(ctx context.Context, method, path, query string, header http.Header, body *payload) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := c.send(ctx, method, path, query, header, body)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: read answer: %w", method, path, err)
	}
	return data, nil
}

// statusError is a response whose status is not 2xx.
type statusError struct {
	method, path string
	code         int
	text         string // the beginning of the body
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s %s: %d %s: %s", e.method, e.path, e.code, http.StatusText(e.code), e.text)
}

// payload is a request body in pieces. The pieces never change, so requests
// share them without copying, and a body can be sent again.
type payload struct {
	pieces [5]string
}

func (p *payload) size() int64 {
	n := 0
	for _, piece := range p.pieces {
		n += len(piece)
	}
	return int64(n)
}

func (p *payload) reader() io.ReadCloser {
	return &payloadReader{pieces: p.pieces}
}

type payloadReader struct {
	pieces [5]string
	next   int // index of the next piece
}

func (r *payloadReader) Read(dst []byte) (int, error) {
	n := 0
	for r.next < len(r.pieces) {
		piece := r.pieces[r.next]
		copied := copy(dst[n:], piece)
		n += copied
		if copied < len(piece) {
			r.pieces[r.next] = piece[copied:]
			return n, nil
		}
		r.next++
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (r *payloadReader) Close() error { return nil }
