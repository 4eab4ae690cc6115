package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// tries is how often a request is made that is not answered, or answered
	// with "later"; firstPause is before the second, and doubles: together
	// enough for the destination to start again.
	tries      = 8
	firstPause = 200 * time.Millisecond
	// askFirst is the size from which a body waits until the destination wants
	// it: it may have the blob already, or refuse it.
	askFirst = 64 << 10
)

// errNoAnswer: the destination could not be asked. Nothing else can be, either.
var errNoAnswer = errors.New("the registry does not answer; run the import again to go on")

// client makes requests, a bounded number at a time.
type client struct {
	base  string
	http  *http.Client
	slots chan struct{}
	sent  *Count // bytes
	pause time.Duration
}

// request is one that may be made several times.
type request struct {
	method, path string
	contentType  string
	open         func() (content io.ReadCloser, size int64, err error) // nil: no body
	want         int                                                   // the status of success
}

// response is what is to be known of a success.
type response struct {
	header  http.Header
	mounted bool // there was a body, and it was not asked for
}

// refusal is an answer that is not the one that was wanted.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return fmt.Sprintf("refused with %d: %s", r.status, r.text) }

// later says whether the same request may succeed in a moment.
func (r *refusal) later() bool {
	switch r.status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// ping makes sure that there is a registry, and that it takes us.
func (c *client) ping(ctx context.Context) error {
	_, _, err := c.once(ctx, request{method: http.MethodGet, path: "/v2/", want: http.StatusOK})
	if err != nil {
		return fmt.Errorf("ask the registry at %s: %w", c.base, err)
	}
	return nil
}

// head asks for something, and returns nil if it is not there.
func (c *client) head(ctx context.Context, path string) (http.Header, error) {
	got, err := c.do(ctx, request{method: http.MethodHead, path: path, want: http.StatusOK})
	var refused *refusal
	if errors.As(err, &refused) && refused.status == http.StatusNotFound {
		return nil, nil
	}
	return got.header, err
}

// do makes a request until it is answered. An error is the answer, what is wrong
// with the body, or errNoAnswer.
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
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return got, ctx.Err()
		}
	}
}

// once makes a request once, and says whether it is worth another try.
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
	if broken := body.broken(); broken != nil {
		// The file, not the network: it will be no better the next time.
		if err == nil {
			answer.Body.Close()
		}
		return got, false, broken
	}
	if err != nil {
		return got, true, err
	}
	defer answer.Body.Close()
	if answer.StatusCode == q.want {
		_, _ = io.Copy(io.Discard, answer.Body) // so that the connection is used again
		return response{answer.Header, size > 0 && body.read() == 0}, false, nil
	}
	refused := &refusal{answer.StatusCode, refusalText(answer)}
	return got, refused.later(), refused
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
	req.Header.Set("User-Agent", "exeunt-import")
	req.ContentLength = size
	if q.contentType != "" {
		req.Header.Set("Content-Type", q.contentType)
	}
	if size >= askFirst {
		req.Header.Set("Expect", "100-continue")
	}
	return req, nil
}

// refusalText is what an answer says: the registry's errors, with the digests
// that they are about, or the beginning of anything else.
func refusalText(answer *http.Response) string {
	const most = 4 << 10
	text, _ := io.ReadAll(io.LimitReader(answer.Body, most)) // what is missing is for nobody to read
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
