package accesstest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// Caller sends requests to a handler, without a network.
type Caller struct {
	testing.TB
	http.Handler
}

// Reply is an answer with its body read.
type Reply struct {
	Code   int
	Header http.Header
	Body   string
}

// Get returns a field of a JSON body as text.
func (r Reply) Get(path string) string { return gjson.Get(r.Body, path).String() }

// Request is a request without a client. A body is JSON, and that of a PATCH a merge patch, unless
// the headers, given as "Name: value", say something else.
func Request(method, path, body string, headers ...string) *http.Request {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Header.Set("User-Agent", "tester/1.0")
	switch {
	case method == http.MethodPatch:
		req.Header.Set("Content-Type", "application/merge-patch+json")
	case body != "":
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	return req
}

// Do returns the answer to a request.
func (c Caller) Do(req *http.Request) Reply {
	recorder := httptest.NewRecorder()
	c.ServeHTTP(recorder, req)
	return Reply{recorder.Code, recorder.Header(), recorder.Body.String()}
}

// Send sends a request of an administrator.
func (c Caller) Send(method, path, body string, headers ...string) Reply {
	return c.Do(Admin(Request(method, path, body, headers...)))
}

// Want is Send for a request whose status code is known.
func (c Caller) Want(code int, method, path, body string, headers ...string) Reply {
	c.Helper()
	r := c.Send(method, path, body, headers...)
	if r.Code != code {
		c.Fatalf("%s %s answered %d, want %d: %s", method, path, r.Code, code, r.Body)
	}
	return r
}
