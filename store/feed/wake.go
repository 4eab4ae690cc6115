package feed

import (
	"context"
	"time"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/object"
)

// wakeRetry is how long WakeOn waits after a failure.
const wakeRetry = time.Second

// WakeOn calls wake when an object of a kind changes, on any replica, until ctx ends. It is for work
// that is in a queue and polled anyway. Changes that it cannot read, while the database does not
// answer, count as one.
func (f *Feed) WakeOn(ctx context.Context, kind string, wake func()) {
	for ctx.Err() == nil {
		err := f.Follow(ctx, Request{Kind: kind, From: f.Revision()}, func([]*Event) error {
			wake()
			return nil
		})
		if ctx.Err() != nil {
			return
		}
		wake()
		if object.Is(err, object.Expired) {
			continue
		}
		f.opts.Logger.Warn("changes cannot be followed; the next try is in a second", "kind", kind, "error", err)
		task.Sleep(ctx, wakeRetry)
	}
}

// Follow calls handle with the events of a watch, as they come, until the watch or handle fails.
func (f *Feed) Follow(ctx context.Context, r Request, handle func([]*Event) error) error {
	w, err := f.Watch(ctx, r)
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		events, _, err := w.Next(ctx)
		if err == nil && len(events) > 0 {
			err = handle(events)
		}
		if err != nil {
			return err
		}
	}
}
