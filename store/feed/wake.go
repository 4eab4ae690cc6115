package feed

import (
	"context"
	"time"

	"github.com/exeunt/exeunt/object"
)

// wakeRetry is how long WakeOn waits after a failure.
const wakeRetry = time.Second

// WakeOn calls wake when an object of a kind changes, on any replica, until ctx ends. It is for work
// that is in a queue and polled anyway. Changes that it cannot read, while the database does not
// answer, count as one.
func (f *Feed) WakeOn(ctx context.Context, kind string, wake func()) {
	for ctx.Err() == nil {
		err := f.wakeUntilFailure(ctx, kind, wake)
		if ctx.Err() != nil {
			return
		}
		wake()
		if object.Is(err, object.Expired) {
			continue
		}
		f.opts.Logger.Warn("changes cannot be followed; the next try is in a second", "kind", kind, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(wakeRetry):
		}
	}
}

func (f *Feed) wakeUntilFailure(ctx context.Context, kind string, wake func()) error {
	w, err := f.Watch(ctx, Request{Kind: kind, From: f.Revision()})
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		events, _, err := w.Next(ctx)
		if err != nil {
			return err
		}
		if len(events) > 0 {
			wake()
		}
	}
}
