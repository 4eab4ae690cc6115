package importer

import (
	"errors"
	"io"
	"sync"
)

// countedBody is a body that says how much of it was read, and whether reading
// failed. The transport may read it until after the answer.
type countedBody struct {
	content io.ReadCloser
	sent    *Count

	mu   sync.Mutex
	n    int64 // guarded by mu
	left int64 // of the size that was announced; guarded by mu
	err  error // guarded by mu
}

// errShort: a file became shorter while it was sent.
var errShort = errors.New("its file became shorter while it was sent")

// Read reads on.
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

func (b *countedBody) broken() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}
