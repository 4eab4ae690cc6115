package api

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/store"
)

// deadlines is a writer that records the deadlines.
type deadlines struct {
	http.ResponseWriter
	mu  sync.Mutex
	set []time.Time // guarded by mu
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.set = append(d.set, t)
	return nil
}

// TestWatchEndsOnce: the write deadline is set when the watch is over, removed when its
// handler returns, and not set after that.
func TestWatchEndsOnce(t *testing.T) {
	for name, late := range map[string]bool{"the watch ends first": false, "the handler returns first": true} {
		t.Run(name, func(t *testing.T) {
			w := &deadlines{}
			ctx, done := withWatchEnd(context.Background(), w)
			end := ctx.Value(watchEndKey{}).(*watchEnd)
			want := 2
			if late {
				done()
				end.cut()
				want = 0
			} else {
				end.cut()
				done()
			}
			if len(w.set) != want {
				t.Fatalf("deadlines %v", w.set)
			}
			if want == 2 && (w.set[0].IsZero() || !w.set[1].IsZero()) {
				t.Errorf("deadlines %v: want one, then none", w.set)
			}
		})
	}
}

// stuck is the response to a client that does not read: writes return when a deadline is set.
type stuck struct {
	http.ResponseWriter
	writing, cut func()
	isCut        <-chan struct{}
}

func (s *stuck) Write([]byte) (int, error) {
	s.writing()
	<-s.isCut
	return 0, os.ErrDeadlineExceeded
}

func (s *stuck) Flush() {}

func (s *stuck) SetWriteDeadline(t time.Time) error {
	if !t.IsZero() {
		s.cut()
	}
	return nil
}

// TestWatchOfAStuckClientEnds: a watch whose client does not read ends when it is over, and not when the client reads.
func TestWatchOfAStuckClientEnds(t *testing.T) {
	eachWatchPath(t, func(t *testing.T, base string) {
		w := newWorld(t, store.Options{})
		w.configMap("a", "")
		over, end := context.WithCancel(t.Context())
		isCut, cut := context.WithCancel(context.Background())
		out := &stuck{httptest.NewRecorder(), end, cut, isCut.Done()}
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			w.api.ServeHTTP(out, known(httptest.NewRequest("GET", base+"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", nil)).WithContext(over))
		}()
		select {
		case <-returned:
		case <-time.After(patience):
			t.Error("the watch is over, and its handler waits for the client")
		}
		cut()
		<-returned
	})
}
