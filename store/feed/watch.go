package feed

import (
	"context"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/object"
)

// watchEvents is how many events one Next returns at most.
const watchEvents = 256

// progressEvery is how often Next returns without events while the feed moves
// without events for this watcher. A watcher looks less often, up to progressMost,
// while the feed does not move.
const (
	progressEvery = time.Second
	progressMost  = 8 * time.Second
)

// Request says which changes a watcher wants: those after revision From.
// Empty Namespace or Name: all.
type Request struct {
	Kind, Namespace, Name string
	From                  int64
	// Slow says that the work for an event takes long. Other watchers do not wait for it.
	Slow bool
}

func (r *Request) matches(k *object.Key) bool {
	return (r.Namespace == "" || r.Namespace == k.Namespace) && (r.Name == "" || r.Name == k.Name)
}

// Watcher delivers changes in revision order, each exactly once. It is for one
// goroutine.
type Watcher struct {
	feed     *Feed
	topic    *topic
	request  Request
	pos      int64 // every matching change up to here was delivered
	reported int64 // the upTo that Next returned last
	returned time.Time
	current  bool // pos was the newest revision: Next waits
	closed   bool

	// See deliver.go. The lane's mu guards index, awake and place while the watcher waits.
	ready     chan struct{} // capacity 1; a value wakes the watcher
	lane      int           // prompt or slow
	index     int           // among the waiters
	awake     bool          // it was given a place, and has not finished
	place     int           // the epoch of that
	woken     time.Time     // when it began to use it
	slowUntil time.Time
}

// Watch begins a watch. Error: Expired when From has been compacted. If From is in
// the future, the watch waits for it.
func (f *Feed) Watch(ctx context.Context, r Request) (*Watcher, error) {
	if r.Kind == "" || r.From < 0 {
		return nil, object.BadRequestf("watch of kind %q from version %d makes no sense", r.Kind, r.From)
	}
	w := &Watcher{feed: f, topic: f.topic(r.Kind), request: r, pos: r.From, reported: r.From, returned: time.Now(), ready: make(chan struct{}, 1)}
	if r.From >= f.Revision() {
		return w, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	compacted, err := f.opts.Compacted(ctx)
	if err != nil {
		return nil, err
	}
	if r.From < compacted {
		return nil, Expired(r.From, compacted)
	}
	return w, nil
}

// Next waits for changes and returns some of them. Every change up to revision
// upTo has been delivered. If only other changes happen, Next returns no events
// and a newer upTo, about once a second. Errors: Expired when compaction has
// passed the watcher; ctx's.
func (w *Watcher) Next(ctx context.Context) (events []*Event, upTo int64, err error) {
	w.finish()
	if w.closed {
		return nil, w.pos, ErrClosed
	}
	for {
		if w.current {
			if err := w.wait(ctx); err != nil {
				return nil, w.pos, err
			}
		}
		c := w.feed.collect(w.topic, &w.request, w.pos, watchEvents)
		if c.Behind {
			w.finish()
			c.Events, c.UpTo, err = w.readLog(ctx, c.UpTo)
			if err != nil {
				return nil, w.pos, err
			}
		}
		events, upTo, err := readable(c.Events, c.UpTo)
		if err != nil {
			return nil, w.pos, err
		}
		w.pos, w.current = upTo, !c.Behind && upTo == c.UpTo && len(events) < watchEvents
		if len(events) > 0 || w.pos > w.reported && time.Since(w.returned) >= progressEvery {
			w.reported, w.returned = w.pos, time.Now()
			return events, w.pos, nil
		}
		w.finish()
	}
}

// readable returns the events before the first one whose body could not be
// unsealed, or the error if that is the first event.
func readable(events []*Event, upTo int64) ([]*Event, int64, error) {
	for i, e := range events {
		if e.Unreadable == nil {
			continue
		}
		if i == 0 {
			return nil, 0, fmt.Errorf("watch %s: %w", e.Object.Key, e.Unreadable)
		}
		return events[:i], events[i-1].Object.Revision, nil
	}
	return events, upTo, nil
}

// wait returns when there may be events for the watcher, or progress to report.
func (w *Watcher) wait(ctx context.Context) error {
	w.current = false
	if !w.join() {
		return nil
	}
	every := progressEvery
	timer := time.NewTimer(max(time.Until(w.returned.Add(every)), 0))
	defer timer.Stop()
	for {
		select {
		case <-w.ready:
			w.woken = time.Now()
			return nil
		case <-timer.C:
			if w.feed.Revision() > w.reported {
				w.leave()
				return nil
			}
			every = min(2*every, progressMost)
			timer.Reset(every)
		case <-ctx.Done():
			w.leave()
			w.finish()
			return ctx.Err()
		case <-w.feed.opts.Closed:
			w.leave()
			w.finish()
			return ErrClosed
		}
	}
}

// readLog reads the log for a watcher that is behind the feed. It checks the
// compacted revision after the read: if compaction has not passed the watcher by
// then, the read was complete.
func (w *Watcher) readLog(ctx context.Context, to int64) ([]*Event, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	events, upTo, err := w.feed.opts.ReadLog(ctx, &w.request, w.pos, to)
	if err != nil {
		return nil, 0, err
	}
	compacted, err := w.feed.opts.Compacted(ctx)
	if err != nil {
		return nil, 0, err
	}
	if w.pos < compacted {
		return nil, 0, Expired(w.pos, compacted)
	}
	return events, upTo, nil
}

// Close ends the watch. Next must not be running.
func (w *Watcher) Close() {
	w.finish()
	w.closed = true
}

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
