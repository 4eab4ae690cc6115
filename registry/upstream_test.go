package registry

import (
	"context"
	"runtime"
	"testing"
)

// TestFetchIsAbandoned: a fetch is abandoned when the last client that waits for it has gone, and not before.
func TestFetchIsAbandoned(t *testing.T) {
	t.Parallel()
	var f fetches
	f.ctx, f.end = context.WithCancel(t.Context())
	one := f.begin("a", func(ctx context.Context, _ *fetch) error { <-ctx.Done(); return ctx.Err() })
	gone := func() bool {
		select {
		case <-one.abandoned:
			return true
		default:
			return false
		}
	}
	var leave [2]context.CancelFunc
	left := make(chan error)
	for i := range leave {
		var ctx context.Context
		ctx, leave[i] = context.WithCancel(t.Context())
		waiting := one.clients.Load()
		go func() { _, err := one.wait(ctx, false); left <- err }()
		for one.clients.Load() == waiting {
			runtime.Gosched()
		}
	}
	leave[0]()
	if <-left; gone() {
		t.Error("it is abandoned, and one client waits")
	}
	leave[1]()
	if <-left; !gone() {
		t.Error("it is not abandoned")
	}
	f.end()
	f.all.Wait()
}
