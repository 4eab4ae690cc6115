package inflight

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// buffered is how many bytes of an answer net/http buffers: a write up to here
	// does not wait for the client.
	buffered = 2 << 10
	// chunk is how many bytes a client must read for its wait to begin again.
	chunk = 64 << 10
)

// Write writes in chunks and waits for the client without a slot.
func (r *Request) Write(p []byte) (n int, err error) {
	if r.written += len(p); r.written <= buffered {
		return r.ResponseWriter.Write(p)
	}
	for n < len(p) && err == nil {
		var m int
		part := p[n:min(n+chunk, len(p))]
		r.wait(int64(len(p)), r.cutAnswer, func() { m, err = r.ResponseWriter.Write(part) })
		n += m
	}
	return n, err
}

// ReadFrom sends a file by the kernel, if the connection can. It holds no memory, so
// it is never cut off.
func (r *Request) ReadFrom(src io.Reader) (n int64, err error) {
	r.giveSlot()
	defer r.takeSlot()
	if to, ok := r.ResponseWriter.(io.ReaderFrom); ok {
		return to.ReadFrom(src)
	}
	return io.Copy(struct{ io.Writer }{r.ResponseWriter}, src)
}

// FlushError implements what http.ResponseController looks for.
func (r *Request) FlushError() (err error) {
	r.wait(0, r.cutAnswer, func() { err = http.NewResponseController(r.ResponseWriter).Flush() })
	return err
}

// Flush implements http.Flusher.
func (r *Request) Flush() { _ = r.FlushError() }

// Unwrap implements what http.ResponseController looks for.
func (r *Request) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// cutAnswer makes a pending write fail. Writers without deadlines return an error;
// the server's have them.
func (r *Request) cutAnswer() {
	_ = http.NewResponseController(r.ResponseWriter).SetWriteDeadline(time.Now().Add(-time.Second))
}

// cutBody makes a pending read of the body fail.
func (r *Request) cutBody() {
	_ = http.NewResponseController(r.ResponseWriter).SetReadDeadline(time.Now().Add(-time.Second))
}

// Body returns the request's body, whose reads wait for the client without a slot.
// The handler holds bytes of memory while it reads.
func (r *Request) Body(body io.ReadCloser, bytes int64) io.ReadCloser {
	return &waitingBody{body, r, bytes}
}

type waitingBody struct {
	io.ReadCloser
	request *Request
	bytes   int64
}

func (b *waitingBody) Read(p []byte) (n int, err error) {
	b.request.wait(b.bytes, b.request.cutBody, func() { n, err = b.ReadCloser.Read(p) })
	return n, err
}

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
