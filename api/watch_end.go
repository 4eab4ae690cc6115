package api

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// watchEndGrace is how long a pending write may take after its watch has ended. A
// client that reads needs milliseconds.
const watchEndGrace = 2 * time.Second

// watchEnd interrupts a pending write of a watch that has ended, by its timeout or
// because the server stops. The writing goroutine is blocked while its client does
// not read.
type watchEnd struct {
	mu         sync.Mutex
	controller *http.ResponseController // of the response; nil: the handler has returned; guarded by mu
	set        bool                     // a deadline is set; guarded by mu
}

type watchEndKey struct{}

// withWatchEnd adds a watchEnd for the response to ctx. The handler calls done when
// it returns.
func withWatchEnd(ctx context.Context, w http.ResponseWriter) (_ context.Context, done func()) {
	end := &watchEnd{controller: http.NewResponseController(w)}
	return context.WithValue(ctx, watchEndKey{}, end), end.done
}

// setDeadlineAfter sets a write deadline on the response when ctx ends. ctx descends from the
// context of withWatchEnd. stop cancels this.
func setDeadlineAfter(ctx context.Context) (stop func() bool) {
	end, ok := ctx.Value(watchEndKey{}).(*watchEnd)
	if !ok {
		return func() bool { return false }
	}
	return context.AfterFunc(ctx, end.cut)
}

func (e *watchEnd) cut() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.controller != nil {
		// Writers without deadlines return an error; the server's have them.
		e.set = e.controller.SetWriteDeadline(time.Now().Add(watchEndGrace)) == nil
	}
}

// done removes the deadline: an HTTP/1.1 connection may serve another request.
func (e *watchEnd) done() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.set {
		_ = e.controller.SetWriteDeadline(time.Time{})
	}
	e.controller = nil
}
