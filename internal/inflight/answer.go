package inflight

import (
	"fmt"
	"io"
	"net/http"
)

// Answers is the transport of a client of other servers, whose libraries read an answer to
// its end, into memory. It limits an answer to Most bytes, and Times those of its request.
type Answers struct {
	http.RoundTripper
	Most, Times int64
}

// RoundTrip implements http.RoundTripper.
func (a Answers) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := a.RoundTripper.RoundTrip(req)
	if err == nil {
		most := a.Most + a.Times*max(0, req.ContentLength)
		answer.Body = &limitedAnswer{answer.Body, most, most}
	}
	return answer, err
}

// limitedAnswer fails at the limit: an answer that is cut off must not pass for a whole one.
type limitedAnswer struct {
	io.ReadCloser
	left, most int64
}

func (a *limitedAnswer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if a.left -= int64(n); a.left < 0 {
		return 0, fmt.Errorf("the answer is too large: more than %d bytes", a.most)
	}
	return n, err
}
