package importer

import (
	"errors"
	"io"
	"sync"
)

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
