package registry

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
)

const (
	// liveFrom is the size of a blob that is sent to clients while it is fetched. They wait for smaller ones.
	liveFrom = 1 << 20
	// liveWindow is how many bytes of a fetch are in memory, or up to twice as many. A client that is further behind goes on when the blob is stored.
	liveWindow = 2 << 20
)

// live is the bytes of a blob that is being fetched. Any number of clients may follow them. None holds up the fetch, or another one.
type live struct {
	begun chan struct{} // closed when size is set

	mu     sync.Mutex
	size   int64
	end    int64         // how many bytes came; guarded by mu, as what follows
	window []byte        // the last ones
	more   chan struct{} // closed when more bytes come; nil if nobody waits
}

// begin lets clients follow.
func (l *live) begin(size int64) {
	l.size = size
	close(l.begun)
}

// Write takes further bytes. It never fails and never waits.
func (l *live) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.window = append(l.window, p...); len(l.window) > 2*liveWindow {
		l.window = l.window[:copy(l.window, l.window[len(l.window)-liveWindow:])]
	}
	l.end += int64(len(p))
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
	return len(p), nil
}

// read copies bytes from an offset on. The last byte of the blob is not among them: so no client has all of it before it is verified. If
// there is nothing to copy, it returns a channel that is closed when there may be, and nil for a client that is too far behind.
func (l *live) read(p []byte, offset int64) (n int, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, end := l.end-int64(len(l.window)), min(l.end, l.size-1)
	switch {
	case offset < first:
		return 0, nil
	case offset < end:
		return copy(p, l.window[offset-first:end-first]), nil
	}
	if l.more == nil {
		l.more = make(chan struct{})
	}
	return 0, l.more
}

// serveLive answers with a blob that is being fetched, and sends the rest when it is stored. If that fails, it breaks off the answer, of
// which at least the last byte is missing then.
func (r *Registry) serveLive(w http.ResponseWriter, req *http.Request, to Request, one *fetch) error {
	h := w.Header()
	h.Set("Docker-Content-Digest", to.Digest.String())
	h.Set("Content-Type", "application/octet-stream")
	h.Set("ETag", etag(to.Digest))
	h.Set("Cache-Control", "max-age=31536000, immutable")
	h.Set("Content-Length", strconv.FormatInt(one.live.size, 10))
	sent, err := one.follow(req.Context(), w)
	if err == nil {
		err = r.sendRest(w, req, to, sent)
	}
	switch {
	case err == nil:
		return nil
	case req.Context().Err() == nil:
		r.log.Warn("registry cache: broke off a blob", "repository", to.Repository, "digest", to.Digest.String(), "sent", sent, "error", err)
	}
	panic(http.ErrAbortHandler) // the client must notice
}

// follow sends bytes as they come, until the fetch has ended.
func (one *fetch) follow(ctx context.Context, w http.ResponseWriter) (sent int64, err error) {
	buffer, flush := make([]byte, 64<<10), http.NewResponseController(w)
	for {
		n, more := one.live.read(buffer, sent)
		if n > 0 {
			n, err = w.Write(buffer[:n])
			if sent += int64(n); err != nil {
				return sent, err
			}
			continue
		}
		_ = flush.Flush() // a writer that cannot flush sends its bytes later
		select {
		case <-more:
		case <-one.done:
			return sent, one.err
		case <-ctx.Done():
			return sent, ctx.Err()
		}
	}
}

// sendRest sends the bytes of a stored blob from an offset on.
func (r *Registry) sendRest(w http.ResponseWriter, req *http.Request, to Request, from int64) error {
	b, found, err := r.findBlob(req.Context(), to)
	if err == nil && !found {
		err = fmt.Errorf("it has gone again")
	}
	if err != nil {
		return err
	}
	content, err := r.content(req, to, b)
	if err != nil {
		return err
	}
	defer content.Close()
	if _, err := content.Seek(from, io.SeekStart); err != nil {
		return err
	}
	_, err = io.Copy(w, content)
	return err
}
