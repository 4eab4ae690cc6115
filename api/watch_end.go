package api

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// watchEndGrace is how long a write that runs when a watch is over may still
// take. A client that reads needs milliseconds.
const watchEndGrace = 2 * time.Second

// watchEnd cuts off the write of a watch that is over: by its timeout, or because
// the server stops. The goroutine that writes cannot see that while its client
// does not read.
type watchEnd struct {
	mu         sync.Mutex
	controller *http.ResponseController // of the answer; nil: its handler has returned; guarded by mu
	set        bool                     // a deadline is set; guarded by mu
}

type watchEndKey struct{}

// withWatchEnd is for the answer to a watch. done is called when its handler
// returns.
func withWatchEnd(ctx context.Context, w http.ResponseWriter) (_ context.Context, done func()) {
	end := &watchEnd{controller: http.NewResponseController(w)}
	return context.WithValue(ctx, watchEndKey{}, end), end.done
}

// cutWith sets a deadline for the answer's writes when ctx, which the request's
// context is a parent of, ends. stop calls that off.
func cutWith(ctx context.Context) (stop func() bool) {
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
		// Not every writer has deadlines; those of the server do.
		e.set = e.controller.SetWriteDeadline(time.Now().Add(watchEndGrace)) == nil
	}
}

// done drops the deadline: an HTTP/1.1 connection may serve another request.
func (e *watchEnd) done() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.set {
		_ = e.controller.SetWriteDeadline(time.Time{})
	}
	e.controller = nil
}
