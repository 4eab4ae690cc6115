package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/exeunt/exeunt/internal/task"
)

const (
	// tries is how often a request is sent that gets no answer, or an answer
	// that allows a retry. firstPause is the backoff before the second try; it
	// doubles. The sum is long enough for a restart of the destination.
	tries      = 8
	firstPause = 200 * time.Millisecond
	// expectContinueFrom is the body size from which the client waits for "100 Continue":
	// the destination may have the blob already, or refuse it.
	expectContinueFrom = 64 << 10
)

// errNoAnswer: the destination does not answer, so the import ends.
var errNoAnswer = errors.New("the registry does not answer; run the import again to go on")

// client sends requests, a bounded number in parallel.
type client struct {
	base  string
	http  *http.Client
	slots chan struct{}
	sent  *Count // bytes
	pause time.Duration
}

// request is a request that may be sent several times.
type request struct {
	method, path string
	contentType  string
	header       http.Header
	open         func() (content io.ReadCloser, size int64, err error) // nil means no body
	want         int                                                   // the expected status
}

// response is the result of a successful request.
type response struct {
	header  http.Header
	mounted bool // the destination did not read the body
}

// refusal is an answer with an unexpected status.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return fmt.Sprintf("refused with %d: %s", r.status, r.text) }

// mayRetry reports whether a retry may succeed.
func (r *refusal) mayRetry() bool {
	switch r.status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// ping checks that there is a registry, and that it accepts this client.
func (c *client) ping(ctx context.Context) error {
	_, _, err := c.once(ctx, request{method: http.MethodGet, path: "/v2/", want: http.StatusOK})
	if err != nil {
		return fmt.Errorf("ask the registry at %s: %w", c.base, err)
	}
	return nil
}

// head requests a resource, and returns nil if it does not exist.
func (c *client) head(ctx context.Context, path string) (http.Header, error) {
	got, err := c.do(ctx, request{method: http.MethodHead, path: path, want: http.StatusOK})
	var refused *refusal
	if errors.As(err, &refused) && refused.status == http.StatusNotFound {
		return nil, nil
	}
	return got.header, err
}

// do sends a request until it is answered. Its error is a refusal, an error of
// the body, or errNoAnswer.
func (c *client) do(ctx context.Context, q request) (response, error) {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return response{}, ctx.Err()
	}
	defer func() { <-c.slots }()
	for n, wait := 1, c.pause; ; n, wait = n+1, 2*wait {
		got, again, err := c.once(ctx, q)
		if err == nil || !again || ctx.Err() != nil {
			return got, err
		}
		if n == tries {
			return got, fmt.Errorf("%w: %w", errNoAnswer, err)
		}
		if !task.Sleep(ctx, wait) {
			return got, ctx.Err()
		}
	}
}

// once sends a request once, and reports whether a retry may help.
func (c *client) once(ctx context.Context, q request) (got response, again bool, err error) {
	body := &countedBody{sent: c.sent}
	var size int64
	if q.open != nil {
		if body.content, size, err = q.open(); err != nil {
			return got, false, err
		}
		body.left = size
		defer body.content.Close()
	}
	req, err := c.request(ctx, q, body, size)
	if err != nil {
		return got, false, err
	}
	answer, err := c.http.Do(req)
	if readErr := body.readError(); readErr != nil {
		// The error is the file's, not the network's: a retry does not help.
		if err == nil {
			answer.Body.Close()
		}
		return got, false, readErr
	}
	if err != nil {
		return got, true, err
	}
	defer answer.Body.Close()
	if answer.StatusCode == q.want {
		_, _ = io.Copy(io.Discard, answer.Body) // so that the connection is reused
		return response{answer.Header, size > 0 && body.read() == 0}, false, nil
	}
	refused := &refusal{answer.StatusCode, refusalText(answer)}
	return got, refused.mayRetry(), refused
}

func (c *client) request(ctx context.Context, q request, body *countedBody, size int64) (*http.Request, error) {
	var content io.Reader
	if size > 0 {
		content = body
	}
	req, err := http.NewRequestWithContext(ctx, q.method, c.base+q.path, content)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, q.header)
	req.Header.Set("User-Agent", "exeunt-import")
	req.ContentLength = size
	if q.contentType != "" {
		req.Header.Set("Content-Type", q.contentType)
	}
	if size >= expectContinueFrom {
		req.Header.Set("Expect", "100-continue")
	}
	return req, nil
}

// refusalText returns the text of an answer: the registry's errors with their
// digests, or the beginning of any other body.
func refusalText(answer *http.Response) string {
	const most = 4 << 10
	text, _ := io.ReadAll(io.LimitReader(answer.Body, most)) // a partial text is enough
	var body struct {
		Errors []struct {
			Code, Message string
			Detail        struct{ Digest string }
		}
	}
	if json.Unmarshal(text, &body) != nil || len(body.Errors) == 0 {
		return strings.TrimSpace(http.StatusText(answer.StatusCode) + " " + string(text))
	}
	said := body.Errors[0].Code + ": " + body.Errors[0].Message
	for _, e := range body.Errors {
		if e.Detail.Digest != "" {
			said += " " + e.Detail.Digest
		}
	}
	return said
}

// countedBody is a request body that counts the bytes read from it and records a
// read error. The transport may still read it after the response.
type countedBody struct {
	content io.ReadCloser
	sent    *Count

	mu   sync.Mutex
	n    int64 // bytes read; guarded by mu
	left int64 // bytes left of the announced size; guarded by mu
	err  error // guarded by mu
}

// errShort: a file became shorter while it was sent.
var errShort = errors.New("its file became shorter while it was sent")

// Read is io.Reader.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.content.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n, b.left = b.n+int64(n), b.left-int64(n)
	if err == io.EOF && b.left > 0 {
		err = errShort
	}
	if err != nil && err != io.EOF {
		b.err = err
	}
	b.sent.Add(int64(n))
	return n, err
}

func (b *countedBody) read() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n
}

func (b *countedBody) readError() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}
