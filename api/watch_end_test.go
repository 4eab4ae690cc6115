package api

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"
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
